"""Document orders: sampling, comparison with the first order, and the result of a shuffle."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from pine_engine.engine import orders, passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Answer, GenerationFinished, PrefillDone, PrefillProgress, RunResult
from pine_engine.engine.model_worker import NEVER
from pine_engine.engine.orders import (
    OrderComparison,
    OrderResult,
    ShuffleResult,
    compare_orders,
    sample_orders,
    summarize_orders,
)
from pine_engine.engine.run import Run, prepare_run
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.forward import count_tokens
from tests.support.tokenizers import letter_tokenizer

LAYOUT = TokenLayout(tuple(range(60, 73)), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))
FIXED: dict[str, Any] = {"max_new_tokens": 5, "stop_at_eos": False}


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_default_is_all_orders_of_few_documents(count: int) -> None:
    assert sorted(sample_orders(count)) == sorted(itertools.permutations(range(count)))


@given(count=st.integers(1, 7), shuffles=st.integers(0, 40), seed=st.integers(0, 5))
def test_sampled_orders_are_distinct_permutations(count: int, shuffles: int, seed: int) -> None:
    sampled = sample_orders(count, shuffles, seed)
    assert sampled[0] == tuple(range(count))
    assert len(sampled) == len(set(sampled)) == min(shuffles + 1, math.factorial(count))
    assert all(sorted(order) == list(range(count)) for order in sampled)
    assert sampled == sample_orders(count, shuffles, seed)


def test_seed_determines_sampled_orders() -> None:
    sampled = [sample_orders(6, 10, seed) for seed in range(3)]
    assert sampled[0] != sampled[1] != sampled[2] != sampled[0]
    assert sample_orders(6) == sample_orders(6, 20)[:11] == sampled[0]
    assert sampled[0][1] == (3, 5, 0, 1, 2, 4)  # certificates contain the seed
    with pytest.raises(InputError):
        sample_orders(3, -1)


# a model in several orders


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(head_dim=32), letter_tokenizer())


@pytest.fixture(scope="module")
def shuffled(engine: Engine) -> ShuffleResult:
    return engine.shuffle(LAYOUT, methods="all", **FIXED, return_logits=True)


def test_invariant_methods_are_identical_and_others_change(shuffled: ShuffleResult) -> None:
    assert shuffled.orders == tuple(sample_orders(3))
    assert [row.result.layout for row in shuffled.results] == [
        LAYOUT.reorder(order) for order in shuffled.orders
    ]
    for name, method in METHODS.items():
        first, *others = (row.comparisons[name] for row in shuffled.results)
        assert (first.bitwise_identical, first.max_abs_logit_diff, first.same_text) == (True, 0.0, True)
        for cell in others:
            assert cell.bitwise_identical == (cell.max_abs_logit_diff == 0) == method.is_order_invariant
            assert cell.same_text == (cell.answer.token_ids == first.answer.token_ids)
        assert (shuffled.summary[name].logprob_spread == 0.0) == method.is_order_invariant
        assert shuffled.invariance_held[name] is (True if method.is_order_invariant else None)
    assert shuffled.summary["vanilla"].num_distinct_answers > 1


def test_comparisons_agree_with_separate_runs(engine: Engine, shuffled: ShuffleResult) -> None:
    differences = set()
    for row in shuffled.results:
        alone = engine.run(row.result.layout, methods="all", **FIXED, return_logits=True)
        for method, cell in row.comparisons.items():
            assert cell.answer.token_ids == alone.answers[method].token_ids
            assert torch.equal(row.result.logits[method], alone.logits[method])
            reference = shuffled.first.answers[method].token_ids
            pairs = enumerate(zip(reference, cell.answer.token_ids, strict=True))
            index = next((index for index, (one, other) in pairs if one != other), None)
            assert cell.first_difference == index
            logits, first = (
                run.logits[method][: LAYOUT.suffix_length + (5 if index is None else index)]
                for run in (alone, shuffled.first)
            )
            assert cell.max_abs_logit_diff == float((logits - first).abs().max())
            expected = logprob_of(engine, row.result.layout, method, reference)
            assert cell.reference_logprob == pytest.approx(expected, abs=1e-4), (method, row.order)
            if index is not None:
                tokens = (cell.answer.token_ids[index], reference[index])
                assert [cell.token_text, cell.reference_token_text] == engine.decode_tokens(tokens)
                differences.add(index)
    assert len(differences) > 2 and min(differences) < 4, "answers differ both early and late"


@torch.inference_mode()
def logprob_of(engine: Engine, layout: TokenLayout, method: str, ids: tuple[int, ...]) -> float:
    """Return the log-probability of an answer that is processed at once."""
    row, last = passes.prefill(
        engine.patched_models, layout, METHODS[method], reserved_tokens=len(ids), logits_to_keep=1
    )
    logits = torch.cat((last, passes.extend([row], [ids[:-1]])[0])).log_softmax(-1)
    return float(sum(logits[step, token] for step, token in enumerate(ids)))


@pytest.mark.parametrize("methods", [list(METHODS), ["pine"]], ids=["all", "one"])
@pytest.mark.parametrize(("orders_at_once", "most"), [(1, 1), (3, 3), (5, 4)])
def test_number_of_orders_per_batch_changes_no_bit(
    engine: Engine, methods: list[str], orders_at_once: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = engine.shuffle(LAYOUT, methods=methods, **FIXED, return_logits=True)
    run = prepare_run(engine, LAYOUT, return_logits=True, methods=methods, max_new_tokens=5)
    num_bytes = sum(answer.num_bytes(5) for answer in run.prefill(None, NEVER))
    monkeypatch.setattr(orders, "BYTES_AT_ONCE", num_bytes * orders_at_once)
    widths: list[int] = []
    extend = passes.extend

    def counted(rows: Sequence[Any], *args: Any, **options: Any) -> Tensor:
        widths.append(len(rows))
        return extend(rows, *args, **options)

    monkeypatch.setattr(passes, "extend", counted)
    found = engine.shuffle(LAYOUT, methods=methods, **FIXED, return_logits=True)
    for row, expected in zip(found.results, together.results, strict=True):
        for method in methods:
            assert torch.equal(row.result.logits[method], expected.result.logits[method]), method
    steps = [width for width in widths if width > 1]  # others score the reference
    assert set(steps) == {max(2, most * len(methods))}


def test_compare_orders_yields_events_and_two_orders_first(engine: Engine) -> None:
    events = list(compare_orders(engine, LAYOUT, methods=["pine"], max_new_tokens=2))
    kinds = [type(event) for event in events if isinstance(event, OrderResult | PrefillDone)]
    assert kinds == [PrefillDone] * 2 + [OrderResult] * 2 + [PrefillDone] * 4 + [OrderResult] * 4
    results = [event for event in events if isinstance(event, OrderResult)]
    assert [result.order for result in results] == sample_orders(3)
    assert not any(result.result.traces for result in results)
    assert len([event for event in events if isinstance(event, PrefillProgress)]) == 2 * 6
    assert len([event for event in events if isinstance(event, GenerationFinished)]) == 6


def test_compare_orders_traces_each_order(engine: Engine) -> None:
    for event in compare_orders(engine, LAYOUT, methods=["nia", "sp"], trace=True, **FIXED):
        if isinstance(event, OrderResult):
            run = engine.run(event.result.layout, methods=["nia", "sp"], trace=True, **FIXED)
            for method, trace in run.traces.items():
                found = event.result.traces[method].suffix_attention
                assert found is not None and (found == trace.suffix_attention).all()


@pytest.mark.parametrize(("stop_at_eos", "tokens"), [(True, 0), (False, 3)])
def test_compare_orders_stops_at_eos(engine: Engine, stop_at_eos: bool, tokens: int) -> None:
    stopping = Engine(engine.model, stop_token_ids=range(97))
    found = stopping.shuffle(LAYOUT, methods="pcw", count=1, max_new_tokens=3, stop_at_eos=stop_at_eos)
    assert len(found.first.answers["pcw"].token_ids) == tokens


def test_closing_compare_orders_stops_model(engine: Engine) -> None:
    with count_tokens(engine.patched_models[0].network.model.layers[0]) as calls:
        events = compare_orders(engine, LAYOUT, max_new_tokens=1)
        next(event for event in events if isinstance(event, PrefillDone))
        events.close()
    assert len(calls) <= 3  # the next prefill may have started


# comparisons of results made by hand


def result(ids: tuple[int, ...], logits: list[list[float]]) -> RunResult:
    """Return the result of a prompt with a suffix of two tokens and a vocabulary of ten."""
    answer = Answer("pine", str(ids), ids, tuple(0.0 for _ in ids), 0.0, 0.0, "length")
    layout = TokenLayout((1,), ((2,), (3,)), (4, 5))
    rows = nn.functional.pad(torch.tensor(logits), (0, 10 - len(logits[0])))
    return RunResult(layout, {"pine": answer}, {}, {"pine": rows})


def second_cell(first: RunResult, other: RunResult) -> OrderComparison:
    """Compare, in a model that finds all tokens equally likely."""
    num_tokens = other.layout.num_tokens + max(0, len(other.answers["pine"].token_ids) - 1)
    cache = SimpleNamespace(length=num_tokens)
    cache.truncate = lambda length: setattr(cache, "length", length)
    patched = SimpleNamespace(network=SimpleNamespace(device=torch.device("cpu")))
    state = SimpleNamespace(plan=SimpleNamespace(method=METHODS["pine"]), patched_model=patched)
    row: Any = SimpleNamespace(state=state, cache=cache, num_cached_tokens=lambda: cache.length)
    model: Any = SimpleNamespace(tokenizer=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "extend", lambda rows, ids, _: torch.zeros(len(rows), len(ids[0]), 10))
        return orders.compare(model, first, other, {"pine": row})["pine"]


RISING = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
REFERENCE = result((7, 8, 9), RISING)


def nudged(row: int, column: int, change: float) -> list[list[float]]:
    logits = [list(values) for values in RISING]
    logits[row][column] += change
    return logits


@pytest.mark.parametrize(
    ("ids", "logits", "first_difference", "largest", "is_identical"),
    [
        ((7, 8, 9), RISING, None, 0.0, True),
        *(((7, 8, 9), nudged(row, 1, -0.25), None, 0.25, False) for row in range(4)),
        ((5, 8, 9), nudged(1, 1, 0.5), 0, 0.5, False),  # row 1 + i determines token i
        ((7, 5, 9), nudged(3, 0, 4.0), 1, 0.0, False),  # logits after the different token
        ((7, 8, 5), nudged(3, 0, 4.0), 2, 4.0, False),
        ((7, 8), RISING, 2, 0.0, False),
        ((7, 8, 9, 6), RISING, 3, 0.0, False),
    ],
)
def test_comparison_includes_logits_up_to_different_token(
    ids: tuple[int, ...],
    logits: list[list[float]],
    first_difference: int | None,
    largest: float,
    is_identical: bool,
) -> None:
    cell = second_cell(REFERENCE, result(ids, logits))
    assert (cell.first_difference, cell.max_abs_logit_diff, cell.bitwise_identical) == (
        first_difference, largest, is_identical
    )  # fmt: skip
    assert cell.same_text == (first_difference is None)


LOG_10 = math.log(10)


@pytest.mark.parametrize(
    ("ids", "logprobs", "expected"),
    [
        ((7, 8, 9), (-1.0, -2.0, -4.0), -7.0),
        ((7, 8, 9, 6), (-1.0, -2.0, -4.0, -8.0), -7.0),  # longer than the reference
        ((7, 8, 5), (-1.0, -2.0, -4.0), -3.0 - LOG_10),
        ((7, 8), (-1.0, -2.0), -3.0 - LOG_10),  # shorter than the reference
        ((7, 5), (-1.0, -2.0), -1.0 - 2 * LOG_10),
        ((), (), -3 * LOG_10),
    ],
)
def test_reference_is_scored_from_different_token(
    ids: tuple[int, ...], logprobs: tuple[float, ...], expected: float
) -> None:
    other = result(ids, [[0.0] * 10] * 5)
    answer = replace(other.answers["pine"], logprobs=logprobs)
    cell = second_cell(REFERENCE, replace(other, answers={"pine": answer}))
    assert cell.reference_logprob == pytest.approx(expected, abs=1e-6)


def test_different_token_is_scored_by_its_logits() -> None:
    logits = [[0.0] * 10 for _ in range(5)]
    logits[2][8] = math.log(9 / 5)  # 8 has probability 1/6
    cell = second_cell(REFERENCE, result((7, 5, 9), logits))
    assert cell.reference_logprob == pytest.approx(-math.log(6) - LOG_10, abs=1e-6)
    assert second_cell(result((), RISING[:2]), REFERENCE).reference_logprob == 0.0


# statistics and result


def cell(
    ids: tuple[int, ...], diff: float = 0.0, *, equal: bool = True, logprob: float = -1.0
) -> OrderComparison:
    answer = Answer("pine", "", ids, (), 0.0, 0.0, "length")
    return OrderComparison(answer, ids == (1,), None if ids == (1,) else 0, diff, equal, logprob)


def test_stats_count_all_orders() -> None:
    vanilla = [cell((1,)), cell((2,), 0.5, equal=False), cell((1,), 0.7, equal=False, logprob=-3.5),
               cell((3,), 0.1, equal=False, logprob=-0.25)]  # fmt: skip
    stats = summarize_orders([{"pine": cell((1,)), "vanilla": one} for one in vanilla])
    found = {name: (one.orders, one.num_matching_answers, one.num_distinct_answers, one.max_abs_logit_diff,
                    one.bitwise_identical, one.logprob_spread) for name, one in stats.items()}  # fmt: skip
    assert found == {"pine": (4, 4, 1, 0.0, True, 0.0), "vanilla": (4, 2, 3, 0.7, False, 3.25)}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_stats_keep_nan(place: int) -> None:
    rows = [{"pine": cell((1,), diff)} for diff in (0.0, 0.5)]
    rows.insert(place, {"pine": cell((1,), math.nan)})
    assert math.isnan(summarize_orders(rows)["pine"].max_abs_logit_diff)


def test_shuffle_reports_progress_and_drops_logits(engine: Engine) -> None:
    layout = TokenLayout((5,), tuple((11 + index,) for index in range(6)), (51,))
    calls: list[float] = []
    found = engine.shuffle(
        layout, methods="pine", max_new_tokens=1, count=4, seed=3, progress=lambda part, _: calls.append(part)
    )
    assert list(found.orders) == sample_orders(6, 3, seed=3)
    assert calls == [0.25, 0.5, 0.75, 1.0]
    assert all(row.result.logits == {} for row in found.results)


def test_shuffle_finds_broken_invariance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = Run.result

    def nudged(run: Run, *args: Any) -> Any:
        found = result_of(run, *args)
        logits = found.logits["pine"].clone()
        logits[0, 0] += run.layout.documents[0][0]  # depends on the order
        return replace(found, logits={**found.logits, "pine": logits})

    monkeypatch.setattr(Run, "result", nudged)
    found = engine.shuffle(LAYOUT, methods=["vanilla", "pine"], count=2, **FIXED)
    assert found.invariance_held == {"vanilla": None, "pine": False}


@pytest.mark.parametrize(
    "options",
    [{"count": 0}, {"count": "two"}, {"count": 2, "orders": [[0, 1, 2]]}, {"orders": [[0, 0, 2]]},
     {"orders": []}],
)  # fmt: skip
def test_shuffle_refuses_invalid_orders(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        engine.shuffle(LAYOUT, **FIXED, **options)
