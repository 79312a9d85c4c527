"""What can be measured, by name: methods alone, and wrappers around them."""

from collections.abc import Sequence
from itertools import product

import pytest

from pine_engine.debias.measured import NUM_MEASURED, find_measured, measured_method, measured_methods
from pine_engine.debias.table import DEBIASERS
from pine_engine.errors import InputError
from pine_engine.evaluation.estimates import estimate_tasks
from pine_engine.evaluation.grid import make_grid
from pine_engine.evaluation.method_names import method_label, method_mark
from pine_engine.methods.table import METHODS, get_methods
from tests.support.records import swept

ALL_NAMES = [*METHODS, *(f"{wrapper}:{base}" for wrapper, base in product(DEBIASERS, METHODS))]


def test_every_wrapper_goes_around_every_method() -> None:
    found = measured_methods(ALL_NAMES)
    assert [one.name for one in found] == ALL_NAMES
    assert [one.rank for one in found] == list(range(NUM_MEASURED))
    assert len({one.label for one in found}) == len({one.mark for one in found}) == NUM_MEASURED
    assert [one.mark for one in found[: len(METHODS)]] == list(range(len(METHODS)))


def test_a_name_says_what_is_around_what() -> None:
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
def test_a_wrapper_promises_of_itself_or_what_its_method_does(name: str, promised: bool) -> None:
    assert measured_method(name).is_order_invariant == promised


def test_the_promise_is_the_one_in_words() -> None:
    words = {"always": "yes", "of base": "no, unless the base method is"}
    for row in DEBIASERS.values():
        if row.invariance_kind in words:
            assert row.invariance == words[row.invariance_kind]
        else:
            assert row.invariance.startswith(("no:", "only if"))


def test_the_usual_ones_and_all_are_methods_alone() -> None:
    assert [one.base for one in measured_methods()] == list(get_methods())
    assert [one.name for one in measured_methods(["all"])] == list(METHODS)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], "no method was chosen; choose at least one of: vanilla, "),
        (["magic"], "unknown method 'magic'; choose from: vanilla, "),
        (["magic"], "or put a wrapper around one, as in permutation_full:vanilla: permutation_full, "),
        (["magic:pine"], "unknown wrapper 'magic'; choose from: permutation_full, "),
        (["pine:vanilla"], "unknown wrapper 'pine'; choose from: permutation_full, "),
        (["pride:magic"], "unknown method 'magic'; choose from: vanilla, "),
        (["pride:"], "unknown method ''; choose from: vanilla, "),
        (["pride:permutation_full"],
         "pride:permutation_full is a wrapper around a wrapper; put pride around a method: vanilla, "),
        (["pride:permutation_full:vanilla"], "is a wrapper around a wrapper; put pride around a method"),
        (["pine", "pine"], "a method was named twice in pine, pine; name each method once"),
        (["pride", "pride:vanilla"], "a method was named twice in pride, pride:vanilla; name each"),
        (["all", "pride"], "unknown method 'all'; choose from: "),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(names: Sequence[str], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        measured_methods(names)
    assert sentence in str(raised.value)


def test_records_of_wrapped_methods_are_tabulated_behind_the_methods() -> None:
    """So are those of a method that is in the tables no more, at the end and by its name."""
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


def test_what_was_read_and_written_is_compared_as_if_nothing_were_lent() -> None:
    """Both orders are lent by vanilla: half of the seconds, twice the work."""
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


def test_a_method_without_answers_is_compared_by_what_it_reads() -> None:
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
