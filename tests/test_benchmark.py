"""The benchmark's arithmetic on times made by hand, and one real run on a tiny model."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine import benchmark, models
from pine_engine.benchmark import Timing, Workload, peak_memory, run_benchmark, time_methods, time_stock
from pine_engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.layout import TokenLayout
from tests.tokenizers import letter_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Callable[..., LlamaForCausalLM]) -> Path:
    path = tmp_path_factory.mktemp("benchmark") / "tiny"
    tiny_llama().save_pretrained(path)
    letter_tokenizer().save_pretrained(path)
    return path


@pytest.fixture
def work(folder: Path) -> Workload:
    return Workload(str(folder), "float32", "cpu", documents=3, document_tokens=7, new_tokens=4)


def no_words(_: str) -> None: ...


STOCK = [(9.0, 9.0), (1.0, 0.1), (2.0, 0.4), (4.0, 0.1)]
PINE = [(1.0, 1.0), (3.0, 0.3), (2.0, 0.4), (4.0, 0.5)]
VANILLA = [(5.0, 5.0), (1.0, 0.2), (1.0, 0.2), (1.0, 0.2)]
TOGETHER = [(7.0, 7.0), (9.0, 0.2), (9.0, 1.6), (9.0, 0.3)]
"""Seconds of prefill and per token, a round each; the first round does not count."""


@pytest.fixture
def crafted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As if runs took the times above; returns what is measured, in order."""
    times = {
        "stock": iter(STOCK),
        "pine": iter(PINE),
        "vanilla": iter(VANILLA),
        "vanilla,pine": iter(TOGETHER),
    }
    memory = {None: 100.0, "vanilla": 110.0, "pine": 150.0}
    measured: list[str] = []

    def take(name: str) -> Timing:
        measured.append(name)
        return Timing(*next(times[name]))

    def methods(_: Engine, __: TokenLayout, names: Sequence[str], ___: int) -> Timing:
        return take(",".join(names))

    monkeypatch.setattr(benchmark, "time_stock", lambda *_: take("stock"))
    monkeypatch.setattr(benchmark, "time_methods", methods)
    monkeypatch.setattr(benchmark, "peak_memory", lambda _, method: memory[method])
    return measured


def test_ratios_are_medians_of_the_ratios_of_each_round(work: Workload, crafted: list[str]) -> None:
    report = run_benchmark(work, ["vanilla", "pine"], 3, no_words)
    assert report == {
        "n": benchmark.PREFIX_TOKENS + 21 + benchmark.SUFFIX_TOKENS,
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
            },
            "pine": {
                "prefill_s": 3.0,
                "decode_s_per_token": 0.4,
                # 3/1, 2/2, 4/4 and 3, 1, 5 and 3.9 / 1.3, 3.2 / 3.2, 5.5 / 4.3
                "prefill_ratio": 1.0,
                "decode_ratio": 3.0,
                "end_to_end_ratio": 1.279,
                "peak_rss_mb": 150.0,
            },
        },
        "together": {"methods": ["vanilla", "pine"], "decode_s_per_step": 0.3, "decode_ratio": 3.0},
    }


def test_runs_take_turns(work: Workload, crafted: list[str]) -> None:
    run_benchmark(work, ["vanilla", "pine"], 2, no_words)
    assert crafted == ["stock", "vanilla", "pine", "vanilla,pine"] * 3


def test_every_measurement_is_announced(work: Workload, crafted: list[str]) -> None:
    words: list[str] = []
    run_benchmark(work, ["vanilla", "pine"], 1, words.append)
    assert words == [
        "round 0 of 1: stock", "round 0 of 1: vanilla", "round 0 of 1: pine", "round 0 of 1: all together",
        "round 1 of 1: stock", "round 1 of 1: vanilla", "round 1 of 1: pine", "round 1 of 1: all together",
        "memory: stock", "memory: vanilla", "memory: pine",
    ]  # fmt: skip


def test_an_unknown_method_is_refused_before_anything_is_loaded(
    work: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "load", None)
    with pytest.raises(InputError, match="unknown method 'magic'"):
        run_benchmark(work, ["magic"], 1, no_words)


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
    work: Workload, folder: Path, steps: Callable[[Any], list[int]]
) -> None:
    layout = work.layout(97)
    stock = models.load(str(folder), attn_implementation="sdpa").model
    assert stock.config._attn_implementation == "sdpa"
    engine = Engine.load(str(folder))
    ours, theirs = steps(engine.model), steps(stock)
    one, other = time_stock(stock, layout, 4), time_methods(engine, layout, ["pine"], 4)
    assert ours == theirs == [layout.num_tokens, 1, 1, 1]
    for timing in (one, other):
        assert 0 < timing.prefill_s < 60 and 0 < timing.decode_s_per_token < 60


def test_prefill_of_several_methods_is_their_sum(
    work: Workload, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.load(str(folder))
    result = engine.run(work.layout(97), methods=["vanilla", "pine"], max_new_tokens=3, stop_at_end=False)
    monkeypatch.setattr(engine, "run", lambda *_, **__: result)
    timing = time_methods(engine, work.layout(97), ["vanilla", "pine"], 3)
    vanilla, pine = result.answers.values()
    assert timing == Timing(vanilla.prefill_s + pine.prefill_s, pine.decode_s_per_token)


def test_memory_is_that_of_a_process_of_its_own(work: Workload) -> None:
    held = torch.ones(600 * 2**20 // 4)  # 600 MB in this process, which must not count
    for method in (None, "pine"):
        assert 50 < peak_memory(work, method) < 50 + held.nbytes / 2**20 + 400
