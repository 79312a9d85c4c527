"""Tab "Importance": importance of documents by layer, head, document and answer token."""

from typing import Any

from pine_engine.attention.trace import Trace
from pine_engine.methods.table import METHODS
from viz.drawing.markup import empty_panel
from viz.drawing.picture import switch
from viz.figures.answer_importance import plot_answer_importance
from viz.figures.attention_shares import plot_attention_shares
from viz.figures.head_decisiveness import decisiveness, most_decisive, plot_head_decisiveness
from viz.figures.importance import plot_importance
from viz.page.answers.answering import FinishedRun
from viz.page.inside.drawn import TabContent, of_method
from viz.page.inside.reading import ranked_trace, step_of
from viz.page.inside.selection import Selection

NOT_RANKED = "No method of this run ranks the documents; tick PINE and run again."
ALONE = "There is one document, so there is nothing to rank."
NOT_WRITTEN = "No token of the answer was written."
NORMALIZATIONS = (
    ("raw", {"normalization": "raw"}),
    ("share of the row", {"normalization": "share"}),
    ("log scale", {"normalization": "log"}),
)


def draw_importance(run: FinishedRun, selection: Selection) -> TabContent:
    """Draw the heads, the documents, the answer tokens and the attention shares."""
    ranked = ranked_trace(run, selection.method)
    trace, label = run.result.traces[selection.method], METHODS[selection.method].label
    place: dict[str, Any] = {"layer": selection.layer, "head": selection.head}
    scale: dict[str, Any] = {"normalization": selection.normalization, "order": run.order}
    texts = _answer(run, trace)
    step = step_of(run, selection.query)
    step = step if step is not None and step < len(texts) else None
    figures = {}
    if ranked is not None:
        ranking = METHODS[ranked.method].label
        figures["decisive-heads"] = of_method(plot_head_decisiveness(ranked, **place), ranking)
        if len(run.order) > 1:
            chosen = selection.query.index if selection.query.kind == "document" else None
            drawn = plot_importance(ranked, **place, **scale, document=chosen)
            figures["importance"] = of_method(drawn, ranking)
    if texts:
        written = plot_answer_importance(trace, texts, **place, **scale, step=step)
        shares = plot_attention_shares(
            trace,
            step=step,
            steps=len(texts),
            **place,
            with_rest=selection.with_prefix,
            order=run.order,
        )
        figures["answer-importance"] = of_method(written, label)
        figures["attention-shares"] = of_method(shares, label)
    missing = [NOT_RANKED] if ranked is None else [ALONE] if len(run.order) < 2 else []
    missing += [] if texts else [NOT_WRITTEN]
    return TabContent(_switches(selection, ranked) + "".join(map(empty_panel, missing)), figures)


def _switches(selection: Selection, ranked: Trace | None) -> str:
    """Render the switches above the figures."""
    chosen = next(label for label, what in NORMALIZATIONS if what["normalization"] == selection.normalization)
    options: list[tuple[str, dict[str, Any]]] = []
    if ranked is not None:
        layer, head = most_decisive(decisiveness(ranked))
        options.append((f"most decisive: layer {layer}, head {head}", {"layer": layer, "head": head}))
    options += [("mean over heads", {"head": None}), ("mean over all", {"layer": None, "head": None})]
    if selection.head is None:
        place = "mean over all" if selection.layer is None else "mean over heads"
    else:
        here = {"layer": selection.layer, "head": selection.head}
        place = next((label for label, what in options if what == here), "")
    return (
        switch("Head", options, place)
        + switch("Importance as", NORMALIZATIONS, chosen)
        + switch(
            "Attention on",
            [("everything", {"with_prefix": True}), ("documents only", {"with_prefix": False})],
            "everything" if selection.with_prefix else "documents only",
        )
    )


def _answer(run: FinishedRun, trace: Trace) -> tuple[str, ...]:
    """Return the answer tokens of the method that the trace covers."""
    seen = trace.suffix_starts.shape[2] - (run.result.layout.suffix_length - 1)
    return run.answer_tokens[trace.method][:seen]
