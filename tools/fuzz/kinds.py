"""The kinds of input: each takes a number and a seed, throws so many inputs at one door, and tallies."""

from collections.abc import Callable
from dataclasses import dataclass

from tools.fuzz.commands import throw_commands
from tools.fuzz.insides import throw_files, throw_forms, throw_links, throw_texts
from tools.fuzz.outcomes import Tally
from tools.fuzz.over_http import throw_calls, throw_events, throw_requests
from tools.fuzz.served import Doors


@dataclass(frozen=True)
class Kind:
    """One kind. share: of all inputs."""

    name: str
    share: float
    throw: Callable[[Doors, int, int, Tally], None]


KINDS = (
    Kind("texts as tokens", 0.27, throw_texts),
    Kind("forms", 0.12, throw_forms),
    Kind("links and drafts", 0.22, throw_links),
    Kind("files", 0.20, throw_files),
    Kind("events of the page", 0.08, throw_events),
    Kind("public calls", 0.04, throw_calls),
    Kind("requests", 0.04, throw_requests),
    Kind("commands", 0.03, throw_commands),
)
