"""Processes forked from one that has imported everything and loaded the embedded model."""

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path

ROOT = Path(__file__).parents[2]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.imported"])


def fork(
    work: Callable[..., object],
    *arguments: object,
    stdout: Path,
    stderr: Path,
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """Start work in a process whose folder is the root of the repository.

    environment: added to that of this process; it must not be read by an import.
    """
    import torch  # here, because it is slow

    variables = os.environ | dict(environment or {})
    # The last bits of a GEMM depend on the number of threads.
    all_arguments = (work, arguments, stdout, stderr, variables, torch.get_num_threads())
    process = _context.Process(target=_begin, args=all_arguments)
    process.start()
    return process


def _begin(
    work: Callable[..., object],
    arguments: tuple[object, ...],
    stdout: Path,
    stderr: Path,
    environment: Mapping[str, str],
    threads: int,
) -> None:
    for stream, path in ((sys.stdout, stdout), (sys.stderr, stderr)):
        with path.open("a") as file:
            os.dup2(file.fileno(), stream.fileno())
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    import torch

    torch.set_num_threads(threads)
    work(*arguments)
