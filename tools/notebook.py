"""Run docs/notebook.ipynb and store its results as tables and static images, which GitHub renders.

Needs kaleido and Chromium. Figures of a notebook that runs in Jupyter are interactive.
"""

import ast
import base64
import io
import json
from pathlib import Path
from typing import Any

import plotly.io as pio
from PIL import Image
from plotly.graph_objects import Figure

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"
WIDTH = 800  # pixels
COLORS = 96  # of an image, so that the file stays small


def main() -> None:
    """Run all cells except the installation, and write the notebook with their outputs."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    number = 0
    for cell in notebook["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and not code.startswith("%"):
            number += 1
            value = run_cell(code, names)
            cell["execution_count"] = number
            cell["outputs"] = [] if value is None else [output(value, number)]
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell and return the value of its last expression.

    Args:
        code: Source of the cell.
        names: Variables of the notebook, which the cell may change.
    """
    *statements, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        statements, value = [*statements, last], None
    else:
        value = ast.Expression(last.value)
    exec(compile(ast.Module(statements, []), "cell", "exec"), names)
    return None if value is None else eval(compile(value, "cell", "eval"), names)


def output(value: Any, number: int) -> dict[str, Any]:
    """Return the output of a cell in the format of notebooks.

    Args:
        value: Figure or result of the last expression.
        number: Execution count of the cell.
    """
    if isinstance(value, Figure):
        image = pio.to_image(value, format="png", width=WIDTH, height=value.layout.height)
        packed = io.BytesIO()
        Image.open(io.BytesIO(image)).convert("RGB").quantize(COLORS).save(packed, "png", optimize=True)
        title = str(value.layout.title.text)
        data = {"image/png": base64.b64encode(packed.getvalue()).decode(), "text/plain": [title]}
    else:
        data = {"text/html": value._repr_html_().splitlines(True), "text/plain": [repr(value)]}
    return {"data": data, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


if __name__ == "__main__":
    main()
