"""Borda and Kemeny against brute force over all rankings."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pine_engine import DEBIASERS, Document, InputError, LabeledRequest
from pine_engine.lab.debias.combining import count_votes
from pine_engine.lab.debias.plan import plan_debias
from pine_engine.lab.debias.rank_aggregation import AGGREGATIONS, Aggregation

RUNS = st.integers(1, 5).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 3), min_size=size, max_size=size), min_size=1, max_size=5)
)


def contradictions(order: tuple[int, ...], run: list[int]) -> int:
    return sum(run[first] < run[second] for first, second in combinations(order, 2))


@given(RUNS)
def test_kemeny_is_the_mean_of_best_rankings(runs: list[list[int]]) -> None:
    size = len(runs[0])
    costs = {one: sum(contradictions(one, run) for run in runs) for one in permutations(range(size))}
    best = [order for order, cost in costs.items() if cost == min(costs.values())]
    points = np.mean([[size - 1 - order.index(one) for one in range(size)] for order in best], axis=0)
    assert AGGREGATIONS["kemeny"](runs) == pytest.approx(points / max(points.sum(), 1))


@given(RUNS)
def test_borda_counts_won_pairs(runs: list[list[int]]) -> None:
    size = len(runs[0])
    points = [
        sum((run[one] > run[other]) + (run[one] == run[other]) / 2 for run in runs
            for other in range(size) if other != one)
        for one in range(size)
    ]  # fmt: skip
    assert AGGREGATIONS["borda"](runs) == pytest.approx(np.array(points) / max(sum(points), 1))


@pytest.mark.parametrize("name", AGGREGATIONS)
@given(runs=RUNS, data=st.data())
def test_aggregation_is_independent_of_orders(
    name: Aggregation, runs: list[list[int]], data: st.DataObject
) -> None:
    moved = data.draw(st.permutations(range(len(runs[0]))))
    others = [[run[one] for one in moved] for run in data.draw(st.permutations(runs))]
    found = AGGREGATIONS[name](runs)
    assert AGGREGATIONS[name](others) == tuple(found[one] for one in moved)


def documents_of(texts: str) -> list[Document]:
    return [Document(text) for text in texts]


def test_generated_rankings_of_orders_are_aggregated() -> None:
    request = LabeledRequest(
        task="ranking", question="Which?", documents=documents_of("xyz"), labels=list("ABC")
    )
    texts = ["B > A > C", "A > C > B", "none"]
    found = count_votes(DEBIASERS["permutation_kemeny"], request, [(0, 1, 2), (1, 2, 0), (0, 1, 2)], texts)
    assert found.answer == "B" and found.scores == pytest.approx({"A": 1 / 3, "B": 2 / 3, "C": 0.0})
    assert found.base_answers == {"B": 2}
    unparsed = count_votes(DEBIASERS["permutation_borda"], request, [(0, 1, 2)], ["none"])
    assert (unparsed.answer, unparsed.base_answers) == ("", {"": 1})


def test_kemeny_of_many_documents_is_refused() -> None:
    request = LabeledRequest(task="ranking", question="Which?", documents=documents_of("abcdefghijklm"))
    with pytest.raises(InputError):
        plan_debias([request], wrapper="permutation_kemeny")
    assert plan_debias([request], wrapper="permutation_borda").num_prompts == 10
