"""Answer cards: status, measurements, and the parsed answer."""

from typing import Any

import pytest

from tests.support.viz_reading import read_html
from viz.cards.answers import AnswerCard, AnswerState, Reading, answer_grid


def card(state: AnswerState = "waiting", **changes: Any) -> AnswerCard:
    values: dict[str, Any] = {"is_order_invariant": True, "state": state, **changes}
    return AnswerCard("pine", "PINE", "Documents see each other.", **values)


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        (card(), "Queued"),
        (card("reading", layers_done=3, num_layers=30), "Prefill: layer 3 of 30"),
        (card("reading"), "Prefill"),
        (card("writing", text="Par"), "Generating"),
        (card("finished", finish_reason="stop"), "Done"),
        (card("finished", finish_reason="length"), "Stopped at the token limit"),
        (card("failed", message="Shorten a document."), "Failed"),
    ],
)
def test_status_is_the_progress(shown: AnswerCard, status: str) -> None:
    root = read_html(answer_grid([shown]))
    (line,) = root.with_class("pine-status")
    assert (line.text, line.attributes["aria-live"]) == (status, "polite")
    busy = "true" if shown.state in ("reading", "writing") else "false"
    assert root.all("article")[0].attributes["aria-busy"] == busy
    layers = [(bar.attributes["value"], bar.attributes["max"]) for bar in root.all("progress")]
    assert layers == ([("3", "30")] if shown.layers_done else [])
    assert [error.text for error in root.with_class("pine-error")] == [shown.message] * (status == "Failed")


def test_measurements_have_units() -> None:
    assert card(num_tokens=14, prefill_s=0.524, decode_s_per_token=0.08).figures == [
        ("tokens", "14"), ("prefill", "0.52 s"), ("decode", "12.5 tokens/s"),
    ]  # fmt: skip
    assert not card("finished", text="x", decode_s_per_token=0.0).figures


def test_grid_shows_answers_unchanged_and_in_order() -> None:
    text = "one\n\n  two"
    other = AnswerCard("vanilla", "Vanilla", "The unmodified model.", False, "finished", recorded=True)
    root = read_html(answer_grid([other, card("finished", text=text)]))
    assert [article.attributes["data-method"] for article in root.all("article")] == ["vanilla", "pine"]
    empty, answer = root.with_class("pine-answer-text")
    assert (empty.text, answer.text) == ("(empty answer)", text)
    assert [tag.text for tag in root.with_class("pine-tag")] == ["precomputed"]
    assert len(root.with_class("pine-invariance-yes")) == len(root.with_class("pine-invariance-no")) == 1


@pytest.mark.parametrize(
    ("text", "reading", "parts"),
    [
        ("B is wrong: [[A]]", Reading("A", "verdict"), ["A"]),
        ("Answer: 7", Reading("7", "number", 1.0), ["7", "✓"]),
        ("Answer: 7", Reading("7", "number", 0.0), ["7", "✗"]),
        ("Both.", Reading(None, "verdict", 0.5), ["No verdict", "0.5"]),
        ("Brenholt. ", Reading("Brenholt.", "answer"), []),
    ],
)
def test_finished_card_shows_parsed_value_and_score(text: str, reading: Reading, parts: list[str]) -> None:
    root = read_html(answer_grid([card("finished", text=text, reading=reading)]))
    shown = " ".join(part.text for part in root.with_class("pine-reading"))
    assert all(part in shown for part in parts) and bool(shown) == bool(parts)
