"""Benchmarks: arithmetic on fixed times, workloads, a tiny model, whole jobs, and random models."""

import dataclasses
from collections.abc import Callable, Sequence
from time import sleep
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from pine_engine import METHODS, Engine, InputError, ModelError, TokenLayout, get_methods
from pine_engine.benchmark import shapes, times
from pine_engine.benchmark.shapes import Workload
from pine_engine.benchmark.times import Timing, peak_memory, stock_attention, time_methods, time_stock, timing
from pine_engine.engine.events import Answer, GenerationFinished, RunResult, TokenGenerated
from pine_engine.engine.order_results import OrderResult

WORK = Workload("random:tiny", "float32", "cpu", documents=3, document_tokens=7, new_tokens=4)

ORDER = OrderResult((0, 1, 2), {}, RunResult(TokenLayout((), ((2,),), (5,)), {}, {}))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return shapes.load_engine(WORK.model)


ROUNDS = {
    "stock": [(9.0, 9.0), (1.0, 0.1), (2.0, 0.4), (4.0, 0.1)],
    "pine": [(1.0, 1.0), (3.0, 0.3), (2.0, 0.4), (4.0, 0.5)],
    "pine, traced": [(1.0, 1.0), (3.3, 0.6), (2.4, 0.4), (4.0, 1.5)],
    "vanilla": [(5.0, 5.0), (1.0, 0.2), (1.0, 0.2), (1.0, 0.2)],
    "vanilla, traced": [(5.0, 5.0), (1.0, 0.2), (1.0, 0.2), (1.0, 0.2)],
    "vanilla,pine": [(7.0, 7.0), (9.0, 0.2), (9.0, 1.6), (9.0, 0.3)],
}
"""Seconds of prefill and per decoded token in each round. The first round is a warm-up."""


@pytest.mark.parametrize("trace", [False, True])
def test_report_has_medians_of_ratios(engine: Engine, monkeypatch: pytest.MonkeyPatch, trace: bool) -> None:
    rounds = {name: iter(seconds) for name, seconds in ROUNDS.items()}
    measured: list[str] = []

    def take(name: str) -> Timing:
        measured.append(name)
        return timing(*next(rounds[name]), WORK.new_tokens)

    def take_methods(*arguments: Any, trace: bool = False) -> Timing:
        names: Sequence[str] = arguments[2]
        return take(",".join(names) + ", traced" * trace)

    memory = {None: 100.0, "vanilla": 110.0, "pine": 150.0}
    monkeypatch.setattr(times, "time_stock", lambda *_: take("stock"))
    monkeypatch.setattr(times, "time_methods", take_methods)
    monkeypatch.setattr(times, "peak_memory", lambda _engine, _work, method: memory[method])
    steps: list[str] = []
    names = ["vanilla", "pine"]
    report = times.measure_methods(engine, WORK, names, 3, steps.append, trace=trace)
    assert len(steps) == times.num_steps(names, 3, trace=trace)
    one_round = [name + suffix for name in names for suffix in ("", ", traced")[: 1 + trace]]
    assert measured == ["stock", *one_round, "vanilla,pine"] * 4
    # medians of 3/1, 2/2, 4/4; of 3, 1, 5; and of 3.9/1.3, 3.2/3.2, 5.5/4.3
    ratios = {"prefill_ratio": 1.0, "decode_ratio": 3.0, "end_to_end_ratio": 1.279}
    medians = {"prefill_s": 3.0, "decode_s_per_token": 0.4}
    pine = medians | ratios | {"peak_rss_mb": 150.0, "memory_over_stock_mb": 50.0}
    if trace:  # 3.3/3, 2.4/2, 4/4; 0.6/0.3, 0.4/0.4, 1.5/0.5; and 5.1/3.9, 3.6/3.2, 8.5/5.5
        pine |= {"trace_prefill_ratio": 1.1, "trace_decode_ratio": 2.0, "trace_end_to_end_ratio": 1.308}
    assert report["methods"]["pine"] == pine
    assert (report["n"], report["documents"]) == (30 + 21 + 28, 3)
    assert report["stock"] == {"prefill_s": 2.0, "decode_s_per_token": 0.1, "peak_rss_mb": 100.0}
    assert report["together"] == {"methods": names, "decode_s_per_step": 0.3, "decode_ratio": 3.0}


def test_workload_draws_same_tokens_that_fit_context(engine: Engine) -> None:
    layout = WORK.layout(engine)
    assert layout == WORK.layout(engine)
    assert (layout.prefix_length, layout.lengths.tolist(), layout.suffix_length) == (30, [7, 7, 7], 28)
    assert max(layout.ids) < 97 and len(set(layout.documents)) == 3
    with pytest.raises(InputError):
        dataclasses.replace(WORK, document_tokens=8000).layout(engine)


def test_stock_model_uses_fused_attention(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, before = WORK.layout(engine), engine.model.config._attn_implementation
    passes: list[tuple[str, int]] = []
    hook = engine.model.model.embed_tokens.register_forward_hook(
        lambda _, inputs, __: passes.append((engine.model.config._attn_implementation, inputs[0].shape[1]))
    )
    timings = [time_stock(engine.model, layout, 3)]
    hook.remove()
    assert passes == [("sdpa", layout.num_tokens), ("sdpa", 1), ("sdpa", 1)]
    assert engine.model.config._attn_implementation == before
    timings.append(time_methods(engine, layout, ["pine"], 3))
    for one in timings:
        assert 0 < one.prefill_s < 60 and 0 < one.decode_s_per_token < 60
    with stock_attention(engine.model), torch.inference_mode():
        stock = engine.model(input_ids=torch.tensor([layout.ids])).logits[0, -1].argmax().item()
    answer = engine.run(layout, methods=["vanilla"], max_new_tokens=1, stop_at_eos=False).answers["vanilla"]
    assert answer.token_ids == (stock,)


def test_prefill_of_several_methods_is_their_sum(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = WORK.layout(engine)
    result = engine.run(layout, methods=["vanilla", "pine"], max_new_tokens=3, stop_at_eos=False)
    monkeypatch.setattr(engine, "run", lambda *_, **__: result)
    vanilla, pine = result.answers.values()
    found = time_methods(engine, layout, ["vanilla", "pine"], 3)
    assert found == timing(vanilla.prefill_s + pine.prefill_s, pine.decode_s_per_token, 3)
    assert (timing(2.0, 0.5, 5).end_to_end_s, timing(2.0, 0.5, 1).end_to_end_s) == (4.0, 2.0)


@pytest.mark.slow
def test_peak_memory_is_that_of_a_new_process(engine: Engine) -> None:
    held = torch.ones(600 * 2**20 // 4)  # 600 MB of this process
    for method in (None, "pine"):
        assert 50 < peak_memory(engine, WORK, method) < 50 + held.nbytes / 2**20 + 400


def test_jobs_are_those_of_page_beside_busy_process(monkeypatch: pytest.MonkeyPatch) -> None:
    others = {child.pid for child in psutil.Process().children()}
    calls: list[tuple[str, dict[str, Any], int]] = []

    def call(name: str) -> Callable[..., list[Any]]:
        def record(_layout: TokenLayout, **options: Any) -> list[Any]:
            calls.append((name, options, len({child.pid for child in psutil.Process().children()} - others)))
            return []

        return record

    names = ("run", "generate", "shuffle")
    jobs = {name: call(name) for name in names}
    methods = {"methods": tuple(METHODS.values()), "select_methods": get_methods}
    engine: Any = SimpleNamespace(model=None, model_name="m", dtype="float32", **jobs, **methods)
    seconds = iter([1.0, 2.0, 4.0])
    monkeypatch.setattr(times, "time_stock", lambda *_: Timing(0, 0, next(seconds)))
    layout = TokenLayout((1,), ((2,), (3,), (4,)), (5,))
    monkeypatch.setattr(Workload, "layout", lambda *_: layout)
    shuffles: list[tuple[int, dict[str, Any]]] = []

    def shuffle_events(_engine: Engine, _layout: TokenLayout, *, orders: list[Any], **options: Any) -> Any:
        shuffles.append((len(orders), options))

        def finished(method: str, order: int) -> GenerationFinished:
            return GenerationFinished(Answer(method, "", (), (), 0.0, 0.0, "stop"), order)

        yield TokenGenerated("pine", 0, 1, "")
        for both in ("vanilla", "pine"):
            yield finished(both, 0)
            sleep(0.02)
        yield from (finished("nia", 0), finished("pine", 1))
        for _ in range(2):
            sleep(0.03)
            yield ORDER

    monkeypatch.setattr(times, "compare_orders", shuffle_events)
    steps: list[str] = []
    report = times.measure_jobs(engine, WORK, 2, steps.append)
    assert len(steps) == 3 * times.NUM_JOB_RUNS
    assert report["stock_s"] == 3.0  # without the first round
    assert list(report["jobs"]) == list(times.JOBS)
    busy = [(name, number) for name, _, number in calls[:4]]
    assert busy == [("run", 0), ("generate", 0), ("run", 1), ("shuffle", 0)]
    run, generate, beside, shuffle = (options for _, options, _ in calls[:4])
    assert run == generate == beside == {"max_new_tokens": 4, "stop_at_eos": False, "trace": True}
    shuffled = {method.name for method in METHODS.values() if method.is_default or method.role == "control"}
    assert set(shuffle.pop("methods")) == shuffled and shuffle == {**run, "count": 6}
    assert {child.pid for child in psutil.Process().children()} == others
    assert shuffles[:2] == [(2, run), (6, run)]
    for count in ("2", "6"):
        moments = [report["orders"][count][name] for name in times.MOMENTS]
        first_token, first_answers, first_order, all_orders = (moment["seconds"] for moment in moments)
        assert first_token < 0.02 <= first_answers < 0.04 < 0.07 <= first_order < 0.1 <= all_orders
        assert moments[-1]["ratio"] == pytest.approx(0.035, abs=0.02)  # of 2 and 4 seconds


def test_random_weights_are_reproducible_without_side_effects() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    make = shapes.synthetic_model
    first, second = (make("random:tiny", dtype="bfloat16", device="cpu") for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert one.dtype == torch.bfloat16 and not one.requires_grad and torch.equal(one, other)
    assert first.config._attn_implementation == "sdpa" and not first.training


def test_load_engine_has_name_or_raises(engine: Engine) -> None:
    assert (engine.model_name, engine.tokenizer, engine.max_context_length) == ("random:tiny", None, 8192)
    assert shapes.is_synthetic("random:huge") and not shapes.is_synthetic("some/random")
    for name, device in (("random:huge", "cpu"), ("random:tiny", "auto"), ("no/such/folder", "cpu")):
        with pytest.raises(ModelError):
            shapes.load_engine(name, device=device)
