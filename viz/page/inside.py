"""Inside the last run: who sees whom, at which position, and which document matters.

Everything is drawn from a FinishedRun; nothing is computed by the model. Imports torch through the plan.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from pine_engine.methods import METHODS
from pine_engine.plan import AttentionPlan, build_plan, who_sees_whom
from pine_engine.trace import Trace
from viz.identity import DECODED, PREFIX, SUFFIX, Segment, document_segment, legend, prompt_segments
from viz.importance import (
    Normalisation,
    empty_panel,
    importance_caption,
    importance_figure,
    importance_table,
    most_decisive,
    select_importance,
    spread,
    spread_figure,
)
from viz.masks import SegmentMask, fits_table, mask_cards, mask_states, token_mask_figure, token_mask_table
from viz.page.answering import FinishedRun
from viz.page.failures import notice
from viz.positions import Ruler, position_ruler
from viz.tokens import Token

Aggregation = Literal["head", "layer", "all"]


@dataclass(frozen=True)
class Query:
    """Whose view is drawn: a document's last token, or a token of the suffix (answer tokens included).

    Written as "document 2" (a slot, from 0) or "suffix 17" (from the start of the suffix) in the page.
    """

    kind: Literal["document", "suffix"]
    index: int

    @classmethod
    def parse(cls, text: str | None, run: FinishedRun) -> "Query":
        """The query a visitor chose; the last token of the prompt if it is not one of this run's."""
        kind, _, number = (text or "").partition(" ")
        index = int(number) if number.isdecimal() else -1
        if kind == "document" and 0 <= index < len(run.order):
            return cls("document", index)
        if kind == "suffix" and 0 <= index < longest_suffix(run):
            return cls("suffix", index)
        return cls("suffix", run.result.layout.suffix_length - 1)

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass(frozen=True)
class Selection:
    """What the page shows: a query, a layer and a head (from 0), and how importance is aggregated.

    aggregation: "head" this layer and head, "layer" mean over this layer's heads, "all" mean over all.
    """

    query: Query
    layer: int
    head: int
    aggregation: Aggregation = "head"
    normalisation: Normalisation = "raw"

    @property
    def drawn_layer(self) -> int | None:
        """The layer whose importance is drawn; None for the mean."""
        return None if self.aggregation == "all" else self.layer

    @property
    def drawn_head(self) -> int | None:
        """The head whose importance is drawn; None for the mean."""
        return self.head if self.aggregation == "head" else None


def longest_suffix(run: FinishedRun) -> int:
    """Most suffix tokens, answer tokens included, that any method of the run has seen."""
    return max(int(trace.suffix_starts.shape[2]) for trace in run.result.traces.values())


def run_documents(run: FinishedRun) -> tuple[Segment, ...]:
    """The documents of the run in input order."""
    return tuple(document_segment(identity, slot) for slot, identity in enumerate(run.order))


def prompt_tokens(run: FinishedRun) -> list[Token]:
    """All tokens of the prompt, in input order."""
    layout = run.result.layout
    lengths = [layout.prefix_length, *layout.lengths.tolist(), layout.suffix_length]
    segments = [PREFIX, *run_documents(run), SUFFIX]
    places = [
        (segment, offset)
        for segment, length in zip(segments, lengths, strict=True)
        for offset in range(length)
    ]
    return [
        Token(text, segment, offset)
        for text, (segment, offset) in zip(run.prompt_tokens, places, strict=True)
    ]


def suffix_tokens(run: FinishedRun, method: str) -> list[Token]:
    """The suffix tokens one method has a trace of: the prompt's, then those of its answer."""
    count = run.result.traces[method].suffix_starts.shape[2]
    question = prompt_tokens(run)[run.result.layout.documents_end :]
    answer = [Token(text, DECODED, offset) for offset, text in enumerate(run.answer_tokens[method])]
    return (question + answer)[:count]


def query_choices(run: FinishedRun) -> list[tuple[str, str]]:
    """(label, value) of every query of the run: documents, question tokens, answer tokens."""
    documents = [
        (f"Document {segment.label}" + (f" · {title}" if title else ""), str(Query("document", slot)))
        for slot, (segment, title) in enumerate(zip(run_documents(run), run.titles, strict=True))
    ]
    first = run.result.layout.documents_end
    question = [
        (f"Suffix token {token.offset + 1} · {token.label}", str(Query("suffix", token.offset)))
        for token in prompt_tokens(run)[first:]
    ]
    answers = [
        (f"Answer token {index - len(question) + 1}", str(Query("suffix", index)))
        for index in range(len(question), longest_suffix(run))
    ]
    return documents + question + answers


def first_selection(run: FinishedRun) -> Selection:
    """What is shown first: the prompt's last token, and the most decisive layer and head."""
    ranked = ranked_trace(run)
    layer, head = (0, 0) if ranked is None else most_decisive(_spreads(ranked))
    return Selection(Query("suffix", run.result.layout.suffix_length - 1), layer, head)


def ranked_trace(run: FinishedRun) -> Trace | None:
    """The trace of the first method that ranks documents; None if none does."""
    traces = run.result.traces.values()
    return next((trace for trace in traces if trace.suffix_importance is not None), None)


def layers_and_heads(run: FinishedRun) -> tuple[int, int]:
    """How many layers and heads there are to choose from; 1 and 1 if no method ranks."""
    shapes = [trace.suffix_starts.shape[:2] for trace in run.result.traces.values()]
    return max(shape[0] for shape in shapes), max(shape[1] for shape in shapes)


def summary_html(run: FinishedRun) -> str:
    """HTML: which run is shown, with the documents in its order."""
    titles = [title or segment.name for segment, title in zip(run_documents(run), run.titles, strict=True)]
    layout = run.result.layout
    sentence = f"The last run: {layout.num_tokens:,} prompt tokens, {run.model}, {run.dtype}."
    return notice(sentence, kind="count") + legend(run_documents(run), titles)


def masks_html(run: FinishedRun) -> str:
    """HTML: one document-level mask per method of the run."""
    layout = run.result.layout
    has_prefix = layout.prefix_length > 0
    segments = prompt_segments(run.order, has_prefix=has_prefix)
    masks = {
        method: SegmentMask(
            METHODS[method].label,
            segments,
            mask_states(_plan(run, method).visible.numpy(), has_prefix=has_prefix),
        )
        for method in run.result.traces
    }
    return mask_cards(list(masks.values()), reference=masks.get("vanilla"))


def token_mask(run: FinishedRun, method: str, query: Query) -> str | go.Figure:
    """The method's mask of all prompt tokens, around the query where there are too many."""
    tokens = prompt_tokens(run)
    allowed = token_visibility(_plan(run, method))
    label = METHODS[method].label
    if fits_table(len(tokens), len(tokens)):
        return token_mask_table(allowed, tokens, tokens, method=label)
    layout = run.result.layout
    start = layout.document_starts[query.index] if query.kind == "document" else layout.documents_end
    center = min(int(start) + (0 if query.kind == "document" else query.index), len(tokens) - 1)
    return token_mask_figure(allowed, tokens, tokens, method=label, center=center)


def token_visibility(plan: AttentionPlan) -> NDArray[np.bool_]:
    """Which prompt token may attend to which, bool (n, n)."""
    return who_sees_whom(plan).numpy()


def positions_html(run: FinishedRun, selection: Selection) -> str:
    """HTML: for each method, the documents on the position axis as the selected query sees them."""
    cells = [_ruler_html(run, method, selection) for method in run.result.traces]
    return f'<div class="page-rulers">{"".join(cells)}</div>'


def ruler(run: FinishedRun, method: str, selection: Selection) -> Ruler | None:
    """What the selected query sees under one method; None if the answer was over before that token."""
    trace, plan, layout = run.result.traces[method], _plan(run, method), run.result.layout
    query = selection.query
    num_layers, num_heads, num_rows = trace.suffix_starts.shape[:3]
    place = (min(selection.layer, num_layers - 1), min(selection.head, num_heads - 1), query.index)
    documents = run_documents(run)
    if query.kind == "document":
        length = int(layout.lengths[query.index])
        position = int(plan.query_starts[query.index]) + length - 1
        starts, importance = trace.document_starts, trace.document_importance
        name = f"the last token of document {documents[query.index].label}"
    elif query.index < num_rows:
        position = plan.suffix_start + query.index
        starts, importance = trace.suffix_starts, trace.suffix_importance
        name = suffix_tokens(run, method)[query.index].name
    else:
        return None
    return Ruler(
        query=name,
        query_position=position,
        prefix_length=layout.prefix_length,
        documents=documents,
        lengths=layout.lengths,
        starts=starts[place].astype(np.int64),
        importance=None if importance is None else importance[place],
        own_document=query.index if query.kind == "document" else None,
    )


def _ruler_html(run: FinishedRun, method: str, selection: Selection) -> str:
    seen = ruler(run, method, selection)
    row, trace = METHODS[method], run.result.traces[method]
    where = (
        "the same in every layer and head"
        if trace.suffix_starts.shape[:2] == (1, 1)
        else f"layer {selection.layer}, head {selection.head}, from {run.dtype} weights"
    )
    body = empty_panel("This answer was over before that token.") if seen is None else position_ruler(seen)
    heading = f'<h4>{row.label} <span class="pine-quiet">{where}</span></h4>'
    return f'<section class="page-panel">{heading}{body}</section>'


def importance_html(run: FinishedRun, selection: Selection) -> str:
    """HTML: how important each document finds each other one."""
    trace = ranked_trace(run)
    if trace is None or trace.document_importance is None:
        return empty_panel("No method of this run ranks the documents; tick PINE and run again.")
    values = select_importance(trace.document_importance, selection.drawn_layer, selection.drawn_head)
    return importance_table(
        values,
        run_documents(run),
        caption=_importance_caption(run, trace, selection, "document"),
        normalisation=selection.normalisation,
        selected=selection.query.index if selection.query.kind == "document" else None,
    )


def importance_plot(run: FinishedRun, selection: Selection) -> tuple[go.Figure, str]:
    """Figure: how important each token of question and answer finds each document; and its caption."""
    trace = ranked_trace(run)
    if trace is None or trace.suffix_importance is None:
        return importance_figure(None, [], run_documents(run)), ""
    values = select_importance(trace.suffix_importance, selection.drawn_layer, selection.drawn_head)
    figure = importance_figure(
        values, suffix_tokens(run, trace.method), run_documents(run), normalisation=selection.normalisation
    )
    return figure, _importance_caption(run, trace, selection, "token")


def heads_plot(run: FinishedRun, selection: Selection) -> go.Figure:
    """Figure: how decisive each layer and head is, the selected one marked."""
    trace = ranked_trace(run)
    if trace is None:
        return spread_figure(None)
    return spread_figure(_spreads(trace), layer=selection.drawn_layer, head=selection.drawn_head)


def _importance_caption(
    run: FinishedRun, trace: Trace, selection: Selection, rows: Literal["document", "token"]
) -> str:
    return importance_caption(
        method=METHODS[trace.method].label,
        layer=selection.drawn_layer,
        head=selection.drawn_head,
        normalisation=selection.normalisation,
        dtype=run.dtype,
        rows=rows,
    )


def _spreads(trace: Trace) -> NDArray[np.float32]:
    assert trace.suffix_importance is not None
    return spread(trace.suffix_importance)


def _plan(run: FinishedRun, method: str) -> AttentionPlan:
    return build_plan(METHODS[method], run.result.layout)
