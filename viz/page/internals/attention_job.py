"""Job that computes token-level attention of two methods in one head."""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

import pine_engine as pine
from pine_engine.errors import InputError
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.page.answers.answering import REDRAW_S, Meter, progress_sentence
from viz.page.answers.run import Run
from viz.page.selection import Selection, shown_place

MAX_ATTENTION_TOKENS = 2_000
"""Maximum prompt tokens: the weights of two methods then take 16 MB in the session."""


@dataclass(frozen=True)
class AttentionRequest:
    """Prompt, layer, head and methods of the weights; `model` is the model of the run."""

    layout: "pine.TokenLayout"
    model: str
    methods: tuple[str, ...]
    layer: int
    head: int


@dataclass(frozen=True)
class AttentionView:
    """State of the job.

    Shape:
        weights: float16 (N, N) of the N prompt tokens by method, queries first, NaN where masked.
    """

    sentence: str = field(compare=False)
    request: AttentionRequest
    weights: dict[str, NDArray[np.float16]] = field(default_factory=dict)
    done: Work = field(default=Work(), compare=False)

    @property
    def is_complete(self) -> bool:
        """Return True if the weights are there."""
        return bool(self.weights)


def attention_request(run: Run, selection: Selection) -> AttentionRequest:
    """Return vanilla and the selected method (or PINE) in the selected head; for a mean see shown_place."""
    other = "pine" if selection.method == "vanilla" else selection.method
    return AttentionRequest(run.result.layout, run.model, ("vanilla", other), *shown_place(run, selection))


def recorded_attention(run: Run) -> AttentionView | None:
    """Return the weights recorded with the run; None for a run of this session."""
    total = run.result.layout.num_tokens
    kept = {name: trace.token_weights[0] for name, trace in run.result.traces.items() if trace.token_weights}
    if not kept:
        return None
    of = next(iter(kept.values())).queries
    request = AttentionRequest(run.result.layout, run.model, tuple(kept), of.layer, of.head)
    return AttentionView(
        "", request, {name: one.weights[:, :total].astype(np.float16) for name, one in kept.items()}
    )


def prepare_attention(engine: "pine.Engine", request: AttentionRequest) -> PreparedJob[AttentionView]:
    """Plan one prefill per method.

    Raises InputError for a prompt beyond the limit, or if the engine is not that of the run.
    """
    if engine.placement_problem:
        raise InputError(f"Attention cannot be computed. {engine.placement_problem}.")
    total = request.layout.num_tokens
    if total > MAX_ATTENTION_TOKENS:
        raise InputError(
            f"Prompt too long: {total:,} tokens, token-level attention supports up to "
            f"{MAX_ATTENTION_TOKENS:,}. Use fewer or shorter documents."
        )
    check_model(engine, request.model)
    num_bytes = engine.run_bytes(request.layout, request.methods, 0)
    work = planned(tokens=total, methods=len(request.methods), bytes_at_once=num_bytes)
    return PreparedJob(work, partial(attend, request=request))


def check_model(engine: "pine.Engine", model: str) -> None:
    """Raise InputError if the engine is not that of a run with this model."""
    if engine.model_name != model:
        raise InputError(
            f"This run used {model}, but the current model is {engine.model_name}. Run again or "
            f"switch back to {model}."
        )


def attend(engine: "pine.Engine", request: AttentionRequest) -> Generator[AttentionView, None, None]:
    """Run the prefill of each method and keep the weights of one head."""
    total = request.layout.num_tokens
    config = pine.TraceConfig((pine.TokenRange(request.layer, request.head, 0, total),))
    meter = Meter(total)
    events = engine.generate(request.layout, methods=request.methods, max_new_tokens=0, trace=config)
    began = drawn = time.monotonic()
    with closing(events):
        for event in events:
            meter.see(event)
            if not isinstance(event, pine.RunFinished) and time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                yield AttentionView(progress_sentence(event), request, done=meter.work)
    assert isinstance(event, pine.RunFinished)
    weights = {
        method: trace.token_weights[0].weights[:, :total].astype(np.float16)
        for method, trace in event.result.traces.items()
    }
    sentence = f"Done: layer {request.layer}, head {request.head}, {time.monotonic() - began:.1f} s."
    yield AttentionView(sentence, request, weights, meter.work)
