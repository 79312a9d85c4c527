"""Document orders of an example: slots, labels and accepted answers."""

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.errors import InputError
from pine_engine.evaluation.document_orders import ORDERS, arrange, arrange_all, check_orders, names_of
from pine_engine.evaluation.examples import Example
from pine_engine.prompts.prompt import Document


def example(
    count: int, *, gold: int | None = None, task: str = "retrieval_qa", answers: tuple[str, ...] = ()
) -> Example:
    return Example(
        id="one",
        task=task,
        question="Why?",
        documents=[Document(text=f"text {index}") for index in range(count)],
        gold_index=gold,
        answers=list(answers),
    )


def slots(one: Example, name: str) -> tuple[int, ...]:
    return arrange(one, name).slots


sizes_and_gold = st.integers(1, 12).flatmap(
    lambda count: st.tuples(st.just(count), st.integers(0, count - 1))
)
tasks = st.sampled_from(["retrieval_qa", "judge_pair", "retrieval_qa_numbered"])


@given(sizes_and_gold, tasks, st.data())
def test_gold_document_moves_and_others_keep_their_order(
    size: tuple[int, int], task: str, data: st.DataObject
) -> None:
    count, gold = size
    one = example(count, gold=gold, task=task)
    slot = data.draw(st.integers(0, count - 1))
    for name, expected in (("gold-first", 0), ("gold-last", count - 1), (f"gold-at:{slot}", slot)):
        moved = slots(one, name)
        assert moved[expected] == gold
        assert arrange(one, name).gold_slot(one) == expected
        assert [index for index in moved if index != gold] == [i for i in range(count) if i != gold]


@given(st.integers(1, 12), tasks, st.integers(0, 99))
def test_shuffle_is_a_permutation_by_seed_and_example(count: int, task: str, seed: int) -> None:
    one, name = example(count, task=task), f"shuffled:{seed}"
    assert sorted(slots(one, name)) == list(range(count)) and slots(one, name) == slots(one, name)
    eight = example(8)
    assert len({slots(eight.model_copy(update={"id": str(index)}), name) for index in range(20)}) > 15
    assert len({slots(eight, f"shuffled:{seed + index}") for index in range(20)}) > 15


def test_name_can_stand_for_several_orders() -> None:
    one = example(3, gold=1)
    assert {(a.name, a.slots) for a in arrange_all(one, ["gold-all"])} == {
        ("gold-at:0", (1, 0, 2)), ("gold-at:1", (0, 1, 2)), ("gold-at:2", (0, 2, 1))
    }  # fmt: skip
    assert [a.slots for a in arrange_all(one, ["all"])] == list(permutations(range(3)))
    assert [a.name for a in arrange_all(one, ["order:2-0-1", "all"])].count("order:2-0-1") == 1
    assert slots(one, "reversed") == (2, 1, 0)
    assert slots(one, "order:2-0-1") == (2, 0, 1)
    assert [a.slots for a in arrange_all(one, ["as-is"])] == [(0, 1, 2)]


def test_documents_move_by_input_order_only_if_they_have_labels() -> None:
    moved = arrange(example(3, gold=2), "gold-first")
    assert (moved.input_order, moved.permutation) == ((0, 1, 2), (2, 0, 1))
    for task in ("judge_pair", "retrieval_qa_numbered"):
        moved = arrange(example(3, gold=2, task=task), "gold-first")
        assert (moved.input_order, moved.permutation) == ((2, 0, 1), (0, 1, 2))
    numbered = example(2, answers=("A",), task="retrieval_qa_numbered")
    assert arrange(numbered, "reversed").answers(numbered) == ("A",)
    assert arrange(example(2), "reversed").gold_slot(example(2)) is None


@pytest.mark.parametrize(
    ("name", "first", "labels", "accepted"),
    [
        ("as-is", 0, {0: "A", 1: "B"}, "B"),
        ("swapped", 1, {0: "B", 1: "A"}, "A"),
        ("segments-swapped", 1, {0: "A", 1: "B"}, "B"),
        ("labels-swapped", 0, {0: "B", 1: "A"}, "A"),
    ],
)
def test_slots_and_labels_are_swapped_separately(
    name: str, first: int, labels: dict[int, str], accepted: str
) -> None:
    judged = example(2, gold=1, task="judge_pair", answers=("B", "the second"))
    found = arrange(judged, name)
    assert found.slots[0] == first
    assert {stored: "AB"[place] for place, stored in enumerate(found.input_order)} == labels
    assert found.answers(judged) == (accepted, "the second")
    entered = found.request(judged).documents
    assert [document.text for document in entered] == [f"text {index}" for index in found.input_order]


@pytest.mark.parametrize(
    ("name", "one", "words"),
    [
        ("upside-down", example(2), "unknown order"),
        ("as-is:", example(2), "unknown order"),
        ("shuffled", example(2), "unknown order"),
        ("gold-at:x", example(2, gold=0), "unknown order"),
        ("gold-first", example(2), "no gold_index"),
        ("gold-at:2", example(2, gold=0), "no slot 2"),
        ("order:1-1", example(2), "no order of the 2 documents"),
        ("order:1-2", example(2), "no order of the 2 documents"),
        ("all", example(6), "6 documents"),
        ("swapped", example(2), "labels"),
        ("labels-swapped", example(3, task="judge_pair"), "3"),
    ],
)
def test_order_that_does_not_fit_is_refused(name: str, one: Example, words: str) -> None:
    with pytest.raises(InputError, match=words):
        arrange_all(one, [name])


def test_order_must_fit_one_of_the_examples() -> None:
    check_orders(["as-is", "gold-first"], [example(2), example(2, gold=1)])
    golds = [example(2, gold=0), example(2, gold=1)]
    for spec in (["gold-at:2"], [], ["as-is", "as-is"]):
        with pytest.raises(InputError):
            check_orders(spec, golds)


@pytest.mark.parametrize("form", ORDERS)
def test_listed_order_is_implemented_and_documented(form: str) -> None:
    name = form.replace(":I", ":1").replace(":S", ":7").replace(":1-0-2", ":1-0")
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert f"`{form}`" in text
    for expanded in names_of([name], 2):
        assert arrange(example(2, gold=1, task="judge_pair"), expanded).name == expanded
