"""Recorded answers: they are of the examples as these are now, and the page says that they are recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from tests.support.tokenizers import letter_tokenizer
from tools.record import record_answers
from viz.page.answers.recorded_answers import fingerprint, first_shown, recorded_answers, write_answers
from viz.page.answers.recordings import lesson_recording
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.method_boxes import DEFAULT_METHODS

EXAMPLES = load_examples()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_was_recorded_as_it_is_now(example: FormExample) -> None:
    recorded = recorded_answers()[example.name]
    assert recorded.asked == fingerprint(example), "an example was changed: run `make record`"
    assert [answer.method for answer in recorded.answers] == DEFAULT_METHODS


def test_the_pictures_are_of_the_answers_on_the_cards() -> None:
    recording = lesson_recording()
    assert recording.example == EXAMPLES[0].name
    cards = first_shown(EXAMPLES[0], DEFAULT_METHODS).cards
    assert {card.method: card.text for card in cards} == {
        method: recording.run.result.answers[method].text for method in DEFAULT_METHODS
    }


def test_what_is_recorded_is_read_back(tiny_llama: Callable[..., Any], tmp_path: Path) -> None:
    engine = Engine(tiny_llama(max_context_length=2048), letter_tokenizer(), name="tiny", revision="r7")
    recorded = record_answers(engine, EXAMPLES[0])
    assert recorded.recorded == "Precomputed with tiny (float32, r7)"
    assert {answer.num_tokens for answer in recorded.answers} == {24}
    file = tmp_path / "answers.json"
    write_answers({"Keys": recorded}, file)
    assert recorded_answers(file) == {"Keys": recorded}


@pytest.mark.parametrize(
    "changed", [{"question": "Who?"}, {"documents": EXAMPLES[0].documents[1:]}, {"name": "Another"}]
)
def test_another_question_has_cards_that_wait(changed: dict[str, Any]) -> None:
    shown = first_shown(EXAMPLES[0].model_copy(update=changed), DEFAULT_METHODS)
    assert not shown.recorded
    assert {card.state for card in shown.cards} == {"waiting"}
