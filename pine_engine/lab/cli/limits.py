"""Options --fail-above and --fail-below, and the exit status and the line that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pine_engine.cli.output import CommandResult
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.report.limits import (
    STATUSES,
    ResultLimit,
    apply_limits,
    limits_json,
    parse_limits,
)


@dataclass(frozen=True)
class LimitOptions:
    """Limits of the results, for automatic checks.

    Attributes:
        fail_above: Maximum of changed, flip_rate, first_slot or accuracy as a share, such as changed=0.05, or
            changed:pine=0.05 for one method; repeatable. In compare: accuracy, or changed for answers that
            differ from those of the first method. Exit status: 0 if the 95 % interval is within the
            limit, 1 if outside, 3 if the limit is inside the interval.
        fail_below: Minimum, such as accuracy=0.8; otherwise as --fail-above.
    """

    fail_above: list[str] | None = None
    fail_below: list[str] | None = None

    def parse(self) -> list[ResultLimit]:
        """Return the limits. Raises InputError for an invalid one."""
        return parse_limits(self.fail_above or (), self.fail_below or ())


def with_limits(
    result: CommandResult, limits: Sequence[ResultLimit], runs: Mapping[str, Sequence[Grid]]
) -> CommandResult:
    """Return a result with the outcome of the limits, unchanged if there are none or the command failed.

    Runs have labels, "" if there is one run.
    """
    if not limits or result.status:
        return result
    found = limits_json([*apply_limits(limits, runs)])
    notes, status = [*result.notes, found["line"]], STATUSES[found["outcome"]]
    return result._replace(report=result.report | {"limits": found}, notes=notes, status=status)
