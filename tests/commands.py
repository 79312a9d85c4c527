"""Verbs of the command line, run in this process, and what they leave behind."""

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from pine_engine import cli


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
