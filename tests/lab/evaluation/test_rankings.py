"""Rankings: scores of wrappers, nDCG and Kendall's tau equal independent computations in float64."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau
from sklearn.metrics import ndcg_score

from pine_engine import TASKS, Document, Engine, InputError
from pine_engine.lab.debias.plan import CONTENT_FREE
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import rank_scores
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.report.task_tables import ranking_results
from pine_engine.lab.evaluation.settings import choose
from pine_engine.lab.evaluation.task_estimates import Row, method_rows
from pine_engine.prompts.examples import Example
from tests.lab.evaluation.test_options import (
    ROUNDING,
    Reference,
    engine as engine,
    lettered,
    probabilities,
    reference as reference,
)
from tests.support.measured_rows import evaluate_records

WORDS = ["red", "blue", "green", "black", "white", "brown"]
GRADES = [2.0, 0.0, 1.0, 0.0]
NUMBERS = {3: "three", 4: "four"}


def query(number: int, size: int = 4) -> Example:
    """Return a query with passages of graded relevance."""
    documents = [Document(text=f"{WORDS[(number + place) % 6]} {place}") for place in range(size)]
    grades = [GRADES[(place + number) % size] for place in range(size)]
    fields: dict[str, Any] = {"id": f"r{number}", "task": "ranking", "question": f"What {number}?"}
    return Example(**fields, documents=documents, relevance=grades)


def asked(question: str, texts: Sequence[str]) -> str:
    body = (
        f"Rank the {NUMBERS[len(texts)]} passages below by their relevance to the query, the most relevant "
        "first. Include all passages, and answer with their letters alone, such as B > A.\n\n"
        f"Query: {question}\nPassages:\n{lettered(texts)}Ranking:"
    )
    return f"<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n"


def capcal(own: Any, prior: Any) -> Any:
    alpha = min(5 * -(own * np.log(own)).sum() / np.log(len(own)), 2.0)
    return own - alpha * (prior - 1 / len(own))


def kemeny(runs: Sequence[Any]) -> Any:
    """Return the mean points of the documents over all orders that contradict the fewest pairs."""
    size, costs = len(runs[0]), {}
    for order in permutations(range(size)):
        costs[order] = sum(
            int(run[one] < run[other]) for one, other in combinations(order, 2) for run in runs
        )
    best = [order for order, cost in costs.items() if cost == min(costs.values())]
    points = np.mean([[size - 1 - order.index(one) for one in range(size)] for order in best], axis=0)
    return points / points.sum()


def test_scores_equal_float64_formulas(engine: Engine, reference: Reference) -> None:
    examples = [query(number, size) for number, size in enumerate([4, 3, 4, 3, 4])]
    methods = ["vanilla", "capcal", "permutation_borda", "permutation_kemeny"]
    found = evaluate_records(
        engine, examples, methods=methods, order_names=["as-is", "reversed"], generate=False
    )
    assert len(found) == 5 * 4 * 2
    for example in examples:
        size, texts = len(example.documents), [one.text for one in example.documents]

        def letters(texts: Sequence[str], question: str = example.question) -> Any:
            return reference.of_letters(asked(question, texts), len(texts))

        def observed(order: Sequence[int], texts: Sequence[str] = texts) -> Any:
            found = letters([texts[one] for one in order])
            return found / found.sum()

        every = list(permutations(range(size)))
        runs = [np.array([observed(order)[order.index(one)] for one in range(size)]) for order in every]
        wins = np.array([sum((run[one] > run).sum() for run in runs) for one in range(size)], dtype=float)
        without_content = sum(letters([text] * size) for text in CONTENT_FREE)
        prior = without_content / without_content.sum()
        for name in ("as-is", "reversed"):
            order = list(range(size))[:: 1 if name == "as-is" else -1]
            grades = [example.relevance[one] for one in order]
            corrected = np.exp(capcal(observed(order), prior))
            expected = {
                "vanilla": observed(order),
                "capcal:vanilla": corrected / corrected.sum(),
                "permutation_borda:vanilla": (wins / wins.sum())[order],
                "permutation_kemeny:vanilla": kemeny(runs)[order],
            }
            for method, numbers in expected.items():
                record = found[example.id, method, name]
                assert probabilities(record) == pytest.approx(numbers, abs=ROUNDING), record.key
                score = ndcg_score([grades], [np.round(numbers, 12)], k=10)
                assert record.choice_score == pytest.approx(score, abs=1e-9)
                assert record.relevance == tuple(grades)
                relevant = sorted(np.flatnonzero(grades), key=lambda place: -grades[place])
                assert record.answers == tuple("ABCD"[place] for place in relevant)


def row_of(records: Sequence[Record], metric: str, method: str = "vanilla") -> Row:
    (grid,) = estimate_tasks(records)
    return next(row for row in method_rows(grid) if (row.metric, row.method) == (metric, method))


def test_estimates_are_means_over_orders_and_examples(engine: Engine) -> None:
    orders = ["as-is", "reversed", "shuffled:1"]
    examples = [query(number) for number in range(12)]
    found = evaluate_records(engine, examples, methods=["vanilla"], order_names=orders, generate=False)
    row = row_of(list(found.values()), "chosen")
    scores, gold, between, first = [], [], [], []
    for example in examples:
        records = [found[example.id, "vanilla", name] for name in orders[:2]]
        ranked = []
        for record in records:
            by_stored = np.empty(4)
            by_stored[list(record.input_order)] = list((record.choice_logprobs or {}).values())
            ranked.append(by_stored)
        scores.append(np.mean([ndcg_score([example.relevance], [one]) for one in ranked]))
        gold.append(np.mean([kendalltau(example.relevance, one).statistic for one in ranked]))
        between.append(kendalltau(*ranked).statistic)
        first.append(np.mean([example.relevance[int(one.argmax())] > 0 for one in ranked]))
    expected = {"mean": scores, "kendall tau": gold, "order tau": between, "first relevant": first}
    for group, values in expected.items():
        estimate = row.get(group)
        assert estimate and estimate.mean == pytest.approx(np.mean(values), abs=1e-9), group
        low, high = estimate.interval or (0, 0)
        assert low < estimate.mean < high and estimate.num_examples == 12
    assert row.json()["kendall_tau"]["mean"] == pytest.approx(np.mean(gold))


def test_rankings_of_texts_are_aggregated_and_compared(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parser makes a ranking of any text, because a random model writes none."""

    def parse(text: str, **_: Any) -> str:
        return text if " > " in text else " > ".join(list(permutations("ABC"))[sum(map(ord, text)) % 6])

    monkeypatch.setitem(TASKS, "ranking", replace(TASKS["ranking"], parse=parse))
    methods = ["vanilla", "permutation_borda"]
    order_names = ["order:0-1-2", "order:1-2-0", "order:2-0-1"]
    found = evaluate_records(engine, [query(2, 3)], methods=methods, order_names=order_names, logprobs=False)
    joint = [found["r2", "permutation_borda:vanilla", name] for name in order_names]
    assert all(len(one.text or "") and one.parsed for one in joint)
    ranked = [rank_scores(one, "generated") for one in joint]
    assert (
        ranked[0] == ranked[1] == ranked[2]
        and len(set(ranked[0] or [])) == 3
        and len({one.score for one in joint}) == 1
    )
    every = list(permutations(range(3)))
    texts = evaluate_records(
        engine,
        [query(2, 3)],
        methods=["vanilla"],
        order_names=[f"order:{'-'.join(map(str, order))}" for order in every],
        logprobs=False,
    )
    runs = [rank_scores(one, "generated") or [] for one in texts.values()]
    wins = [sum((run[one] > run[other]) for run in runs for other in range(3)) for one in range(3)]
    levels = sorted(set(wins), reverse=True)
    assert ranked[0] == [-float(levels.index(one)) for one in wins]
    row = row_of(list(found.values()), "generated", "permutation_borda:vanilla")
    changed = row.get("changed")
    assert changed and changed.mean == 0.0


def test_wrappers_that_do_not_fit_rankings_are_refused() -> None:
    for methods in (["swap_reconcile"], ["permutation_kemeny"]):
        documents = [Document("a")] * (13 if "kemeny" in methods[0] else 3)
        example = Example(id="x", task="ranking", question="Q?", documents=documents, gold_index=0)
        with pytest.raises(InputError):
            choose([example], methods=methods)


def test_other_tasks_have_no_table_of_rankings() -> None:
    assert list(ranking_results("options", [])) == []
