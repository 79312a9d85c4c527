"""Token-level attention: a prompt, a layer and a head go in, weights come out."""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pine_engine.attention.trace import TokenRange, TraceConfig
from pine_engine.engine.events import RunFinished
from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from viz.page.answers.answering import REDRAW_S, progress_sentence
from viz.page.jobs.cost import Work, planned
from viz.page.jobs.metering import Meter

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

MAX_ATTENTION_TOKENS = 2_000
"""Maximum prompt tokens: the weights of two methods then take 16 MB in the session."""


@dataclass(frozen=True)
class AttentionRequest:
    """Prompt, layer, head and methods of the weights; `model` is the model of the run."""

    layout: TokenLayout
    model: str
    methods: tuple[str, ...]
    layer: int
    head: int


@dataclass(frozen=True)
class Attended:
    """Weights by method: float16 (N, N) of the N prompt tokens, queries first, NaN where masked."""

    request: AttentionRequest
    weights: dict[str, NDArray[np.float16]]


@dataclass(frozen=True)
class AttendedView:
    """State of the page during the job."""

    sentence: str
    attended: Attended | None = None
    done: Work | None = None
    """Work so far."""


def attend(engine: "Engine", request: AttentionRequest) -> Generator[AttendedView, None, None]:
    """Run the prefill of each method and keep the weights of one head.

    Raises InputError for a prompt beyond the limit, or if the engine is not that of the run.
    """
    total = request.layout.num_tokens
    if total > MAX_ATTENTION_TOKENS:
        raise InputError(
            f"Prompt too long: {total:,} tokens, token-level attention supports up to "
            f"{MAX_ATTENTION_TOKENS:,}. Use fewer or shorter documents."
        )
    if engine.model_name != request.model:
        raise InputError(
            f"This run is of {request.model}, and the model is {engine.model_name} now; press Run, or choose "
            "that model again."
        )
    config = TraceConfig((TokenRange(request.layer, request.head, 0, total),))
    meter = Meter(total)
    events = engine.generate(request.layout, methods=request.methods, max_new_tokens=0, trace=config)
    began = drawn = time.monotonic()
    with closing(events):
        for event in events:
            meter.see(event)
            if not isinstance(event, RunFinished) and time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                yield AttendedView(progress_sentence(event), done=meter.work)
    assert isinstance(event, RunFinished)
    weights = {
        method: trace.token_weights[0].weights[:, :total].astype(np.float16)
        for method, trace in event.result.traces.items()
    }
    sentence = f"Done: layer {request.layer}, head {request.head}, {time.monotonic() - began:.1f} s."
    yield AttendedView(sentence, Attended(request, weights), meter.work)


def plan_attention(request: AttentionRequest) -> Work:
    """Plan one prefill per method."""
    return planned(tokens=request.layout.num_tokens, methods=len(request.methods))
