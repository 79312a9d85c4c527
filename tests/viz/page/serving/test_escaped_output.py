"""Output of the process: no client text begins a line or controls a terminal."""

import io
import logging
import sys
import traceback

import pytest
from hypothesis import given, strategies as st

from viz.page.serving.escaped_output import CONTINUATION, EscapedStream, escape_output


def escaped_stream() -> EscapedStream:
    return EscapedStream(io.TextIOWrapper(io.BytesIO(), "utf-8"))


def written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


@given(st.text(), st.sampled_from(["log", "print", "traceback"]))
def test_escaped_output_client_text_begins_no_line(text: str, how: str) -> None:
    stream = escaped_stream()
    if how == "log":
        logger = logging.Logger("test")
        logger.addHandler(logging.StreamHandler(stream))
        logger.warning("request %s failed", text)
    elif how == "print":
        print(f"request {text} failed", file=stream)
    else:
        try:
            raise ValueError(f"request {text} failed")
        except ValueError:
            traceback.print_exc(file=stream)
    shown = written(stream)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    first = ("request", "ValueError: request", "Traceback", " ", CONTINUATION)
    assert all(line.startswith(first) for line in shown.splitlines() if line)


def test_escaped_output_plain_text_stays_as_it_is() -> None:
    stream = escaped_stream()
    text = "\n* Größe 日本 😀\n"
    assert stream.write(text) == len(text) and written(stream) == text


def test_escape_output_covers_earlier_handlers(monkeypatch: pytest.MonkeyPatch) -> None:
    content = {name: io.BytesIO() for name in ("stdout", "stderr")}
    for name, buffer in content.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(buffer, "utf-8"))
    logger = logging.getLogger("tests.escaped_output")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler()])
    escape_output()
    print("a\x1b")
    logger.warning("b\x1b")
    sys.stdout.flush()
    assert (content["stdout"].getvalue(), content["stderr"].getvalue()) == (b"a\\x1b\n", b"b\\x1b\n")
