"""Schemas of the JSON results of the API calls, read from `results.toml`."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pine_engine.methods.table import METHODS

Schema = dict[str, Any]
"""JSON Schema of a value."""

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_FIELDS, _DEFS = _TABLES.pop("fields"), _TABLES.pop("defs")
_DEFS["method"]["enum"] = list(METHODS)


def result_schema(fields: Mapping[str, Schema]) -> Schema:
    """Return the schema of a result with these fields besides those of all results."""
    required = ["model", "dtype", *fields]
    return {"type": "object", "properties": {**_FIELDS, **fields}, "required": required, "$defs": _DEFS}


RESULTS = {name: result_schema(fields) for name, fields in _TABLES.items()}
"""Schema of the result of each call of the page; `viz.lab` adds its own."""
