"""Run a function in a subprocess with limits of time and memory."""

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
from typing import Any, TypeVar

from pine_engine.errors import PineError, is_out_of_memory

if sys.platform != "win32":
    import resource

Result = TypeVar("Result")

LOOK_S = 0.1  # seconds between two checks of the limits
SERVE = "from viz.page.files.limited_process import serve; serve()"


@dataclass(frozen=True)
class Limits:
    """Limits of one subprocess."""

    cpu_s: float = 20.0  # CPU seconds, on Linux and macOS
    wall_s: float = 60.0  # wall-clock seconds; more than CPU seconds, for a busy machine
    memory: int = 512_000_000  # bytes beyond those of Python and the imports of the function, on Linux
    answer: int = 30_000_000  # bytes of the pickled result


class LimitError(Exception):
    """The process ended early; the text is the exceeded limit (time, memory or answer), or "died"."""


def run_in_subprocess(
    function: Callable[..., Result], *arguments: Any, limits: Limits, look: Callable[[], object]
) -> Result:
    """Run a module-level function with picklable arguments in a subprocess and return its result.

    `look` is called every LOOK_S seconds and may raise to end the subprocess, which is no fork because this
    process has threads and a model. Raises LimitError, and PineErrors of the function.
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
    outcome: bytes | Exception = pickle.loads(answer)
    if isinstance(outcome, Exception):
        raise outcome
    result: Result = pickle.loads(outcome)
    return result


def _ended(status: int) -> Exception:
    """Return the error for the exit status of a subprocess without output."""
    if status > 0:
        return RuntimeError(f"Subprocess failed to start (exit status {status})")
    if sys.platform != "win32" and -status == signal.SIGXCPU:
        return LimitError("time")
    # Rust aborts where Python raises MemoryError; a system that has no memory left kills.
    return LimitError("memory" if -status in (signal.SIGABRT, signal.SIGKILL) else "died")


def serve() -> None:
    """Run in the subprocess: read one job from stdin, write the pickled result or an error to stdout."""
    function, arguments, limits = pickle.load(sys.stdin.buffer)
    logging.disable()
    _limit(limits)
    outcome: bytes | Exception
    try:
        outcome = pickle.dumps(function(*arguments))
        if len(outcome) > limits.answer:
            outcome = LimitError("answer")
    except PineError as error:
        outcome = error
    except Exception as error:  # without its message, which may quote the file
        where = "".join(traceback.format_tb(error.__traceback__))
        outcome = RuntimeError(f"{function.__name__} failed: {type(error).__name__}\n{where}")
        if is_out_of_memory(error):
            outcome = LimitError("memory")
    sys.stdout.buffer.write(pickle.dumps(outcome))


def _limit(limits: Limits) -> None:
    """Set the resource limits."""
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
    """Set one resource limit, unless it is lower already."""
    _, there = resource.getrlimit(kind)
    if there != resource.RLIM_INFINITY:
        soft, hard = min(soft, there), min(hard, there)
    resource.setrlimit(kind, (soft, hard))
