"""Output of the subcommands: control characters are shown as such, and progress away from a terminal."""

import io
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from pine_engine.cli import output
from tests.support.api_server import running_app
from tests.support.commands import Run, write
from tests.support.scripted_endpoint import ScriptedServer, answer, failure

HOSTILE = "\x1b[31mred\x07\x9b2J\u202eabc\r\x00"
DANGEROUS = set("\x1b\x07\x9b\u202e\r\x00")


@pytest.mark.parametrize("respond", [answer(HOSTILE), failure(400, HOSTILE)], ids=["answer", "refusal"])
def test_control_characters_of_a_server_are_escaped(pine: Run, tmp_path: Path, respond: object) -> None:
    server = ScriptedServer()
    server.respond = lambda _: respond
    file = write(tmp_path / "q.json", {"question": "Who?", "documents": ["a", "b"]})
    with running_app(server.app) as address:
        outcome = pine("compare", file, "--methods", "vanilla", "--endpoint", f"{address}/v1", "--model", "m")
    printed = outcome.stdout + outcome.stderr
    assert not DANGEROUS & set(printed) and "\\x1b[31mred" in printed and "\\u202eabc" in printed


@given(st.text())
def test_printable_keeps_other_text(text: str) -> None:
    shown = output.printable(text)
    assert shown.isprintable() or not shown.isascii() or set("\n\t") & set(shown)
    assert not DANGEROUS & set(shown)
    if text.isprintable():
        assert shown == text


def test_control_characters_in_notes_and_tables_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=80)
    monkeypatch.setattr(output, "stderr", console)
    output.print_note(HOSTILE)
    output.print_rows(console, [{"id": HOSTILE, "text": HOSTILE * 20}])
    assert not DANGEROUS & set(shown.getvalue()) and "\\x1b[31m" in shown.getvalue()


def test_progress_away_from_a_terminal_is_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("pine_engine.cli.output.time.monotonic", lambda: now[0])
    with output.progress(100, 10) as advance:
        for number in range(90):
            now[0] += 2.0
            advance(f"q{number}\x1b: vanilla")
    lines = capsys.readouterr().err.splitlines()
    assert 10 < len(lines) < 20  # every 10 seconds of 180
    assert (
        lines[0].startswith("15 of 100, 10 s elapsed, about 170 s left: q4\\x1b: vanilla")
        or "15 of 100" in lines[0]
    )


def test_short_commands_print_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress(5) as advance:
        for _ in range(5):
            advance("step")
    assert capsys.readouterr().err == ""
