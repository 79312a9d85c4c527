"""A function computed in a process of its own, which is killed when its time or its memory is over."""

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal, TypeVar

from pine_engine.errors import PineError

if sys.platform != "win32":
    import resource

Result = TypeVar("Result")

LOOK_S = 0.1
"""How often it is looked at whether the process has to end."""

SERVE = "from viz.page.files.limited_process import serve; serve()"


@dataclass(frozen=True)
class Limits:
    """What one process may take."""

    cpu_s: float = 20.0
    """Seconds of computing, on Linux and macOS."""

    wall_s: float = 60.0
    """Seconds by the clock, everywhere; more, for a busy machine."""

    memory: int = 512_000_000
    """Bytes beside those of Python and of what the function imports, on Linux."""

    answer: int = 30_000_000
    """Bytes of the result, pickled."""


class LimitError(Exception):
    """The process ended before it was done. which: the limit that was reached, "died" for none of them."""

    def __init__(self, which: Literal["time", "memory", "answer", "died"]) -> None:
        super().__init__(which)
        self.which = which


@dataclass(frozen=True)
class Outcome:
    """What a process hands back."""

    result: bytes = b""
    """Pickled."""

    refused: PineError | None = None
    """The error that the function has raised for its reader."""

    limit: Literal["memory", "answer"] | None = None
    """As in LimitError."""

    failed: str = ""
    """The traceback of a mistake of ours, without the error's words."""


def compute_apart(
    function: Callable[..., Result], *arguments: Any, limits: Limits, look: Callable[[], object]
) -> Result:
    """What the function of a module returns for these arguments; all of these can be pickled.

    look: is called every LOOK_S seconds meanwhile; what it raises ends the process, as leaving this function
    by any way does. Raises what the function raises as PineError, and LimitError. A process of its own and no
    fork: this one has threads and a model.
    """
    job: bytes | None = pickle.dumps((function, arguments, limits))
    end = time.monotonic() + limits.wall_s
    with subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # what a parser complains of quotes the file
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
    ) as process:
        try:
            while True:
                try:
                    answer, _ = process.communicate(job, timeout=LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    job = None  # it is being sent
                look()
                if time.monotonic() > end:
                    raise LimitError("time")
        finally:
            process.kill()
    if process.returncode:
        raise _ended(process.returncode)
    outcome: Outcome = pickle.loads(answer)
    if outcome.refused is not None:
        raise outcome.refused
    if outcome.limit is not None:
        raise LimitError(outcome.limit)
    if outcome.failed:
        raise RuntimeError(f"in the process that computes {function.__name__}: {outcome.failed}")
    result: Result = pickle.loads(outcome.result)
    return result


def _ended(status: int) -> Exception:
    """Why a process has ended without an answer, by its status."""
    if status > 0:
        return RuntimeError(f"a process could not begin: it ended with status {status}")
    if sys.platform != "win32" and -status == signal.SIGXCPU:
        return LimitError("time")
    # Rust aborts where Python raises MemoryError; a system that has no memory left kills.
    return LimitError("memory" if -status in (signal.SIGABRT, signal.SIGKILL) else "died")


def serve() -> None:
    """The other end: reads one job from stdin, writes what came of it to stdout."""
    function, arguments, limits = pickle.load(sys.stdin.buffer)
    logging.disable()
    _limit(limits)
    try:
        result = pickle.dumps(function(*arguments))
        outcome = Outcome(result) if len(result) <= limits.answer else Outcome(limit="answer")
    except PineError as error:
        outcome = Outcome(refused=error)
    except MemoryError:
        outcome = Outcome(limit="memory")
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__))
        outcome = Outcome(failed=f"{type(error).__name__}\n{where}")
    sys.stdout.buffer.write(pickle.dumps(outcome))


def _limit(limits: Limits) -> None:
    """Sets what the system ends this process at."""
    if sys.platform == "win32":
        return
    os.nice(19)  # the page and its model come first
    _lower(resource.RLIMIT_CORE, 0, 0)
    seconds = ceil(time.process_time() + limits.cpu_s)
    _lower(resource.RLIMIT_CPU, seconds, seconds + 1)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        memory = pages * resource.getpagesize() + limits.memory
        _lower(resource.RLIMIT_AS, memory, memory)


def _lower(kind: int, soft: int, hard: int) -> None:
    """Sets a limit of the system, where there is none that is lower."""
    _, there = resource.getrlimit(kind)
    if there != resource.RLIM_INFINITY:
        soft, hard = min(soft, there), min(hard, there)
    resource.setrlimit(kind, (soft, hard))
