"""What methods cost: seconds and tokens of what was computed, and how many times the baseline's."""

from collections.abc import Callable

import numpy as np

from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.bootstrap import Resamples, ratio
from pine_engine.evaluation.summary.grid import Grid
from pine_engine.evaluation.summary.intervals import Estimate, Floats
from pine_engine.evaluation.summary.results import Cost

BASELINE = "vanilla"
"""The method with which times are compared."""


def cost_of(grid: Grid, method: str, drawn: Resamples) -> Cost:
    """Times and tokens of one method over the examples of a grid."""
    computed = grid.values(method, lambda record: 1.0 if record.computed else None)

    def per_record(value: Callable[[Record], float | None], kept: Floats) -> Estimate | None:
        values = grid.values(method, value) * kept
        return ratio(_sum(values), _sum(np.isfinite(values)), drawn)

    def to_baseline(value: Callable[[Record], float]) -> Estimate | None:
        if method == BASELINE or BASELINE not in grid.methods:
            return None
        both = computed * grid.values(BASELINE, lambda record: 1.0 if record.computed else None)
        ours, theirs = grid.values(method, value) * both, grid.values(BASELINE, value) * both
        return ratio(_sum(ours), _sum(theirs), drawn)

    def writes(name: str) -> bool:
        return bool(np.isfinite(grid.values(name, lambda record: record.answer_tokens)).any())

    is_alike = BASELINE in grid.methods and writes(method) == writes(BASELINE)
    every = np.ones_like(computed)
    return Cost(
        computed=int(np.isfinite(computed).sum()),
        seconds=per_record(lambda record: record.seconds, computed),
        prefill_s=per_record(lambda record: record.prefill_s, computed),
        decode_s=per_record(lambda record: record.decode_s, computed),
        ratio=to_baseline(lambda record: record.prefill_s + record.decode_s) if is_alike else None,
        prefill_ratio=to_baseline(lambda record: record.prefill_s),
        prompts=per_record(lambda record: record.prompts, every),
        prompt_tokens=per_record(lambda record: record.prompt_tokens, every),
        answer_tokens=per_record(lambda record: record.answer_tokens, every),
    )


def _sum(values: Floats) -> Floats:
    """(n,): of each example, over its arrangements."""
    totals: Floats = np.nansum(values, axis=1)
    return totals
