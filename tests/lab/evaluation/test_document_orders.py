"""Document orders of an example, and scores by slot with everything but the slot unchanged."""

import random
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pine_engine import Document, InputError
from pine_engine.lab.evaluation.document_orders import ORDERS, arrange, arrange_all, check_orders, names_of
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Scores, make_grid
from pine_engine.lab.evaluation.record import Record, blank_record
from pine_engine.lab.evaluation.slots import group_by_slot, is_flat
from pine_engine.prompts.examples import Example
from tests.support.errors import has_field
from tests.support.records import swept

TASKS = ["retrieval_qa", "judge", "retrieval_qa_numbered"]


def example(
    count: int, *, gold: int | None = None, task: str = "retrieval_qa", answers: tuple[str, ...] = ()
) -> Example:
    documents = [Document(text=f"text {index}") for index in range(count)]
    parts: dict[str, Any] = {"documents": documents, "gold_index": gold, "answers": list(answers)}
    return Example(id="one", task=task, question="Why?", **parts)


@given(st.integers(1, 12), st.sampled_from(TASKS), st.data())
def test_arrange_gold_moves_only_that_document(count: int, task: str, data: st.DataObject) -> None:
    gold, slot = data.draw(st.tuples(*[st.integers(0, count - 1)] * 2))
    one = example(count, gold=gold, task=task)
    for name, expected in (("gold-first", 0), ("gold-last", count - 1), (f"gold-at:{slot}", slot)):
        order = arrange(one, name)
        assert order.slots[expected] == gold and order.gold_slot(one) == expected
        assert [index for index in order.slots if index != gold] == [i for i in range(count) if i != gold]


@given(st.integers(1, 12), st.sampled_from(TASKS), st.integers(0, 99))
def test_arrange_shuffle_depends_on_seed_and_example(count: int, task: str, seed: int) -> None:
    one, name = example(count, task=task), f"shuffled:{seed}"
    order = arrange(one, name)
    assert sorted(order.slots) == list(range(count)) and order == arrange(one, name)
    eight = [example(8).model_copy(update={"id": str(index)}) for index in range(20)]
    assert len({arrange(one, name).slots for one in eight}) > 15
    assert len({arrange(eight[0], f"shuffled:{seed + index}").slots for index in range(20)}) > 15


@pytest.mark.parametrize(
    ("spec", "slots"),
    [
        (["as-is"], {"as-is": (0, 1, 2)}),
        (["reversed"], {"reversed": (2, 1, 0)}),
        (["gold-all"], {"gold-at:0": (1, 0, 2), "gold-at:1": (0, 1, 2), "gold-at:2": (0, 2, 1)}),
        (
            ["order:2-0-1", "all"],
            {"order:2-0-1": (2, 0, 1)}
            | {"order:" + "-".join(map(str, order)): order for order in permutations(range(3))},
        ),
    ],
)
def test_arrange_all_returns_each_order_once(spec: list[str], slots: dict[str, tuple[int, ...]]) -> None:
    orders = arrange_all(example(3, gold=1), spec)
    assert [(order.name, order.slots) for order in orders] == list(slots.items())
    assert len({order.slots for order in arrange_all(example(5), ["all"])}) == 120


@pytest.mark.parametrize("task", TASKS)
def test_arrange_documents_with_labels_are_entered_in_order(task: str) -> None:
    one = example(3, gold=2, task=task, answers=("A",))
    moved, as_stored = arrange(one, "gold-first"), (0, 1, 2)
    pair = (as_stored, (2, 0, 1)) if task == "retrieval_qa" else ((2, 0, 1), as_stored)
    assert (moved.input_order, moved.permutation) == pair
    assert moved.answers(one) == (("B",) if task == "judge" else ("A",))
    assert arrange(example(2, task=task), "reversed").gold_slot(example(2)) is None


@pytest.mark.parametrize(
    ("name", "first", "entered", "accepted"),
    [
        ("as-is", 0, (0, 1), "B"),
        ("swapped", 1, (1, 0), "A"),
        ("segments-swapped", 1, (0, 1), "B"),
        ("labels-swapped", 0, (1, 0), "A"),
    ],
)
def test_arrange_slots_and_labels_are_swapped_separately(
    name: str, first: int, entered: tuple[int, int], accepted: str
) -> None:
    judged = example(2, gold=1, task="judge", answers=("B", "the second"))
    order = arrange(judged, name)
    assert (order.slots[0], order.input_order) == (first, entered)
    assert order.answers(judged) == (accepted, "the second")
    assert [one.text for one in order.request(judged).documents] == [f"text {index}" for index in entered]


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("upside-down", example(2)), ("as-is:", example(2)), ("shuffled", example(2)),
        ("gold-at:x", example(2, gold=0)), ("gold-first", example(2)), ("gold-at:2", example(2, gold=0)),
        ("order:1-1", example(2)), ("order:1-2", example(2)), ("all", example(6)), ("swapped", example(2)),
        ("labels-swapped", example(3, task="judge")), ("gold-held:0", example(3)),
    ],
)  # fmt: skip
def test_arrange_order_that_does_not_fit_is_refused(name: str, one: Example) -> None:
    with pytest.raises(InputError, check=has_field("orders")):
        arrange_all(one, [name])


def test_check_orders_must_each_fit_an_example() -> None:
    check_orders(["as-is", "gold-first"], [example(2), example(2, gold=1)])
    for spec in (["gold-at:2"], [], ["as-is", "as-is"]):
        with pytest.raises(InputError):
            check_orders(spec, [example(2, gold=0), example(2, gold=1)])


@pytest.mark.parametrize("form", ORDERS)
def test_orders_listed_name_is_implemented_and_documented(form: str) -> None:
    name = form.replace(":I", ":1").replace(":S", ":7").replace(":1-0-2", ":1-0")
    text = (Path(__file__).parents[3] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert f"`{form}`" in text
    for single in names_of([name], 2):
        assert arrange(example(2, gold=1, task="judge"), single).name == single


def slot_example(index: int, gold: int | None, size: int = 10, task: str = "retrieval_qa") -> Example:
    documents = [Document(text=f"text {place}") for place in range(size)]
    return Example(id=f"q-{index}", task=task, question="Why?", documents=documents, gold_index=gold,
                   answers=["A"])  # fmt: skip


def record(one: Example, name: str, method: str, score: float | None) -> Record:
    blank = blank_record(one, method, arrange(one, name))
    return blank.model_copy(update={"answers": ("A",), "text": "A", "parsed": "A", "score": score})


def slots_of(records: Sequence[Record]) -> dict[int, dict[int | None, list[float]]]:
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
    return [slot_example(index, gold, size) for index, gold in enumerate(golds)], names


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
        ([0, 0, 0], ["as-is", "gold-at:1"], (0, 1)), ([0, 1, 2], ["as-is"], None),
        ([0, 1, 2], ["as-is", "reversed"], None), ([0, 1, 2], ["as-is", "gold-first", "gold-last"], (0, 3)),
        ([0, 1, 2], ["reversed", "gold-first", "gold-last"], (0, 3)),
        ([0, 1, 2], ["gold-all", "shuffled:1"], (0, 1, 2, 3)), ([0, 1, 2], ["all"], (0, 1, 2, 3)),
        ([1, 2, 1], ["shuffled:1", "shuffled:2"], None),
        ([0, 0, 0], ["order:0-1-2-3", "order:1-2-0-3"], (0, 2)),
        ([0, 0, 0], ["order:0-1-2-3", "order:2-1-0-3"], (0,)),
        ([None, 1, 2], ["gold-first", "gold-last"], (0, 3)), ([None, None], ["as-is", "reversed"], None),
    ],
)  # fmt: skip
def test_group_by_slot_has_comparable_slots_only(
    golds: list[int | None], spec: list[str], slots: tuple[int, ...] | None
) -> None:
    records = []
    for index, gold in enumerate(golds):
        one = slot_example(index, gold, 4)
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
        for one in [slot_example(index, 0, size)]
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
    pairs = [slot_example(index, index % 2, 2, "judge") for index in range(4)]
    table = slots_of([record(one, name, "pine", scores[name]) for one in pairs for name in spec])[2]
    assert (table[0], table[1]) == ([1.0] * 4, [0.5] * 4) and np.isnan(table[None]).all()
    apart = [record(one, name, "pine", 1.0) for one in pairs for name in ("as-is", "segments-swapped")]
    assert slots_of(apart) == {}


def test_group_by_slot_shuffle_completes_no_slot() -> None:
    one = slot_example(0, 0, 2)
    name = next(name for seed in range(99) if arrange(one, name := f"shuffled:{seed}").permutation == (1, 0))
    records = [record(one, "gold-first", "pine", 1.0), record(one, name, "pine", 0.0)]
    assert slots_of(records) == {2: {0: [1.0], None: [0.0]}}


@given(st.integers(1, 9), st.sampled_from(TASKS), st.integers(0, 5), st.data())
def test_held_gold_keeps_its_slot(count: int, task: str, seed: int, data: st.DataObject) -> None:
    gold = data.draw(st.integers(0, count - 1))
    order = arrange(example(count, gold=gold, task=task), f"gold-held:{seed}")
    assert order.slots[gold] == gold and sorted(order.slots) == list(range(count))


def test_held_orders_draw_every_order_of_the_others() -> None:
    one = example(4, gold=1)
    drawn = {arrange(one, f"gold-held:{seed}").slots for seed in range(100)}
    assert len(drawn) == 6


@pytest.mark.parametrize("other_name", ["gold-held:0", "reversed"])
def test_scores_are_by_slot_of_held_gold(other_name: str) -> None:
    """Slot 0 is always right; slot 2 only as stored, so that its answer changes with the other documents.

    An order of another name with the same texts counts as well.
    """
    records = []
    for n, slot in enumerate((0, 0, 2, 2, 2)):
        others = [index for index in range(3) if index != slot]
        orders = {"as-is": others, other_name: others[::-1], "gold-held:0": others[::-1]}
        for name, places in orders.items():
            order = [*places[:slot], slot, *places[slot:]]
            is_right = slot == 0 or name == "as-is"
            records.append(
                swept(
                    f"q-{n}", "vanilla", slot, score=float(is_right), text="Paris" if is_right else "Rome"
                ).model_copy(update={"order_name": name, "permutation": tuple(order)})
            )
    (grid,) = estimate_tasks(records)
    found = {
        group: {slot: grid.get("vanilla", "generated", group, "3", slot) for slot in "012"}
        for group in ("held", "held changed")
    }
    means = {group: {slot: one.mean for slot, one in slots.items() if one} for group, slots in found.items()}
    assert means == {"held": {"0": 1.0, "2": 0.5}, "held changed": {"0": 0.0, "2": 1.0}}
    assert grid.get("vanilla", "generated", "shuffled", "3") is None
