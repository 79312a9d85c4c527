"""Limits of a run, such as at most 5 % changed answers: tested on the interval of each method's estimate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any, Literal

from pine_engine.errors import InputError, UnknownNameError
from pine_engine.lab.debias.measured import method_label
from pine_engine.lab.evaluation.document_orders import names_of
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.intervals import Estimate, Z
from pine_engine.lab.evaluation.report.tables import estimated
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.lab.evaluation.task_estimates import answer_estimate
from pine_engine.prompts.tasks import TASKS

LIMITED = {"accuracy": "mean", "changed": "changed", "flip_rate": "flip rate", "first_slot": "first slot"}
"""Groups of the estimates that can have a limit, by name."""

Outcome = Literal["passed", "failed", "inconclusive"]

STATUSES: dict[Outcome, int] = {"passed": 0, "failed": 1, "inconclusive": 3}
"""Exit statuses; 2 is that of invalid input."""


@dataclass(frozen=True)
class ResultLimit:
    """A maximum or minimum, a share from 0 to 1, of an estimate of one method, "" for each method."""

    name: str
    method: str
    value: float
    is_maximum: bool


@dataclass(frozen=True)
class LimitResult:
    """Outcome of a limit for one method, and the numbers behind it in a sentence."""

    outcome: Outcome
    sentence: str


def parse_limits(fail_above: Sequence[str], fail_below: Sequence[str]) -> list[ResultLimit]:
    """Return the limits of NAME=VALUE or NAME:METHOD=VALUE. Raises InputError."""
    options = [*(("fail-above", text) for text in fail_above), *(("fail-below", text) for text in fail_below)]
    limits = []
    for option, text in options:
        left, _, number = text.rpartition("=")
        name, _, method = left.partition(":")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not left or not 0 <= value <= 1:
            expected = f"NAME=VALUE with a share from 0 to 1, such as --{option} changed=0.05"
            raise InputError(f"invalid --{option}: got {text!r}, expected {expected}", field=option)
        if name not in LIMITED:
            raise UnknownNameError("limit", name, LIMITED)
        limits.append(ResultLimit(name, method, value, is_maximum=option == "fail-above"))
    return limits


def check_limits(limits: Sequence[ResultLimit], settings: Settings, num_documents: int) -> None:
    """Raise InputError for a limit of something that a run does not measure."""
    num_orders = len(names_of(settings.order_names, num_documents))
    for limit in limits:
        if limit.method and limit.method not in settings.methods:
            raise UnknownNameError("method", limit.method, settings.methods)
        if limit.name == "first_slot" and not TASKS[settings.task].has_letters:
            problem = (
                f"first_slot needs answers that name a document: got task {settings.task}, expected judge"
            )
            raise InputError(f"{problem}. Give another limit", field="first_slot")
        if num_orders < 2 and limit.name != "accuracy":
            problem = f"{limit.name} compares document orders: got one order, expected two or more"
            raise InputError(f"{problem}. Give --orders as-is,reversed", field=limit.name)


def apply_limits(limits: Sequence[ResultLimit], runs: Mapping[str, Sequence[Grid]]) -> Iterator[LimitResult]:
    """Yield the result of each limit for each method in each run; of one method, for the runs that have it.

    Runs have labels, "" if there is one run.
    """
    for limit in limits:
        measured = [
            (f"{run}, " if run else "", grid, method)
            for run, grids in runs.items()
            for grid in grids
            for method in grid.methods
            if limit.method in ("", method)
        ]
        for start, grid, method in measured:
            outcome, reason = _compare(limit, answer_estimate(grid, method, LIMITED[limit.name]))
            yield LimitResult(outcome, f"{start}{method_label(method)} {limit.name} {reason}")
        if not measured:
            yield LimitResult("inconclusive", f"{method_label(limit.method)} {limit.name} was not measured")


def _compare(limit: ResultLimit, estimate: Estimate | None) -> tuple[Outcome, str]:
    """Return the outcome, and the estimate against the limit as text."""
    if estimate is None or estimate.interval is None:
        return "inconclusive", "was not measured"
    if not estimate.is_parsed:
        return "inconclusive", "is unknown, because no answer can be parsed"
    low, high = estimate.interval
    text = f"{estimated(estimate)} %, n = {estimate.num_examples}, limit {100 * limit.value:g} %"
    if low > limit.value or (low == limit.value and not limit.is_maximum):
        return "failed" if limit.is_maximum else "passed", text
    if high < limit.value or (high == limit.value and limit.is_maximum):
        return "passed" if limit.is_maximum else "failed", text
    needed = num_examples_to_decide(estimate.mean, limit.value)
    advice = f"about {needed:,} examples decide it" if needed else "more examples do not decide it"
    return "inconclusive", f"{text}: {advice}"


def num_examples_to_decide(mean: float, limit: float) -> int | None:
    """Return the number of examples whose Wilson interval around the mean leaves out a limit.

    The mean is that of outcomes 0 and 1, which vary most; None for a mean at the limit.
    """
    distance = (mean - limit) ** 2
    return ceil(Z**2 * limit * (1 - limit) / distance) if distance > 1e-12 else None


def limits_json(results: Sequence[LimitResult]) -> dict[str, Any]:
    """Return the outcome of all results as one line, and each result. One that failed fails all."""
    found = {result.outcome for result in results}
    outcome = next(one for one in ("failed", "inconclusive", "passed") if one in found)
    sentences = "; ".join(result.sentence for result in results if result.outcome == outcome)
    return {
        "outcome": outcome,
        "line": f"Limits {outcome}: {sentences}.",
        "results": [asdict(result) for result in results],
    }
