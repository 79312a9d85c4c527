"""Subcommands that run in this process or in a forked one, and their outcomes."""

import contextlib
import dataclasses
import json
import resource
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pine_engine.benchmark import shapes
from pine_engine.cli import main as cli

COMPARISON = {
    "question": "Why?",
    "documents": ["Tides follow the moon.", {"title": "Sun", "text": "It shines."}],
}


class Outcome(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Return the only object on stdout."""
        assert self.stdout.count("\n") == 1 and self.stdout.endswith("\n")
        return json.loads(self.stdout)


Run = Callable[..., Outcome]


def subcommand_runner(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["pine_engine", *map(str, arguments)])
        with pytest.raises(SystemExit) as raised:
            cli.main()
        captured = capfd.readouterr()
        return Outcome(int(raised.value.code or 0), captured.out, captured.err)

    return run


load_engine = shapes.load_engine


@cache
def _loaded(name: str | None, dtype: str, device: str) -> Any:
    return load_engine(name, dtype=dtype, device=device)


def load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let subcommands share each model that they load, and that they do not change."""
    monkeypatch.setattr(
        shapes, "load_engine", lambda name, *, dtype, device, **_: _loaded(name and str(name), dtype, device)
    )


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@dataclasses.dataclass(frozen=True)
class Steps:
    """Announced numbers of steps of progress bars, the texts of the steps, and those within a step."""

    announced: list[int] = dataclasses.field(default_factory=list)
    taken: list[str] = dataclasses.field(default_factory=list)
    within: list[str] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def progress(self, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
        self.announced.append(total - done)
        yield lambda step, steps=1: (self.taken if steps else self.within).append(step)


@contextlib.contextmanager
def max_file_size(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
