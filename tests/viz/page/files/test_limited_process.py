"""A process of its own: it answers, or it is ended, and nothing of it stays."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from pine_engine.errors import InputError
from pine_engine.prompts.examples import read_examples
from pine_engine.rows.document_files import read_documents
from tests.support import apart
from viz.page.files.limited_process import LimitError, Limits, run_in_subprocess

MB = 1_000_000
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits memory")


def computed(function: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
    return run_in_subprocess(function, *arguments, limits=Limits(**limits), look=lambda: None)


def test_subprocess_returns_result_or_input_error() -> None:
    assert computed(apart.double, 21) == 42
    with pytest.raises(InputError, match=r"^line 3 is empty$"):
        computed(apart.refuse, "line 3 is empty")


def test_internal_error_is_reported_without_its_text() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)fail failed: KeyError\n.*in fail") as raised:
        computed(apart.fail, "a word of the file")
    assert "a word of the file" not in str(raised.value)


LIMITED = [
    ("time", apart.spin, (), {"cpu_s": 0.5}),
    ("time", time.sleep, (600,), {"wall_s": 0.5}),
    pytest.param("memory", apart.hold, (300,), {"memory": 100 * MB}, marks=ON_LINUX),
    ("answer", apart.write_much, (2 * MB,), {"answer": MB}),
    ("memory", apart.crash, (signal.SIGABRT,), {}),
    ("died", apart.crash, (signal.SIGSEGV,), {}),
]


@pytest.mark.parametrize(("which", "function", "arguments", "limits"), LIMITED)
def test_each_limit_has_a_message(
    which: str, function: Callable[..., Any], arguments: tuple[Any, ...], limits: dict[str, Any]
) -> None:
    before = psutil.Process().children()
    with pytest.raises(LimitError) as raised:
        computed(function, *arguments, **limits)
    assert str(raised.value) == which
    assert psutil.Process().children() == before


@ON_LINUX
def test_memory_below_the_limit_is_available() -> None:
    assert computed(apart.hold, 80, memory=100 * MB) == 80 * MB


@pytest.mark.slow
def test_file_parsers_import_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "gradio", "numpy", "plotly")
    for reader in (read_documents, read_examples):
        assert reader.__module__.startswith("pine_engine")
        assert computed(apart.imported_for, reader.__module__, heavy) == []
    control = "pine_engine.attention.state"
    assert "torch" in computed(apart.imported_for, control, heavy, memory=10**12)


def test_subprocess_ignores_modules_of_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert computed(apart.double, 4) == 8
    assert os.getcwd() == str(tmp_path)
