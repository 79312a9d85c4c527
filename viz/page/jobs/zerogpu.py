"""Where the model computes: in this process, or on ZeroGPU in another one, to which a GPU is lent.

A ZeroGPU Space of Hugging Face has no GPU of its own. A function that `spaces.GPU` has decorated is run in a
fork of this process, which has a GPU for the seconds that were asked for and is ended when they are over.
What is handed to it and what it yields is pickled: plain data, no tensors of the GPU. It inherits the models
that were placed before the page was launched. Everywhere else `spaces` changes nothing or is not there.
"""

import math
import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import gradio as gr

try:
    from spaces import GPU  # before anything touches CUDA, which it must replace
except ImportError:  # not there, or a folder of that name in which there is none
    GPU = None

from pine_engine.errors import InputError, ModelError, PineError
from viz.page.common.failures import explain
from viz.page.jobs.cost import Speed, Work, in_words

if TYPE_CHECKING:  # importing the engine imports torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine

View = TypeVar("View")

START_S = 10
"""Seconds asked for beyond what the work takes: the weights are moved to the GPU first."""

MARGIN = 1.5
"""How much longer than estimated the work may take."""

MOST_S = 120
"""Longest time, in seconds, for which a GPU is asked: the daily share of a visitor who is not logged in."""

FIRST_READ_S, FIRST_WRITE_S = 1 / 500, 1 / 20
"""Seconds per prompt token and per token of an answer that are reckoned with until a run was measured."""


@dataclass(frozen=True)
class _Failed:
    """Work failed: the sentence for the reader. spaces would tell the name of an exception only."""

    sentence: str


_placed: "list[Engine]" = []
"""What a fork inherits; a model cannot be handed to it, being on a GPU that only the fork has."""


_speed = Speed()
"""Of the GPU, without the wait for it."""


def place(engine: "Engine") -> None:
    """Makes an engine known to forks of this process; to be called before the page is launched."""
    engine.allow_forks()
    _placed.append(engine)


def compute(
    engine: "Engine",
    work: "Callable[[Engine], Generator[View, None, None]]",
    *,
    plan: "Callable[[Engine], Work]",
) -> Generator[View, None, None]:
    """Yields what work(engine) yields; closing this closes the work, which stops the model.

    work: a function of a module, with arguments bound to it by functools.partial, which are plain data like
    what it yields. plan: says how much that is; only asked on ZeroGPU.
    Raises what work raises. On ZeroGPU that is PineError, with the sentence of what was raised or with what
    ZeroGPU says when it lends no GPU, and InputError, before it is asked, for work that takes too long.
    """
    if not IS_LENT:
        yield from work(engine)
        return
    if engine not in _placed:
        raise ModelError(
            f"{engine.model_name} was loaded after the start, and on ZeroGPU only models that were there at "
            "the start can be used; choose the one that the page was started with"
        )
    planned = plan(engine)
    asked = seconds_to_ask(planned, _speed)
    began = time.monotonic()
    try:
        with closing(_compute_lent(_placed.index(engine), work, asked)) as views:
            for number, view in enumerate(views):
                if isinstance(view, _Failed):
                    raise PineError(view.sentence)
                if number == 0:  # the wait for the GPU is over
                    began = time.monotonic()
                yield view
    except gr.Error as error:
        raise PineError(
            f"ZeroGPU, which lends the GPU for {asked} s, says: {error.message}. What was shown so far is "
            "kept; try again, later or with less work."
        ) from error
    _speed.learn(guessed(planned), time.monotonic() - began)


def guessed(work: Work) -> Work:
    """The work with the seconds that it is reckoned to take until something was measured."""
    read_s, write_s = work.prompt_tokens * FIRST_READ_S, work.new_tokens * FIRST_WRITE_S
    return replace(work, read_s=read_s, write_s=write_s)


def seconds_to_ask(work: Work, speed: Speed) -> int:
    """For how many seconds a GPU is asked. Raises InputError if they are too many by what was measured."""
    measured = speed.seconds(work)
    if measured is None:
        guess = guessed(work)
        return min(MOST_S, math.ceil(START_S + guess.read_s + guess.write_s))
    asked = math.ceil(START_S + MARGIN * measured)
    if asked > MOST_S:
        raise InputError(
            f"this would take about {in_words(measured)}, and with a margin ({asked} s) that is longer than "
            f"the {MOST_S} s for which the GPU is lent; ask for fewer methods, orders or rows, shorter "
            "documents or a shorter answer"
        )
    return asked


def _compute_placed(
    index: int, work: "Callable[[Engine], Generator[Any, None, None]]", seconds: int
) -> Generator[Any, None, None]:
    """What work yields, then why it failed if it does. index: of the engine in _placed."""
    try:
        yield from work(_placed[index])
    except Exception as error:
        yield _Failed(explain(error))


def _seconds_of(index: int, work: Any, seconds: int) -> int:
    """What is asked for; spaces calls it with the arguments of the work."""
    return seconds


_compute_lent = GPU(duration=_seconds_of)(_compute_placed) if GPU else _compute_placed

IS_LENT = _compute_lent is not _compute_placed
"""Whether this is ZeroGPU; elsewhere decorating changes nothing."""
