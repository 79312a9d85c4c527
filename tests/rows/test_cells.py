"""Lists in cells of tables, and accepted answers of rows that hold a model's output beside a reference."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from pine_engine.prompts.examples import Example, read_examples
from pine_engine.rows.parse_errors import ValidationErrors

DOCUMENTS = {"document1": "Ann.", "document2": "Ben."}
TEXTS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1), min_size=1)


def one_row(path: Path, **cells: Any) -> Example:
    pd.DataFrame([{"question": "Who?", **cells}]).to_csv(path, index=False)
    (example,) = read_examples(path)
    return example


def printed_array(texts: list[str]) -> str:
    with np.printoptions(threshold=10**6):
        return str(np.array(texts, dtype=object))


@pytest.mark.parametrize("name", ["answers", "answer", "ground_truths"])
@pytest.mark.parametrize("print_list", [json.dumps, str, printed_array])
@given(texts=TEXTS)
def test_list_in_a_cell_is_a_list(
    name: str,
    print_list: Callable[[list[str]], str],
    texts: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    example = one_row(path, **DOCUMENTS, **{name: print_list(texts)})
    assert example.answers == ([] if texts == ["No Answer Present."] else texts)


@pytest.mark.parametrize(
    "name", ["documents", "contexts", "retrieved_contexts", "ctxs", "passages", "context"]
)
@pytest.mark.parametrize("print_list", [json.dumps, str, printed_array])
def test_documents_in_a_cell_are_documents(
    name: str, print_list: Callable[[list[str]], str], tmp_path: Path
) -> None:
    texts = ["Ann, 'she'.", 'Ben\n"he" | it.']
    example = one_row(tmp_path / "rows.csv", **{name: print_list(texts)}, choices="['x', 'y']")
    assert [one.text for one in example.documents] == texts
    assert example.choices == ["x", "y"]


@pytest.mark.parametrize("cell", ["[sic]", "[A] [B]", "{a}", "It's ['a']", "[O'Brien]", "[", "[Ann, Ben]"])
def test_text_in_brackets_is_one_answer(cell: str, tmp_path: Path) -> None:
    assert one_row(tmp_path / "rows.csv", **DOCUMENTS, answers=cell).answers == [cell]


def test_bar_separates_only_texts(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    assert one_row(path, **DOCUMENTS, answers="a | b").answers == ["a", "b"]
    assert one_row(path, **DOCUMENTS, answers='["a | b"]').answers == ["a | b"]


BROKEN = [
    "['a', 'b'", "['a', b]", "['a' ... 'b']", "[array(['a'], dtype=object)]", "[1, 2]", "['a', 2]",
    "['" + "a" * 1_000_001 + "']", "[[" * 10_000 + "]]" * 10_000, "{'text': array(['a'], dtype=object)}",
]  # fmt: skip


@pytest.mark.parametrize("cell", BROKEN, ids=lambda cell: str(cell)[:20])
def test_broken_list_is_rejected_with_its_line(cell: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationErrors) as raised:
        one_row(tmp_path / "rows.csv", **DOCUMENTS, answers=cell)
    assert [problem.line for problem in raised.value.problems] == [2] * len(raised.value.problems)
    assert "answers" in str(raised.value.field) and len(str(raised.value)) < 1000


REFERENCES = [
    *("ground_truth", "ground_truths", "reference", "references", "reference_answer"),
    *("expected_answer", "expected_output", "correct_answer", "gold_answer", "target"),
]


@pytest.mark.parametrize("output", ["answer", "response", "output", "prediction"])
@pytest.mark.parametrize("reference", REFERENCES)
def test_reference_beside_an_output_is_accepted(reference: str, output: str, tmp_path: Path) -> None:
    row = {"question": "Who?", "contexts": ["Ann.", "Ben."], output: "Ben", reference: "Ann"}
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (row, {**row, reference: ["Ann", "She"]})))
    assert [one.answers for one in read_examples(path)] == [["Ann"], ["Ann", "She"]]
    assert one_row(tmp_path / "rows.csv", **DOCUMENTS, **{output: "Ben", reference: "Ann"}).answers == ["Ann"]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_output_beside_empty_reference_is_not_accepted(kind: str, tmp_path: Path) -> None:
    rows = [{"question": "Who?", "contexts": ["Ann.", "Ben."], "answer": "Ben", "reference": one}
            for one in ("Ann", None, "")]  # fmt: skip
    table, path = pd.DataFrame(rows), tmp_path / f"rows.{kind}"
    if kind == "csv":
        table.to_csv(path, index=False)
    elif kind == "parquet":
        table.to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [one.answers for one in read_examples(path)] == [["Ann"], [], []]


def test_answer_alone_is_accepted() -> None:
    row = {"query": "Who?", "documents": ["Ann.", "Ben."], "answer": "Ann", "response": "Ben"}
    assert Example.model_validate(row).answers == ["Ann"]
    assert Example.model_validate({**row, "answers": ["Ben"], "reference": "Cy"}).answers == ["Ben"]
    assert Example.model_validate({"user_input": "Who?", "documents": ["a"]}).question == "Who?"
