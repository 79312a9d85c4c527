"""Processes that begin at once: forked from one that has imported all and loaded the embedded model."""

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
    """Begins work in a process as at the root of the repository.

    environment: put into that of this process; nothing that is read while something is imported.
    """
    import torch  # here, so that who starts no process need not wait for it

    wholly = os.environ | dict(environment or {})
    # The number of threads decides the last bits of a product.
    told = (work, arguments, stdout, stderr, wholly, torch.get_num_threads())
    process = _context.Process(target=_begin, args=told)
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
