"""`bench`: times and ratios, sweeps and profiles."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from pine_engine.benchmark import live
from pine_engine.benchmark import speed as benchmark
from pine_engine.benchmark.live import JOBS, measure_live
from pine_engine.benchmark.workload import Workload
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.commands import Run, Steps, assert_refused


def test_bench_prints_times_and_ratios_and_announces_as_many_steps_as_it_takes(
    pine: Run, tiny: Path, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "peak_memory", lambda *_: 123.4)
    sizes = ["--documents", 3, "--document-tokens", 5, "--max-new-tokens", 3, "--repeats", 2]
    outcome = pine("bench", *sizes, "--methods", "vanilla,pine", "--model", tiny, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert steps.announced == [len(steps.taken)]
    printed = outcome.json
    assert list(printed) == ["n", "documents", "dtype", "stock", "methods", "together"]
    assert (printed["n"], printed["documents"], printed["dtype"]) == (30 + 15 + 28, 3, "float32")
    assert list(printed["stock"]) == ["prefill_s", "decode_s_per_token", "peak_rss_mb"]
    assert list(printed["methods"]) == ["vanilla", "pine"]
    for values in printed["methods"].values():
        assert list(values) == [
            "prefill_s", "decode_s_per_token", "prefill_ratio", "decode_ratio", "end_to_end_ratio",
            "peak_rss_mb", "memory_over_stock_mb",
        ]  # fmt: skip
        assert values.pop("memory_over_stock_mb") == 0
        assert all(value > 0 for value in values.values())
    assert list(printed["together"]) == ["methods", "decode_s_per_step", "decode_ratio"]
    assert printed["together"]["methods"] == ["vanilla", "pine"]


SMALL = ["--model", "random:tiny", "--documents", 4, "--document-tokens", 20, "--max-new-tokens", 3]


def test_bench_sweeps_over_sizes(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "peak_memory", lambda *_: 123.4)
    options = [*SMALL, "--methods", "pine", "--repeats", 1, "--trace"]
    printed = pine("bench", *options, "--sweep", "documents", "--sizes", "2,5", "--json").json
    assert list(printed) == ["sweep", "dtype", "points"]
    assert printed["sweep"] == "documents"
    assert [(point["documents"], point["n"]) for point in printed["points"]] == [(2, 138), (5, 138)]
    assert all(point["methods"]["pine"]["trace_prefill_ratio"] > 0 for point in printed["points"])
    table = pine("bench", *options, "--sweep", "tokens", "--sizes", "130").stdout
    assert "118" in table and "traced" in table  # 30 + 3 x 20 + 28


def test_bench_profiles_where_time_goes(pine: Run) -> None:
    printed = pine("bench", *SMALL, "--methods", "pine", "--profile", "--json").json
    assert [(profile["method"], profile["part"]) for profile in printed["profiles"]] == [
        ("pine", "prefill"),
        ("pine", "decode"),
    ]
    for profile in printed["profiles"]:
        shares = {place["where"]: place["share"] for place in profile["places"]}
        assert sum(shares.values()) == pytest.approx(1)
        assert {"linear layers", "rest of the model", "attention.suffix_weights"} <= set(shares)
    prefill, decode = ({place["where"] for place in profile["places"]} for profile in printed["profiles"])
    assert "attention.document_importance" in prefill - decode
    table = pine("bench", *SMALL, "--methods", "pine", "--profile").stdout
    assert "linear layers" in table and "%" in table


def test_bench_times_what_somebody_waits_for(pine: Run, steps: Steps) -> None:
    options = ["--model", "random:tiny", "--documents", 3, "--document-tokens", 5, "--max-new-tokens", 3]
    printed = pine("bench", "--end-to-end", *options, "--repeats", 1, "--json").json
    assert steps.announced == [len(steps.taken)]
    assert (printed["n"], printed["documents"], printed["new_tokens"]) == (30 + 15 + 28, 3, 3)
    assert list(printed["jobs"]) == list(JOBS)
    for values in printed["jobs"].values():
        assert values["ratio"] == pytest.approx(values["seconds"] / printed["stock_s"], rel=0.2)
    whole = printed["jobs"]
    assert whole["shuffle"]["seconds"] > whole["run"]["seconds"]
    assert printed["generate_over_run"] == pytest.approx(
        whole["generate"]["seconds"] / whole["run"]["seconds"], rel=0.2
    )
    assert printed["beside_over_run"] == pytest.approx(
        whole["beside"]["seconds"] / whole["run"]["seconds"], rel=0.2
    )
    table = pine("bench", "--end-to-end", *options, "--repeats", 1).stdout
    for words in ("stock, one answer", "told as they are written", "beside a busy process"):
        assert words in table


def test_a_neighbour_is_busy_while_one_job_is_timed() -> None:
    before = {child.pid for child in psutil.Process().children()}

    def look(*_: Any, **options: Any) -> list[Any]:
        computing = [one for one in psutil.Process().children() if one.pid not in before]
        seen.append(len(computing))
        return []

    seen: list[int] = []
    engine = SimpleNamespace(run=look, generate=look, shuffle=look)
    for job in live._jobs(cast(Engine, engine), TokenLayout((1,), ((2,), (3,)), (5,)), 7).values():
        job()
    assert dict(zip(JOBS, seen, strict=True)) == {"run": 0, "generate": 0, "beside": 1, "shuffle": 0}
    assert {child.pid for child in psutil.Process().children()} == before


def test_jobs_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of the engine: every default method, the controls too in a shuffle, all of it traced."""
    asked: dict[str, Any] = {}
    engine = SimpleNamespace(
        model=None,
        dtype="float32",
        **{name: lambda _, name=name, **options: asked.update({name: options}) or [] for name in JOBS},
    )
    seconds = iter([1.0, 2.0, 4.0])
    monkeypatch.setattr(live, "time_stock", lambda *_: SimpleNamespace(end_to_end=lambda _: next(seconds)))
    layout = TokenLayout((1,), ((2,), (3,), (4,)), (5,))
    work = Workload(None, "float32", "cpu", 3, 1, 7)
    report = measure_live(cast(Engine, engine), work, layout, 2, lambda _: None)
    assert report["stock_s"] == 3.0  # the first round does not count
    assert asked["run"] == asked["generate"] == {"max_new_tokens": 7, "stop_at_eos": False, "trace": True}
    shuffled = set(asked["shuffle"].pop("methods"))
    assert shuffled == {row.name for row in METHODS.values() if row.is_default or row.role == "control"}
    assert asked["shuffle"] == {**asked["run"], "count": 6}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--end-to-end", "--trace"],
         "--end-to-end measures the jobs of the page: it goes without --sweep, --trace, --profile and "
         "--methods"),
        (["--sweep", "documents", "--sizes", "2,x"],
         "the sizes '2,x' are not numbers; give whole numbers separated by commas, such as 2,5,10"),
        (["--sweep", "documents", "--sizes", "500"],
         "a sweep over documents cannot have the size 500: with 2 documents of 200 tokens it leaves 500 "
         "documents of 0 tokens; give other --sizes, or other --documents and --document-tokens"),
        (["--sizes", "2,5"], "--sizes belong to a sweep; give --sweep tokens or --sweep documents"),
    ],
    ids=["live and more", "no number", "too many", "no sweep"],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_bench_refuses_sizes_it_cannot_use(pine: Run, options: list[str], sentence: str) -> None:
    assert_refused(pine("bench", *options), sentence)
