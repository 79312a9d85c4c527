"""What came of one input, and how an HTML of the page is judged."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pine_engine.errors import PineError
from tests.support.viz_reading import assert_harmless

PATIENCE_S = 120.0
"""What one input may take on a busy machine; all but packed PDFs need far less."""

OUR_MISTAKE = "Internal error"
"""How the page speaks of an error that is none of its visitors'."""

_LIVE = re.compile(r"<(?:img src=x|script>window|svg onload|iframe|style>@|link rel)")
"""Payloads of the corpus that came out as HTML."""


@dataclass
class Tally:
    """The figures of one kind of input. failures: what went wrong, each with the input."""

    kind: str
    inputs: int = 0
    refused: int = 0
    answered: int = 0
    control_tokens: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def judge(self, given: Any, work: Callable[[], bool]) -> None:
        """Counts one input. work: True for answered, False for refused; what it raises is a failure.

        A PineError is a refusal too, if it says something.
        """
        self.inputs += 1
        began = time.monotonic()
        try:
            answered = work()
        except PineError as error:
            answered = False
            if not str(error).strip() or OUR_MISTAKE in str(error):
                self.fail(given, f"refused without a sentence: {error!r}")
        except Exception as error:
            self.fail(given, f"{type(error).__name__}: {error}")
            return
        finally:
            took = time.monotonic() - began
            if took > PATIENCE_S:
                self.fail(given, f"took {took:.0f} s")
        if answered:
            self.answered += 1
        else:
            self.refused += 1

    def fail(self, given: Any, reason: str) -> None:
        """Notes a failure."""
        self.failures.append(f"{reason[:300]} -- {repr(given)[:300]}")


class FailureError(Exception):
    """What came of an input is not what a visitor may see."""


def check_html(html: str) -> None:
    """Raises FailureError if the HTML has anything of what was typed as markup."""
    try:
        assert_harmless(f"<div>{html}</div>")
    except AssertionError as error:
        raise FailureError(f"HTML with markup that no template writes: {error}") from error


def check_updates(value: Any) -> bool:
    """What an event gave the page: True if it answered, False if it said what is wrong.

    Raises FailureError for a sentence on a mistake of ours, or for a payload among the HTML.
    """
    said = False
    for text in _texts(value):
        if OUR_MISTAKE in text:
            raise FailureError(text[:200])
        said = said or 'role="alert"' in text
        if text.lstrip().startswith("<") and "page-" in text and _LIVE.search(text):
            raise FailureError(f"a payload came out as HTML: {text[:200]}")
    return not said


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return []
