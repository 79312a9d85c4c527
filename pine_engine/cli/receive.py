"""Answers of a backend to the prompts of a subcommand, which stay if the run ends early; with progress."""

from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.output import CommandResult
from pine_engine.endpoint.repeats import Repeats
from pine_engine.errors import EndpointError

if TYPE_CHECKING:  # these import torch
    from pine_engine.backend import Backend
    from pine_engine.engine.events import Event
    from pine_engine.engine.run import RunOptions

MAX_NAMED = 10  # requests without an answer that are listed


@dataclass
class Received:
    """Answers to the prompts of a subcommand.

    Attributes:
        names: Names of the prompts.
        missing: Number of answers that have not arrived, by index of the prompt and method.
        answers: JSON of the last answer of each method to each prompt, or of the reason why there is none.
        orders: Results of each prompt in its document orders, if it has any.
        refused: Name and reason of each request without an answer.
        repeats: For each repeated request, True if both answers are equal.
        has_answers: True if a request has an answer.
        has_requests: True if a server answers.
        is_stopped: True if Ctrl-C ended the run.
    """

    names: Sequence[str]
    missing: dict[tuple[int, str], int]
    answers: list[dict[str, dict[str, Any]]]
    orders: "list[list[pine.OrderResult]]"
    refused: list[tuple[str, str]] = field(default_factory=list)
    repeats: list[bool] = field(default_factory=list)
    has_answers: bool = False
    has_requests: bool = False
    is_stopped: bool = False

    def take(self, index: int, event: "Event | pine.OrderResult") -> tuple[str, int]:
        """Enter an event; return the progress in words, and the number of its answers."""
        name = self.names[index]
        match event:
            case pine.RequestsPlanned(sentence=sentence):
                self.has_requests = True
                output.print_note(sentence)
            case pine.RequestProgress(place=place):
                return place, 0
            case pine.Repeated(is_equal=is_equal):
                self.repeats.append(is_equal)
            case pine.GenerationFinished(answer=answer):
                self.missing[index, answer.method] -= 1
                self.answers[index][answer.method] = answer.to_dict()
                self.has_answers |= not answer.refusal
                if answer.refusal:
                    self.refused.append((f"{name}, {answer.method}", answer.refusal))
                return f"{name}, {answer.method}: answer finished", 1
            case pine.OrderResult():
                self.orders[index].append(event)
        text = output.event_text(event)
        return text and f"{name}: {text}", 0

    def fail(self, error: str) -> None:
        """Enter the failure of all requests that have no answer."""
        for (index, method), count in self.missing.items():
            self.refused += [(f"{self.names[index]}, {method}", error)] * count
            if count:
                answer = {"method": method, "text": None, "error": error}
                self.answers[index].setdefault(method, answer)

    def finish(self, backend: "Backend", result: CommandResult) -> CommandResult:
        """Return a result with the repeats, refusals and end of the run. Refusals are a failure."""
        report, notes, status = dict(result.report), list(result.notes), result.status
        if self.has_requests:
            repeats = Repeats.count(self.repeats)
            report |= {"repeated": asdict(repeats), "is_greedy": backend.answer_warning is None}
            report |= {"refused": [{"request": name, "error": error} for name, error in self.refused]}
            notes += [*repeats.notes(), *filter(None, [backend.answer_warning])]
        if self.refused:
            counts = Counter(self.refused)
            notes.append(f"{len(self.refused)} requests have no answer:")
            for (name, error), count in list(counts.items())[:MAX_NAMED]:
                notes.append(f"  {name}{f' ({count} times)' if count > 1 else ''}: {error}")
            notes += [f"  and {len(counts) - MAX_NAMED} others"] if len(counts) > MAX_NAMED else []
            status = output.FAILED
        if self.is_stopped:
            notes.append("stopped by Ctrl-C: the answers that arrived are listed")
            status = output.STOPPED
        return result._replace(report=report, notes=notes, status=status)


def receive(
    backend: "Backend",
    prompts: "Sequence[tuple[str, pine.TokenLayout]]",
    methods: Sequence[str],
    /,
    *,
    orders: Sequence[Sequence[Sequence[int]]] | None = None,
    **options: Unpack["RunOptions"],
) -> Received:
    """Answer prompts and show progress; Ctrl-C or a failure of all requests keeps the answers before it.

    Without `orders`, those of each prompt to compare, each has its own order alone.

    Raises:
        EndpointError: For a failure of all requests, if none has an answer.
        KeyboardInterrupt: For Ctrl-C before the first answer.
    """
    names, layouts = [name for name, _ in prompts], [layout for _, layout in prompts]
    counts = [1] * len(prompts) if orders is None else list(map(len, orders))
    missing = {(index, method): count for index, count in enumerate(counts) for method in methods}
    received = Received(names, missing, [{} for _ in names], [[] for _ in names])
    options["methods"] = methods
    pairs = backend.run_each(layouts, orders=orders, **options)
    with output.progress(sum(missing.values())) as advance:
        try:
            with closing(pairs):
                for index, event in pairs:
                    text, steps = received.take(index, event)
                    if text:
                        advance(text, steps)
        except (EndpointError, KeyboardInterrupt) as error:
            if not received.has_answers:
                raise
            received.is_stopped = isinstance(error, KeyboardInterrupt)
            if not received.is_stopped:
                received.fail(str(error))
    return received
