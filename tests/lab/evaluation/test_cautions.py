"""Sentences beside the numbers: the scoring rule, a better answer in one slot, and labels that move."""

from collections.abc import Sequence

import pytest

from pine_engine.lab.evaluation.cautions import cautions, scoring_sentence
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.report.changes import changes_table
from pine_engine.lab.evaluation.report.key_findings import key_findings
from pine_engine.lab.evaluation.report.runs import MeasuredRun, settings_of
from pine_engine.lab.evaluation.report.task_tables import main_results
from pine_engine.lab.evaluation.task_estimates import nested
from pine_engine.prompts.examples import Example
from tests.support.records import judged, run_info, swept


def grid_of(*orders: str, better: Sequence[int] = (0, 0, 0), verdicts: str = "A") -> Grid:
    """Return the grid of a judge that says A; the method pine says the n-th verdict in the n-th order."""
    records = [
        judged(f"p-{index}", method, name, verdicts[place % len(verdicts)] if method == "pine" else "A",
               better=one)
        for index, one in enumerate(better)
        for method in ("vanilla", "pine")
        for place, name in enumerate(orders)
    ]  # fmt: skip
    (grid,) = estimate_tasks(records)
    return grid


def places(*orders: str, better: Sequence[int] = (0, 0, 0)) -> list[str]:
    return [text for text in cautions(grid_of(*orders, better=better)) if "better answer" in text]


@pytest.mark.parametrize(
    ("orders", "better", "word"),
    [
        (["as-is"], (0, 0, 0), "first"),
        (["as-is"], (1, 1), "slot 2"),
        (["as-is", "segments-swapped"], (0, 0, 0), "letter A"),
        (["as-is", "labels-swapped"], (0, 0), "first"),
    ],
)
def test_better_answer_in_one_place_is_named(orders: list[str], better: Sequence[int], word: str) -> None:
    (sentence,) = places(*orders, better=better)
    assert word in sentence and "--orders as-is,swapped" in sentence


@pytest.mark.parametrize(
    ("orders", "better"),
    [
        (["as-is"], (0, 1, 0)),
        (["as-is", "swapped"], (0, 0, 0)),
        (["swapped", "as-is"], (1, 1)),
        (["as-is"], (0,)),
    ],
)
def test_better_answer_in_several_places_has_no_caution(orders: list[str], better: Sequence[int]) -> None:
    assert places(*orders, better=better) == []


@pytest.mark.parametrize(("count", "orders"), [(4, "all"), (7, "as-is,reversed")])
def test_better_answer_first_among_several_is_named(count: int, orders: str) -> None:
    documents = tuple(range(count))
    changes = {"num_documents": count, "input_order": documents, "permutation": documents}
    several = [
        judged(f"p-{index}", "vanilla", "as-is", "A").model_copy(update={**changes, "answers": answers})
        for index, answers in enumerate([("A",), ("A", "B"), ("A", "C")])
    ]
    (grid,) = estimate_tasks(several)
    (sentence,) = cautions(grid)
    assert "first" in sentence and f"--orders {orders}." in sentence


def test_question_has_no_caution_about_slots() -> None:
    (grid,) = estimate_tasks([swept(f"q-{index}", "vanilla", 0, score=1.0) for index in range(3)])
    assert cautions(grid) == []


@pytest.mark.parametrize(
    ("orders", "verdicts", "is_named"),
    [
        (["as-is", "swapped"], "AA", True),  # the other answer, with the letter of the first
        (["as-is", "swapped"], "AB", False),
        (["as-is", "segments-swapped"], "AA", False),
        (["as-is", "labels-swapped"], "AA", True),
    ],
)
def test_moved_labels_are_named_with_other_orders(orders: list[str], verdicts: str, is_named: bool) -> None:
    grid = grid_of(*orders, better=(0, 1, 0), verdicts=verdicts)
    run = MeasuredRun("run", run_info(order_names=orders), (grid,))
    records = [record for columns in grid.columns.values() for one in columns for record in one.values()]
    findings = " ".join(key_findings("judge", run))
    (task,) = nested([grid])["tasks"]
    texts = [main_results("judge", [run]).note, changes_table(records).note, findings, *task["cautions"]]
    assert len(texts) == 3 + is_named
    assert [f"Under {orders[1]}" in text and "as-is,segments-swapped" in text for text in texts] == (
        [is_named] * len(texts)
    )


def test_caution_is_beside_every_number() -> None:
    grid = grid_of("as-is")
    run = MeasuredRun("run", run_info(order_names=["as-is"]), (grid,))
    (sentence,) = cautions(grid)
    (task,) = nested([grid])["tasks"]
    assert sentence in main_results("judge", [run]).note and task["cautions"] == [sentence]
    assert any(sentence in text for text in key_findings("judge", run))


def test_report_names_the_scoring_rule() -> None:
    rows = [{"id": "a", "scoring": "best_subspan_em"}, {"id": "b"}]
    examples = [Example.model_validate({"question": "?", "documents": ["x"], **row}) for row in rows]
    records = [swept(one.id, "vanilla", 0, score=1.0, scoring=one.sized_task().rule) for one in examples]
    (grid,) = estimate_tasks(records)
    assert "best_subspan_em" in scoring_sentence(grid) and "words" in scoring_sentence(grid)
    assert nested([grid])["tasks"][0]["scoring"] == ["best_subspan_em", "words"]
    run = MeasuredRun("run", run_info(task="retrieval_qa"), (grid,))
    assert settings_of(run)["scoring"] == "best_subspan_em, words"
    assert scoring_sentence(grid) in main_results("retrieval_qa", [run]).note
    assert "unknown" in scoring_sentence(estimate_tasks([swept("q", "vanilla", 0, score=1.0, scoring="")])[0])
