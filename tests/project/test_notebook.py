"""The notebook of docs/ runs, and its figures have the values of its records."""

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plotly.io as pio
import pytest
from plotly.graph_objects import Figure

import viz
from pine_engine import Engine
from viz.figures.importance import normalize, select_importance

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
CODE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]


def shown_by(code: str, names: dict[str, Any], where: str) -> Any:
    """Run a cell as Jupyter does, and return the value of its last line."""
    tree = ast.parse(code)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, where, "exec"), names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), where, "exec"), names)
    return eval(compile(ast.Expression(last.value), where, "eval"), names)


@pytest.mark.slow
def test_notebook_runs_and_shows_every_figure(
    embedded: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Engine, "load", lambda: embedded)
    monkeypatch.chdir(tmp_path)  # outside the repository
    monkeypatch.setitem(sys.modules, "viz.page", None)  # not in the wheel
    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")  # plotly's own in Jupyter
    names: dict[str, Any] = {}
    figures = {}
    for number, code in enumerate(CODE):
        shorter = code.replace("max_new_tokens=16", "max_new_tokens=8")
        if isinstance(shown := shown_by(shorter, names, f"cell {number}"), Figure):
            figures[code.split("viz.")[-1].partition("(")[0]] = shown

    orders = names["shuffled"]
    assert re.fullmatch(
        r"ShuffleResult\(6 orders; vanilla: [2-6] answers, differ by up to \S+; "
        r"pine: 1 answer, bitwise identical\)",
        repr(orders),
    )
    assert names["run"].answers["pine"].text in names["run"]._repr_html_()
    assert ">held</td>" in orders._repr_html_()
    assert sorted(figures) == viz.__all__
    renderers = [pio.renderers[name] for name in pio.renderers.default.split("+")]
    for figure in figures.values():  # nbconvert shows HTML, and plotly's own MIME type nowhere
        mime_types = {kind for each in renderers for kind in each.to_mimebundle(figure.to_plotly_json())}
        assert {"application/vnd.plotly.v1+json", "text/html"} <= mime_types
    trace = names["trace"]
    expected = normalize(select_importance(trace.document_importance, None, None), "share")
    np.testing.assert_array_equal(figures["plot_importance"].data[0].z, expected)
    drawn = {panel.name: panel.z for panel in figures["plot_attention"].data}
    for method, weights in names["weights"].items():
        np.testing.assert_allclose(10 ** drawn[method][:, 1:], weights[:, 1:].clip(1e-6), rtol=1e-5)


def test_notebook_has_no_outputs_and_paths() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in CELLS if "outputs" in cell)
    assert re.findall(r"""["'](?:/|~|[A-Z]:\\)[^"']*["']""", "\n".join(CODE)) == []
