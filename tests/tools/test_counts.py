"""Counts of a small source tree, and the exit status of the ratchet."""

from pathlib import Path

import pytest

from tools.counts import count, main

ZERO = "lines = 100\nclasses = 0\nquestion_docstrings_percent = 0\nwords = 0\n"
LIMITS = f"""
[tool.pine.counts.library]
lines = 100
classes = 3
question_docstrings_percent = 20.0
words = 6
[tool.pine.counts.page]
{ZERO}
[tool.pine.counts.tests]
{ZERO}
[tool.pine.counts.source]
duplicate_class_names = 1
functions_with_args_percent = 75
"""
CORE = '''
"""What the asked model does."""
given = "told"  # said twice, and not given_names
"""Named value."""
class Engine:
    """Loaded model."""
    def generate(self, text: str) -> None:
        """Generate.

        Args:
            text: Prompt.
        """
    def __len__(self) -> int: ...
class Row: ...
def plain() -> None: ...
def run(told: str) -> str:
    return f"{told} said"
'''
ARGS = '"""Go.\n\n    Args:\n        place: Index.\n    """\n'
FILES = {
    "pine_engine/__init__.py": "from pine_engine.core import Engine, plain, run\n\n"
    '__all__ = ["Engine", "plain", "run"]\n', "pine_engine/core.py": CORE.lstrip("\n"),
    "pine_engine/cli/main.py": 'from pine_engine.cli.go import go\n\napp.command("go")(go)\n',
    "pine_engine/cli/go.py": f"def go(place: int) -> None:\n    {ARGS}", "viz/__init__.py": "",
    "viz/figures/rows.py": "class Row: ...\n",
    "viz/page/api/calls.py": f"def add_api() -> None:\n    def compare(place: int) -> None:\n        {ARGS}",
    "app.py": "", "tests/test_core.py": "from hypothesis import given\n\ngiven(1)\n",
    "pyproject.toml": LIMITS,
}  # fmt: skip


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_count_small_tree_returns_each_value(tree: Path) -> None:
    # Library: one of five docstrings is a question. Of four functions with parameters only run has no Args.
    zero = {"classes": 0, "question_docstrings_percent": 0.0, "words": 0}
    assert count(tree).values == {
        "library": {"lines": 29, "classes": 3, "question_docstrings_percent": 20.0, "words": 6},
        "page": {"lines": 7, **zero},
        "tests": {"lines": 3, **zero},
        "source": {"duplicate_class_names": 1, "functions_with_args_percent": 75.0},
    }
    assert main(["--root", str(tree)]) == 0


@pytest.mark.parametrize(("limit", "value"), [("words = 6", 5), ("names = 1", 0), ("args_percent = 75", 76)])
def test_main_value_beyond_limit_exits_one(tree: Path, limit: str, value: int) -> None:
    (tree / "pyproject.toml").write_text(LIMITS.replace(limit, f"{limit.partition(' = ')[0]} = {value}"))
    assert main(["--root", str(tree)]) == 1
