"""Examples of a data set: fields of JSONL and CSV files, samples, limits, and the line of each mistake."""

import json
from pathlib import Path
from typing import Any

import pytest

from pine_engine import Document, InputError
from pine_engine.evaluation.examples import Example, read_examples
from pine_engine.prompts.parse_errors import ValidationErrors
from pine_engine.prompts.request import MAX_DOCUMENTS
from tests.support.errors import has_field

PLAIN = {
    "id": "a-1",
    "task": "retrieval_qa",
    "question": "Who?",
    "documents": [{"text": "one"}, {"text": "two", "title": "T"}],
}
FULL = {
    **PLAIN, "id": "a-2", "question": "Why?", "gold_index": 1, "answers": ["two", "2"],
    "rejected_answers": ["one"], "choices": ["two", "ten"], "source": "ours", "license": "CC0-1.0",
    "meta": {"subset": "made up", "rank": [0, None]},
}  # fmt: skip
HEADER = "id,question,answers,gold_index,title1,document1,document2,task\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set.jsonl"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "set.CSV"


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def mistakes(path: Path) -> list[tuple[int | None, str]]:
    """Return line and field of each mistake in a file."""
    with pytest.raises(ValidationErrors) as raised:
        read_examples(path)
    assert str(path) in str(raised.value)
    return [(problem.line, problem.field) for problem in raised.value.problems]


def test_example_has_the_fields_of_its_line(file: Path) -> None:
    full, plain = read_examples(write(file, {**FULL, "added_later": True}, PLAIN))
    documents = [{"text": "one", "title": ""}, {"text": "two", "title": "T"}]
    assert full.model_dump() == {**FULL, "system": "", "prefix": "", "documents": documents}
    assert (plain.gold_index, plain.answers, plain.meta) == (None, [], {})
    (example,) = read_examples(write(file, {**PLAIN, "task": "molecule_generation", "question": ""}))
    assert example.question == ""


def test_larger_sample_begins_with_a_smaller_one(file: Path) -> None:
    write(file, PLAIN, FULL, {"id": "not read"})
    assert [example.id for example in read_examples(file, limit=2)] == ["a-1", "a-2"]
    write(file, *({**PLAIN, "id": str(number)} for number in range(50)))
    samples = [[example.id for example in read_examples(file, limit, 3)] for limit in (5, 20, None)]
    assert samples[1][:5] == samples[0] and samples[2][:20] == samples[1]
    assert sorted(samples[2], key=int) == [str(number) for number in range(50)]
    assert not set(samples[0]) <= {str(number) for number in range(10)}
    assert [example.id for example in read_examples(file, 5, 4)] != samples[0]


def test_documents_per_row_and_file_are_limited(file: Path, table: Path) -> None:
    documents = ["d"] * MAX_DOCUMENTS
    assert len(read_examples(write(file, {**PLAIN, "documents": documents}))[0].documents) == MAX_DOCUMENTS
    assert mistakes(write(file, {**PLAIN, "documents": [*documents, 5]})) == [(1, "documents")]
    table.write_text(f"{','.join(f'document{number + 1}' for number in range(MAX_DOCUMENTS + 1))}\nrow\n")
    write(file, PLAIN, FULL, {**PLAIN, "id": "a-3"})
    assert len(read_examples(file, max_documents=6)) == 3
    for path, limit in ((file, 5), (table, None)):
        with pytest.raises(InputError, check=has_field("documents")):
            read_examples(path, max_documents=limit)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({"gold_index": value}, "gold_index") for value in (2, -1, "1", True)),
        ({"answers": "two"}, "answers"),
        ({"answers": [2]}, "answers.0"),
        ({"choices": [""]}, "choices.0"),
        ({"meta": None}, "meta"),
    ],
)
def test_line_and_field_of_a_mistake_are_named(file: Path, change: dict[str, Any], field: str) -> None:
    assert mistakes(write(file, PLAIN, {**FULL, **change})) == [(2, field)]


def test_all_mistakes_are_named_together(file: Path, table: Path) -> None:
    write(file, PLAIN, {**FULL, "gold_index": 9, "question": ""}, {**FULL, "id": "a-1"}, {"id": 3})
    table.write_text("question,document1,gold_index\nWhy?,one,first\nWhy?\n,one,\n")
    for path, lines in ((file, [2, 2, 3, 4, 4]), (table, [2, 3, 4])):
        assert [line for line, _ in mistakes(path)] == lines


def test_table_has_the_fields_of_an_example(table: Path) -> None:
    table.write_text(
        f'{HEADER}a,"Who, then?","two | 2|",1,T,one,"two\nlines",kv_retrieval\nb,Why?,,,,one,,\n'
    )
    first, second = read_examples(table)
    documents = [Document(text="one", title="T"), Document(text="two\nlines")]
    who: dict[str, Any] = {"question": "Who, then?", "gold_index": 1, "answers": ["two", "2"]}
    assert first == Example(id="a", task="kv_retrieval", documents=documents, **who)
    assert second == Example(id="b", task="retrieval_qa", question="Why?", documents=[Document(text="one")])
    table.write_text("document1,question\none,Why?\n")
    assert read_examples(table) == [second.model_copy(update={"id": "line 2"})]
    table.write_text("id,question,answers,document1\na,Why?,1,one\na,,,\n")
    assert [example.id for example in read_examples(table, limit=1)] == ["a"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f"{HEADER}a,Why?,1,0,,one,two,\n\na,Why?,1,0,,one,two,\n", 4),  # the id of line 2
        (f"{HEADER}a,Why?,1,first,,one,two,\n", 2),
        (f"{HEADER}a,Why?,1,{'9' * 5000},,one,two,\n", 2),
        (f"{HEADER}a,Why?,1,1,,one,,\n", 2),  # the gold document is empty
        (f"{HEADER}a,Why?,1,,T,,,\n", 2),
        (f"{HEADER}a,,1,,,one,,\n", 2),
        (f"{HEADER}a,Why?,1\n", 2),
    ],
)
def test_line_of_a_table_mistake_is_named(table: Path, content: str, line: int) -> None:
    table.write_text(content)
    assert [found for found, _ in mistakes(table)] == [line]


@pytest.mark.parametrize(
    ("columns", "field"),
    [("answers", "document1"), ("document1,document3", "document2"), ("document1,title2", "title2")],
)
def test_column_of_a_table_is_missing_or_unknown(table: Path, columns: str, field: str) -> None:
    table.write_text(f"id,question,{columns}\na,Why?,one,two\n")
    with pytest.raises(InputError, check=has_field(field)):
        read_examples(table)
