"""Positions of the documents, as seen from the selected query."""

from typing import Any

import pine_engine as pine
import viz
from pine_engine.methods.table import FIRST_SCALED_LAYER, MAX_RATIO, MIN_RATIO
from viz.drawing.markup import empty_panel
from viz.page.answers.run import Run
from viz.page.common.failures import notice
from viz.page.internals.content import TabContent, field_switch, of_method
from viz.page.queries import has_query
from viz.page.selection import Selection, shown_place
from viz.page.traced_run import ranked_trace

OVER = "This answer ended before the selected token. Select another query or method."


def draw_positions(run: Run, selection: Selection) -> TabContent:
    """Draw the documents for one query by layer or head and by method, and for all documents."""
    place, query, method = shown_place(run, selection), selection.query, selection.method
    options: dict[str, Any] = {
        "document" if query.kind == "document" else "query": query.index,
        "layer": place.layer,
        "head": place.head,
        "order": run.order,
    }
    labels = {name: pine.METHODS[name].label for name in run.result.traces if has_query(run, name, query)}
    figures = {}
    remark = empty_panel(OVER)
    if labels:
        traces = [run.result.traces[name] for name in labels]
        figures["method-positions"] = viz.plot_method_positions(traces, **options, labels=labels)
    if label := labels.get(method):
        trace = run.result.traces[method]
        positions = viz.plot_positions(trace, by=selection.rows, **options)
        figures["positions"] = of_method(positions, label)
        figures["position-map"] = of_method(viz.plot_position_map(trace, **options), label)
        remark, row = "", pine.METHODS[method]
        if row.position_scale == "per_head":
            remark = notice(
                f"{label}: positions before the division. From layer {FIRST_SCALED_LAYER} on, each head "
                f"divides positions by its ratio, from {MIN_RATIO:g} to less than {MAX_RATIO:g}."
            )
        elif trace.suffix_importance is None:
            ranked = ranked_trace(run)
            other = f" Select {pine.METHODS[ranked.method].label} to compare its heads." if ranked else ""
            remark = notice(f"{label} uses the same document positions in every layer and head.{other}")
        elif None in (selection.layer, selection.head):
            here = f"layer {place.layer}, head {place.head}"
            remark = notice(f"Positions cannot be averaged. Shown: {here} (most decisive).")
    rows = field_switch("Rows", "rows", {"layer": "layers", "head": "heads"}, selection.rows)
    return TabContent(rows + remark, figures)
