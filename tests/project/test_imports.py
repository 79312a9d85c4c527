"""Import cost of the package; import-linter checks the layers (pyproject.toml)."""

import subprocess
import sys

RECORDS = (
    *("pine_engine.methods.plan", "pine_engine.methods.positions", "pine_engine.attention.trace"),
    *("pine_engine.engine.events", "viz.page.lesson.lessons", "viz.page.inside.drawn_positions"),
)
"""Records of figures, and page modules that draw them, which need no torch."""


def test_package_import_is_lazy() -> None:
    code = "import sys, pine_engine\nprint({'torch', 'transformers', 'numpy', 'pydantic'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


def test_records_and_figures_import_no_torch() -> None:
    code = f"import sys, {', '.join(RECORDS)}\nprint({{'torch', 'transformers'}} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
