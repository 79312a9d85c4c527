"""Orders to try, and what is said about the answers in them."""

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
from torch import nn
from transformers import LlamaForCausalLM

from pine_engine.engine import orders, passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import (
    Answer,
    GenerationFinished,
    PrefillDone,
    PrefillProgress,
    RunFinished,
    RunResult,
)
from pine_engine.engine.model_worker import NEVER
from pine_engine.engine.orders import (
    OrderComparison,
    OrderResult,
    compare_orders,
    sample_orders,
    summarize_orders,
)
from pine_engine.engine.run import prepare_run
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout

LAYOUT = TokenLayout(tuple(range(60, 73)), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))


# orders


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_all_orders_are_tried_up_to_four_documents(count: int) -> None:
    orders = sample_orders(count)
    assert sorted(orders) == sorted(itertools.permutations(range(count)))
    assert orders[0] == tuple(range(count))


def test_above_four_documents_ten_shuffles_are_tried() -> None:
    assert len(sample_orders(5)) == 11
    assert len(sample_orders(20)) == 11


@given(count=st.integers(1, 7), shuffles=st.integers(0, 40), seed=st.integers(0, 5))
def test_orders_are_distinct_as_many_as_asked_for_and_as_is_first(
    count: int, shuffles: int, seed: int
) -> None:
    orders = sample_orders(count, shuffles, seed)
    assert orders[0] == tuple(range(count))
    assert len(orders) == len(set(orders)) == min(shuffles + 1, math.factorial(count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert orders == sample_orders(count, shuffles, seed)


def test_the_seed_draws_the_orders() -> None:
    drawn = [sample_orders(6, 10, seed) for seed in range(3)]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    assert sample_orders(6, 10) == drawn[0]
    assert sample_orders(6, 20)[:11] == drawn[0]


def test_a_negative_number_of_shuffles_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        sample_orders(3, -1)
    assert str(raised.value) == "the number of shuffles is -1; give 0 or more"


# a model in several orders


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(head_dim=32))


def test_promises_are_kept_and_vanilla_is_seen_to_change(engine: Engine) -> None:
    tried = sample_orders(3)
    events = list(compare_orders(engine, LAYOUT, orders=tried, max_new_tokens=4, stop_at_eos=False))
    rows = [event for event in events if isinstance(event, OrderResult)]
    assert [row.order for row in rows] == tried
    assert [row.result.layout for row in rows] == [LAYOUT.reorder(order) for order in tried]
    assert all(len(row.cells[name].answer.token_ids) == 4 for row in rows for name in row.cells)
    for name in ("pcw", "pine"):
        for row in rows:
            cell = row.cells[name]
            assert (cell.bitwise_identical, cell.max_abs_logit_diff, cell.first_difference) == (
                True,
                0.0,
                None,
            )
    for name in ("vanilla", "nia"):
        first, *others = (row.cells[name] for row in rows)
        assert (first.bitwise_identical, first.max_abs_logit_diff, first.same_text) == (True, 0.0, True)
        for cell in others:
            assert not cell.bitwise_identical
            assert cell.max_abs_logit_diff > 1e-3
            assert cell.same_text == (cell.answer.token_ids == first.answer.token_ids)
        assert not all(cell.same_text for cell in others)


def test_events_of_every_run_come_through_and_rows_come_in_turn(engine: Engine) -> None:
    tried = [(0, 1, 2), (2, 1, 0)]
    events = list(compare_orders(engine, LAYOUT, methods=["pine"], orders=tried, max_new_tokens=1))
    assert [event.order for event in events if isinstance(event, OrderResult)] == tried
    assert not any(isinstance(event, RunFinished) for event in events)
    assert len([event for event in events if isinstance(event, PrefillProgress)]) == 2 * 2
    assert len([event for event in events if isinstance(event, GenerationFinished)]) == 2


@pytest.mark.parametrize("methods", [list(METHODS), ["pine"]], ids=["all", "one"])
@pytest.mark.parametrize(("orders_at_once", "most"), [(1, 1), (3, 3), (5, 4)])
def test_how_many_orders_are_written_together_changes_no_bit(
    engine: Engine, methods: list[str], orders_at_once: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a last order is left that is written alone. most: written together, of four after two."""
    options: dict[str, Any] = {"methods": methods, "max_new_tokens": 6, "stop_at_eos": False}
    together = rows_of(engine, **options)
    one = sum(
        answer.num_bytes(6)
        for answer in prepare_run(
            engine, LAYOUT, {"return_logits": True, "methods": methods, "max_new_tokens": 6}
        ).prefill(None, NEVER)
    )
    monkeypatch.setattr(orders, "BYTES_AT_ONCE", one * orders_at_once)
    widths: list[int] = []
    extend = passes.extend

    def counted(rows: Sequence[Any], *args: Any, **options: Any) -> torch.Tensor:
        widths.append(len(rows))
        return extend(rows, *args, **options)

    monkeypatch.setattr(passes, "extend", counted)
    for row, whole in zip(rows_of(engine, **options), together, strict=True):
        for method, logits in whole.result.logits.items():
            assert torch.equal(row.result.logits[method], logits), method
        assert row.cells["pine"].bitwise_identical
    steps = [width for width in widths if width > 1]  # others read the answer of the first order again
    assert set(steps) == {max(2, most * len(methods))}


def test_two_orders_are_told_before_the_others_are_read(engine: Engine) -> None:
    events = compare_orders(engine, LAYOUT, methods=["pine"], orders=sample_orders(3), max_new_tokens=2)
    kinds = [type(event) for event in events if isinstance(event, OrderResult | PrefillDone)]
    assert kinds == [PrefillDone] * 2 + [OrderResult] * 2 + [PrefillDone] * 4 + [OrderResult] * 4


def test_the_difference_in_logits_is_that_of_the_runs(engine: Engine) -> None:
    options: dict[str, Any] = {"max_new_tokens": 4, "stop_at_eos": False}
    orders = [(0, 1, 2), (1, 2, 0)]
    _, moved = (
        event
        for event in compare_orders(engine, LAYOUT, methods=["vanilla"], orders=orders, **options)
        if isinstance(event, OrderResult)
    )
    one, other = (
        engine.run(LAYOUT.reorder(order), methods=["vanilla"], return_logits=True, **options)
        for order in orders
    )
    ids = [run.answers["vanilla"].token_ids for run in (one, other)]
    same = next((i for i, pair in enumerate(zip(*ids, strict=True)) if pair[0] != pair[1]), len(ids[0]))
    rows = [run.logits["vanilla"][: LAYOUT.suffix_length + same] for run in (one, other)]
    cell = moved.cells["vanilla"]
    assert cell.max_abs_logit_diff == float((rows[0] - rows[1]).abs().max())
    assert cell.first_difference == (None if ids[0] == ids[1] else same)


def rows_of(engine: Engine, **options: Any) -> list[OrderResult]:
    events = compare_orders(engine, LAYOUT, orders=sample_orders(3), **options)
    return [event for event in events if isinstance(event, OrderResult)]


def fed_with(engine: Engine, layout: TokenLayout, method: str, ids: tuple[int, ...]) -> float:
    """Log-probability of an answer that follows a prompt, all of it read at once."""
    with torch.inference_mode():
        row, last = passes.prefill(
            engine.patched_models, layout, METHODS[method], room=len(ids), logits_to_keep=1
        )
        logits = torch.cat((last, passes.extend([row], [ids[:-1]])[0])).log_softmax(-1)
    return float(sum(logits[step, token] for step, token in enumerate(ids)))


def test_the_first_answer_has_a_probability_in_every_order(engine: Engine) -> None:
    rows = rows_of(engine, methods=list(METHODS), max_new_tokens=5, stop_at_eos=False)
    parted = set()
    for row in rows:
        for method, cell in row.cells.items():
            ids = rows[0].cells[method].answer.token_ids
            expected = fed_with(engine, row.result.layout, method, ids)
            assert cell.reference_logprob == pytest.approx(expected, abs=1e-4), (method, row.order)
            if cell.first_difference is None:
                assert cell.reference_logprob == sum(cell.answer.logprobs)
            else:
                parted.add(cell.first_difference)
    assert len(parted) > 2 and min(parted) < 4, "answers part early and late, or nothing was read again"


def test_the_probability_is_the_same_bits_where_the_order_must_not_matter(engine: Engine) -> None:
    rows = rows_of(engine, methods=list(METHODS), max_new_tokens=5, stop_at_eos=False)
    spreads = {
        name: summary.logprob_spread for name, summary in summarize_orders([r.cells for r in rows]).items()
    }
    for name, method in METHODS.items():
        assert (spreads[name] == 0.0) == method.is_order_invariant, name


def test_reading_the_first_answer_again_leaves_the_answers_as_they_are(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["vanilla", "nia", "sp"], "max_new_tokens": 5, "stop_at_eos": False}
    for row in rows_of(engine, trace=True, **options):
        run = engine.run(row.result.layout, return_logits=True, trace=True, **options)
        for method, answer in run.answers.items():
            assert row.cells[method].answer.token_ids == answer.token_ids
            assert torch.equal(row.result.logits[method], run.logits[method])
            theirs, ours = row.result.traces[method].suffix_attention, run.traces[method].suffix_attention
            assert theirs is not None and ours is not None and (theirs == ours).all()


def test_nothing_is_traced_unless_asked_for(engine: Engine) -> None:
    assert not any(row.result.traces for row in rows_of(engine, methods=["pine"], max_new_tokens=1))


@pytest.mark.parametrize(("stop_at_eos", "tokens"), [(True, 0), (False, 3)])
def test_answers_end_where_they_would_unless_asked_otherwise(
    engine: Engine, stop_at_eos: bool, tokens: int
) -> None:
    stopping = Engine(engine.model, stop_token_ids=frozenset(range(97)))
    (row,) = (
        event
        for event in compare_orders(
            stopping, LAYOUT, methods=["pcw"], orders=[(0, 1, 2)], max_new_tokens=3, stop_at_eos=stop_at_eos
        )
        if isinstance(event, OrderResult)
    )
    assert len(row.cells["pcw"].answer.token_ids) == tokens


def test_closing_stops_the_computing(engine: Engine) -> None:
    calls: list[None] = []
    hook = (
        engine.patched_models[0].network.model.layers[0].register_forward_hook(lambda *_: calls.append(None))
    )
    events = compare_orders(engine, LAYOUT, orders=sample_orders(3), max_new_tokens=1)
    next(event for event in events if isinstance(event, PrefillDone))
    events.close()
    hook.remove()
    assert len(calls) <= 3  # the next may have begun


# what a cell says, on results made by hand


def result(ids: tuple[int, ...], logits: list[list[float]], method: str = "pine") -> RunResult:
    """A prompt with a suffix of two tokens, so that logits has 2 + steps rows; the model knows ten tokens."""
    answer = Answer(method, str(ids), ids, tuple(0.0 for _ in ids), 0.0, 0.0, "length")
    layout = TokenLayout((1,), ((2,), (3,)), (4, 5))
    rows = nn.functional.pad(torch.tensor(logits), (0, 10 - len(logits[0])))
    return RunResult(layout, {method: answer}, {}, {method: rows})


def row_of(result: RunResult, method: str) -> Any:
    """What has read the prompt and the answer but for its last token."""
    read = result.layout.num_tokens + max(0, len(result.answers[method].token_ids) - 1)
    cache = SimpleNamespace(length=read)
    cache.truncate = lambda length: setattr(cache, "length", length)
    patched_model = SimpleNamespace(network=SimpleNamespace(device=torch.device("cpu")))
    state = SimpleNamespace(plan=SimpleNamespace(method=METHODS[method]), patched_model=patched_model)
    return SimpleNamespace(state=state, cache=cache, num_read=lambda: cache.length)


def find_all_alike(rows: list[Any], ids: list[Sequence[int]], _: Any) -> torch.Tensor:
    """What follows the tokens that are fed: any of the ten is as likely."""
    return torch.zeros(len(rows), len(ids[0]), 10)


def second_cell(first: RunResult, other: RunResult) -> OrderComparison:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passes, "extend", find_all_alike)
        return orders.compare(MODEL, first, other, {"pine": row_of(other, "pine")})["pine"]


MODEL: Any = SimpleNamespace(tokenizer=None)

REFERENCE = result((7, 8, 9), [[0, 0], [1, 1], [2, 2], [3, 3]])


def test_equal_logits_and_tokens_are_equal_to_the_last_bit() -> None:
    cell = second_cell(REFERENCE, result((7, 8, 9), [[0, 0], [1, 1], [2, 2], [3, 3]]))
    assert (cell.same_text, cell.first_difference, cell.max_abs_logit_diff, cell.bitwise_identical) == (
        True, None, 0.0, True
    )  # fmt: skip


@pytest.mark.parametrize("row", range(4))
def test_any_rows_difference_is_seen_though_the_text_is_the_same(row: int) -> None:
    logits = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]
    logits[row][1] -= 0.25
    cell = second_cell(REFERENCE, result((7, 8, 9), logits))
    assert (cell.same_text, cell.first_difference, cell.max_abs_logit_diff, cell.bitwise_identical) == (
        True, None, 0.25, False
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "first_difference", "largest"),
    [
        # Step i is decided by row 1 + i; what comes after the first other token answers another text.
        ((5, 8, 9), 0, 0.5),
        ((7, 5, 9), 1, 0.5),
        ((7, 8, 5), 2, 4.0),
    ],
)
def test_only_logits_up_to_the_first_other_token_are_compared(
    ids: tuple[int, ...], first_difference: int, largest: float
) -> None:
    cell = second_cell(REFERENCE, result(ids, [[0, 0], [1, 1.5], [2, 2], [7, 3]]))
    assert (cell.same_text, cell.first_difference, cell.bitwise_identical) == (False, first_difference, False)
    assert cell.max_abs_logit_diff == largest


def test_an_answer_that_ends_earlier_differs_where_it_ends() -> None:
    shorter = result((7, 8), [[0, 0], [1, 1], [2, 2], [3, 3]])
    for cell in (second_cell(REFERENCE, shorter), second_cell(shorter, REFERENCE)):
        assert (cell.same_text, cell.first_difference, cell.max_abs_logit_diff) == (False, 2, 0.0)
        assert not cell.bitwise_identical


LOG_10 = math.log(10)
EVEN = [[0.0] * 10] * 5
"""Logits that find all ten tokens alike."""


@pytest.mark.parametrize(
    ("ids", "own", "expected"),
    [
        ((7, 8, 9), (-1.0, -2.0, -4.0), -7.0),
        ((7, 8, 9, 6), (-1.0, -2.0, -4.0, -8.0), -7.0),  # went on where the reference had ended
        ((7, 8, 5), (-1.0, -2.0, -4.0), -3.0 - LOG_10),
        ((7, 8), (-1.0, -2.0), -3.0 - LOG_10),  # ended where the reference went on
        ((7, 5), (-1.0, -2.0), -1.0 - 2 * LOG_10),
        ((), (), -3 * LOG_10),
    ],
)
def test_the_reference_is_read_from_where_the_answers_part(
    ids: tuple[int, ...], own: tuple[float, ...], expected: float
) -> None:
    other = result(ids, EVEN)
    answer = replace(other.answers["pine"], logprobs=own)
    cell = second_cell(REFERENCE, replace(other, answers={"pine": answer}))
    assert cell.reference_logprob == pytest.approx(expected, abs=1e-6)


def test_the_first_other_token_is_decided_by_the_logits_that_chose_it() -> None:
    logits = [[0.0] * 10 for _ in range(5)]
    logits[2] = [math.log(9 / 5) if token == 8 else 0.0 for token in range(10)]  # 8 has one sixth
    cell = second_cell(REFERENCE, result((7, 5, 9), logits))
    assert cell.reference_logprob == pytest.approx(-math.log(6) - LOG_10, abs=1e-6)


def test_an_empty_reference_is_certain() -> None:
    empty = result((), [[0.0, 0.0], [1.0, 1.0]])
    assert second_cell(empty, REFERENCE).reference_logprob == 0.0


# all orders together


def cell(
    ids: tuple[int, ...], diff: float, *, same: bool, equal: bool, logprob: float = -1.0
) -> OrderComparison:
    answer = Answer("pine", "", ids, (), 0.0, 0.0, "length")
    return OrderComparison(answer, same, None if same else 0, diff, equal, logprob)


def test_a_summary_counts_over_all_orders() -> None:
    rows = [
        {"pine": cell((1, 2), 0.0, same=True, equal=True), "vanilla": cell((1,), 0.0, same=True, equal=True)},
        {
            "pine": cell((1, 2), 0.0, same=True, equal=True),
            "vanilla": cell((2,), 0.5, same=False, equal=False),
        },
        {
            "pine": cell((1, 2), 0.0, same=True, equal=True),
            "vanilla": cell((1,), 0.7, same=True, equal=False, logprob=-3.5),
        },
        {
            "pine": cell((1, 2), 0.0, same=True, equal=True),
            "vanilla": cell((3,), 0.1, same=False, equal=False, logprob=-0.25),
        },
    ]
    summaries = summarize_orders(rows)
    assert list(summaries) == ["pine", "vanilla"]
    pine, vanilla = summaries["pine"], summaries["vanilla"]
    assert (pine.orders, pine.num_matching_answers, pine.num_distinct_answers) == (4, 4, 1)
    assert (pine.max_abs_logit_diff, pine.bitwise_identical) == (0.0, True)
    assert (vanilla.orders, vanilla.num_matching_answers, vanilla.num_distinct_answers) == (4, 2, 3)
    assert (vanilla.max_abs_logit_diff, vanilla.bitwise_identical) == (0.7, False)
    assert (pine.logprob_spread, vanilla.logprob_spread) == (0.0, 3.25)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_difference_that_is_no_number_is_not_lost_among_others(place: int) -> None:
    rows = [{"pine": cell((1,), diff, same=True, equal=False)} for diff in (0.0, 0.5)]
    rows.insert(place, {"pine": cell((1,), math.nan, same=True, equal=False)})
    assert math.isnan(summarize_orders(rows)["pine"].max_abs_logit_diff)
