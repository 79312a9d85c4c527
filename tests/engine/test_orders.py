"""Document orders: sampling, comparison with the first order, and the result of a shuffle."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from hypothesis import given, strategies as st
from plotly.graph_objects import Figure

import pine_engine as pine
import viz
from pine_engine import METHODS, Engine, InputError, TokenLayout
from pine_engine.engine import orders, passes
from pine_engine.engine.run import PreparedRun, prepare_run
from pine_engine.reprs import plot
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.forward import watch_caches
from tests.support.tokenizers import letter_tokenizer

LAYOUT = TokenLayout(
    tuple(range(60, 73)),
    ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)),
    (51, 52, 53),
    scores=(0.5, 2.0, 0.5),
)
FIXED: dict[str, Any] = {"max_new_tokens": 5, "stop_at_eos": False}


@given(count=st.integers(1, 7), shuffles=st.integers(0, 40), seed=st.integers(0, 5))
def test_sampled_orders_are_distinct_permutations(count: int, shuffles: int, seed: int) -> None:
    sampled = pine.sample_orders(count, shuffles, seed)
    assert sampled[0] == tuple(range(count))
    assert len(sampled) == len(set(sampled)) == min(shuffles + 1, math.factorial(count))
    assert all(sorted(order) == list(range(count)) for order in sampled)
    assert sampled == pine.sample_orders(count, shuffles, seed)
    assert pine.sample_orders(min(count, 4)) == list(itertools.permutations(range(min(count, 4))))


def test_seed_determines_sampled_orders() -> None:
    sampled = [pine.sample_orders(6, 10, seed) for seed in range(3)]
    assert sampled[0] != sampled[1] != sampled[2] != sampled[0]
    assert pine.sample_orders(6) == pine.sample_orders(6, 20)[:11] == sampled[0]
    assert sampled[0][1] == (3, 5, 0, 1, 2, 4)  # certificates contain the seed


@pytest.fixture(scope="module")
def shuffled(engine: Engine) -> pine.ShuffleResult:
    orders = pine.sample_orders(3)[::2]
    return engine.shuffle(LAYOUT, orders=orders, methods=METHODS, **FIXED, return_logits=True)


def test_invariant_methods_are_identical_and_others_change(shuffled: pine.ShuffleResult) -> None:
    assert [row.result.layout for row in shuffled.results] == [LAYOUT.reorder(one) for one in shuffled.orders]
    for name, method in METHODS.items():
        first, *others = (row.comparisons[name] for row in shuffled.results)
        assert (first.bitwise_identical, first.max_abs_logit_diff, first.same_text) == (True, 0.0, True)
        for cell in others:
            assert cell.bitwise_identical == (cell.max_abs_logit_diff == 0)
            # A reordered prompt may be the same in several orders.
            assert cell.bitwise_identical == method.is_order_invariant or method.score
            assert cell.same_text == (cell.answer.token_ids == first.answer.token_ids)
        is_constant = shuffled.summary[name].logprob_spread == 0.0
        assert is_constant == method.is_order_invariant or method.score
        assert shuffled.invariance_held[name] is (True if method.is_order_invariant else None)
    assert shuffled.summary["vanilla"].num_distinct_answers > 1


@pytest.mark.parametrize("stop_token_ids", [(), range(40, 70)], ids=["five tokens", "stopped"])
def test_comparisons_agree_with_separate_runs(engine: Engine, stop_token_ids: Sequence[int]) -> None:
    engine = Engine(engine.model, engine.tokenizer, stop_token_ids=stop_token_ids)
    methods = ["vanilla", "nia", "mask_only", "pine"]
    options: dict[str, Any] = {"methods": methods, "max_new_tokens": 5, "return_logits": True}
    shuffled = engine.shuffle(LAYOUT, **options)
    assert shuffled.orders == tuple(pine.sample_orders(3))
    differences, lengths = set(), set()
    for result in shuffled.results:
        alone = engine.run(result.result.layout, **options)
        for method, found in result.comparisons.items():
            ids, reference = alone.answers[method].token_ids, shuffled.first.answers[method].token_ids
            assert found.answer.token_ids == ids
            pairs = enumerate(itertools.zip_longest(reference, ids))
            index = next((index for index, (one, other) in pairs if one != other), None)
            assert (found.first_difference, found.same_text) == (index, index is None)
            both = alone.logits[method], shuffled.first.logits[method]
            end = min(*map(len, both), LAYOUT.suffix_length + (5 if index is None else index))
            assert found.max_abs_logit_diff == float((both[0][:end] - both[1][:end]).abs().max())
            assert torch.equal(result.result.logits[method], both[0])
            expected = logprob_of(engine, result.result.layout, method, reference)
            assert found.reference_logprob == pytest.approx(expected, abs=1e-4), (method, result.order)
            if index is not None:
                texts = [engine.decode_tokens(one[index : index + 1]) for one in (ids, reference)]
                assert [found.token_text, found.reference_token_text] == [
                    text[0] if text else None for text in texts
                ]
                differences.add(index)
            lengths.add(len(ids) - len(reference))
    assert len(differences) > 2 and (max(lengths) > 0 > min(lengths)) == bool(stop_token_ids)


@torch.inference_mode()
def logprob_of(engine: Engine, layout: TokenLayout, method: str, ids: tuple[int, ...]) -> float:
    options = passes.PassOptions(engine.patched_models, reserved_tokens=len(ids))
    row, last = passes.prefill(layout, METHODS[method], options)
    if len(ids) > 1:
        last = torch.cat((last, passes.extend([row], [ids[:-1]])[0]))
    logits = last.log_softmax(-1)
    return float(sum(logits[step, token] for step, token in enumerate(ids)))


@pytest.mark.parametrize("methods", [["vanilla", "pcw", "pine"], ["pine"]], ids=["three", "one"])
@pytest.mark.parametrize(
    ("orders_at_once", "of_three", "of_one"), [(1, 3, 2), (3, 9, 3), (5, 15 - 4, 3), (6, 18 - 4, 6 - 2)]
)
def test_results_are_identical_for_any_batch_size(
    engine: Engine,
    methods: list[str],
    orders_at_once: int,
    of_three: int,
    of_one: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = engine.shuffle(LAYOUT, methods=methods, **FIXED, return_logits=True)
    run = prepare_run(engine, LAYOUT, return_logits=True, methods=methods, max_new_tokens=5)
    num_bytes = engine.answer_bytes(LAYOUT, run.methods, 5, return_logits=True)
    monkeypatch.setattr(orders, "BYTES_AT_ONCE", num_bytes * orders_at_once + 1)
    extend = Mock(side_effect=passes.extend)
    monkeypatch.setattr(passes, "extend", extend)
    found = engine.shuffle(LAYOUT, methods=methods, **FIXED, return_logits=True)
    for row, expected in zip(found.results, together.results, strict=True):
        for method in methods:
            assert torch.equal(row.result.logits[method], expected.result.logits[method]), method
    widths = {len(call.args[0]) for call in extend.call_args_list}
    assert widths - {1} == {of_one if len(methods) == 1 else of_three}  # others score the reference


def test_compare_orders_yields_events_and_first_orders_early(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["nia", "pine"], "trace": True, **FIXED}
    events = list(pine.compare_orders(engine, LAYOUT, **options))
    kinds = [type(event) for event in events if isinstance(event, pine.OrderResult | pine.PrefillDone)]
    done, compared = pine.PrefillDone, pine.OrderResult
    assert kinds == [done] * 4 + [compared] * 2 + [done] * 8 + [compared] * 4
    # Under each method, the first two orders have a batch, and the others have one together.
    assert len([event for event in events if isinstance(event, pine.PrefillProgress)]) == 2 * 4
    assert len([event for event in events if isinstance(event, pine.GenerationFinished)]) == 12
    results = [event for event in events if isinstance(event, pine.OrderResult)]
    assert [result.order for result in results] == pine.sample_orders(3)
    for each in results:
        for method, trace in engine.run(each.result.layout, **options).traces.items():
            found = each.result.traces[method].suffix_attention
            assert found is not None and (found == trace.suffix_attention).all()


def test_passes_are_counted_for_each_order(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": "nbce", **FIXED}  # several passes, which no orders share
    alone, together = engine.generate(LAYOUT, **options), pine.compare_orders(engine, LAYOUT, **options)
    one, all_orders = (
        [event.pass_number for event in events if isinstance(event, pine.PrefillProgress)]
        for events in (alone, together)
    )
    assert max(one) > 1 and all_orders == one * 6


def test_first_token_is_reported_before_next_prefill(engine: Engine) -> None:
    events = list(pine.compare_orders(engine, LAYOUT, methods=["vanilla", "nia", "pine"], **FIXED))
    kinds = (pine.PrefillDone, pine.TokenGenerated)
    first = [(event.method, type(event), event.order) for event in events if isinstance(event, kinds)][:8]
    assert first == list(itertools.product(("vanilla", "pine"), kinds, (0, 1)))


def test_compared_pair_is_answered_first_in_two_orders(engine: Engine) -> None:
    events = list(pine.compare_orders(engine, LAYOUT, **FIXED))
    answers = [event for event in events if isinstance(event, pine.GenerationFinished)]
    finished = [(event.answer.method, event.order) for event in answers]
    pairs = list(itertools.product([method.name for method in pine.get_methods()], range(6)))
    assert sorted(finished[:4]) == sorted(itertools.product(("vanilla", "pine"), (0, 1)))
    assert sorted(finished) == sorted(pairs)
    results = [event.result for event in events if isinstance(event, pine.OrderResult)]
    assert all(results[event.order].answers[event.answer.method] == event.answer for event in answers)


def test_answers_of_a_batch_share_the_time_of_its_steps(engine: Engine) -> None:
    answers = engine.run(LAYOUT, methods=["vanilla", "pine"], **FIXED).answers
    steps_s = 4 * answers["pine"].decode_s_per_token  # the prefill gives the first token
    assert sum(one.decode_s for one in answers.values()) == pytest.approx(steps_s)
    assert answers["vanilla"].decode_s == pytest.approx(answers["pine"].decode_s)


@pytest.mark.parametrize("methods", [["vanilla", "pcw", "pine"], ["sp", "no_positions", "pine"]])
def test_answers_that_come_first_have_the_bits_of_a_run(tiny_llama: TinyLlama, methods: list[str]) -> None:
    engine = Engine(tiny_llama(dtype=torch.bfloat16))  # a reused prefix is rounded
    options: dict[str, Any] = {"methods": methods, **FIXED, "return_logits": True}
    for found in engine.shuffle(LAYOUT, **options).results:
        alone = engine.run(found.result.layout, **options)
        for method in methods:
            assert torch.equal(found.result.logits[method], alone.logits[method]), method


def test_finished_orders_free_their_caches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "BYTES_AT_ONCE", 1)
    num_caches = watch_caches(monkeypatch)
    events = pine.compare_orders(engine, LAYOUT, methods=["vanilla", "pine"], **FIXED)
    alive = [num_caches() for event in events if isinstance(event, pine.OrderResult)]
    assert len(alive) == 6 and max(alive) <= 2 * 2  # those of a finished order and of the next one


@pytest.mark.parametrize(("stop_at_eos", "tokens"), [(True, 0), (False, 3)])
def test_shuffle_stops_at_eos(engine: Engine, stop_at_eos: bool, tokens: int) -> None:
    stopping = Engine(engine.model, stop_token_ids=range(97))
    found = stopping.shuffle(LAYOUT, methods="pcw", count=1, max_new_tokens=3, stop_at_eos=stop_at_eos)
    assert len(found.first.answers["pcw"].token_ids) == tokens


def comparison(text: int, diff: float = 0.0, logprob: float = -1.0) -> pine.OrderComparison:
    """Return a comparison with a reference of text 1. It is bitwise identical if `diff` is 0."""
    answer = pine.Answer("pine", "", (text,), (), 0.0, 0.0, "length")
    return pine.OrderComparison(answer, text == 1, None if text == 1 else 0, diff, diff == 0, logprob)


def test_stats_count_all_orders() -> None:
    vanilla = [comparison(1), comparison(2, 0.5), comparison(1, 0.7, -3.5), comparison(3, 0.1, -0.25)]
    stats = pine.summarize_orders([{"pine": comparison(1), "vanilla": one} for one in vanilla])
    found = {
        method: (one.orders, one.num_matching_answers, one.num_distinct_answers, one.max_abs_logit_diff)
        for method, one in stats.items()
    }
    assert found == {"pine": (4, 4, 1, 0.0), "vanilla": (4, 2, 3, 0.7)}
    assert [one.bitwise_identical for one in stats.values()] == [True, False]
    assert [one.logprob_spread for one in stats.values()] == [0.0, 3.25]
    assert stats["vanilla"].logprobs == [-1.0, -1.0, -3.5, -0.25]
    for place in range(3):
        rows = [{"pine": comparison(1, diff)} for diff in (0.0, 0.5)]
        rows.insert(place, {"pine": comparison(1, math.nan)})
        assert math.isnan(pine.summarize_orders(rows)["pine"].max_abs_logit_diff)


def test_shuffle_reports_progress_and_drops_logits(engine: Engine) -> None:
    layout = TokenLayout((5,), tuple((11 + index,) for index in range(6)), (51,))
    calls: list[float] = []
    found = engine.shuffle(
        layout, methods="pine", max_new_tokens=1, count=4, seed=3, progress=lambda part, _: calls.append(part)
    )
    assert list(found.orders) == pine.sample_orders(6, 3, seed=3)
    assert calls == [0.25, 0.5, 0.75, 1.0]
    assert all(row.result.logits == {} for row in found.results)


def test_shuffle_finds_broken_invariance(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = PreparedRun.result

    def nudged(run: PreparedRun, *args: Any) -> Any:
        found = result_of(run, *args)
        logits = found.logits["pine"].clone()
        logits[0, 0] += run.layout.documents[0][0]  # depends on the order
        return replace(found, logits={**found.logits, "pine": logits})

    monkeypatch.setattr(PreparedRun, "result", nudged)
    found = engine.shuffle(LAYOUT, methods=["vanilla", "pine"], count=2, **FIXED)
    assert found.invariance_held == {"vanilla": None, "pine": False}


def test_results_have_frames_dictionaries_and_figures(
    tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny_llama(max_context_length=4096), letter_tokenizer())
    documents = [{"text": "red", "source": "a.md"}, "green"]
    shuffled = engine.shuffle(
        question="Who?", documents=documents, methods=["vanilla", "pine"], max_new_tokens=2
    )
    frame = shuffled.to_frame()
    assert frame.to_dict("records") == shuffled.to_dict()["results"]
    assert list(zip(frame["order"], frame["method"], frame["text"], strict=True)) == [
        (list(result.order), method, one.text)
        for result in shuffled.results
        for method, one in result.comparisons.items()
    ]
    first, second = (result.result for result in shuffled.results)
    assert first.to_frame()["text"].tolist() == [answer.text for answer in first.answers.values()]
    assert [document.metadata for document in second.documents] == [{}, {"source": "a.md"}]
    shown: list[Figure] = []
    monkeypatch.setattr(Figure, "show", lambda figure: shown.append(figure))
    shuffled.show()
    first.show()
    expected = viz.plot_shuffle(shuffled.results), viz.plot_masks(first)
    assert [figure.to_json() for figure in shown] == [figure.to_json() for figure in expected]
    with pytest.raises(InputError, check=has_field("figures")):
        plot("plot_nothing", first)


def test_single_document_shows_no_invariance(engine: Engine) -> None:
    layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents[:1], LAYOUT.suffix)
    assert engine.shuffle(layout, methods=["pine"], **FIXED).invariance_held == {"pine": None}
