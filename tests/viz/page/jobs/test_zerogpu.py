"""Work on a ZeroGPU device: reserved seconds, and messages when the work fails."""

import os
import subprocess
import sys
from collections.abc import Generator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Speed, Work, planned
from viz.page.jobs import zerogpu


@pytest.mark.slow
def test_folder_named_spaces_is_not_the_package(tmp_path: Path) -> None:
    (tmp_path / "spaces").mkdir()
    code = "import viz.page.jobs.zerogpu; print(viz.page.jobs.zerogpu.IS_ZEROGPU)"
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[4])])
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.fixture
def lent(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Requested seconds; the work runs in this process."""
    request: list[int] = []

    def compute_on_gpu(place: int, work: Any, seconds: int) -> Generator[Any, None, None]:
        request.append(seconds)
        return zerogpu._compute_placed(place, work, seconds)

    monkeypatch.setattr(zerogpu, "IS_ZEROGPU", True)
    monkeypatch.setattr(zerogpu, "_compute_on_gpu", compute_on_gpu)
    monkeypatch.setattr(zerogpu, "_placed", [engine])
    monkeypatch.setattr(zerogpu, "_speed", Speed())
    return request


def count_to(engine: Engine, last: int, error: Exception | None = None) -> Generator[str, None, None]:
    for number in range(last):
        yield f"{number} on {engine.model_name}"
    if error:
        raise error


A_PROMPT = planned(tokens=1, methods=1)


def compute(engine: Engine, *, work: Work = A_PROMPT, **request: Any) -> list[str]:
    return list(zerogpu.compute(engine, PreparedJob(work, partial(count_to, **request))))


def measured(prefill_s: float, tokens: int) -> Speed:
    """The speed after a run that read so many tokens."""
    speed = Speed()
    speed.learn(Work(1, tokens, 0, 1, prefill_s), prefill_s)
    return speed


def test_compute_without_zerogpu_is_in_this_process(engine: Engine) -> None:
    assert not zerogpu.IS_ZEROGPU
    assert compute(engine, last=2) == ["0 on tiny", "1 on tiny"]


def test_compute_on_zerogpu_requests_gpu_seconds(engine: Engine, lent: list[int]) -> None:
    work = Work(prompts=4, prompt_tokens=2_000, new_tokens=100, orders=1)
    assert compute(engine, last=2, work=work) == ["0 on tiny", "1 on tiny"]
    assert lent == [zerogpu.START_S + 4 + 5]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (InputError("there is no question; write one"), "There is no question; write one"),
        (RuntimeError("secret"), "Internal error (RuntimeError)."),
    ],
)
def test_remote_failure_has_the_local_message(
    engine: Engine, lent: list[int], error: Exception, sentence: str
) -> None:
    with pytest.raises(PineError) as raised:
        compute(engine, last=1, error=error)
    assert str(raised.value).startswith(sentence) and "secret" not in str(raised.value)


def test_error_of_zerogpu_is_shown(engine: Engine, lent: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Generator[Any, None, None]:
        raise gr.Error("You have exceeded your quota")
        yield

    monkeypatch.setattr(zerogpu, "_compute_on_gpu", refuse)
    with pytest.raises(PineError, match="You have exceeded your quota"):
        compute(engine, last=1)


def test_model_loaded_after_startup_is_rejected(
    engine: Engine, lent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zerogpu, "_placed", [])
    with pytest.raises(ModelError, match="tiny is not available"):
        compute(engine, last=1)
    assert lent == []


def test_gpu_seconds_grow_with_work_up_to_quota() -> None:
    short, long = (planned(tokens=1_000, methods=methods, new_tokens=8) for methods in (1, 7))
    assert (
        zerogpu.START_S
        < zerogpu.gpu_request_seconds(short, Speed())
        < zerogpu.gpu_request_seconds(long, Speed())
    )
    endless = planned(tokens=1_000_000, methods=1)
    assert zerogpu.gpu_request_seconds(endless, Speed()) == zerogpu.MAX_S


def test_measured_speed_rejects_work_beyond_quota() -> None:
    work = planned(tokens=10_000, methods=2)
    fast, slow = measured(1.0, 10_000), measured(40.0, 10_000)
    assert zerogpu.gpu_request_seconds(work, fast) == zerogpu.START_S + zerogpu.MARGIN * 2
    with pytest.raises(InputError, match=r"80 s \(130 s with margin.* 120 s"):
        zerogpu.gpu_request_seconds(work, slow)


def test_gpu_speed_is_learned_from_completed_work(
    engine: Engine, lent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = planned(tokens=4_000, methods=1, new_tokens=40)
    clock = iter([50.0, 100.0, 103.0, 200.0])
    monkeypatch.setattr(zerogpu, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    compute(engine, last=2, work=work)
    with pytest.raises(PineError):
        compute(engine, last=0, work=work, error=InputError("no"))
    assert lent[0] == zerogpu.START_S + 8 + 2
    assert zerogpu._speed.seconds(work) == pytest.approx(3.0)
