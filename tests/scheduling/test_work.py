"""Estimates of the duration of a run."""

import pytest
from hypothesis import given, strategies as st

from pine_engine.scheduling.work import Speed, Work, format_seconds, planned


def test_before_any_run_the_estimate_is_the_work() -> None:
    work = planned(tokens=100, methods=2, orders=6, new_tokens=48)
    assert work == Work(12, 1200, 576, orders=6)
    assert Speed().estimate(work) == "12 prompts, 1,200 tokens; up to 576 new tokens."
    assert Speed().estimate(planned(tokens=7, methods=1)) == "1 prompt, 7 tokens."


@given(st.integers(1, 10**6), st.integers(1, 10**4), st.floats(0.01, 100), st.floats(0.01, 100))
def test_speed_estimates_measured_seconds(
    prompt_tokens: int, new_tokens: int, prefill_s: float, seconds: float
) -> None:
    done = Work(1, prompt_tokens, new_tokens, 1, prefill_s, prefill_s / 2)
    speed = Speed()
    speed.learn(done, seconds)
    estimated = speed.seconds(done)
    assert estimated is not None and estimated == pytest.approx(seconds)
    assert speed.seconds(Work(prompt_tokens=3 * prompt_tokens)) == pytest.approx(2 * seconds)
    assert speed.estimate(done) == f"Estimated time: up to {format_seconds(estimated)}."
    assert speed.estimate(Work(1, prompt_tokens)).startswith("Estimated time: ")


def test_writing_is_not_estimated_from_reading() -> None:
    speed = Speed()
    speed.learn(Work(prompts=1, prompt_tokens=10, prefill_s=1.0), 1.0)
    assert speed.seconds(planned(tokens=20, methods=1)) == pytest.approx(2)
    assert "new tokens" in speed.estimate(planned(tokens=20, methods=1, new_tokens=5))


def test_an_old_speed_is_forgotten() -> None:
    speed = Speed()
    for _ in range(40):
        speed.learn(Work(prompt_tokens=10, prefill_s=1.0), 100.0)
    for _ in range(20):
        speed.learn(Work(prompt_tokens=10, prefill_s=1.0), 1.0)
    assert speed.seconds(Work(prompt_tokens=10)) == pytest.approx(1)
