"""What importing the package costs; who may import whom is checked by import-linter (pyproject.toml)."""

import subprocess
import sys

RECORDS = (
    *("pine_engine.methods.plan", "pine_engine.methods.positions", "pine_engine.attention.trace"),
    *("pine_engine.engine.events", "viz.page.lesson.lessons", "viz.page.inside.drawn_positions"),
)
"""What pictures are drawn from, and what draws them of a run; a figure needs no torch."""


def test_the_package_itself_imports_nothing_until_it_is_asked() -> None:
    code = "import sys, pine_engine\nprint({'torch', 'transformers', 'numpy', 'pydantic'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_a_finished_run_is_read_and_drawn_without_torch() -> None:
    code = f"import sys, {', '.join(RECORDS)}\nprint({{'torch', 'transformers'}} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
