"""Names of methods and of wrapped methods, and the columns of the table."""

from collections.abc import Sequence
from itertools import product

import pytest

from pine_engine import DEBIASERS, METHODS, InputError, get_methods
from pine_engine.debias.table import (
    NUM_MEASURED,
    find_measured,
    measured_method,
    measured_methods,
    method_label,
    method_mark,
    method_rank,
)
from pine_engine.evaluation.grid import make_grid
from tests.support.records import swept

ALL_NAMES = [*METHODS, *(f"{wrapper}:{base}" for wrapper, base in product(DEBIASERS, METHODS))]


def test_measured_methods_are_all_methods_alone_and_wrapped() -> None:
    found = measured_methods(ALL_NAMES)
    assert [one.name for one in found] == ALL_NAMES
    assert [method_rank(name) for name in ALL_NAMES] == list(range(NUM_MEASURED))
    assert len({one.label for one in found}) == len(set(map(method_mark, ALL_NAMES))) == NUM_MEASURED
    assert list(map(method_mark, METHODS)) == list(range(len(METHODS)))
    assert [one.base for one in measured_methods()] == list(get_methods())
    assert [one.name for one in measured_methods(["all"])] == list(METHODS)
    alone = measured_method("permutation_full")
    assert (alone.name, alone.label) == ("permutation_full:vanilla", "Permutation, full (Vanilla)")


def test_invariance_depends_on_wrapper_and_base() -> None:
    always = {"permutation_full"}
    of_base = {"calibration_labels", "calibration_first", "calibration_every"}
    for one in measured_methods(ALL_NAMES):
        name = one.wrapper.name if one.wrapper else ""
        is_invariant = name in always or ((not name or name in of_base) and one.base.is_order_invariant)
        assert one.is_order_invariant == is_invariant


@pytest.mark.parametrize("name", DEBIASERS)
def test_columns_of_each_wrapper_agree(name: str) -> None:
    wrapper = DEBIASERS[name]
    words = {"always": "yes", "of base": "no, unless the base method is"}
    assert wrapper.invariance.startswith(words.get(wrapper.invariance_kind, ("no:", "only if")))
    # Either the order of the documents changes or their content does.
    assert (wrapper.orders is None) == (wrapper.calibrated != "nothing")
    is_generated = name in ("calibration_first", "calibration_every")
    assert (
        measured_method(name).generates
        == (wrapper.votes or is_generated)
        == (name not in ("pride", "calibration_labels"))
    )
    assert measured_method(name).scores_choices == (not is_generated)
    assert measured_method(name).scores_answers == name.startswith("permutation")


@pytest.mark.parametrize(
    "names",
    [
        [], ["magic"], ["magic:pine"], ["pine:vanilla"], ["pride:magic"], ["pride:"],
        ["pride:permutation_full"], ["pride:permutation_full:vanilla"], ["pine", "pine"],
        ["pride", "pride:vanilla"], ["all", "pride"],
    ],
)  # fmt: skip
def test_measured_methods_invalid_name_raises(names: Sequence[str]) -> None:
    with pytest.raises(InputError):
        measured_methods(names)


def test_records_of_unknown_methods_come_last() -> None:
    names = ["pine", "lost", "permutation_full:pine", "calibration_every:vanilla", "vanilla"]
    names += ["permutation_full:vanilla", "lost_too"]
    grid = make_grid([swept("q", name, slot, score=1.0) for slot in (0, 1, 2) for name in names])
    assert grid.methods == (
        "vanilla", "pine", "permutation_full:vanilla", "permutation_full:pine", "calibration_every:vanilla",
        "lost", "lost_too",
    )  # fmt: skip
    assert method_label("lost") == "lost" and find_measured("lost") is None
    assert method_mark("lost") == NUM_MEASURED > max(method_mark(name) for name in ALL_NAMES)
