"""Computation of jobs in this process, or in a process with a GPU on a Hugging Face ZeroGPU Space.

A function with the decorator `spaces.GPU` runs in a fork that has a GPU for a requested time. Its arguments
and results are pickled. The fork inherits the models that were placed before the launch. Outside of ZeroGPU,
the decorator does nothing.
"""

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from typing import Any

import gradio as gr

try:
    from spaces import GPU  # before anything touches CUDA, which it must replace
except ImportError:  # not there, or a folder of that name in which there is none
    GPU = None

import pine_engine as pine
from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Speed, Work, format_seconds
from viz.page.common.failures import explain

START_S = 10  # extra seconds of a GPU request for moving the weights to the GPU
MARGIN = 1.5  # safety factor of the estimated time
MAX_S = 120  # maximum seconds of a GPU request: the daily quota of a user without login
FIRST_PREFILL_S, FIRST_DECODE_S = 1 / 500, 1 / 20
"""Assumed seconds per prompt token and per new token before the first run."""


_placed: "list[pine.Engine]" = []  # engines inherited by forks; an engine cannot be pickled
_speed = Speed()  # speed on the GPU, without the wait for it


def place(engine: "pine.Engine") -> None:
    """Let forks of this process inherit an engine; called before the launch."""
    engine.allow_forks()
    _placed.append(engine)


def compute(engine: "pine.Engine", job: PreparedJob[Any]) -> Generator[Any, None, None]:
    """Yield the views of a job on an engine; closing the generator stops the model.

    On ZeroGPU, raises PineError with the message of any failure, and InputError for work beyond the quota.
    """
    if not IS_ZEROGPU:
        yield from job.views(engine)
        return
    if engine not in _placed:
        raise ModelError(
            f"{engine.model_name} is not available: ZeroGPU supports only models loaded at startup. "
            "Select the default model."
        )
    seconds = gpu_request_seconds(job.work, _speed)
    began = time.monotonic()
    try:
        with closing(_compute_on_gpu(_placed.index(engine), job.views, seconds)) as views:
            for number, view in enumerate(views):
                if isinstance(view, PineError):
                    raise view
                if number == 0:  # the wait for the GPU is over
                    began = time.monotonic()
                yield view
    except gr.Error as error:
        raise PineError(
            f"ZeroGPU error: {error.message} (GPU time: {seconds} s). Partial results are kept. "
            "Try again later or with a smaller request."
        ) from error
    _speed.learn(guessed(job.work), time.monotonic() - began)


def guessed(work: Work) -> Work:
    """Add assumed seconds to the work, before the first run."""
    prefill_s, decode_s = work.prompt_tokens * FIRST_PREFILL_S, work.new_tokens * FIRST_DECODE_S
    return replace(work, prefill_s=prefill_s, decode_s=decode_s)


def gpu_request_seconds(work: Work, speed: Speed) -> int:
    """Return the seconds of the GPU request. Raises InputError beyond the quota."""
    measured = speed.seconds(work)
    if measured is None:
        guess = guessed(work)
        return min(MAX_S, math.ceil(START_S + guess.prefill_s + guess.decode_s))
    seconds = math.ceil(START_S + MARGIN * measured)
    if seconds > MAX_S:
        raise InputError(
            f"Estimated time too long for ZeroGPU: {format_seconds(measured)} ({seconds} s with margin, "
            f"limit: {MAX_S} s). Use fewer methods, orders or examples, or shorter inputs."
        )
    return seconds


def _compute_placed(
    index: int, views: "Callable[[pine.Engine], Generator[Any, None, None]]", seconds: int
) -> Generator[Any, None, None]:
    """Yield the views, then the failure, if any; `index` is the engine in _placed."""
    try:
        yield from views(_placed[index])
    except Exception as error:
        yield PineError(explain(error))  # of an exception that is raised, `spaces` transfers the name alone


# spaces calls the function with the arguments of `_compute_placed`.
_compute_on_gpu = (
    GPU(duration=lambda index, views, seconds: seconds)(_compute_placed) if GPU else _compute_placed
)

IS_ZEROGPU = _compute_on_gpu is not _compute_placed  # True on ZeroGPU
