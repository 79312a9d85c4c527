"""Document orders of an example: slots, labels and accepted answers."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine import Document, InputError
from pine_engine.evaluation.document_orders import ORDERS, arrange, arrange_all, check_orders, names_of
from pine_engine.evaluation.examples import Example

TASKS = ["retrieval_qa", "judge_pair", "retrieval_qa_numbered"]


def example(
    count: int, *, gold: int | None = None, task: str = "retrieval_qa", answers: tuple[str, ...] = ()
) -> Example:
    documents = [Document(text=f"text {index}") for index in range(count)]
    return Example(
        id="one", task=task, question="Why?", documents=documents, gold_index=gold, answers=list(answers)
    )


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
    assert moved.answers(one) == (("B",) if task == "judge_pair" else ("A",))
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
    judged = example(2, gold=1, task="judge_pair", answers=("B", "the second"))
    order = arrange(judged, name)
    assert (order.slots[0], order.input_order) == (first, entered)
    assert order.answers(judged) == (accepted, "the second")
    assert [document.text for document in order.request(judged).documents] == [
        f"text {index}" for index in entered
    ]


@pytest.mark.parametrize(
    ("name", "one"),
    [
        ("upside-down", example(2)),
        ("as-is:", example(2)),
        ("shuffled", example(2)),
        ("gold-at:x", example(2, gold=0)),
        ("gold-first", example(2)),
        ("gold-at:2", example(2, gold=0)),
        ("order:1-1", example(2)),
        ("order:1-2", example(2)),
        ("all", example(6)),
        ("swapped", example(2)),
        ("labels-swapped", example(3, task="judge_pair")),
    ],
)
def test_arrange_order_that_does_not_fit_is_refused(name: str, one: Example) -> None:
    with pytest.raises(InputError) as refused:
        arrange_all(one, [name])
    assert refused.value.field == "orders"


def test_check_orders_must_each_fit_an_example() -> None:
    check_orders(["as-is", "gold-first"], [example(2), example(2, gold=1)])
    for spec in (["gold-at:2"], [], ["as-is", "as-is"]):
        with pytest.raises(InputError):
            check_orders(spec, [example(2, gold=0), example(2, gold=1)])


@pytest.mark.parametrize("form", ORDERS)
def test_orders_listed_name_is_implemented_and_documented(form: str) -> None:
    name = form.replace(":I", ":1").replace(":S", ":7").replace(":1-0-2", ":1-0")
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert f"`{form}`" in text
    for single in names_of([name], 2):
        assert arrange(example(2, gold=1, task="judge_pair"), single).name == single
