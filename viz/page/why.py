"""Tab "Why": mask, importance and positions of vanilla and PINE, then the words of both answers by document.

The steps are those of the tutorial (assets/tutorial.js); assets/why.js highlights documents.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import plotly.graph_objects as go

import pine_engine as pine
import viz
from viz.cards.tutorial import figure_html
from viz.drawing.markup import render, shorten
from viz.figures.answer_tokens import quoted
from viz.figures.frame import FloatArray, answer_queries, plain
from viz.page.answers.recordings import tutorial_recording
from viz.page.answers.run import Run
from viz.page.internals_figures import of_method
from viz.page.selection import first_selection, query_of_step, run_documents, shown_place
from viz.page.tutorial import importance_figure, mask_figure, source_of
from viz.theme import MASKED

METHODS = ("vanilla", "pine")
FIGURE_HEIGHT = 330
MIN_SHARE = 0.5  # share of attention on one document from which a word has its color
STEPS = {
    "Mask": "Vanilla: a document attends only to earlier documents. PINE: every document attends to every "
    "other. Rows: queries. Columns: keys.",
    "Importance": "PINE computes how important each document is for each query. Vanilla computes no "
    "importance: the input order decides.",
    "Positions": "PINE places the most important document closest to the query, in any input order. Vanilla "
    "keeps the input order.",
}
"""Text of each step, at most 25 words."""


def why_html(run: Run | None) -> str:
    """Render the three steps and the answers of a run; of the recorded one if the run lacks a method."""
    return _recorded_html() if run is tutorial_recording().run else _html(run)


@cache
def _recorded_html() -> str:
    """Render those of the recorded run, with which each page opens."""
    return _html(tutorial_recording().run)


def _html(run: Run | None) -> str:
    shown = run if run is not None and can_explain(run) else tutorial_recording().run
    place = shown_place(shown, first_selection(shown))
    figures = why_figures(shown, place.layer, place.head)
    answers = [
        (pine.METHODS[method].label, colored_words(shown, method, place.layer, place.head))
        for method in METHODS
    ]
    return render(
        "why.html",
        steps=[(name, text, figure_html(figures[name], label="Method")) for name, text in STEPS.items()],
        documents=run_documents(shown),
        question=shorten(shown.form.question, 120),
        answers=answers,
        place=f"layer {place.layer}, head {place.head}",
        source=source_of(shown),
        is_replaced=run is not None and shown is not run and run.has_internals,
    )


def can_explain(run: Run) -> bool:
    """Check whether a run has both methods, words in their answers, and documents to compare."""
    return len(run.order) > 1 and all(
        method in run.origins and run.answer_tokens.get(method) for method in METHODS
    )


def why_figures(run: Run, layer: int, head: int) -> dict[str, dict[str, go.Figure]]:
    """Plot each step at one layer and head: figures by step and label of the method."""
    labels = {method: pine.METHODS[method].label for method in METHODS}
    masks = [of_method(mask_figure(run, method), label) for method, label in labels.items()]
    ranked = importance_figure(run, run)
    unranked = go.Figure(ranked).update_layout(title_text="Vanilla computes no importance")
    no_values = np.full(ranked.data[0].z.shape, "–").tolist()
    unranked.update_layout(coloraxis={"showscale": False, "colorscale": [[0, MASKED], [1, MASKED]]})
    unranked.update_traces(
        z=ranked.data[0].z * 0,
        text=no_values,
        hovertemplate="no importance<extra></extra>",
        meta={**ranked.data[0].meta, "cells": no_values},
    )
    step = decisive_step(run)
    query = query_of_step(run, step).index
    positions = [
        viz.plot_method_positions(
            [run.result.traces[method] for method in methods],
            query=query,
            layer=layer,
            head=head,
            order=run.order,
            labels=labels,
        )
        for methods in (METHODS[:1], METHODS)
    ]
    token = plain(quoted(run.answer_tokens["pine"][step]))
    for figure in positions:
        figure.update_layout(title_text=f"Document positions when PINE decodes {token}")
        figure.update_xaxes(range=[0, run.result.layout.documents_end + query + 2])
        figure.update_yaxes(range=[1.5, -0.5], autorange=False)
    by_step = dict(zip(STEPS, (masks, [unranked, ranked], positions), strict=True))
    for pair in by_step.values():
        for figure in pair:
            figure.update_layout(height=FIGURE_HEIGHT)
    return {name: dict(zip(labels.values(), pair, strict=True)) for name, pair in by_step.items()}


def decisive_step(run: Run) -> int:
    """Return the decisive token of PINE's answer, from 0, at most the last one of vanilla's answer."""
    return min(run.origins["pine"].step, len(run.answer_tokens["vanilla"]) - 1)


def head_attention(run: Run, method: str, layer: int, head: int) -> FloatArray:
    """Return attention of one head while each answer token was decoded, float32 (tokens, 1 + D + 1)."""
    recorded = run.result.traces[method].suffix_attention
    assert recorded is not None
    queries = answer_queries(run.result.layout, len(run.answer_tokens[method]))
    return recorded[layer, head, queries].astype(np.float32)


def colored_words(run: Run, method: str, layer: int, head: int) -> list[tuple[str, Any, str]]:
    """Return text, document and share of each word; no document and "" where no document has MIN_SHARE."""
    documents = run_documents(run)
    words = answer_words(run.answer_tokens[method], head_attention(run, method, layer, head)[:, 1:-1])
    return [
        (text, documents[slot], f"{share:.2f}") if share >= MIN_SHARE else (text, None, "")
        for text, slot, share in words
    ]


def answer_words(tokens: Sequence[str], shares: FloatArray) -> list[tuple[str, int, float]]:
    """Join tokens to words: text, slot of the document with the largest share of a token, and that share.

    Args:
        tokens: Texts of the answer tokens; a word starts at a blank.
        shares: Attention on each document, (tokens, D).
    """
    words: list[tuple[str, int, float]] = []
    for token, row in zip(tokens, shares, strict=True):
        slot = int(row.argmax())
        share = float(row[slot])
        if words and token[:1].strip():
            text, other, most = words.pop()
            words.append((text + token, *((slot, share) if share > most else (other, most))))
        else:
            words.append((token, slot, share))
    return words
