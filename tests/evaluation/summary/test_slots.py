"""The slot curve: a slot's value is over the same examples as any other's, with all else in place."""

import random
from collections.abc import Sequence
from itertools import permutations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.evaluation.document_orders import arrange, order_names
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.summary.grid import make_grid
from pine_engine.evaluation.summary.results import Measure
from pine_engine.evaluation.summary.slots import BySlot, group_by_slot, is_flat
from pine_engine.evaluation.summary.summarize import summarize
from pine_engine.prompts.inputs import DocumentInput


def example(index: int, gold: int | None, size: int = 10, task: str = "retrieval_qa") -> Example:
    documents = [DocumentInput(text=f"text {place}") for place in range(size)]
    return Example(id=f"q-{index}", task=task, question="Why?", documents=documents, gold_index=gold,
                   answers=["A"])  # fmt: skip


def record(one: Example, name: str, method: str, score: float | None) -> Record:
    """What a method that scores so would have left."""
    found = arrange(one, name)
    return Record(
        example=one.id,
        task=one.task,
        method=method,
        order_name=name,
        entered=found.entered,
        order=found.order,
        gold_slot=found.gold_slot(one),
        num_documents=len(one.documents),
        answers=("A",),
        text="A",
        parsed="A",
        score=score,
    )


def slots_of(records: Sequence[Record], method: str = "pine") -> list[BySlot]:
    return group_by_slot(make_grid(records).columns[method], "generated")


def measure_of(records: Sequence[Record], method: str) -> Measure:
    (task,) = summarize(records, resamples=20).tasks
    (found,) = [one.measure("generated") for one in task.methods if one.method == method]
    assert found is not None
    return found


PAPERS = ["gold-at:0", "gold-at:4", "gold-at:9", "shuffled:1"]


def test_a_flat_curve_is_flat_beside_a_shuffle() -> None:
    """Ten questions of which PINE knows two in every order: 20 % in each slot and shuffled, and nothing else.

    The shuffle puts the document of some question that it knows into slot 7 or 9, alone or not.
    """
    questions = [example(index, index % 10) for index in range(10)]
    records = [record(one, name, "pine", float(index in (2, 5)))
               for index, one in enumerate(questions) for name in PAPERS]  # fmt: skip
    measure = measure_of(records, "pine")
    assert [(one.slot, one.value.mean, one.value.n) for one in measure.slots] == [
        (0, 0.2, 10), (4, 0.2, 10), (9, 0.2, 10)
    ]  # fmt: skip
    (shuffled,) = measure.shuffles
    assert (shuffled.num_documents, shuffled.value.mean, shuffled.value.n) == (10, 0.2, 10)


@st.composite
def measured(draw: st.DrawFn) -> tuple[list[Example], list[str]]:
    size = draw(st.integers(2, 4))
    golds = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=5))
    orders = ["as-is", "reversed", "gold-first", "gold-last", "gold-all", "shuffled:1", "shuffled:2", "all"]
    orders += [f"gold-at:{slot}" for slot in range(size)]
    orders += ["order:" + "-".join(map(str, order)) for order in permutations(range(size))]
    names = draw(st.lists(st.sampled_from(orders), min_size=1, max_size=5, unique=True))
    return [example(index, gold, size) for index, gold in enumerate(golds)], names


@given(measured())
def test_what_no_order_changes_is_the_same_in_every_slot(case: tuple[list[Example], list[str]]) -> None:
    """Whatever is measured: each slot is over the same examples, so what is flat for each is flat."""
    examples, spec = case
    records = [record(one, arranged.name, "pine", index / 7)
               for index, one in enumerate(examples) for arranged in order_names(one, spec)]  # fmt: skip
    mean = fmean(index / 7 for index in range(len(examples)))
    for table in slots_of(records):
        assert np.isfinite(table.values).all()
        assert np.nanmean(table.values, axis=0) == pytest.approx(mean)
        assert is_flat(np.nanmean(table.values, axis=0), mean)


@given(measured())
def test_the_order_of_the_others_moves_no_slot(case: tuple[list[Example], list[str]]) -> None:
    """A method that heeds the order of the other documents alone is flat, too: that is one in all slots."""
    examples, spec = case

    def score(one: Example, name: str) -> float:
        others = [place for place in arrange(one, name).slots if place != one.gold_index]
        return random.Random(f"{one.id}{others}").random()

    records = [record(one, arranged.name, "pine", score(one, arranged.name))
               for one in examples for arranged in order_names(one, spec)]  # fmt: skip
    for table in slots_of(records):
        assert np.ptp(table.values, axis=1) == pytest.approx(0)


@pytest.mark.parametrize(
    ("golds", "spec", "slots"),
    [
        ([0, 0, 0], ["as-is", "gold-at:1"], (0, 1)),
        ([0, 1, 2], ["as-is"], None),
        ([0, 1, 2], ["as-is", "reversed"], None),
        ([0, 1, 2], ["as-is", "gold-first", "gold-last"], (0, 3)),
        ([0, 1, 2], ["reversed", "gold-first", "gold-last"], (0, 3)),
        ([0, 1, 2], ["gold-all", "shuffled:1"], (0, 1, 2, 3)),
        ([0, 1, 2], ["all"], (0, 1, 2, 3)),
        ([1, 2, 1], ["shuffled:1", "shuffled:2"], None),
        ([0, 0, 0], ["order:0-1-2-3", "order:1-2-0-3"], (0, 2)),
        ([0, 0, 0], ["order:0-1-2-3", "order:2-1-0-3"], (0,)),
        ([None, 1, 2], ["gold-first", "gold-last"], (0, 3)),
        ([None, None], ["as-is", "reversed"], None),
    ],
)
def test_only_orders_that_can_be_compared_make_a_slot(
    golds: list[int | None], spec: list[str], slots: tuple[int, ...] | None
) -> None:
    records = []
    for index, gold in enumerate(golds):
        one = example(index, gold, 4)
        names = ["as-is"] if gold is None else [arranged.name for arranged in order_names(one, spec)]
        records += [record(one, name, "pine", 1.0) for name in names]
    found = slots_of(records)
    assert [one.slots for one in found] == ([] if slots is None else [slots])
    if found:
        rows = [gold is not None for gold in golds]
        assert np.isfinite(found[0].values).all(axis=1).tolist() == rows


def test_all_orders_count_alike_in_each_slot() -> None:
    """Three documents: each slot has two orders of the others, and their mean."""
    one = example(0, 1, 3)
    scores = {arranged.name: index / 10 for index, arranged in enumerate(order_names(one, ["all"]))}
    (table,) = slots_of([record(one, name, "pine", score) for name, score in scores.items()])
    for slot in range(3):
        expected = fmean(score for name, score in scores.items() if arrange(one, name).slots[slot] == 1)
        assert table.values[0, slot] == pytest.approx(expected)


def test_sizes_have_slots_and_shuffles_of_their_own() -> None:
    spec = ["gold-first", "gold-last", "shuffled:3"]
    records = [
        record(one, name, "pine", size / 10 if name != "shuffled:3" else 0.0)
        for index, size in enumerate((2, 3, 3, 5))
        for one in [example(index, 0, size)]
        for name in spec
    ]
    measure = measure_of(records, "pine")
    found = [(one.num_documents, one.slot, one.value.mean, one.value.n) for one in measure.slots]
    assert found == [
        (2, 0, 0.2, 1), (2, 1, 0.2, 1), (3, 0, 0.3, 2), (3, 2, 0.3, 2), (5, 0, 0.5, 1), (5, 4, 0.5, 1)
    ]  # fmt: skip
    assert [(one.num_documents, one.value.mean, one.value.n) for one in measure.shuffles] == [
        (2, 0, 1), (3, 0, 2), (5, 0, 1)
    ]  # fmt: skip


def test_several_shuffles_are_one_level() -> None:
    one = example(0, 0, 6)
    scores = {"gold-first": 1.0, "gold-last": 0.0, "shuffled:1": 0.25, "shuffled:2": 0.75}
    measure = measure_of([record(one, name, "vanilla", score) for name, score in scores.items()], "vanilla")
    assert [shuffled.value.mean for shuffled in measure.shuffles] == [0.5]


def test_letters_go_with_the_places() -> None:
    """Places and letters apart are no slot: they say what a letter does, too."""
    spec = ["gold-first", "gold-last", "segments-swapped", "labels-swapped"]
    scores = dict(zip(spec, (1.0, 0.5, 0.0, 0.0), strict=True))
    pairs = [example(index, index % 2, 2, "judge_pair") for index in range(4)]
    (table,) = slots_of([record(one, name, "pine", scores[name]) for one in pairs for name in spec])
    assert table.slots == (0, 1) and np.nanmean(table.values, axis=0).tolist() == [1.0, 0.5]
    apart = [record(one, name, "pine", 1.0) for one in pairs for name in ("as-is", "segments-swapped")]
    assert slots_of(apart) == []


def test_a_shuffle_completes_no_slot() -> None:
    one = example(0, 0, 2)
    name = next(name for seed in range(99) if arrange(one, name := f"shuffled:{seed}").order == (1, 0))
    (table,) = slots_of([record(one, "gold-first", "pine", 1.0), record(one, name, "pine", 0.0)])
    assert table.slots == (0,) and table.shuffled.tolist() == [0.0]


def test_a_shuffle_that_is_named_first_takes_no_order_away() -> None:
    """Of two documents every shuffle is one of the two orders, and both are in the mean all the same."""
    one = example(0, 0, 2)
    scores = {"shuffled:0": 1.0, "gold-first": 1.0, "gold-last": 0.0, "shuffled:1": 0.0}
    for spec in permutations(scores):
        records = [record(one, name, "vanilla", scores[name]) for name in spec]
        shuffles = {arrange(one, name).order for name in ("shuffled:0", "shuffled:1")}
        assert shuffles <= {(0, 1), (1, 0)}
        measure = measure_of(records, "vanilla")
        assert measure.mean.mean == 0.5
        (task,) = summarize(records, resamples=20).tasks
        assert set(task.averaged) == {"gold-first", "gold-last"}
