"""Permutation on the embedded model: the same in every order, and what its method alone says in all."""

from itertools import permutations
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.evaluation.examples import Example, read_examples
from pine_engine.evaluation.measure import measure
from pine_engine.evaluation.records import Key, Record
from pine_engine.prompts.prompt import Document
from viz.page.files.data_sets import FOLDER

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDING = 1e-9
"""Float64 logarithms of means of a few probabilities."""


@pytest.fixture(scope="module")
def engine(embedded: Engine) -> Engine:
    return embedded


def short(task: str, documents: int) -> Example:
    """The first row of a set that comes with the page, with fewer documents and a short instruction."""
    row = read_examples(FOLDER / f"{task}.jsonl", 1)[0]
    kept = [Document(text=one.text[:160], title=one.title) for one in row.documents[:documents]]
    return row.model_copy(update={"documents": kept, "system": "Judge.", "gold_index": 0})


def records(engine: Engine, example: Example, **options: Any) -> dict[Key, Record]:
    found = [item for item in measure(engine, [example], **options) if isinstance(item, Record)]
    assert [record.error for record in found if record.error] == []
    return {record.key: record for record in found}


def test_both_orders_of_a_pair_are_averaged(engine: Engine) -> None:
    example = short("judge_pair", 2)
    orders = ["as-is", "swapped", "segments-swapped"]
    names = ["vanilla", "permutation_full", "pride", "calibration_labels"]
    alone = records(engine, example, methods=names[:1], order_names=orders, max_new_tokens=4)
    found = records(engine, example, methods=names[1:], order_names=orders, max_new_tokens=4)
    as_is, swapped = (alone[example.id, "vanilla", order] for order in orders[:2])
    likely = []
    for record in (as_is, swapped):
        weights = np.exp([(record.choice_logprobs or {})[choice] for choice in ("[[A]]", "[[B]]")])
        likely.append(weights / weights.sum())
    mean = np.log((likely[0] + likely[1][::-1]) / 2)
    for order, expected in zip(orders, (mean, mean[::-1], mean), strict=True):
        record = found[example.id, "permutation_full:vanilla", order]
        assert list((record.choice_logprobs or {}).values()) == pytest.approx(expected, abs=ROUNDING)
        accepted = [one.answer_logprob or 0.0 for one in (as_is, swapped)]
        assert record.answer_logprob == pytest.approx(np.log(np.exp(accepted).mean()), abs=ROUNDING)
        assert record.text in (as_is.text, swapped.text)
    assert as_is.choice_logprobs != swapped.choice_logprobs
    again = records(engine, example, methods=names[1:2], order_names=orders, recompute=True, max_new_tokens=4)
    values = {tuple(sorted((record.choice_logprobs or {}).values())) for record in again.values()}
    assert len(values) == 1 and all(record.computed for record in again.values())
    # The row is learnt from: both orders are averaged, and its prior is what they have in common.
    learnt = found[example.id, "pride:vanilla", "as-is"]
    assert learnt.choice_logprobs == found[example.id, "permutation_full:vanilla", "as-is"].choice_logprobs
    prior = np.exp(np.log(np.array(likely) + 1e-10).mean(0))
    assert list((learnt.prior or {}).values()) == pytest.approx(prior / prior.sum(), abs=ROUNDING)


def test_all_orders_of_three_documents_say_one_thing(engine: Engine) -> None:
    example = short("retrieval_qa", 3)
    orders = ["order:" + "-".join(map(str, order)) for order in permutations(range(3))]
    options: dict[str, Any] = {"order_names": orders, "max_new_tokens": 3}
    alone = records(engine, example, methods=["vanilla"], **options)
    wrapped = records(engine, example, methods=["permutation_full", "permutation_cyclic:pine"], **options)
    mean = np.log(np.exp([record.answer_logprob or 0.0 for record in alone.values()]).mean())
    full = [wrapped[example.id, "permutation_full:vanilla", order] for order in orders]
    assert full[0].answer_logprob == pytest.approx(mean, abs=ROUNDING)
    assert len({(record.answer_logprob, record.text) for record in full}) == 1
    assert [record.computed for record in full] == [True] + [False] * 5
    assert len({record.answer_logprob for record in alone.values()}) == 6
    assert (
        len({wrapped[example.id, "permutation_cyclic:pine", order].answer_logprob for order in orders}) == 1
    )
