"""docs/library.md: its Python blocks run, and it names the whole public API."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

import pine_engine
from pine_engine import Engine
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_library_blocks_run_in_order(tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks on a tiny model instead of the embedded one."""
    engine = Engine(tiny_llama(max_context_length=4096), letter_tokenizer())
    monkeypatch.setattr(Engine, "load", lambda: engine)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, block in enumerate(BLOCKS, start=1):
            exec(compile(block, f"block {number} of library.md", "exec"), names)
    lines = printed.getvalue()
    assert re.search(r"^pine: \S", lines, re.MULTILINE)
    assert "unknown task 'qa'" in lines
    assert "{'vanilla': None, 'pine': True}\n" in lines
    assert "pine: 1 different answers, logits differ by 0\n" in lines
    assert lines.endswith("True\n")


def test_page_and_blocks_have_public_names_only() -> None:
    assert set(pine_engine.__all__) <= set(re.findall(r"\w+", PAGE))
    imported = re.findall(r"^from pine_engine import (.*)$", "\n".join(BLOCKS), re.MULTILINE)
    assert {name for line in imported for name in line.split(", ")} <= set(pine_engine.__all__)
    assert "pine_engine." not in "".join(BLOCKS)
