"""Kinds of input."""

from collections.abc import Callable
from dataclasses import dataclass

from tools.fuzz.commands import fuzz_commands
from tools.fuzz.insides import fuzz_files, fuzz_forms, fuzz_links, fuzz_texts
from tools.fuzz.outcomes import Tally
from tools.fuzz.over_http import fuzz_calls, fuzz_events, fuzz_requests
from tools.fuzz.served import Targets


@dataclass(frozen=True)
class Kind:
    """Entry point with generated inputs.

    Attributes:
        share: Fraction of all inputs.
        run: Send a number of inputs, generated from a seed, and count the outcomes.
    """

    name: str
    share: float
    run: Callable[[Targets, int, int, Tally], None]


KINDS = (
    Kind("texts as tokens", 0.27, fuzz_texts),
    Kind("forms", 0.12, fuzz_forms),
    Kind("links and drafts", 0.22, fuzz_links),
    Kind("files", 0.20, fuzz_files),
    Kind("events of the page", 0.08, fuzz_events),
    Kind("public calls", 0.04, fuzz_calls),
    Kind("requests", 0.04, fuzz_requests),
    Kind("commands", 0.03, fuzz_commands),
)
