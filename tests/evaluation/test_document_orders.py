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
def test_shuffle_is_a_seeded_permutation(count: int, task: str, seed: int) -> None:
    one = example(count, task=task)
    assert sorted(slots(one, f"shuffled:{seed}")) == list(range(count))
    assert arrange(one, f"shuffled:{seed}") == arrange(one, f"shuffled:{seed}")


def test_examples_and_seeds_have_different_shuffles() -> None:
    one = example(8)
    found = {slots(one.model_copy(update={"id": f"id {index}"}), "shuffled:1") for index in range(20)}
    assert len(found) > 15
    assert len({slots(one, f"shuffled:{seed}") for seed in range(20)}) > 15


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


def test_documents_without_labels_are_permuted() -> None:
    moved = arrange(example(3, gold=2), "gold-first")
    assert (moved.input_order, moved.permutation) == ((0, 1, 2), (2, 0, 1))


def test_documents_with_labels_change_the_input_order() -> None:
    for task in ("judge_pair", "retrieval_qa_numbered"):
        moved = arrange(example(3, gold=2, task=task), "gold-first")
        assert (moved.input_order, moved.permutation) == ((2, 0, 1), (0, 1, 2))


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


def test_answers_without_letters_stay() -> None:
    numbered = example(2, answers=("A",), task="retrieval_qa_numbered")
    assert arrange(numbered, "reversed").input_order == (1, 0)
    assert arrange(numbered, "reversed").answers(numbered) == ("A",)


def test_without_a_gold_document_there_is_no_gold_slot() -> None:
    assert arrange(example(2), "reversed").gold_slot(example(2)) is None


@pytest.mark.parametrize(
    ("name", "one", "sentence"),
    [
        ("upside-down", example(2), "unknown order 'upside-down'; choose from: as-is, reversed, gold-first"),
        ("as-is:", example(2), "unknown order 'as-is:'"),
        ("shuffled", example(2), "unknown order 'shuffled'"),
        ("gold-at:x", example(2, gold=0), "unknown order 'gold-at:x'"),
        ("gold-first", example(2), "one has no gold_index, so no document can be moved as the gold one"),
        ("gold-at:2", example(2, gold=0), "one has no slot 2; its 2 slots are counted from 0"),
        ("order:1-1", example(2), "order:1-1 is no order of the 2 documents of one, counted from 0"),
        ("order:1-2", example(2), "order:1-2 is no order of the 2 documents"),
        ("all", example(6), "one has 6 documents, and all orders are tried of at most 5; use shuffled:0"),
        ("swapped", example(2), "documents with labels, and those of retrieval_qa have none; use reversed"),
        ("labels-swapped", example(3, task="judge_pair"), "needs 2 documents, and one has 3; use reversed"),
    ],
)
def test_order_that_does_not_fit_is_refused(name: str, one: Example, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        arrange_all(one, [name])


def test_orders_must_fit_one_example() -> None:
    some = [example(2), example(2, gold=1)]
    check_orders(["as-is", "gold-first"], some)
    with pytest.raises(InputError, match="one has no slot 2"):
        check_orders(["gold-at:2"], [example(2, gold=0), example(2, gold=1)])
    with pytest.raises(InputError, match="no order was chosen; choose at least one of: as-is"):
        check_orders([], some)
    with pytest.raises(InputError, match="an order was named twice in as-is,as-is; name each order once"):
        check_orders(["as-is", "as-is"], some)


def test_documentation_lists_every_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert [form for form in ORDERS if f"`{form}`" not in text] == []


@pytest.mark.parametrize("form", ORDERS)
def test_every_listed_order_is_implemented(form: str) -> None:
    name = form.replace(":I", ":1").replace(":S", ":7").replace(":1-0-2", ":1-0")
    for expanded in names_of([name], 2):
        assert arrange(example(2, gold=1, task="judge_pair"), expanded).name == expanded
