"""Log of runs, and a simulated clock."""

import logging

import pytest


@pytest.fixture(autouse=True)
def log_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Let tests read the log of runs."""
    caplog.set_level(logging.INFO, "pine_explorer.runs")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time in seconds, which the test moves on."""
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now
