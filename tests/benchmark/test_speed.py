"""The benchmark's arithmetic on times made by hand, and one real run on a tiny model."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.benchmark import speed as benchmark
from pine_engine.benchmark.reports import bench_rows
from pine_engine.benchmark.speed import (
    Timing,
    num_steps,
    peak_memory,
    run_benchmark,
    time_methods,
    time_stock,
)
from pine_engine.benchmark.workload import PREFIX_TOKENS, SUFFIX_TOKENS, Sweep, Workload, sweep_over
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.tokenizers import letter_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Callable[..., LlamaForCausalLM]) -> Path:
    path = tmp_path_factory.mktemp("benchmark") / "tiny"
    tiny_llama().save_pretrained(path)
    letter_tokenizer().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    return Engine.load(str(folder))


@pytest.fixture
def work(folder: Path) -> Workload:
    return Workload(str(folder), "float32", "cpu", documents=3, document_tokens=7, new_tokens=4)


STOCK = [(9.0, 9.0), (1.0, 0.1), (2.0, 0.4), (4.0, 0.1)]
PINE = [(1.0, 1.0), (3.0, 0.3), (2.0, 0.4), (4.0, 0.5)]
VANILLA = [(5.0, 5.0), (1.0, 0.2), (1.0, 0.2), (1.0, 0.2)]
TOGETHER = [(7.0, 7.0), (9.0, 0.2), (9.0, 1.6), (9.0, 0.3)]
TRACED = [(1.0, 1.0), (3.3, 0.6), (2.4, 0.4), (4.0, 1.5)]
"""Seconds of prefill and per token, a round each; the first round does not count."""


@pytest.fixture
def crafted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As if runs took the times above; returns what is measured, in order."""
    times = {
        "stock": iter(STOCK),
        "pine": iter(PINE),
        "vanilla": iter(VANILLA),
        "vanilla,pine": iter(TOGETHER),
        "vanilla, traced": iter(VANILLA),
        "pine, traced": iter(TRACED),
    }
    memory = {None: 100.0, "vanilla": 110.0, "pine": 150.0}
    measured: list[str] = []

    def take(name: str) -> Timing:
        measured.append(name)
        return Timing(*next(times[name]))

    def methods(_: Engine, __: TokenLayout, names: Sequence[str], ___: int, *, trace: bool = False) -> Timing:
        return take(",".join(names) + ", traced" * trace)

    monkeypatch.setattr(benchmark, "time_stock", lambda *_: take("stock"))
    monkeypatch.setattr(benchmark, "time_methods", methods)
    monkeypatch.setattr(benchmark, "peak_memory", lambda _, __, method: memory[method])
    return measured


def bench(
    engine: Engine, work: Workload, names: list[str], repeats: int, *, trace: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """The report, and the words it was announced with."""
    words: list[str] = []
    layout = work.layout_for(engine)
    return run_benchmark(engine, work, layout, names, repeats, words.append, trace=trace), words


def test_ratios_are_medians_of_the_ratios_of_each_round(
    engine: Engine, work: Workload, crafted: list[str]
) -> None:
    report, _ = bench(engine, work, ["vanilla", "pine"], 3)
    assert report == {
        "n": PREFIX_TOKENS + 21 + SUFFIX_TOKENS,
        "documents": 3,
        "dtype": "float32",
        "stock": {"prefill_s": 2.0, "decode_s_per_token": 0.1, "peak_rss_mb": 100.0},
        "methods": {
            "vanilla": {
                "prefill_s": 1.0,
                "decode_s_per_token": 0.2,
                # 1/1, 1/2, 1/4 and 2, 1/2, 2 and (1 + 3 * 0.2) / (1 + 3 * 0.1), 1.6 / 3.2, 1.6 / 4.3
                "prefill_ratio": 0.5,
                "decode_ratio": 2.0,
                "end_to_end_ratio": 0.5,
                "peak_rss_mb": 110.0,
                "memory_over_stock_mb": 10.0,
            },
            "pine": {
                "prefill_s": 3.0,
                "decode_s_per_token": 0.4,
                # 3/1, 2/2, 4/4 and 3, 1, 5 and 3.9 / 1.3, 3.2 / 3.2, 5.5 / 4.3
                "prefill_ratio": 1.0,
                "decode_ratio": 3.0,
                "end_to_end_ratio": 1.279,
                "peak_rss_mb": 150.0,
                "memory_over_stock_mb": 50.0,
            },
        },
        "together": {"methods": ["vanilla", "pine"], "decode_s_per_step": 0.3, "decode_ratio": 3.0},
    }


def test_runs_take_turns_and_each_is_announced(engine: Engine, work: Workload, crafted: list[str]) -> None:
    _, words = bench(engine, work, ["vanilla", "pine"], 2)
    assert crafted == ["stock", "vanilla", "pine", "vanilla,pine"] * 3
    assert words[:5] == [
        "round 0 of 2: stock", "round 0 of 2: vanilla", "round 0 of 2: pine", "round 0 of 2: all together",
        "round 1 of 2: stock",
    ]  # fmt: skip
    assert words[-3:] == ["memory: stock", "memory: vanilla", "memory: pine"]
    assert len(words) == num_steps(["vanilla", "pine"], 2)


def test_the_trace_is_measured_against_the_same_round_without(
    engine: Engine, work: Workload, crafted: list[str]
) -> None:
    report, words = bench(engine, work, ["vanilla", "pine"], 3, trace=True)
    assert crafted[:6] == ["stock", "vanilla", "vanilla, traced", "pine", "pine, traced", "vanilla,pine"]
    assert len(words) == num_steps(["vanilla", "pine"], 3, trace=True)
    pine = report["methods"]["pine"]
    assert pine["prefill_ratio"] == 1.0
    # 3.3/3, 2.4/2, 4/4 and 0.6/0.3, 0.4/0.4, 1.5/0.5 and 5.1/3.9, 3.6/3.2, 8.5/5.5
    assert (pine["trace_prefill_ratio"], pine["trace_decode_ratio"]) == (1.1, 2.0)
    assert pine["trace_end_to_end_ratio"] == 1.308
    assert report["methods"]["vanilla"]["trace_end_to_end_ratio"] == 1.0


def test_the_table_shows_seconds_and_ratios(engine: Engine, work: Workload, crafted: list[str]) -> None:
    report, _ = bench(engine, work, ["vanilla", "pine"], 3)
    stock, _, pine, together = bench_rows(report, sizes=True)
    assert stock == {
        "tokens": 79, "documents": 3, "method": "stock", "prefill": "2 s", "decode per token": "100 ms",
        "end to end": "-", "peak memory": "100 MB",
    }  # fmt: skip
    assert pine == {
        "tokens": 79, "documents": 3, "method": "pine", "prefill": "3 s, 1.00x",
        "decode per token": "400 ms, 3.00x", "end to end": "1.28x", "peak memory": "+50 MB",
    }  # fmt: skip
    assert (together["method"], together["decode per token"]) == ("all together", "300 ms, 3.00x")


def test_a_sweep_over_tokens_adds_documents_and_one_over_documents_cuts_them(work: Workload) -> None:
    given = dataclasses.replace(work, documents=20, document_tokens=140, new_tokens=64)
    by_tokens = sweep_over(given, "tokens")
    assert [(each.documents, each.document_tokens) for each in by_tokens] == [
        (6, 140), (13, 140), (28, 140), (57, 140)
    ]  # fmt: skip
    for each, limit in zip(by_tokens, (1024, 2048, 4096, 8192), strict=True):
        assert limit - 140 < each.layout(97).num_tokens + 64 <= limit
    by_documents = sweep_over(given, "documents")
    assert [(each.documents, each.document_tokens) for each in by_documents] == [
        (2, 1400), (5, 560), (10, 280), (20, 140), (50, 56)
    ]  # fmt: skip
    seven = dataclasses.replace(given, documents=7, document_tokens=400)
    assert sweep_over(given, "documents", [7]) == [seven]


@pytest.mark.parametrize(
    ("sweep", "size", "problem"),
    [
        ("tokens", 68, "a sweep over tokens cannot have the size 68: .* leaves 0 documents of 7 tokens"),
        ("documents", 22, "a sweep over documents cannot have the size 22: .* 22 documents of 0 tokens"),
        ("documents", 0, "a sweep over documents cannot have the size 0: .* 0 documents of 21 tokens"),
    ],
)
def test_a_size_without_room_for_documents_is_refused(
    work: Workload, sweep: Sweep, size: int, problem: str
) -> None:
    with pytest.raises(InputError, match=f"{problem}; give other --sizes, or other --documents"):
        sweep_over(work, sweep, [size])


def test_a_prompt_that_does_not_fit_is_refused(engine: Engine, work: Workload) -> None:
    with pytest.raises(InputError, match="the prompt has 508 tokens .* but the model reads 512 in all"):
        dataclasses.replace(work, documents=45, document_tokens=10, new_tokens=5).layout_for(engine)


def test_end_to_end_is_prefill_and_all_steps() -> None:
    assert Timing(2.0, 0.5).end_to_end(5) == 4.0
    assert Timing(2.0, 0.5).end_to_end(1) == 2.0


def test_everyone_reads_the_same_random_tokens(work: Workload) -> None:
    layout = work.layout(97)
    assert layout == work.layout(97)
    assert layout.lengths.tolist() == [7, 7, 7]
    assert (layout.prefix_length, layout.suffix_length) == (30, 28)
    assert max(layout.ids) < 97
    assert len(set(layout.documents)) == 3


@pytest.fixture
def steps() -> Iterator[Callable[[Any], list[int]]]:
    """Counts the tokens that a model is fed in each of its passes from then on."""
    hooks = []

    def watch(model: Any) -> list[int]:
        fed: list[int] = []
        hooks.append(
            model.model.embed_tokens.register_forward_hook(lambda _, args, __: fed.append(args[0].shape[1]))
        )
        return fed

    yield watch
    for hook in hooks:
        hook.remove()


def test_stock_model_and_engine_make_as_many_steps(
    engine: Engine, work: Workload, steps: Callable[[Any], list[int]]
) -> None:
    layout = work.layout_for(engine)
    stock, ours = steps(engine.model), steps(engine.patched_models[0].network)
    timings = [time_stock(engine.model, layout, 4), time_methods(engine, layout, ["pine"], 4)]
    assert stock == ours == [layout.num_tokens, 1, 1, 1]
    for timing in timings:
        assert 0 < timing.prefill_s < 60 and 0 < timing.decode_s_per_token < 60


def test_the_stock_model_runs_its_own_fused_attention_and_gives_ours_back(
    engine: Engine, work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout, before = work.layout_for(engine), engine.model.config._attn_implementation
    ids = torch.tensor([layout.ids])
    seen: list[str] = []

    def forward(_: Any, **given: Any) -> Any:
        seen.append(engine.model.config._attn_implementation)
        return type(engine.model).forward(engine.model, **given)

    monkeypatch.setattr(engine.model, "forward", forward.__get__(engine.model))
    time_stock(engine.model, layout, 2)
    assert seen == ["sdpa", "sdpa"]
    assert engine.model.config._attn_implementation == before
    with benchmark.stock_attention(engine.model), torch.inference_mode():
        own = engine.model(input_ids=ids).logits[0, -1]
    _, ours = prefill(engine, layout)
    torch.testing.assert_close(ours, own, atol=1e-4, rtol=1e-4)


def prefill(engine: Engine, layout: TokenLayout) -> tuple[Any, torch.Tensor]:
    with torch.inference_mode():
        row, logits = passes.prefill(
            engine.patched_models, layout, METHODS["vanilla"], room=0, logits_to_keep=1
        )
    return row, logits[-1]


def test_prefill_of_several_methods_is_their_sum(
    engine: Engine, work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = engine.run(work.layout(97), methods=["vanilla", "pine"], max_new_tokens=3, stop_at_eos=False)
    monkeypatch.setattr(engine, "run", lambda *_, **__: result)
    timing = time_methods(engine, work.layout(97), ["vanilla", "pine"], 3)
    vanilla, pine = result.answers.values()
    assert timing == Timing(vanilla.prefill_s + pine.prefill_s, pine.decode_s_per_token)


def test_memory_is_that_of_a_process_of_its_own(engine: Engine, work: Workload) -> None:
    held = torch.ones(600 * 2**20 // 4)  # 600 MB in this process, which must not count
    for method in (None, "pine"):
        assert 50 < peak_memory(engine, work, method) < 50 + held.nbytes / 2**20 + 400
