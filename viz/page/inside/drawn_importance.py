"""Tab "Importance": which documents each layer, head, document and answer token finds important."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.attention.trace import Trace
from pine_engine.methods.table import METHODS
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, Segment
from viz.drawing.markup import empty_panel
from viz.drawing.numbers import format_value
from viz.drawing.picture import beside, switch
from viz.drawing.tokens import Token
from viz.figures.heads import head_strip
from viz.figures.importance import (
    NOT_A_FULL_EXPLANATION,
    attention_caption,
    attention_shares,
    importance_caption,
    most_decisive,
    place_name,
    select_importance,
)
from viz.figures.importance_matrix import attention_picture, importance_picture, written_picture
from viz.page.answers.answering import FinishedRun
from viz.page.inside.reading import head_spreads, query_of_step, ranked_trace, run_documents, step_of
from viz.page.inside.selection import Query, Selection

FloatArray = NDArray[np.float32]

NOT_RANKED = "No method of this run ranks the documents; tick PINE and run again."
NORMALISATIONS = (
    ("raw", {"normalisation": "raw"}),
    ("share of the row", {"normalisation": "share"}),
    ("log scale", {"normalisation": "log"}),
)


def draw_importance(run: FinishedRun, selection: Selection) -> str:
    """HTML: the heads, the documents, the words of the answer, and where attention went."""
    ranked = ranked_trace(run, selection.method)
    spreads = None if ranked is None else head_spreads(ranked)
    drawn = [_switches(selection, spreads)]
    if ranked is None or spreads is None:
        drawn.append(empty_panel(NOT_RANKED))
    else:
        drawn.append(_heads(run, ranked, spreads, selection))
    documents = "" if ranked is None else _documents(run, ranked, selection)
    # Beside the words, however many: a click on one shows where attention went without a way to scroll.
    words = beside(documents + _attention(run, selection), _written(run, selection), columns=len(run.order))
    return "".join([*drawn, words])


def _switches(selection: Selection, spreads: FloatArray | None) -> str:
    """The rows of buttons above the pictures."""
    chosen = next(label for label, what in NORMALISATIONS if what["normalisation"] == selection.normalisation)
    options: list[tuple[str, dict[str, Any]]] = []
    if spreads is not None:
        layer, head = most_decisive(spreads)
        options.append((f"most decisive: layer {layer}, head {head}", {"layer": layer, "head": head}))
    options += [("mean over heads", {"head": None}), ("mean over all", {"layer": None, "head": None})]
    if selection.head is None:
        place = "mean over all" if selection.layer is None else "mean over heads"
    else:
        here = {"layer": selection.layer, "head": selection.head}
        place = next((label for label, what in options if what == here), "")
    return (
        switch("Head", options, place)
        + switch("Importance as", NORMALISATIONS, chosen)
        + switch(
            "Attention on",
            [("everything", {"with_prefix": True}), ("documents only", {"with_prefix": False})],
            "everything" if selection.with_prefix else "documents only",
        )
    )


def _heads(run: FinishedRun, trace: Trace, spreads: FloatArray, selection: Selection) -> str:
    layer, head = most_decisive(spreads)
    return head_strip(
        spreads,
        layer=selection.layer,
        head=selection.head,
        title="Which heads decide",
        name="decisive-heads",
        measure="spread of shares",
        caption=(
            f"{METHODS[trace.method].label}, all layers and heads: the largest minus the smallest share of "
            f"importance that a question or answer token gives to a document, mean over these tokens, "
            f"computed in {run.dtype}. 0: all documents alike. Most decisive: layer {layer}, head {head} "
            f"({format_value(spreads[layer, head])}). Chosen: {place_name(selection.layer, selection.head)}. "
            f"{NOT_A_FULL_EXPLANATION}"
        ),
    )


def _documents(run: FinishedRun, trace: Trace, selection: Selection) -> str:
    assert trace.document_importance is not None
    documents = run_documents(run)
    return importance_picture(
        select_importance(trace.document_importance, selection.layer, selection.head),
        documents,
        queries=[str(Query("document", slot)) for slot in range(len(documents))],
        caption=importance_caption(
            method=METHODS[trace.method].label,
            layer=selection.layer,
            head=selection.head,
            normalisation=selection.normalisation,
            dtype=run.dtype,
        ),
        normalisation=selection.normalisation,
        selected=selection.query.index if selection.query.kind == "document" else None,
    )


def _written(run: FinishedRun, selection: Selection) -> str:
    """What the method ranks by while it writes; the attention it pays, if it does not rank."""
    trace = run.result.traces[selection.method]
    method, place = METHODS[trace.method].label, {"layer": selection.layer, "head": selection.head}
    tokens = _answer(run, trace)
    keys: tuple[Segment, ...]
    if trace.suffix_importance is not None:
        values = select_importance(_steps(run, trace.suffix_importance, len(tokens)), **place)
        keys, measure, normalisation = run_documents(run), "importance", selection.normalisation
        caption = importance_caption(
            method=method, **place, normalisation=normalisation, dtype=run.dtype, rows="token"
        )
    else:
        keys, shares = _attention_of(run, trace, selection, len(tokens))
        values, measure, normalisation = shares, "attention", selection.normalisation
        caption = "This method does not rank documents; drawn is the attention it pays. " + attention_caption(
            method=method,
            **place,
            with_rest=selection.with_prefix,
            dtype=run.dtype,
            when="while writing each token of the answer",
            is_log=selection.normalisation == "log",
        )
    return written_picture(
        values,
        tokens,
        keys,
        queries=[str(query_of_step(run, step)) for step in range(len(tokens))],
        caption=caption,
        normalisation=normalisation,
        selected=_step(run, selection, len(tokens)),
        measure=measure,
    )


def _attention(run: FinishedRun, selection: Selection) -> str:
    """Where attention went while the chosen token was written; the mean over the answer if none is chosen."""
    trace = run.result.traces[selection.method]
    tokens = _answer(run, trace)
    if not tokens:
        return ""
    keys, shares = _attention_of(run, trace, selection, len(tokens))
    step = _step(run, selection, len(tokens))
    if step is None:
        values, when = shares.mean(axis=0), f"while writing the answer, mean over its {len(tokens)} tokens"
    else:
        values, when = shares[step], f"while writing {tokens[step].name}"
    return attention_picture(
        values,
        keys,
        when=when,
        caption=attention_caption(
            method=METHODS[trace.method].label,
            layer=selection.layer,
            head=selection.head,
            with_rest=selection.with_prefix,
            dtype=run.dtype,
            when=when,
        ),
    )


def _answer(run: FinishedRun, trace: Trace) -> list[Token]:
    """The tokens of the method's answer whose writing the trace has seen."""
    seen = trace.suffix_starts.shape[2] - (run.result.layout.suffix_length - 1)
    return [
        Token(text, DECODED, offset) for offset, text in enumerate(run.answer_tokens[trace.method][:seen])
    ]


def _steps(run: FinishedRun, rows: FloatArray, count: int) -> FloatArray:
    """Of (A, H, Q, ...) suffix tokens those that write an answer token, (A, H, count, ...)."""
    first = query_of_step(run, 0).index
    return rows[:, :, first : first + count]


def _step(run: FinishedRun, selection: Selection, count: int) -> int | None:
    """The chosen answer token; None if none of this answer is chosen."""
    step = step_of(run, selection.query)
    return step if step is not None and step < count else None


def _attention_of(
    run: FinishedRun, trace: Trace, selection: Selection, count: int
) -> tuple[tuple[Segment, ...], FloatArray]:
    """Who was read, and each one's share while writing each answer token, (count, keys)."""
    assert trace.suffix_attention is not None
    attention = select_importance(_steps(run, trace.suffix_attention, count), selection.layer, selection.head)
    shares = attention_shares(attention, with_rest=selection.with_prefix)
    documents = run_documents(run)
    if not selection.with_prefix:
        return documents, shares
    if run.result.layout.prefix_length == 0:
        return (*documents, SUFFIX), shares[:, 1:]
    return (PREFIX, *documents, SUFFIX), shares
