"""Recorded answers: read back as written, and of the examples as these are now."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from tests.support.tokenizers import letter_tokenizer
from tools.record import run_example
from viz.page.answers.order_table import order_table_json
from viz.page.answers.recordings import (
    MAX_NEW_TOKENS,
    is_current,
    recorded_answers,
    recorded_of,
    write_answers,
)
from viz.page.answers.shared import record_of_run, shown_of
from viz.page.form.examples import load_examples
from viz.page.form.options import DEFAULT_METHODS

EXAMPLES = load_examples()


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=2048), letter_tokenizer(), name="tiny", revision="r7")


def test_recorded_answers_are_of_the_current_examples() -> None:
    for example in EXAMPLES:
        recorded = recorded_answers()[example.name]
        assert is_current(recorded, example), "an example was changed: run `make record`"
        assert recorded.orders and recorded.source == "recorded"
        assert recorded.max_new_tokens == MAX_NEW_TOKENS, "the page states this maximum"
        assert [answer.method for answer in recorded.answers] == DEFAULT_METHODS


def test_recorded_answers_are_read_back(engine: Engine, tmp_path: Path) -> None:
    recorded = record_of_run(run_example(engine, EXAMPLES[0]))
    assert recorded.origin == "Precomputed with tiny (float32, r7)" and recorded.orders
    assert {answer.num_tokens for answer in recorded.answers} == {MAX_NEW_TOKENS}
    file = tmp_path / "answers.json"
    write_answers({"Keys": recorded}, file)
    assert recorded_answers(file) == {"Keys": recorded}


@pytest.mark.parametrize(
    "changed",
    [
        {"question": "Who?"},
        {"documents": EXAMPLES[0].documents[1:]},
        {"instruction": "Be brief."},
        {"instruction": ""},  # that of the task, which is not the example's
    ],
)
def test_changed_example_has_waiting_cards(changed: dict[str, Any]) -> None:
    shown = recorded_of(EXAMPLES[0].model_copy(update=changed).form(DEFAULT_METHODS))
    assert not shown.recorded and shown.inputs is None
    assert {card.state for card in shown.cards} == {"waiting"}


@pytest.mark.parametrize("name", sorted(recorded_answers()))
def test_sources_contain_their_words_and_are_needed(name: str) -> None:
    """Checked by substrings: the document has the words, the answer without it lacks them."""
    record = recorded_answers()[name]
    shown = shown_of(record)
    entries = sorted(record.documents, key=lambda one: one.letter)
    texts = [f"{entry.title} {entry.text}".casefold() for entry in entries]
    for method in json.loads(order_table_json(shown))["methods"]:
        for cell in method["answers"]:
            for source in cell["sources"]:
                words = cell["text"][source["start"] : source["stop"]].casefold()
                without = cell["without"][source["document"]].casefold()
                assert all(word in texts[source["document"]] for word in words.split()), (words, source)
                assert not all(word in without for word in words.split()), (words, without)
