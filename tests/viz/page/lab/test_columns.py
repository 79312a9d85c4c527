"""Columns of an uploaded dataset: first rows, chosen fields, and the dataset that follows from them."""

import json
from pathlib import Path
from typing import Any

import pytest

from pine_engine.errors import InputError
from pine_engine.scheduling.runs import Runs
from tests.support.javascript import scripts
from tests.support.widgets import built
from viz.lab.page import evaluate
from viz.lab.page.columns import MAX_CELL, MAX_COLUMNS, chosen_columns, read_preview
from viz.lab.page.data_sets import OWN
from viz.lab.page.evaluate import RequestWidgets
from viz.page.common.host_settings import DEFAULTS
from viz.page.files.reading_files import FileReader


def put(folder: Path, content: bytes) -> Path:
    (path := folder / "mine.csv").write_bytes(content)
    return path


def choose(value: str, **fields: str) -> str:
    """Return the value of the widget after a choice for columns, as the browser sends it."""
    content = json.loads(value)
    for column in content["columns"]:
        column["field"] = fields.get(column["name"], column["field"])
    return json.dumps(content)


def test_preview_has_first_rows_and_usual_fields(tmp_path: Path) -> None:
    content = "".join(f"Who {number}?,{'x' * 200},Ann\n" for number in range(9))
    value, encoding = read_preview(put(tmp_path, f"query,body,reference\n{content}".encode()))
    shown = json.loads(value)
    assert [tuple(one.values()) for one in shown["columns"]] == [
        ("query", "question"), ("body", ""), ("reference", "answers")
    ]  # fmt: skip
    assert [row[0] for row in shown["rows"]] == ["Who 0?", "Who 1?", "Who 2?"]
    assert len(shown["rows"][0][1]) == MAX_CELL + 4 and encoding == ""
    assert {"", "question", "documents", "document3", "title1"} <= set(shown["fields"])
    assert chosen_columns(value) == {}
    assert chosen_columns(choose(value, body="document1", query="")) == {"body": "document1", "query": ""}
    wide, _ = read_preview(put(tmp_path, b",".join(b"c%d" % number for number in range(999)) + b"\n"))
    assert len(json.loads(wide)["columns"]) <= MAX_COLUMNS


@pytest.mark.parametrize(
    "value", ["[]", "{", '{"columns": 3}', '{"columns": [{"name": 1, "field": ""}]}',
              '{"columns": [{"name": "a", "field": "poem"}]}', '{"columns": [3]}'],
)  # fmt: skip
def test_invalid_choice_is_rejected(value: str) -> None:
    with pytest.raises(InputError):
        chosen_columns(value)


def test_chosen_columns_make_the_dataset(tmp_path: Path) -> None:
    """An uploaded table without known names is an error, and a dataset after a choice."""
    path = put(tmp_path, "Prompt;Über\nWer?;Änne\nWas?;Öl und Größe für Jürgen\n".encode("cp1252"))
    found: dict[Any, Any] = {}

    def build() -> Any:
        import gradio as gr

        with gr.Blocks() as page:
            request, reader = RequestWidgets(DEFAULTS), FileReader(Runs())
        for updates in evaluate.upload_rows(request, reader, str(path)):
            found.update(updates)
        assert "no column" in found[request.message] and request.own not in found
        value = choose(found[request.columns], prompt="question", über="document1")
        for updates in evaluate.read_rows(request, reader, value, found[request.file]):
            found.update(updates)
        found["request"] = request
        return page

    built(build)
    request = found["request"]
    (first, second) = found[request.own].examples
    assert (first.question, first.documents[0].text, second.question) == ("Wer?", "Änne", "Was?")
    assert found[request.rows] == OWN and "cp1252" in found[request.message]


def test_column_that_takes_a_field_leaves_the_other_without() -> None:
    call = scripts("columns")
    columns = [{"name": "a", "field": "question"}, {"name": "b", "field": ""}, {"name": "c", "field": ""}]
    chosen = call("columns.chooseField", columns, 1, "question")
    assert [one["field"] for one in chosen] == ["", "question", ""]
    assert [one["field"] for one in call("columns.chooseField", chosen, 1, "")] == ["", "", ""]
