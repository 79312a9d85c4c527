"""Columns of an uploaded dataset: its first rows, with a list of fields above each column.

assets/columns.js draws the JSON made here, and sends it back with the chosen fields.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import InputError
from pine_engine.rows.columns import FIELDS, NUMBERED
from pine_engine.rows.document_files import MAX_BYTES
from pine_engine.rows.files import guessed_encoding, preview_rows
from pine_engine.rows.published import usual_fields
from pine_engine.rows.untrusted_json import load_json

NUM_ROWS, MAX_COLUMNS, MAX_CELL = 3, 40, 80
"""Shown rows, columns, and characters of a cell."""

OFFERED = ("", *(field for field in FIELDS if field not in ("labels", "text", "title")))
"""Fields of a row, "" for a column that is left out."""


def read_preview(file: Path) -> tuple[str, str]:
    """Return the first rows as the value of the widget, and the encoding if it is a guess.

    Raises InputError for a file that cannot be read.
    """
    rows = preview_rows(file, NUM_ROWS, MAX_BYTES)
    names = list(dict.fromkeys(str(name) for row in rows for name in row))[:MAX_COLUMNS]
    usual = usual_fields(names)
    numbered = [f"{part}{number}" for part in ("document", "title") for number in range(1, len(names) + 1)]
    value = {
        "columns": [{"name": name, "field": usual[name]} for name in names],
        "rows": [[_cell(row.get(name, "")) for name in names] for row in rows],
        "fields": [*OFFERED, *numbered],
    }
    return json.dumps(value), guessed_encoding(file)


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]} ..."


def build_columns() -> gr.HTML:
    """Build the widget, which is empty before an upload."""
    draw = "pine.columns.mount({ element, trigger, props, watch });"
    return gr.HTML("{}", elem_id="measure-columns", html_template="<div></div>", js_on_load=draw)


def chosen_columns(value: str) -> dict[str, str]:
    """Return the columns whose field is not that of their name. Raises InputError for an invalid value."""
    content = load_json(value or "{}", "columns")
    columns = content.get("columns", []) if isinstance(content, Mapping) else None
    if not isinstance(columns, list) or not all(map(_is_choice, columns)):
        raise InputError("Invalid columns. Upload the dataset again.")
    usual = usual_fields([column["name"] for column in columns])
    return {one["name"]: one["field"] for one in columns if one["field"] != usual[one["name"]]}


def _is_choice(column: Any) -> bool:
    name, field = (column.get("name"), column.get("field")) if isinstance(column, Mapping) else (None, None)
    is_field = isinstance(field, str) and (field in OFFERED or bool(NUMBERED.fullmatch(field)))
    return isinstance(name, str) and is_field
