"""Columns of a file under the names of fields: `--column question=prompt`, and the lists on the page."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pine_engine.errors import InputError
from pine_engine.rows.document_keys import value_at
from pine_engine.rows.parse_errors import Problem, ValidationErrors, name_keys

FIELDS = (
    *("id", "task", "question", "documents", "answers", "rejected_answers", "gold_index", "choices"),
    "relevance",
    *("system", "prefix", "instruction", "labels", "text", "title"),
)
"""Fields that a column may have, besides document1, title1, ...; text and title are keys of documents."""

NUMBERED = re.compile(r"(document|title)(\d{1,9})")
"""Columns of one document each."""

Columns = Mapping[str, str]
"""Field by name of a column, "" for a column that is left out."""


def parse_columns(pairs: Sequence[str] | None) -> dict[str, str]:
    """Return the columns of options FIELD=COLUMN. Raises InputError for another form or field."""
    columns: dict[str, str] = {}
    for pair in pairs or ():
        field, _, column = (part.strip() for part in pair.partition("="))
        expected = "FIELD=COLUMN, such as question=prompt, each once"
        if field and column and field not in FIELDS and not NUMBERED.fullmatch(field):
            expected = f"one of the fields {', '.join(FIELDS)}, document1, title1, ..."
        elif field and column and column not in columns and field not in columns.values():
            columns[column] = field
            continue
        raise InputError(f"invalid column: got {pair!r:.60}, expected {expected}", field="column")
    return columns


def rename_header(names: Sequence[str], columns: Columns) -> list[str]:
    """Return a header in lower case, with fields in place of columns, and "" for a column that is left out.

    Raises InputError for a column that the table does not have.
    """
    header = [name.strip().lower() for name in names]
    by_name = {column.strip().lower(): field for column, field in columns.items()}
    if missing := sorted(by_name.keys() - header):
        message = f"no column {missing[0]!r:.60}; its columns are {', '.join(header):.300}"
        raise InputError(message, field="column")
    return [by_name.get(name, "" if name in by_name.values() else name) for name in header]


def rename_columns(row: Any, columns: Columns) -> Any:
    """Return a row of JSON with fields in place of columns, which may be paths such as query.text.

    Raises ValidationErrors for a column that the row does not have.
    """
    if not columns or not isinstance(row, Mapping):
        return row
    fields = {key: value for key, value in row.items() if key not in {*columns, *columns.values()}}
    for column, field in columns.items():
        value = row[column] if column in row else value_at(row, column)
        renamed = _rename_key(fields, column, field) if field in ("text", "title") else fields
        if field and value is None and column not in row and renamed == fields:
            message = f"it has no column {column!r:.60}, got {name_keys(row)}; name one of these"
            raise ValidationErrors([Problem(message, column)])
        fields = renamed | ({field: value} if field and value is not None else {})
    return number_documents(fields)


def number_documents(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with document1, title1, score1, ... as documents, if there are any texts or titles."""
    numbers = sorted({int(found[2]) for found in map(NUMBERED.fullmatch, fields) if found})
    if not numbers:
        return fields
    parts = [[fields.get(f"{name}{number}") for name in ("document", "title", "score")] for number in numbers]
    while len(parts) > 1 and not any(parts[-1]):
        parts.pop()
    documents = [
        {"text": text or "", "title": title or ""} | ({} if score is None else {"score": score})
        for text, title, score in parts
    ]
    used = {f"score{number}" for number in numbers}
    others = {key: value for key, value in fields.items() if not NUMBERED.fullmatch(key) and key not in used}
    return others | {"documents": documents}


def _rename_key(value: Any, key: str, name: str) -> Any:
    """Return a value in which all objects have the name in place of the key."""
    if isinstance(value, list):
        return [_rename_key(item, key, name) for item in value]
    if not isinstance(value, Mapping):
        return value
    kept = [one for one in value if one != name or key not in value]
    return {name if one == key else one: _rename_key(value[one], key, name) for one in kept}
