"""Attention token by token, seen from the page: a prompt, a layer and a head go in, weights come out."""

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

MOST_TOKENS = 2_000
"""Of a prompt: the weights of two methods are then 16 MB, which a visitor's session keeps."""


@dataclass(frozen=True)
class AttentionRequest:
    """What is to be computed. model: name of the one that gave the run. methods: beside each other."""

    layout: TokenLayout
    model: str
    methods: tuple[str, ...]
    layer: int
    head: int


@dataclass(frozen=True)
class Attended:
    """What was computed.

    weights: by method, float16 (N, N) of the N tokens of the prompt, queries first, NaN where masked. Below
    1e-6, where nothing is told apart in a figure, they are rounded coarsely.
    """

    asked: AttentionRequest
    weights: dict[str, NDArray[np.float16]]


@dataclass(frozen=True)
class AttendedView:
    """What the page shows."""

    sentence: str
    attended: Attended | None = None
    done: Work | None = None
    """The work so far."""


def attend(engine: "Engine", asked: AttentionRequest) -> Generator[AttendedView, None, None]:
    """Reads the prompt under each method, and keeps one head's weights; closing it stops the model.

    Raises InputError for a longer prompt than MOST_TOKENS, and where the engine is not the run's own.
    """
    total = asked.layout.num_tokens
    if total > MOST_TOKENS:
        raise InputError(
            f"The prompt has {total:,} tokens, and single tokens are drawn of at most {MOST_TOKENS:,}; "
            "run fewer or shorter documents."
        )
    if engine.model_name != asked.model:
        raise InputError(
            f"This run is of {asked.model}, and the model is {engine.model_name} now; press Run, or choose "
            "that model again."
        )
    request = TraceConfig((TokenRange(asked.layer, asked.head, 0, total),))
    meter = Meter(total)
    events = engine.generate(asked.layout, methods=asked.methods, max_new_tokens=0, trace=request)
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
    sentence = f"Done: layer {asked.layer}, head {asked.head}, {time.monotonic() - began:.1f} s."
    yield AttendedView(sentence, Attended(asked, weights), meter.work)


def plan_attention(asked: AttentionRequest) -> Work:
    """The work of reading the prompt under each method."""
    return planned(tokens=asked.layout.num_tokens, methods=len(asked.methods))
