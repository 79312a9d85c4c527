"""Outcomes of inputs, and checks of the HTML of the page."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pine_engine.errors import PineError
from tests.support.viz_reading import assert_harmless

TIMEOUT_S = 120.0
"""Maximum seconds of one input on a busy machine; all except compressed PDFs take far less."""

INTERNAL_ERROR = "Internal error"
"""Start of the message of an error that is not a user error."""

_LIVE = re.compile(r"<(?:img src=x|script>window|svg onload|iframe|style>@|link rel)")
"""Payloads of the corpus as markup."""


@dataclass
class Tally:
    """Counts of one kind of input, and its failures, each with the input."""

    kind: str
    inputs: int = 0
    refused: int = 0
    answered: int = 0
    control_tokens: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def run(self, case: Any, work: Callable[[], bool]) -> None:
        """Send one input and count its outcome.

        Args:
            case: Input.
            work: Returns True if the input was answered and False if it was rejected. A PineError with a
                message is a rejection, all other errors are failures.
        """
        self.inputs += 1
        began = time.monotonic()
        try:
            answered = work()
        except PineError as error:
            answered = False
            if not str(error).strip() or INTERNAL_ERROR in str(error):
                self.fail(case, f"rejected without a message: {error!r}")
        except Exception as error:
            self.fail(case, f"{type(error).__name__}: {error}")
            return
        finally:
            seconds = time.monotonic() - began
            if seconds > TIMEOUT_S:
                self.fail(case, f"took {seconds:.0f} s")
        if answered:
            self.answered += 1
        else:
            self.refused += 1

    def fail(self, case: Any, reason: str) -> None:
        """Add a failure."""
        self.failures.append(f"{reason[:300]} -- {repr(case)[:300]}")


class FailureError(Exception):
    """Result that a user must not get."""


def check_html(html: str) -> None:
    """Check that HTML has no markup of the input.

    Raises:
        FailureError: The HTML has an element or attribute that no template writes.
    """
    try:
        assert_harmless(f"<div>{html}</div>")
    except AssertionError as error:
        raise FailureError(f"HTML with markup that no template writes: {error}") from error


def check_updates(value: Any) -> bool:
    """Check the outputs of an event. Return True for an answer, False for an error message.

    Raises:
        FailureError: A message is about an internal error, or a payload is part of the HTML.
    """
    is_rejected = False
    for text in _texts(value):
        if INTERNAL_ERROR in text:
            raise FailureError(text[:200])
        is_rejected = is_rejected or 'role="alert"' in text
        if text.lstrip().startswith("<") and "page-" in text and _LIVE.search(text):
            raise FailureError(f"a payload is part of the HTML: {text[:200]}")
    return not is_rejected


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    return []
