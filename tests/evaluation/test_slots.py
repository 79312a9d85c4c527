"""Scores by slot: each slot is over the same examples, with everything but the slot unchanged."""

import random
from collections.abc import Sequence
from itertools import permutations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine import Document
from pine_engine.evaluation.document_orders import arrange, arrange_all
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.grid import Scores, make_grid
from pine_engine.evaluation.records import Record, blank_record
from pine_engine.evaluation.slots import group_by_slot, is_flat


def example(index: int, gold: int | None, size: int = 10, task: str = "retrieval_qa") -> Example:
    documents = [Document(text=f"text {place}") for place in range(size)]
    return Example(id=f"q-{index}", task=task, question="Why?", documents=documents, gold_index=gold,
                   answers=["A"])  # fmt: skip


def record(one: Example, name: str, method: str, score: float | None) -> Record:
    """Return the record of a method with this score."""
    blank = blank_record(one, method, arrange(one, name))
    return blank.model_copy(update={"answers": ("A",), "text": "A", "parsed": "A", "score": score})


def slots_of(records: Sequence[Record]) -> dict[int, dict[int | None, list[float]]]:
    """Return the scores by number of documents and slot."""
    scores = Scores(make_grid(records), "pine", "generated")
    tables = group_by_slot(scores.columns, "generated")
    return {
        size: {slot: scores.of(groups)[0].tolist() for slot, groups in table.items()}
        for size, table in tables.items()
    }


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
def test_group_by_slot_differs_by_the_slot_alone(case: tuple[list[Example], list[str]]) -> None:
    """A score that depends on the example and on the order of the other documents has a flat curve."""
    examples, spec = case

    def score(one: Example, name: str) -> float:
        others = [place for place in arrange(one, name).slots if place != one.gold_index]
        return random.Random(f"{one.id}{others}").random()

    scored = [(one, arranged.name) for one in examples for arranged in arrange_all(one, spec)]
    for table in slots_of([record(one, name, "pine", score(one, name)) for one, name in scored]).values():
        first, *others = [scores for slot, scores in table.items() if slot is not None]
        assert all(scores == pytest.approx(first) for scores in others)
        means = [fmean(scores) for slot, scores in table.items() if slot is not None]
        assert is_flat(means, means[0]) and not is_flat(means, means[0] + 1e-3)


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
def test_group_by_slot_has_comparable_slots_only(
    golds: list[int | None], spec: list[str], slots: tuple[int, ...] | None
) -> None:
    records = []
    for index, gold in enumerate(golds):
        one = example(index, gold, 4)
        names = ["as-is"] if gold is None else [arranged.name for arranged in arrange_all(one, spec)]
        records += [record(one, name, "pine", 1.0) for name in names]
    found = [*slots_of(records).values()]
    assert [tuple(table)[:-1] for table in found] == ([] if slots is None else [slots])
    for scores in [table[slot] for table in found for slot in slots or ()]:
        assert [*np.isfinite(scores)] == [gold is not None for gold in golds]


def test_group_by_slot_separates_sizes() -> None:
    """Of several shuffles the mean counts."""
    scores = {"shuffled:3": 0.0, "shuffled:4": 0.5}
    records = [
        record(one, name, "pine", scores.get(name, size / 10))
        for index, size in enumerate((2, 3, 3, 5))
        for one in [example(index, 0, size)]
        for name in ("gold-first", "gold-last", *scores)
    ]
    means = {
        size: {slot: float(np.nanmean(found)) for slot, found in table.items()}
        for size, table in slots_of(records).items()
    }
    assert means == {size: {0: size / 10, size - 1: size / 10, None: 0.25} for size in (2, 3, 5)}


def test_group_by_slot_letters_go_with_the_places() -> None:
    """A place without its letter is no slot, because the letter has an effect, too."""
    spec = ["gold-first", "gold-last", "segments-swapped", "labels-swapped"]
    scores = dict(zip(spec, (1.0, 0.5, 0.0, 0.0), strict=True))
    pairs = [example(index, index % 2, 2, "judge_pair") for index in range(4)]
    table = slots_of([record(one, name, "pine", scores[name]) for one in pairs for name in spec])[2]
    assert (table[0], table[1]) == ([1.0] * 4, [0.5] * 4) and np.isnan(table[None]).all()
    apart = [record(one, name, "pine", 1.0) for one in pairs for name in ("as-is", "segments-swapped")]
    assert slots_of(apart) == {}


def test_group_by_slot_shuffle_completes_no_slot() -> None:
    one = example(0, 0, 2)
    name = next(name for seed in range(99) if arrange(one, name := f"shuffled:{seed}").permutation == (1, 0))
    records = [record(one, "gold-first", "pine", 1.0), record(one, name, "pine", 0.0)]
    assert slots_of(records) == {2: {0: [1.0], None: [0.0]}}
