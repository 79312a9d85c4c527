"""Answers of a model that thinks, on the page: arguments of the chat template, cards and scores."""

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from pine_engine import Engine, InputError
from pine_engine.prompts.chat_templates import CLOCK
from tests.support.running import views_of
from tests.support.scripted import thinking_model
from tests.support.tokenizers import DATED
from tests.support.viz_reading import read_html
from viz.page.answers.answering import prepare_answers, shown_html
from viz.page.answers.order_table import order_table_json
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.shuffle_job import prepare_shuffle

FORM = Form("retrieval_qa", "Who?", "", ("pine",), 16, entries_from([("", "Ana"), ("", "Dario")]))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(*thinking_model("to Ds</think>Ana"))


def last(engine: Engine, form: Form) -> Any:
    *_, view = views_of(prepare_answers, engine, form)
    return view


def test_answer_is_scored_after_its_thinking(engine: Engine) -> None:
    view = last(engine, FORM)
    (card,) = view.cards
    assert (card.thinking, card.text, card.is_finished) == ("to Ds", "Ana", True)
    shown = read_html(shown_html(view, ["Ana"])).text
    assert "correct" in shown and "incorrect" not in shown
    assert "incorrect" in read_html(shown_html(view, ["Ds"])).text


def test_unfinished_answer_has_no_text(engine: Engine) -> None:
    view = last(engine, replace(FORM, max_new_tokens=3))
    (card,) = view.cards
    assert (card.thinking, card.text, card.is_finished) == ("to", "", False)
    assert view.has_text, "the thinking part is shown"
    (method,) = json.loads(order_table_json(view, ["Ana"]))["methods"]
    (answer,) = method["answers"]
    assert (answer["is_done"], answer["is_correct"]) == (True, False)


def test_template_arguments_are_part_of_the_prompt(engine: Engine) -> None:
    off = replace(FORM, chat_template_kwargs='{"enable_thinking": false}')
    prompts = [last(engine, form).run.prompt_tokens for form in (off, FORM)]
    assert [tokens[-3:-2] == ("</think>",) for tokens in prompts] == [True, False]


@pytest.mark.parametrize("text", ["{", "[1]", '{"enable": true}'])
def test_wrong_template_arguments_raise(engine: Engine, text: str) -> None:
    with pytest.raises(InputError, match="chat_template_kwargs|chat template"):
        last(engine, replace(FORM, chat_template_kwargs=text))


def test_certificate_has_the_date_of_the_prompt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.tokenizer, "chat_template", DATED)
    view: Any
    *_, view = views_of(prepare_shuffle, engine, FORM, count=2, seed=0, controls=False)
    assert view.run.certificate.request.chat_template_kwargs == {CLOCK: date.today().isoformat()}
    assert view.run.form == FORM
