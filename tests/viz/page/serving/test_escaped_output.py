"""Output of the process: no client text begins a line or controls a terminal."""

import io
import logging
import traceback

from hypothesis import given, strategies as st

from viz.page.serving.server import CONTINUATION, escape_output


@given(st.text(), st.sampled_from(["log", "print", "traceback"]))
def test_escaped_output_client_text_begins_no_line(text: str, how: str) -> None:
    stream = io.StringIO()
    escape_output(stream)
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
    written = stream.getvalue()
    assert all(character.isprintable() or character in "\n\t" for character in written)
    first = ("request", "ValueError: request", "Traceback", " ", CONTINUATION)
    assert all(line.startswith(first) for line in written.splitlines() if line)


def test_escaped_output_plain_text_stays_as_it_is() -> None:
    stream = io.StringIO()
    escape_output(stream)
    stream.write("\n* Größe 日本 😀\n")
    assert stream.getvalue() == "\n* Größe 日本 😀\n"
