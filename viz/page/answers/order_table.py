"""Table of the answers of all methods in all document orders, the first figure of the page.

assets/order_table.js draws it from the JSON made here, selects an order and plays all orders.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import gradio as gr
import numpy as np

from pine_engine.methods.table import METHODS, compared_pair
from pine_engine.prompts.attribution import Attribution, attribute_words
from pine_engine.prompts.orders import ALL_ORDERS_UP_TO
from pine_engine.prompts.ranking import first_name
from pine_engine.prompts.tasks import document_letter
from viz.cards.answers import AnswerCard
from viz.cards.tutorial import TERMS, anchor
from viz.drawing.identity import document_segment, order_name
from viz.drawing.markup import render
from viz.drawing.text import join_words
from viz.figures.positions import MASKED, document_lanes
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.answering import is_correct_by, scoring_note
from viz.page.answers.base_rate import base_rate_sentence
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.recordings import MAX_NEW_TOKENS
from viz.page.answers.shown import Shown
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.form.examples import example_of, load_examples
from viz.page.form.form import Form
from viz.theme import line_color, method_number, method_sign


def build_order_table(shown: Shown, accepted: Sequence[str]) -> gr.HTML:
    """Build the widget with the initial answers."""
    letters = [document_segment(index) for index in range(MAX_DOCUMENTS)]
    return gr.HTML(
        order_table_json(shown, accepted),
        html_template=render("order_table.html", positions=anchor("Positions"), challenges=challenges()),
        js_on_load="pine.order_table.mount({ element, props, watch });",
        apply_default_css=False,
        elem_id="order-table",
        all_up_to=ALL_ORDERS_UP_TO,
        documents=[{"letter": one.label, "color": one.color, "ink": one.ink} for one in letters],
    )


def challenges() -> list[tuple[int, str]]:
    """Return number and label of each challenge of the first example."""
    labels = [example.challenge for example in load_examples()]
    return [(number, label) for number, label in enumerate(labels) if label]


def order_table_json(shown: Shown, accepted: Sequence[str] = ()) -> str:
    """Return the state of the table as JSON, scored by the accepted answers.

    A finished answer has the fields of its `Attribution` (characters are code points), `without`, the answers
    without each document, null for an unknown one, and `falls` of its own log-probability without each, if
    they are known. If its attention is known, it has the decisive `token`, for which `positions` are.
    """
    is_correct, orders = is_correct_by(shown.form.row, accepted), shown.all_orders
    has_internals = shown.run is None or shown.run.has_internals
    methods = [_method(card, shown, is_correct) for card in shown.cards]
    names = [row.name for row in compared_pair([card.row for card in shown.cards])]
    compared = [method for name in names for method in methods if method["name"] == name]
    others = [method for method in methods if method["name"] not in names]
    counts = [count for count in map(_count, compared) if count[0]]
    num_done = min((len(_finished(method)) for method in compared), default=0)
    so_far = [f"{num_done} of {len(orders)} orders so far."] if counts and num_done < len(orders) else []
    counts = counts if num_done > 1 else []  # that one method gave one answer is no finding
    return json.dumps(
        {
            "methods": [
                *({**method, "is_compared": True} for method in compared),
                *({**method, "is_compared": False} for method in others),
            ],
            "orders": orders,
            "shown": orders.index(shown.form.order) if shown.form.order in orders else 0,
            "headline": " ".join((*so_far, *(f"{short}." for short, _ in counts))),
            "finding": " ".join((*so_far, *(f"{short}{more}." for short, more in counts))),
            "changed": _changed(shown.form),
            "rule": scoring_note(shown.form.row, accepted),
            **_source(shown.orders),
            "base_rate": base_rate_sentence(shown.form.task),
            "question": shown.form.named_question,
            "query_token": _query_token(methods),
            "texts": [
                shown.form.titled_text(entry)
                for entry in sorted(shown.form.entries, key=lambda entry: entry.letter)
            ],
            "no_positions": "Not computed" if has_internals else "Not returned by the endpoint",
            "is_busy": any(card.is_busy for card in shown.cards),
        }
    )


def _source(orders: Mapping[Order, OrderAnswers]) -> dict[str, str]:
    """Return the origin of the answers, and the label of the button that computes them here."""
    others = [answers for answers in orders.values() if not answers.is_own]
    if not others:
        return {"source": _comparison(orders), "rerun": ""}
    names = [order_name(order) for order, answers in orders.items() if answers.is_own]
    own = f", except {join_words(names)} from your run" if names else ""
    if others[0].source == "shared":
        return {"source": f"Not checked. {others[0].origin}{own}.", "rerun": "Check"}
    length = f", at most {MAX_NEW_TOKENS} new tokens"
    source = f"Selected example. {others[0].origin}{length}{own}; another dtype or limit can differ."
    return {"source": source, "rerun": "Run live"}


def _comparison(orders: Mapping[Order, OrderAnswers]) -> str:
    """Return how the answers of this session compare with shared ones, if they replace them."""
    checked = {order: answers for order, answers in orders.items() if answers.source == "checked"}
    if not checked:
        return ""
    count = sum(len(answers.texts) for answers in checked.values())
    different = [
        f"{METHODS[method].label} in {order_name(order)}"
        for order, answers in checked.items()
        for method in answers.texts
        if method in answers.changed
    ]
    if not different:
        return f"Checked: your run gave the same {count} answers."
    examples = join_words(different[:3]) + (" and others" if len(different) > 3 else "")
    return f"Checked: {len(different)} of {count} answers differ in your run, with this model: {examples}."


def _method(card: AnswerCard, shown: Shown, is_correct: Callable[[str], bool] | None) -> dict[str, Any]:
    orders = shown.shown_orders
    has_others = any(not answers.is_own for answers in orders.values())
    is_busy = any(one.is_busy for one in shown.cards)
    cells: list[dict[str, Any] | None] = []
    for order in shown.all_orders:
        answers = orders.get(order, OrderAnswers({}))
        text, is_done = answers.texts.get(card.method), True
        # An answer that was stopped replaces none, and is never counted.
        if order == shown.form.order and (card.text or card.thinking) and (is_busy or text is None):
            text, is_done = card.text, card.state == "finished"
        if text is None:
            cells.append(None)
            continue
        is_known = text == answers.texts.get(card.method)
        is_right = is_correct(text) if is_correct and is_done else None
        is_cut_off = bool(is_right) and is_known and card.method in answers.cut_off
        cell = {
            "text": text if text.strip() else ("(empty answer)" if is_done else "Thinking…"),
            "is_done": is_done,
            "is_comparable": not (has_others and card.method in answers.changed),
            "is_correct": is_right and not is_cut_off,
            "is_cut_off": is_cut_off,  # True if the answer contains an accepted one, but has no end
        }
        task = shown.form.row
        if is_done and task.has_letters:  # the verdict of a judge, or the choice of an option
            verdict, nouns = task.parse(text), task.nouns
            is_first = first_name(verdict) == document_letter(order[0])
            cell |= {"verdict": verdict or f"no {nouns.finding}", "is_first": is_first}
            cell |= {"nouns": [nouns.finding, nouns.document]}
        if is_known and card.method in answers.origins:
            cell["token"] = answers.origins[card.method].token
        if is_known and is_done:
            without = answers.texts_without.get(card.method, ())
            cell |= {"without": without, "falls": answers.falls.get(card.method)}
            cell |= asdict(attribution_of(shown.form, text, without))
        cells.append(cell)
    return {
        "name": card.method,
        "label": card.row.label,
        "note": card.row.description.partition(":")[0],
        "sign": method_sign(card.method),
        "color": line_color(method_number(card.method)),
        "term": anchor(card.row.label) if card.row.label in TERMS else "",
        "is_order_invariant": card.row.is_order_invariant,
        "answers": cells,
        "positions": [
            document_bars(answers.positions, card.method) if answers.positions else []
            for answers in orders.values()
        ],
        "queries": [query_place(answers.positions, card.method) for answers in orders.values()],
    }


def _query_token(methods: Sequence[Mapping[str, Any]]) -> str:
    """Return the decisive token of the last order-invariant method that has one, the same in all orders."""
    invariant = [method for method in reversed(methods) if method["is_order_invariant"]]
    cells = (cell for method in invariant for cell in method["answers"] if cell and "token" in cell)
    return next((cell["token"] for cell in cells), "")


def document_bars(positions: DocumentPositions, method: str) -> list[dict[str, float]]:
    """Return document, left, width, top and height of each bar; the last four are fractions of the lane."""
    if method not in positions.starts:
        return []
    starts, lengths = positions.starts[method], positions.lengths
    lanes = document_lanes(starts, lengths)
    first, end = _ends(positions)
    num_lanes = int(lanes.max(initial=0)) + 1
    return [
        {
            "document": int(document),
            "left": (int(starts[document]) - first) / (end - first),
            "width": int(lengths[document]) / (end - first),
            "top": int(lanes[document]) / num_lanes,
            "height": 1 / num_lanes,
        }
        for document in np.flatnonzero(lanes != MASKED)
    ]


@lru_cache(maxsize=1024)
def attribution_of(form: Form, text: str, without: tuple[str | None, ...]) -> Attribution:
    """Return the sources of the words of an answer; none in a task with answers by letter."""
    if form.row.has_letters:
        return Attribution("no content")
    entries = sorted(form.entries, key=lambda entry: entry.letter)
    documents = list(map(form.titled_text, entries))
    return attribute_words(text, question=form.question, documents=documents, texts_without=without)


def query_place(positions: DocumentPositions | None, method: str) -> float | None:
    """Return the place of the query, a fraction of the lane; None if it is unknown."""
    if positions is None or method not in positions.queries or (positions.starts[method] == MASKED).all():
        return None
    first, end = _ends(positions)
    return (positions.queries[method] - first) / (end - first)


def _ends(positions: DocumentPositions) -> tuple[int, int]:
    """Return the first position of a document, and the last of a query or of a document, of all methods."""
    starts = positions.starts.values()
    first = min(int(one[one != MASKED].min(initial=2**31 - 1)) for one in starts)
    ends = [int((one + positions.lengths).max()) for one in starts]
    return first, max([*ends, *positions.queries.values()])


def _changed(form: Form) -> dict[str, Any] | None:
    """Return what a challenge changed in the first example; None for a form without a challenge."""
    example, (first, *_) = example_of(form), load_examples()
    if example is None or not example.challenge:
        return None
    texts = {document.text for document in first.documents}
    documents = [entry.letter for entry in form.entries if entry.text not in texts]
    return {"question": example.question != first.question, "documents": documents}


def _finished(method: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [answer for answer in method["answers"] if answer and answer["is_done"]]


def _count(method: Mapping[str, Any]) -> tuple[str, str]:
    """Return the number of different answers in words, and how many are correct; both "" before two answers.

    That none is correct is part of the first text.
    """
    done = _finished(method)
    if len(done) < 2:
        return "", ""
    count = len({answer.get("verdict", answer["text"]) for answer in done if answer["is_comparable"]})
    noun = done[0]["nouns"][0] if "verdict" in done[0] else "answer"
    short, more = f"{method['label']} gave {count} {noun}{'s' * (count != 1)}", ""
    correct = [answer["is_correct"] for answer in done]
    if None not in correct:
        more = f", correct in {sum(correct)} of {len(done)} orders"
        short, more = (short, more) if sum(correct) else (short + more, "")
    if num_cut_off := sum(answer["is_cut_off"] for answer in done):
        more += f" ({num_cut_off} more contain the answer, cut off)"
    if "verdict" in done[0]:
        named = sum(answer["is_first"] for answer in done)
        more += f", for the first {done[0]['nouns'][1]} in {named} of {len(done)} orders"
    return short, more
