"""The notebook of docs/ runs, and what it shows is what was computed."""

import json
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from viz.export.standalone import drawn_numbers
from viz.figures.importance import normalise, select_importance

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def displays(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a stand-in for IPython.display in place: what is displayed goes into `shown`."""
    module: Any = ModuleType("IPython.display")
    module.HTML = lambda data: SimpleNamespace(data=data)
    module.display = lambda html: shown.append(html.data)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)


@pytest.mark.usefixtures("loaded_once")
def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    displays(shown, monkeypatch)
    monkeypatch.chdir(NOTEBOOK.parent)  # where Jupyter runs it
    monkeypatch.setattr(sys, "path", list(sys.path))
    names: dict[str, Any] = {}
    for number, code in enumerate(CODE):
        shorter = code.replace("max_new_tokens=16", "max_new_tokens=8")
        exec(compile(shorter, f"cell {number}", "exec"), names)

    orders = names["shuffled"]
    assert re.fullmatch(
        r"ShuffleResult\(6 orders; vanilla: [2-6] answers, differ by up to \S+; "
        r"pine: 1 answer, equal to the last bit\)",
        repr(orders),
    )
    assert names["run"].answers["pine"].text in names["run"]._repr_html_()
    assert ">kept</td>" in orders._repr_html_()
    head, masks, importance = shown
    assert ".pine-figure" in head
    assert [numbers.name for numbers in drawn_numbers(masks)] == ["masks"]
    [drawn] = drawn_numbers(importance)
    trace = names["run"].traces["pine"]
    values = select_importance(trace.document_importance, names["layer"], names["head"])
    expected = normalise(values, "share")
    found = [value for row in drawn.numbers.rows for value in row if isinstance(value, float)]
    assert set(np.array(found, np.float32)) >= set(expected[~np.isnan(expected)])


def test_nothing_of_a_machine_is_stored_in_it() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in CELLS if "outputs" in cell)
    assert re.findall(r"""["'](?:/|~|[A-Z]:\\)[^"']*["']""", "\n".join(CODE)) == []
