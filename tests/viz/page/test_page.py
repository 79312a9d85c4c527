"""The page without a browser: its callbacks are ordinary functions."""

from dataclasses import replace

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.prompts.tasks import TASKS
from tests.support.runs import THREE, form_of, swapped
from viz.cards.answers import AnswerCard
from viz.page.answers.answering import stopped_cards
from viz.page.form.checks import form_layout
from viz.page.form.documents import Entry
from viz.page.form.form import Form, count_tokens, shown_instruction


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (form_of((), task="judge"), "No answers to compare"),
        (form_of((Entry(0, "", "x"), Entry(1, "t", " ")), task="judge"), "Answer of assistant B is empty"),
        (form_of(question=" ", task="kv_retrieval"), "No key"),
        (form_of(methods=()), "No method selected"),
    ],
)
def test_incomplete_form_names_the_missing_part(broken: Form, sentence: str, engine: Engine) -> None:
    with pytest.raises(InputError) as caught:
        form_layout(broken, engine)
    assert sentence in str(caught.value)


def test_tokens_of_an_incomplete_form_are_counted(engine: Engine) -> None:
    whole = count_tokens(form_of(), engine)
    layout = form_layout(form_of(), engine)
    assert whole.documents == tuple(layout.lengths.tolist()) and whole.total == layout.num_tokens
    partly = count_tokens(form_of((THREE[0], Entry(1), THREE[2])), engine)
    assert partly.documents == (whole.documents[0], None, whole.documents[2])
    counted = whole.documents[1]
    assert whole.total is not None and counted is not None and partly.total == whole.total - counted
    moved = count_tokens(form_of(swapped(THREE, 0)), engine)
    assert moved.documents == (whole.documents[1], whole.documents[0], whole.documents[2])
    nothing = count_tokens(form_of((Entry(0),)), engine)
    assert nothing.documents == (None,)
    assert nothing.total == layout.prefix_length + layout.suffix_length


def test_instruction_follows_task_unless_changed() -> None:
    usual = shown_instruction(TASKS["math_reasoning"], "")
    assert usual.startswith("Solve this math problem")
    assert shown_instruction(TASKS["retrieval_qa"], usual).startswith("Write a high-quality")
    assert shown_instruction(TASKS["retrieval_qa"], "Mine.") == "Mine."
    assert "three AI assistants" in shown_instruction(TASKS["judge"].sized(3), TASKS["judge"].instruction)


def test_stop_keeps_partial_answers() -> None:
    waiting = (AnswerCard("vanilla"), AnswerCard("pine"))
    cards = (replace(waiting[0], state="finished", text="a"), replace(waiting[1], state="writing", text="b"))
    assert [(card.state, card.text) for card in stopped_cards(cards)] == [("finished", "a"), ("stopped", "b")]
