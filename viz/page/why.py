"""Tab "Why": mask, importance and positions of vanilla and PINE in a run or in a recorded example.

assets/why.js draws the three steps from JSON.
"""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import gradio as gr
import numpy as np

import pine_engine as pine
from viz.drawing.identity import document_segment
from viz.drawing.markup import render
from viz.drawing.text import shorten
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.answer_tokens import AnswerTokens, first_difference
from viz.figures.importance import normalize
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.recordings import RECORDED
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.form.examples import example_of, load_examples
from viz.page.traced_run import plan_of
from viz.page.tutorial.steps import source_of

WHY_FILE = RECORDED / "why.json"
METHODS = ("vanilla", "pine")
MAX_TOKENS = 48  # of an answer
STEPS = {
    "Mask": (
        "Vanilla lets a document attend only to earlier documents; PINE lets every document attend to every "
        "other.",
        "Show what PINE adds",
    ),
    "Importance": (
        "PINE scores the documents for the current query and places the most important nearest; vanilla has "
        "only your order.",
        "Sort by importance",
    ),
    "Positions": (
        "At each word, PINE places the most important document nearest; vanilla keeps your order: press a "
        "word.",
        "Write the answers",
    ),
}
"""Sentence of each step, at most 25 words, and label of the button that plays it."""


def build_why() -> gr.HTML:
    """Build the tab, which shows a run once its value is set."""
    steps = [(name, *texts) for name, texts in STEPS.items()]
    methods = [pine.METHODS[method] for method in METHODS]
    return gr.HTML(
        "",
        html_template=render("why.html", steps=steps, methods=methods),
        js_on_load="pine.why.mount({ element, props, watch });",
        apply_default_css=False,
        elem_id="why",
    )


def why_json(run: Run | None, shown: Shown | None = None) -> str:
    """Return what the steps show as JSON: an example if its recorded answers are on the page, else a run.

    Without a run of both methods, it is that of the first example.
    """
    example = example_of(shown.form) if shown and shown.recorded else None
    if example is None and run is not None and can_explain(run):
        return json.dumps(with_texts_without(why_record(run), run.orders) | {"is_replaced": False})
    is_replaced = example is None and run is not None and run.has_internals
    records, first = recorded_why(), load_examples()[0]
    record = records.get(example.name if example else "") or records[first.name]
    if example and shown:
        record = with_texts_without(record, shown.orders)
    return json.dumps(record | {"is_replaced": is_replaced})


def with_texts_without(record: dict[str, Any], orders: Mapping[Order, OrderAnswers]) -> dict[str, Any]:
    """Return the steps with the answers without each document, null where they are unknown."""
    steps = []
    for step in record["orders"]:
        answers = orders.get(tuple(step["order"]), OrderAnswers({}))
        without = {method: answers.texts_without.get(method) for method in METHODS}
        steps.append(step | {method: step[method] | {"without": without[method]} for method in METHODS})
    return record | {"orders": steps}


@cache
def recorded_why() -> Mapping[str, dict[str, Any]]:
    """Return the recorded steps by example name."""
    steps: dict[str, dict[str, Any]] = json.loads(WHY_FILE.read_bytes())
    return steps


def can_explain(run: Run) -> bool:
    """Check whether a run has both methods, their answers with attention, and documents to compare."""
    return len(run.order) > 1 and _has_attention(run.answer_records)


def _has_attention(records: Any) -> bool:
    return all(method in records and records[method].head and records[method].tokens for method in METHODS)


def why_record(run: Run) -> dict[str, Any]:
    """Return documents, masks, and the attention of one head in each order.

    Documents are numbered as entered, without those that were removed. Positions are in tokens. `shares` of
    attention and of importance have three digits.
    """
    layout, entered = run.result.layout, sorted(run.form.entries, key=lambda entry: entry.letter)
    lengths = layout.lengths[np.argsort(run.order)].tolist()
    head = run.answer_records["pine"].head
    assert head is not None
    explained = {order: answers for order, answers in run.orders.items() if _has_attention(answers.records)}
    differs = _parting_step(explained.values())
    segments = [document_segment(entry.letter) for entry in entered]
    return {
        "question": shorten(run.form.named_question, 120),
        "source": source_of(run),
        "layer": head.layer,
        "head": head.head,
        "documents": [
            {
                "letter": segment.label,
                "text": shorten(run.form.titled_text(entry), 120),
                "color": segment.color,
                "ink": segment.ink,
                "length": length,
            }
            for segment, entry, length in zip(segments, entered, lengths, strict=True)
        ],
        "prefix_length": layout.prefix_length,
        "documents_end": layout.documents_end,
        "suffix_length": layout.suffix_length,
        "visible": {method: plan_of(run, method).visible.tolist() for method in METHODS},
        "orders": [
            {"order": np.argsort(np.argsort(order)).tolist()}
            | {
                method: _answer(answers.records[method], differs, answers.origins.get(method))
                for method in METHODS
            }
            for order, answers in explained.items()
        ],
    }


def _parting_step(orders: Iterable[OrderAnswers]) -> int | None:
    """Return the first step, from 0, at which the methods part in an order; None if they do in none.

    One step for all orders, so that another order moves only what depends on it.
    """
    pairs = ([answers.records[method] for method in METHODS] for answers in orders)
    steps = (first_difference(first, second) for first, second in pairs)
    return min((step for step in steps if step is not None), default=None)


def _answer(record: AnswerTokens, differs: int | None, origin: AnswerOrigin | None) -> dict[str, Any]:
    """Return tokens, positions and shares of an answer, and the token that is selected first."""
    assert record.head is not None
    shares, importance = record.head.shares[:MAX_TOKENS], record.head.importance
    step = differs if differs is not None else origin.step if origin else int(shares.max(axis=1).argmax())
    scores = None if importance is None else normalize(importance[:MAX_TOKENS], "share").astype(float)
    return {
        "tokens": record.tokens[:MAX_TOKENS],
        "token": min(step, len(shares) - 1),
        "shares": shares.astype(float).round(3).tolist(),
        "starts": record.head.starts[:MAX_TOKENS].tolist(),
        "scores": None if scores is None else scores.round(3).tolist(),
    }
