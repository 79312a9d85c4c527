"""Verbs of the command line, run in this process, and what they leave behind."""

import contextlib
import dataclasses
import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pine_engine.cli import main as cli
from tests.support.forks import fork

COMPARISON = {
    "question": "Why?",
    "documents": ["Tides follow the moon.", {"title": "Sun", "text": "It shines."}],
}
"""What `compare` reads."""


class Outcome(NamedTuple):
    """What a verb left behind."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one object on stdout."""
        assert self.stdout.count("\n") == 1 and self.stdout.endswith("\n")
        return json.loads(self.stdout)


Run = Callable[..., Outcome]


def verb_runner(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a verb with its arguments; what it prints is read from the file descriptors."""

    def run(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["pine_engine", *map(str, arguments)])
        with pytest.raises(SystemExit) as raised:
            cli.main()
        captured = capfd.readouterr()
        return Outcome(int(raised.value.code or 0), captured.out, captured.err)

    return run


@dataclasses.dataclass(frozen=True)
class Forked:
    """A verb in a process of its own, and the files that it prints into."""

    process: BaseProcess
    stdout: Path
    stderr: Path

    def outcome(self) -> Outcome:
        """What it leaves behind when it has ended."""
        self.process.join(200)
        assert self.process.exitcode is not None, self.stderr.read_text()
        return Outcome(self.process.exitcode, self.stdout.read_text(), self.stderr.read_text())


def run_cli_forked(folder: Path, *arguments: object, environment: Mapping[str, str] | None = None) -> Forked:
    """Begins a verb with its arguments; what it prints goes into files in the folder."""
    stdout, stderr = (folder / f"{secrets.token_hex(8)}.{stream}" for stream in ("out", "err"))
    words = ["pine_engine", *map(str, arguments)]
    return Forked(
        fork(run_verb, words, stdout=stdout, stderr=stderr, environment=environment), stdout, stderr
    )


def run_verb(words: list[str]) -> None:
    """What a process does that runs a verb; words: of its command line."""
    sys.argv = words
    cli.main()


def write(path: Path, content: Any) -> Path:
    """Writes a text as it is, anything else as JSON; returns the path."""
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def assert_refused(outcome: Outcome, sentence: str) -> None:
    """Bad input is one line, exit status 2 and nothing on stdout."""
    assert outcome.stdout == ""
    assert outcome.stderr == f"pine_engine: {sentence}\n"
    assert outcome.status == 2


@dataclasses.dataclass(frozen=True)
class Steps:
    """How many steps each progress bar announced, and what each step said."""

    announced: list[int] = dataclasses.field(default_factory=list)
    taken: list[str] = dataclasses.field(default_factory=list)

    @contextlib.contextmanager
    def progress(self, total: int, done: int = 0) -> Iterator[Callable[[str], None]]:
        """In place of output.progress."""
        self.announced.append(total - done)
        yield self.taken.append


def load_nothing(*_: Any, **__: Any) -> None:
    """In place of output.load, where what is wrong can be known before a model is there."""
    raise AssertionError("a model was loaded")
