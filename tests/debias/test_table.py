"""Names of methods and of wrapped methods, and the columns of the table."""

from collections.abc import Sequence
from itertools import product

import pytest

from pine_engine.debias.table import (
    DEBIASERS,
    NUM_MEASURED,
    Wrapper,
    find_measured,
    measured_method,
    measured_methods,
    method_label,
    method_mark,
)
from pine_engine.errors import InputError
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.grid import make_grid
from pine_engine.methods.table import METHODS, get_methods
from tests.support.records import swept

ALL_NAMES = [*METHODS, *(f"{wrapper}:{base}" for wrapper, base in product(DEBIASERS, METHODS))]


def test_every_method_can_be_wrapped() -> None:
    found = measured_methods(ALL_NAMES)
    assert [one.name for one in found] == ALL_NAMES
    assert [one.rank for one in found] == list(range(NUM_MEASURED))
    assert len({one.label for one in found}) == len({one.mark for one in found}) == NUM_MEASURED
    assert [one.mark for one in found[: len(METHODS)]] == list(range(len(METHODS)))


def test_name_has_wrapper_and_base() -> None:
    around_pine = measured_method("calibration_every:pine")
    assert (around_pine.wrapper, around_pine.base) == (DEBIASERS["calibration_every"], METHODS["pine"])
    assert around_pine.label == "Calibration, every token (PINE)"
    alone = measured_method("permutation_full")
    assert (alone.name, alone.label) == ("permutation_full:vanilla", "Permutation, full (Vanilla)")
    assert measured_method("pine").wrapper is None


@pytest.mark.parametrize(
    ("name", "promised"),
    [
        ("vanilla", False),
        ("pine", True),
        ("permutation_full:vanilla", True),
        ("permutation_cyclic:vanilla", False),
        ("permutation_cyclic:pine", False),
        ("permutation_sampled:pcw", False),
        ("pride:pine", False),
        ("calibration_labels:vanilla", False),
        ("calibration_labels:pine", True),
        ("calibration_first:nia", False),
        ("calibration_every:pcw", True),
    ],
)
def test_invariance_depends_on_wrapper_and_base(name: str, promised: bool) -> None:
    assert measured_method(name).is_order_invariant == promised


@pytest.mark.parametrize("row", DEBIASERS.values(), ids=lambda row: row.name)
def test_columns_of_each_wrapper_agree(row: Wrapper) -> None:
    words = {"always": "yes", "of base": "no, unless the base method is"}
    assert row.invariance.startswith(words.get(row.invariance_kind, ("no:", "only if")))
    # Either the order of the documents changes or their content does.
    assert (row.orders is None) == (row.calibrated != "nothing")


def test_default_methods_and_all_have_no_wrapper() -> None:
    assert [one.base for one in measured_methods()] == list(get_methods())
    assert [one.name for one in measured_methods(["all"])] == list(METHODS)


@pytest.mark.parametrize(
    "names",
    [
        [], ["magic"], ["magic:pine"], ["pine:vanilla"], ["pride:magic"], ["pride:"],
        ["pride:permutation_full"], ["pride:permutation_full:vanilla"], ["pine", "pine"],
        ["pride", "pride:vanilla"], ["all", "pride"],
    ],
)  # fmt: skip
def test_unknown_nested_and_duplicate_names_are_refused(names: Sequence[str]) -> None:
    with pytest.raises(InputError):
        measured_methods(names)


def test_records_of_wrapped_methods_follow_the_methods() -> None:
    """Methods that the tables no longer have come last, by their names."""
    names = ["pine", "lost", "permutation_full:pine", "calibration_every:vanilla", "vanilla"]
    names += ["permutation_full:vanilla", "lost_too"]
    grid = make_grid([swept("q", name, slot, score=1.0) for slot in (0, 1, 2) for name in names])
    assert grid.methods == (
        "vanilla", "pine", "permutation_full:vanilla", "permutation_full:pine", "calibration_every:vanilla",
        "lost", "lost_too",
    )  # fmt: skip
    assert [method_label(name) for name in grid.methods[1:3]] == ["PINE", "Permutation, full (Vanilla)"]
    assert method_label("lost") == "lost" and find_measured("lost") is None
    assert method_mark("lost") == NUM_MEASURED > max(method_mark(name) for name in ALL_NAMES)


def test_cost_is_compared_without_reuse() -> None:
    """Both orders are reused from vanilla: half of the seconds, twice the work."""
    alone = [swept(f"q{index}", "vanilla", 0, score=1.0, seconds=4.0) for index in range(3)]
    wrapped = [
        record.model_copy(
            update={"method": "permutation_full:vanilla", "prompts": 2, "prefill_s": 8.0, "seconds": 2.0}
        )
        for record in alone
    ]
    (task,) = estimate_tasks([*alone, *wrapped])
    costs = {
        (one.method.partition(":")[0], one.group): one.mean for one in task.estimates if one.metric == "cost"
    }
    assert costs["permutation_full", "ratio"] == costs["permutation_full", "prefill_ratio"] == 2
    assert (costs["vanilla", "prompts"], costs["permutation_full", "prompts"]) == (1, 2)
    assert costs["permutation_full", "seconds"] == 2


def test_method_without_answers_is_compared_by_prefill() -> None:
    alone = [swept(f"q{index}", "vanilla", 0, score=1.0, seconds=4.0) for index in range(3)]
    silent = [
        swept(f"q{index}", "pride:vanilla", 0, logprob=-1.0, seconds=4.0).model_copy(
            update={"prefill_s": 6.0}
        )
        for index in range(3)
    ]
    (task,) = estimate_tasks([*alone, *silent])
    assert task.get("pride:vanilla", "cost", "ratio") is None
    ratio = task.get("pride:vanilla", "cost", "prefill_ratio")
    assert ratio is not None and ratio.mean == 1.5
