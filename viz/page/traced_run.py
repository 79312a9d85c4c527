"""Facts of a finished run that figures need: its documents, layers, traces and plans."""

import pine_engine as pine
from viz.drawing.identity import Segment, document_segment
from viz.page.answers.run import Run


def run_documents(run: Run) -> tuple[Segment, ...]:
    """Return the documents of the run in input order."""
    return tuple(document_segment(identity, slot) for slot, identity in enumerate(run.order))


def layers_and_heads(run: Run) -> tuple[int, int]:
    """Return the number of layers and of heads; 1 of each without attention."""
    trace = next(iter(run.result.traces.values()))
    recorded = trace.suffix_starts if trace.suffix_attention is None else trace.suffix_attention
    return recorded.shape[0], recorded.shape[1]


def has_attention(run: Run) -> bool:
    """Check whether attention was recorded, unlike for a model that runs as it is."""
    return all(trace.suffix_attention is not None for trace in run.result.traces.values())


def ranked_trace(run: Run, method: str = "") -> "pine.Trace | None":
    """Return the trace of the method if it ranks documents, else the first that does; None if none does."""
    traces = [trace for trace in run.result.traces.values() if trace.suffix_importance is not None]
    return next((trace for trace in traces if trace.method == method), traces[0] if traces else None)


def plan_of(run: Run, method: str) -> "pine.AttentionPlan":
    """Return the attention plan of the method for the prompt of the run."""
    return pine.build_plan(pine.METHODS[method], run.result.layout)
