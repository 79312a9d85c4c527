"""Import cost of the package; import-linter checks the layers (pyproject.toml)."""

import subprocess
import sys

import pytest

RECORDS = (
    *("pine_engine.methods.plan", "pine_engine.methods.positions", "pine_engine.attention.trace"),
    *("pine_engine.engine.events", "viz.page.lesson.tutorial", "viz.page.inside.drawn_positions"),
)
"""Records of figures, and page modules that draw them, which need no torch."""


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        (("pine_engine",), ("torch", "transformers", "numpy", "pydantic")),
        (RECORDS, ("torch", "transformers")),
    ],
)
def test_import_is_lazy(modules: tuple[str, ...], heavy: tuple[str, ...]) -> None:
    code = f"import sys, {', '.join(modules)}\nprint({set(heavy)} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
