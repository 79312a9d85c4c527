"""Runs of several threads: bitwise identical to each run alone, with fewer decode steps, and in turns."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import pine_engine as pine
from pine_engine import Engine, ModelError, TokenLayout
from pine_engine.engine import passes
from pine_engine.engine.run import prepare_run
from pine_engine.errors import Cancelled
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.scheduling.scheduler import (
    LEVEL_TOKENS,
    Coroutine,
    PendingPrefill,
    ScheduledRun,
    Scheduler,
    run_shared,
    scheduler,
)
from pine_engine.scheduling.worker import NO_CONTROL, RunControl
from tests.engine.conftest import LAYOUT, LAYOUTS
from tests.support.families import FAMILIES, TinyLlama, by_tier, make
from tests.support.forward import count_tokens
from tests.support.native_gemm import skip_unless_batch_invariant
from tests.support.tiers import first_daily

LONG = TokenLayout((8, 3), (tuple(range(10, 60)), tuple(range(20, 90))), (61, 62))
FOUR = ["vanilla", "nia", "pcw", "pine"]
ONE_OF_EACH_KIND = ["vanilla", "nia", "cacheblend", "rotor", "pine", "nbce", "superposition"]
KEPT: dict[str, Any] = {"return_logits": True, "trace": True}
JOBS: list[dict[str, Any]] = [
    {"prompt": LAYOUTS[0], "methods": FOUR, "max_new_tokens": 9},
    {"prompt": LAYOUTS[1], "methods": ["sp", "rotor", "ape"], "max_new_tokens": 14},
    {"prompt": LONG, "methods": ["pine", "cacheblend", "calibrated_attention"], "max_new_tokens": 5},
    {"prompt": LAYOUTS[2], "methods": ["pine_reversed", "pine"], "max_new_tokens": 12, "stop_at_eos": False},
    {"prompt": LAYOUTS[2], "methods": ["pine"], "max_new_tokens": 6},
    {"prompt": LAYOUTS[1], "methods": ["nbce", "pine"], "max_new_tokens": 6},
    {"prompt": LAYOUTS[2], "methods": ["superposition", "nia"], "max_new_tokens": 0},
]


@pytest.fixture(scope="module", params=first_daily([torch.float32, torch.bfloat16]), ids=str)
def engine(tiny_llama: TinyLlama, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with torch_num_threads(2):
        skip_unless_batch_invariant(request.param)
        model = tiny_llama(head_dim=32, layers=3, dtype=request.param)
        yield Engine(model, stop_token_ids=range(60, 66))


def together(jobs: Sequence[Callable[[], Any]]) -> list[Future[Any]]:
    """Call each job in a thread of its own, and compute only when all runs have arrived."""
    has_begun, may_continue = threading.Event(), threading.Event()

    def wait(_: RunControl) -> Coroutine[None]:
        has_begun.set()
        assert may_continue.wait(60)
        yield from ()

    with ThreadPoolExecutor(len(jobs) + 1) as threads:
        waiting = threads.submit(run_shared, wait)
        assert has_begun.wait(60)
        outcomes = []
        for number, job in enumerate(jobs):
            outcomes.append(threads.submit(job))
            while scheduler.num_arrived <= number and not outcomes[-1].done():
                threading.Event().wait(0.001)
        may_continue.set()
        waiting.result(60)
    return outcomes


def facts(result: pine.RunResult) -> dict[str, tuple[Any, ...]]:
    found = {}
    for name, answer in result.answers.items():
        trace = result.traces.get(name)
        parts = (trace.suffix_attention, trace.document_starts, trace.document_importance) if trace else ()
        traced = [None if part is None else part.tobytes() for part in parts]
        found[name] = (answer.token_ids, answer.logprobs, answer.finish_reason, traced)
    return found


def check_identical(found: pine.RunResult, alone: pine.RunResult) -> None:
    assert facts(found) == facts(alone)
    assert found.logits.keys() == alone.logits.keys()
    for method, logits in alone.logits.items():
        assert torch.equal(found.logits[method], logits), method


@pytest.fixture
def prefills_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute all prefills before the first decode step, whatever time they take."""
    monkeypatch.setattr(Scheduler, "_is_step_due", lambda _: False)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of answers of all decode steps, as they are computed."""
    found: list[int] = []
    extend = passes.extend

    def counted(rows: Sequence[Any], *args: Any, **options: Any) -> Tensor:
        if options.get("is_step"):
            found.append(sum(row is not None for row in rows))
        return extend(rows, *args, **options)

    monkeypatch.setattr(passes, "extend", counted)
    return found


def test_runs_together_are_identical_to_each_alone(engine: Engine, sizes: list[int]) -> None:
    alone = [engine.run(**job, **KEPT) for job in JOBS]
    assert len({len(answer.token_ids) for run in alone for answer in run.answers.values()}) > 3
    num_alone, num_steps = sum(sizes), len(sizes)
    sizes.clear()
    for outcome, expected in zip(
        together([partial(engine.run, **job, **KEPT) for job in JOBS]), alone, strict=True
    ):
        check_identical(outcome.result(), expected)
    assert sum(sizes) == num_alone and len(sizes) < num_steps


@pytest.mark.usefixtures("prefills_first")
@pytest.mark.parametrize("methods", first_daily([ONE_OF_EACH_KIND, "all"]), ids=["one of each kind", "all"])
def test_runs_with_equal_documents_share_their_prefill(engine: Engine, methods: Any) -> None:
    # Fused attention of more than 192 queries has larger blocks.
    documents = tuple(tuple(range(first, first + 70)) for first in (8, 12, 16))
    layouts = [TokenLayout((8, 3), documents, suffix) for suffix in ((61, 9, 63), (61, 9))]
    changed = TokenLayout((8, 3), (*documents[:2], documents[2][:-1]), (61, 9, 63))
    single = TokenLayout((8, 3), documents, (9,))
    options: dict[str, Any] = {**KEPT, "max_new_tokens": 2}
    jobs: list[dict[str, Any]] = [{"prompt": prompt, "methods": methods} for prompt in layouts]
    jobs += [{"prompt": prompt, "methods": FOUR} for prompt in (changed, single)]
    # The prefix that vanilla or PINE reuses depends on the methods before it.
    jobs += [
        {"prompt": prompt, "methods": both}
        for both in (["pine", "vanilla"], ["vanilla", "pine"], ["nia", "pine"])
        for prompt in (layouts[0], changed)
    ]
    alone = [engine.run(**job, **options) for job in jobs]
    options["prefix_cache"] = engine.active_prefixes
    outcomes = together([partial(engine.run, **job, **options) for job in jobs])
    for outcome, expected in zip(outcomes, alone, strict=True):
        check_identical(outcome.result(), expected)
    with count_tokens(engine.patched_models[0].network.model.embed_tokens) as fed:
        together([partial(engine.run, one, **options, methods=FOUR) for one in layouts])
        together(
            [
                partial(
                    engine.run,
                    layouts[0].reorder(order),
                    methods="pine",
                    max_new_tokens=1,
                    prefix_cache=engine.active_prefixes,
                )
                for order in ([0, 1, 2], [2, 0, 1])
            ]
        )
    assert sum(count > 70 for count in fed) == len(FOUR) + 2  # another order is prefilled on its own
    assert engine.active_prefixes and engine.active_prefixes.rows == ()


@pytest.mark.usefixtures("prefills_first")
def test_decode_steps_are_shared(engine: Engine, sizes: list[int]) -> None:
    options: dict[str, Any] = {"methods": FOUR, "stop_at_eos": False}
    together(
        [
            partial(engine.run, prompt, max_new_tokens=count, **options)
            for prompt, count in zip(LAYOUTS, (3, 5, 4), strict=True)
        ]
    )
    assert sizes == [12, 12, 8, 4]
    sizes.clear()
    together([lambda: engine.run(LAYOUT, methods="pine", max_new_tokens=3, stop_at_eos=False)] * 2)
    assert sizes == [1] * 4  # a batch of one uses another GEMM kernel


def test_shuffle_and_stream_beside_run_are_identical(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["pine", "vanilla"], "max_new_tokens": 7, "stop_at_eos": False}
    jobs: list[Callable[[], Any]] = [
        lambda: engine.shuffle(LAYOUTS[0], **options, return_logits=True).results,
        lambda: list(engine.generate(LAYOUT, **options)),
        lambda: engine.run(LONG, **options),
    ]
    alone = [job() for job in jobs]
    shuffled, events, run = (outcome.result() for outcome in together(jobs))
    for found, expected in zip(shuffled, alone[0], strict=True):
        check_identical(found.result, expected.result)
        assert [one.bitwise_identical for one in found.comparisons.values()] == [
            one.bitwise_identical for one in expected.comparisons.values()
        ]
    assert [event for event in events if isinstance(event, pine.TokenGenerated)] == [
        event for event in alone[1] if isinstance(event, pine.TokenGenerated)
    ]
    check_identical(events[-1].result, alone[1][-1].result)
    check_identical(run, alone[2])


def test_stop_and_error_end_their_run_alone(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(head_dim=32), stop_token_ids=())
    options: dict[str, Any] = {"methods": FOUR, "max_new_tokens": 20, "return_logits": True}
    alone = engine.run(LAYOUTS[0], **options)
    fed = {*LAYOUTS[0].ids, *LAYOUT.ids, *(i for one in alone.answers.values() for i in one.token_ids)}
    unused = min(set(range(97)) - fed)
    weight: Any = engine.model.get_input_embeddings().weight
    weight[unused] = torch.nan

    def stop_early() -> list[Any]:
        events = []
        with closing(engine.generate(LAYOUT, **options)) as stream:
            for event in stream:
                events.append(event)
                if isinstance(event, pine.TokenGenerated) and event.step == 2:
                    return events
        raise AssertionError

    stopped, failed, finished = together(
        [
            stop_early,
            lambda: engine.run(LAYOUT.extend([unused]), **options),
            lambda: engine.run(LAYOUTS[0], **options),
        ]
    )
    assert stopped.result()
    with pytest.raises(ModelError):
        failed.result()
    check_identical(finished.result(), alone)
    assert scheduler.num_arrived == 0


@pytest.mark.usefixtures("prefills_first")
def test_error_of_shared_step_does_not_reach_others(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"methods": ["pine", "nia"], "max_new_tokens": 4, "return_logits": True}
    jobs = [job | options for job in JOBS[:3]]
    alone = [engine.run(**job) for job in jobs]
    extend = passes.extend

    def fail(rows: Sequence[Any], *args: Any, **options: Any) -> Tensor:
        logits = extend(rows, *args, **options)
        if options.get("is_step") and any(row.state.plan.layout.ids == LONG.ids for row in rows if row):
            raise MemoryError
        return logits

    monkeypatch.setattr(passes, "extend", fail)
    outcomes = together([partial(engine.run, **job) for job in jobs])
    for job, outcome, expected in zip(jobs, outcomes, alone, strict=True):
        if job["prompt"] is LONG:
            with pytest.raises(MemoryError):
                outcome.result()
        else:
            check_identical(outcome.result(), expected)


@pytest.mark.parametrize("name", by_tier(["llama3", "mixtral", "gemma2"]))
def test_short_run_ends_within_long_prefill(name: str) -> None:
    with torch_num_threads(2):
        engine = Engine(make(FAMILIES[name].kind, **FAMILIES[name].options), stop_token_ids=())
        alone = [engine.run(prompt, methods=["pine", "nia"], max_new_tokens=3, **KEPT) for prompt in PAIR]
        order: list[str] = []
        found: list[Future[Any]] = []
        runs = [
            prepare_run(engine, prompt, methods=["pine", "nia"], max_new_tokens=3, **KEPT) for prompt in PAIR
        ]

        def short_control() -> RunControl:
            return RunControl(lambda event: order.append(f"short {type(event).__name__}"))

        def emit(event: Any) -> None:
            order.append(f"long {type(event).__name__}")
            if len(order) == 1:
                found.append(threads.submit(lambda: run_shared(lambda _: runs[1].compute(short_control()))))
                while not scheduler.num_arrived:
                    threading.Event().wait(0.001)

        with ThreadPoolExecutor(1) as threads:
            check_identical(run_shared(lambda _: runs[0].compute(RunControl(emit))), alone[0])
            check_identical(found[0].result(), alone[1])
    assert order.index("short PrefillDone") < order.index("long PrefillDone")


PAIR = (
    TokenLayout((5, 9), (tuple(range(1, 90)), tuple(range(3, 50)), tuple(range(9, 40))), (51,)),
    TokenLayout((5,), ((7, 8), (9,)), (12,)),
)


def test_run_beside_shuffle_ends_first(engine: Engine) -> None:
    order: list[str] = []
    layout = TokenLayout((5,), tuple(tuple(range(first, first + 30)) for first in range(5, 10)), (3,))
    options: dict[str, Any] = {"methods": FOUR, "max_new_tokens": 2}

    def shuffle() -> None:
        engine.shuffle(layout, count=12, **options)
        order.append("shuffle")

    def run() -> None:
        engine.run(layout, **options)
        order.append("run")

    for outcome in together([shuffle, run]):
        outcome.result()
    assert order == ["run", "shuffle"]


def test_cancelled_run_raises(engine: Engine) -> None:
    control = RunControl()
    control.cancelled.set()
    run = prepare_run(engine, LAYOUT)
    with pytest.raises(Cancelled):
        run_shared(lambda _: run.compute(control))


def test_end_is_signaled_once_the_worker_holds_no_tensors_of_the_run(engine: Engine) -> None:
    """The interpreter may end then: it must not stop a thread that releases a tensor."""
    steps: list[weakref.ref[Any]] = []
    held: list[list[Any]] = []

    end: Any = SimpleNamespace(set=lambda: held.append([step() for step in steps if step()]))

    def coroutine() -> Coroutine[None]:
        for pending in prepare_run(engine, LAYOUT, methods="pine", max_new_tokens=3).compute(NO_CONTROL):
            steps.append(weakref.ref(pending))
            yield pending
            del pending

    alone = Scheduler()
    alone._arrived.put(ScheduledRun(coroutine(), end))
    alone._compute_all()
    assert len(steps) > 2 and held == [[]]


class Step(SimpleNamespace):
    """Decode step that is shared with no other."""

    sharing_key = None

    def compute(self, others: Sequence[Any] = ()) -> None:
        """Compute in no time."""


def turns(*runs: tuple[str, Sequence[PendingPrefill | Step]]) -> list[str]:
    """Return the names of runs that arrive together, in the order in which their passes are computed."""
    order, is_complete, scheduler = list[str](), threading.Event(), Scheduler()

    def wait() -> Coroutine[None]:
        assert is_complete.wait(60)
        yield from ()

    def compute(name: str, passes: Sequence[PendingPrefill | Step]) -> Coroutine[None]:
        for one in passes:
            yield one
            order.append(name)
            time.sleep(0.002)

    ends = [scheduler.submit(wait()), *(scheduler.submit(compute(*run)) for run in runs)]
    is_complete.set()
    assert all(end.wait(60) for end in ends)
    return order


def test_oldest_run_gets_every_second_prefill() -> None:
    long, short = PendingPrefill(LEVEL_TOKENS), PendingPrefill(1)
    order = turns(("long", [long] * 3), *((f"short {number}", [short]) for number in range(6)))
    assert order[:4].count("long") == 3 and len(order) == 9


def test_decode_steps_alternate_with_prefills() -> None:
    order = turns(("prefills", [PendingPrefill(1)] * 6), ("steps", [Step()] * 3))
    assert order.index("steps") < 3 and order[-1] == "prefills"
