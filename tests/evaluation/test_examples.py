"""Examples of a data set: the fields that measuring needs, and one clear sentence for every wrong line."""

import json
from pathlib import Path
from typing import Any

import pytest

from pine_engine.errors import InputError
from pine_engine.evaluation.examples import Example, read_examples
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.request import MAX_DOCUMENTS, DataRow

PLAIN = {
    "id": "a-1",
    "task": "retrieval_qa",
    "question": "Who?",
    "documents": [{"text": "one"}, {"text": "two", "title": "T"}],
}
FULL = {
    **PLAIN,
    "id": "a-2",
    "question": "Why?",
    "gold_index": 1,
    "answers": ["two", "2"],
    "source": "ours",
    "license": "CC0-1.0",
    "meta": {"subset": "made up", "rank": [0, None]},
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set.jsonl"


def test_an_example_is_read_as_it_is_written(file: Path) -> None:
    (example,) = read_examples(write(file, {**FULL, "added_later": True}))
    assert example.model_dump() == {
        **FULL,
        "system": "",
        "prefix": "",
        "documents": [{"text": "one", "title": ""}, {"text": "two", "title": "T"}],
    }
    assert isinstance(example, DataRow)
    assert example.comparison().documents[1] == Document(text="two", title="T")


def test_answers_and_all_about_them_may_be_left_out(file: Path) -> None:
    (example,) = read_examples(write(file, PLAIN))
    assert (example.gold_index, example.answers, example.meta) == (None, [], {})
    assert (example.source, example.license) == ("", "")


def test_no_more_examples_than_the_limit_are_read(file: Path) -> None:
    write(file, PLAIN, FULL, {"id": "not read"})
    assert [example.id for example in read_examples(file, limit=2)] == ["a-1", "a-2"]


def test_a_sample_is_drawn_from_the_whole_file_and_a_larger_one_begins_alike(file: Path) -> None:
    write(file, *({**PLAIN, "id": str(number)} for number in range(50)))
    samples = [[example.id for example in read_examples(file, limit, 3)] for limit in (5, 20, None)]
    assert samples[1][:5] == samples[0] and samples[2][:20] == samples[1]
    assert sorted(samples[2], key=int) == [str(number) for number in range(50)]
    assert not set(samples[0]) <= {str(number) for number in range(10)}
    assert [example.id for example in read_examples(file, 5, 4)] != samples[0]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            {"gold_index": 2},
            "gold_index is 2, but documents are counted from 0 to 1; give one of these, or null",
        ),
        (
            {"gold_index": -1},
            "gold_index is -1, but documents are counted from 0 to 1; give one of these, or null",
        ),
        ({"gold_index": "1"}, "gold_index: got the text '1', expected a whole number"),
        ({"gold_index": True}, "gold_index: got True, expected a whole number"),
        ({"answers": "two"}, "answers: got the text 'two', expected a list"),
        ({"answers": [2]}, "answers.0: got int 2, expected text"),
        ({"meta": None}, "meta: got None, expected an object"),
        ({"id": "a-1"}, "id 'a-1' was used in line 1; give every example its own"),
        ({"question": " "}, "there is no question; write one"),
        (
            {"documents": [{"text": "one"}, {"text": "\n"}]},
            "document 2 is empty; write some text or remove it",
        ),
        ({"task": "poetry"}, "unknown task 'poetry'; choose from: retrieval_qa, "),
    ],
)
def test_the_line_of_a_wrong_example_is_named(file: Path, change: dict[str, Any], problem: str) -> None:
    write(file, PLAIN, {**FULL, **change})
    with pytest.raises(InputError) as raised:
        read_examples(file)
    assert str(raised.value).startswith(f"{file}, line 2: {problem}")


def test_all_wrong_examples_are_named_at_once(file: Path, table: Path) -> None:
    write(file, PLAIN, {**FULL, "gold_index": 9, "question": ""}, {**FULL, "id": "a-1"}, {"id": 3})
    table.write_text("question,document1,gold_index\nWhy?,one,first\nWhy?\n,one,\n")
    told = {
        file: [
            "line 2: there is no question; write one;",
            "line 2: gold_index is 9, but documents are counted from 0 to 1; give one of these, or null;",
            "line 3: id 'a-1' was used in line 1; give every example its own;",
            "line 4: documents: it is missing; give it;",
            "line 4: id: got int 3, expected text",
        ],
        table: [
            "line 2: gold_index is 'first'; give the number of a document from 0, or nothing;",
            "line 3: the number of fields is 1, but 3 in the header; put a text that holds commas in "
            "quotation marks;",
            "line 4: there is no question; write one",
        ],
    }
    for path, lines in told.items():
        with pytest.raises(InputError) as raised:
            read_examples(path)
        assert str(raised.value).splitlines() == [f"{path} has {len(lines)} mistakes:", *lines]


def test_an_id_left_out_is_the_line_and_may_not_be_taken(file: Path) -> None:
    unnamed = {"question": "Who?", "documents": ["one"], "answers": ["1"]}
    file.write_text(f"\n{json.dumps(unnamed)}\n{json.dumps(unnamed)}\n")
    first, second = read_examples(file)
    assert (first.id, second.id, first.task) == ("line 2", "line 3", "retrieval_qa")
    assert first.documents == [Document(text="one")]
    write(file, {**unnamed, "id": "line 2"}, unnamed)
    with pytest.raises(InputError, match="line 2: id 'line 2' was used in line 1; "):
        read_examples(file)


def test_empty_lines_are_counted(file: Path) -> None:
    file.write_text(f"\n{json.dumps(PLAIN)}\n\n{json.dumps(PLAIN)}\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 4: id 'a-1' was used in line 2; "):
        read_examples(file)


def test_two_examples_share_no_field(file: Path) -> None:
    first, second = read_examples(write(file, PLAIN, {**PLAIN, "id": "b"}))
    first.meta["seen"] = True
    first.answers.append("more")
    assert second == Example.model_validate({**PLAIN, "id": "b"})


def test_a_task_without_question_needs_none(file: Path) -> None:
    (example,) = read_examples(write(file, {**PLAIN, "task": "molecule_generation", "question": ""}))
    assert example.question == ""


def test_read_examples_row_with_too_many_documents_is_rejected_by_its_number(file: Path) -> None:
    documents = ["d"] * MAX_DOCUMENTS
    assert len(read_examples(write(file, {**PLAIN, "documents": documents}))[0].documents) == MAX_DOCUMENTS
    with pytest.raises(InputError) as raised:
        read_examples(write(file, {**PLAIN, "documents": [*documents, 5]}))
    # A record that was built from the last document would add its own mistake.
    assert f"got {MAX_DOCUMENTS + 1:,} items" in str(raised.value) and "got int 5" not in str(raised.value)


def test_read_examples_documents_of_all_rows_are_limited_together(file: Path) -> None:
    write(file, PLAIN, FULL, {**PLAIN, "id": "a-3"})
    assert len(read_examples(file, max_documents=6)) == 3
    with pytest.raises(InputError, match=r"got 6 in the first 3 rows, expected at most 5"):
        read_examples(file, max_documents=5)


# the same as a table

HEADER = "id,question,answers,gold_index,title1,document1,document2,task\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "set.CSV"


def test_a_table_holds_what_a_row_can(table: Path) -> None:
    table.write_text(
        f'{HEADER}a,"Who, then?","two | 2|",1,T,one,"two\nlines",kv_retrieval\nb,Why?,,,,one,,\n'
    )
    first, second = read_examples(table)
    assert first == Example(
        id="a",
        task="kv_retrieval",
        question="Who, then?",
        documents=[Document(text="one", title="T"), Document(text="two\nlines")],
        gold_index=1,
        answers=["two", "2"],
    )
    assert second == Example(id="b", task="retrieval_qa", question="Why?", documents=[Document(text="one")])
    assert read_examples(table, limit=1) == [first]


def test_a_table_needs_no_more_than_a_document_and_what_its_task_asks(table: Path) -> None:
    table.write_text("document1,answers,question,id\none,1,Why?,a\n")
    (example,) = read_examples(table)
    assert (example.documents, example.answers) == ([Document(text="one")], ["1"])
    table.write_text("document1,question\none,Why?\n")
    (example,) = read_examples(table)
    assert example == Example(id="line 2", question="Why?", documents=[Document(text="one")])


def test_read_examples_table_with_too_many_columns_is_rejected_before_its_rows(table: Path) -> None:
    columns = ",".join(f"document{number + 1}" for number in range(MAX_DOCUMENTS + 1))
    table.write_text(f"{columns}\nmalformed row\n")
    with pytest.raises(InputError, match=f"got {MAX_DOCUMENTS + 1:,}, expected at most {MAX_DOCUMENTS:,}"):
        read_examples(table)


def test_rows_of_a_table_beyond_the_limit_are_not_checked(table: Path) -> None:
    table.write_text("id,question,answers,document1\na,Why?,1,one\na,,,\n")
    assert [example.id for example in read_examples(table, limit=1)] == ["a"]


def test_a_number_of_thousands_of_digits_is_no_place(table: Path) -> None:
    table.write_text(f"id,question,answers,document1,gold_index\na,Why?,1,one,{'9' * 5000}\n")
    with pytest.raises(InputError, match="line 2: gold_index is '9+'; give the number of a document from 0"):
        read_examples(table)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (f"{HEADER}a,Why?,1,0,,one,two,\n\na,Why?,1,0,,one,two,\n",
         ", line 4: id 'a' was used in line 2; give every example its own"),
        (f"{HEADER}a,Why?,1,first,,one,two,\n",
         ", line 2: gold_index is 'first'; give the number of a document from 0, or nothing"),
        (f"{HEADER}a,Why?,1,2,,one,two,\n",
         ", line 2: gold_index is 2, but documents are counted from 0 to 1; give one of these, or null"),
        (f"{HEADER}a,Why?,1,1,,one,,\n",
         ", line 2: gold_index is 1, but documents are counted from 0 to 0; give one of these, or null"),
        (f"{HEADER}a,Why?,1,,,,two,\n", ", line 2: document 1 is empty; write some text or remove it"),
        (f"{HEADER}a,Why?,1,,,,,\n", ", line 2: document 1 is empty; write some text or remove it"),
        (f"{HEADER}a,Why?,1,,T,,,\n", ", line 2: document 1 is empty; write some text or remove it"),
        (f"{HEADER}a,,1,,,one,,\n", ", line 2: there is no question; write one"),
        (f"{HEADER}a,Why?,1\n",
         ", line 2: the number of fields is 3, but 8 in the header; put a text that holds commas in "
         "quotation marks"),
        ("id,question,answers\na,Why?,1\n",
         " has no column 'document1', its header reads 'id, question, answers'; name the columns, "
         "separated by commas, in its first line"),
        ("id,question,answers,document1,document3\na,Why?,1,one,two\n",
         " has no column 'document2', its header reads 'id, question, answers, document1, document3'; name "
         "the columns, separated by commas, in its first line"),
        ("id,question,answers,document1,title2\na,Why?,1,one,two\n",
         ": column 'title2' is not known; remove it, or use: answers, document1, gold_index, id, question, "
         "task, title1"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_table_is_said_with_its_line(table: Path, content: str, problem: str) -> None:
    table.write_text(content)
    with pytest.raises(InputError) as raised:
        read_examples(table)
    assert str(raised.value) == f"{table}{problem}"
