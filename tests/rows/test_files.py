"""Rows and documents in the files and forms in which they are published, by every reader."""

import csv
import gzip
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from pine_engine import Document, InputError, LabeledRequest, Request
from pine_engine.prompts.examples import read_examples
from pine_engine.prompts.request import DataRow, read_requests
from pine_engine.rows.document_files import join_surrogates, read_documents
from pine_engine.rows.documents import as_documents
from pine_engine.rows.parse_errors import ValidationErrors
from pine_engine.server.schema import ChatBody, parse_body
from tests.support.errors import has_field
from tests.support.harm import no_harm
from tests.support.junk import JUNK
from tests.support.pdf_files import pdf_of_characters

ROWS: list[dict[str, Any]] = [
    {
        "id": "a-1", "task": "retrieval_qa", "question": "Who?", "answers": ["Ann"], "gold_index": 0,
        "documents": [{"text": "Ann, she.", "title": "T", "score": 0.5}, {"text": "Ben."}],
        "meta": {"subset": "s"},
    },
    {"question": "Why?", "documents": [{"text": "Cy.\n\nDee."}]},
]  # fmt: skip


def as_lines(rows: list[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> str:
    """Return the rows as pandas writes them, with the index in an unnamed column, and further columns."""
    table = []
    for row in rows:
        cells: dict[str, Any] = {name: row.get(name) for name in ("id", "task", "question", "gold_index")}
        cells |= {"answers": "|".join(row.get("answers", [])), "url": "https://example.com"}
        for number in (1, 2):
            document = dict(enumerate(row["documents"], start=1)).get(number, {})
            cells |= {f"title{number}": document.get("title"), f"document{number}": document.get("text")}
        table.append(cells)
    return str(pd.DataFrame(table).to_csv(sep=delimiter))


def write(path: Path, content: str) -> Path:
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


FILES: dict[str, Callable[[list[Any]], str]] = {
    "rows.jsonl": as_lines, "rows.ndjson": as_lines, "rows.jsonl.gz": as_lines, "lines.json": as_lines,
    "array.json": json.dumps, "array.jsonl": json.dumps, "array.json.gz": json.dumps,
    "pretty.json": lambda rows: json.dumps(rows, indent=2),
    "pretty.jsonl": lambda rows: json.dumps(rows, indent=2),
    "items.jsonl": lambda rows: "[" + ",\n".join(map(json.dumps, rows)) + "]",
}  # fmt: skip
TABLES: dict[str, Callable[[list[Any]], str]] = {
    "rows.csv": as_csv, "rows.CSV.gz": as_csv,
    "semicolons.csv": lambda rows: as_csv(rows, ";"),
    "tabs.csv": lambda rows: as_csv(rows, "\t"),
    "rows.tsv": lambda rows: as_csv(rows, "\t"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FILES, *TABLES])
def test_rows_are_equal_in_every_file(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, (FILES | TABLES)[name](ROWS))
    first, second = read_examples(path)
    assert (first.id, first.question, first.answers, first.gold_index) == ("a-1", "Who?", ["Ann"], 0)
    assert first.documents == [Document("Ann, she.", "T"), Document("Ben.")]
    assert (second.id, second.task, second.answers, second.gold_index) == (
        f"line {3 if name in TABLES else 2}", "retrieval_qa", [], None
    )  # fmt: skip
    assert second.documents == [Document("Cy.\n\nDee.")]
    assert first.meta == ({} if name in TABLES else {"subset": "s"})
    assert read_requests(path, Request) == [(row.id, row.comparison()) for row in (first, second)]
    assert read_documents([path]) == [*first.documents, *second.documents]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", "question,document1,score1,document2,score2\nWho?,Ann.,-0.5,Ben.,7e-1\n", [-0.5, 0.7]),
        ("b.csv", "question,document1,score1,document2,score2\nWho?,Ann.,,Ben.,high\n", [None, None]),
        ("c.json", as_lines([{"question": "Who?", "documents": [
            {"text": "Ann.", "relevance_score": 0.9}, {"_score": 7, "_source": {"text": "Ben."}}]}]),
         [0.9, 7.0]),
        ("d.json", as_lines([{"question": "Who?", "documents": [
            {"page_content": "Ann.", "metadata": {"score": "0.25"}}, {"text": "Ben.", "score": None}]}]),
         [0.25, None]),
    ],
)  # fmt: skip
def test_score_of_a_retriever_is_read(
    tmp_path: Path, name: str, content: str, expected: list[float | None]
) -> None:
    (example,) = read_examples(write(tmp_path / name, content))
    assert [document.score for document in example.documents] == expected


def test_parquet_with_nulls_equals_json_lines(tmp_path: Path) -> None:
    rows = [ROWS[0], ROWS[1] | {"documents": [{"text": None, "page_content": "Cy."}], "meta": {"rank": 1}}]
    pd.DataFrame(rows).to_parquet(path := tmp_path / "rows.parquet")
    lines = write(tmp_path / "rows.jsonl", as_lines(rows))
    examples = read_examples(path)
    assert examples == read_examples(lines) and examples[1].meta == {"rank": 1}
    assert [one.metadata for one in examples[0].documents] == [{"score": 0.5}, {}]
    assert read_requests(path, Request) == read_requests(lines, Request)
    assert read_documents([path]) == read_documents([lines])


SENTENCES = ["Ann.", " She."]
SHE = Document("Ann. She.", "T")
PASSAGES: list[dict[str, Any]] = [
    {"is_selected": 0, "passage_text": "Ben.", "url": "u"},
    {"is_selected": 1, "passage_text": "Ann.", "url": "v"},
]
QUESTION = {"question": "Who?", "answer": "Ann"}
PUBLISHED: dict[str, tuple[dict[str, Any], str, list[Document], int | None]] = {
    "lost in the middle": (
        {"question": "Who?", "answers": ["Ann"], "nq_annotated_gold": {"title": "T"}, "ctxs": [
            {"id": "1", "title": "U", "text": "Ben.", "score": 1.2, "hasanswer": False, "isgold": False},
            {"id": "2", "title": "T", "text": "Ann. She.", "score": "1", "hasanswer": True, "isgold": True}]},
        "line 1", [Document("Ben.", "U"), SHE], 1),
    "HotpotQA": (
        {"_id": "5a", **QUESTION, "level": "hard", "supporting_facts": [["T", 0]],
         "context": [["T", SENTENCES], ["U", ["Ben."]]]},
        "5a", [SHE, Document("Ben.", "U")], None),
    "HotpotQA of the hub": (
        {"id": "5a", **QUESTION, "supporting_facts": {"title": ["T"], "sent_id": [0]},
         "context": {"title": ["T", "U"], "sentences": [SENTENCES, ["Ben."]]}},
        "5a", [SHE, Document("Ben.", "U")], None),
    "SQuAD": (
        {"id": "57", "title": "T", "context": "Ann. She.", "question": "Who?",
         "answers": {"text": ["Ann"], "answer_start": [0]}},
        "57", [SHE], None),
    "MS MARCO": (
        {"query_id": 19, "query": "Who?", "query_type": "PERSON", "answers": ["Ann"], "passages": PASSAGES},
        "19", [Document("Ben."), Document("Ann.")], 1),
    "MS MARCO of the hub": (
        {"query_id": 19, "query": "Who?", "wellFormedAnswers": [], "answers": ["Ann"],
         "passages": {name: [passage[name] for passage in PASSAGES] for name in PASSAGES[0]}},
        "19", [Document("Ben."), Document("Ann.")], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_row_of_published_data_set_is_recognized(name: str, tmp_path: Path) -> None:
    row, id, documents, gold_index = PUBLISHED[name]
    path = write(tmp_path / "rows.jsonl", as_lines([row]))
    (example,) = read_examples(path)
    assert (example.id, example.question, example.answers) == (id, "Who?", ["Ann"])
    assert (example.documents, example.gold_index) == (documents, gold_index)
    assert read_requests(path, Request) == [(id, example.comparison())]
    assert read_documents([path]) == documents
    pd.DataFrame([row]).to_json(array := tmp_path / "rows.json", orient="records")
    assert read_examples(array) == read_examples(path)


def conversation(*answers: str) -> list[dict[str, str]]:
    questions = ("Who?", "Why?")
    turns = zip(questions, answers, strict=False)
    pairs = [(("user", question), ("assistant", answer)) for question, answer in turns]
    return [{"role": role, "content": text} for pair in pairs for role, text in pair]


MT_BENCH: dict[str, Any] = {
    "question_id": 81, "model_a": "m", "model_b": "n", "winner": "model_b", "judge": "author_2", "turn": 1,
    "conversation_a": conversation("Ben.", "x"), "conversation_b": conversation("Ann.", "y"),
}  # fmt: skip
JUDGED: dict[str, tuple[dict[str, Any], str, list[str], list[str], int | None]] = {
    "JudgeBench": (
        {"pair_id": "81ec", "original_id": "1", "source": "mmlu-pro", "question": "Who?",
         "response_model": "gpt-4o", "response_A": "Ben.", "response_B": "Ann.", "label": "B>A"},
        "81ec", ["Ben.", "Ann."], ["B"], 1),
    "RewardBench": (
        {"prompt": "Who?", "chosen": "Ann.", "chosen_model": "m", "rejected": "Ben.", "rejected_model": "n",
         "subset": "llmbar-natural", "id": 3},
        "3", ["Ann.", "Ben."], ["A"], 0),
    "RewardBench 2": (
        {"id": "7", "prompt": "Who?", "chosen": ["Ann."], "rejected": ["Ben.", "Cy.", "Dee."],
         "num_correct": 1, "num_incorrect": 3, "total_completions": 4, "models": ["m", "n", "o", "p"],
         "subset": "Factuality", "additional_metadata": None},
        "7", ["Ann.", "Ben.", "Cy.", "Dee."], ["A"], 0),
    "RewardBench 2, ties": (
        {"id": "8", "prompt": "Who?", "chosen": ["Ann.", "She."], "rejected": ["Ben."], "subset": "Ties"},
        "8", ["Ann.", "She.", "Ben."], ["A", "B"], None),
    "MT-Bench": (MT_BENCH, "line 1", ["Ben.", "Ann."], ["B"], 1),
    "MT-Bench, tie": (
        MT_BENCH | {"winner": "tie (inconsistent)"}, "line 1", ["Ben.", "Ann."], ["tie"], None),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGED)
def test_row_of_published_judge_set_is_recognized(name: str, tmp_path: Path) -> None:
    row, id, texts, answers, gold_index = JUDGED[name]
    path = write(tmp_path / "rows.jsonl", as_lines([row]))
    (example,) = read_examples(path)
    task = "judge_tie" if name.startswith("MT-Bench") else "judge"
    assert (example.id, example.task, example.question) == (id, task, "Who?")
    assert (example.documents, example.answers) == (list(map(Document, texts)), answers)
    assert example.gold_index == gold_index
    assert example.meta.get("subset") == row.get("subset")
    pd.DataFrame([row]).to_parquet(table := tmp_path / "rows.parquet")
    assert read_examples(table)[0].documents == example.documents
    array = write(tmp_path / "rows.json", json.dumps([row, row | {"pair_id": "2", "id": "2"}]))
    assert len(read_examples(array)) == 2


def test_second_turn_of_mt_bench_has_both_turns(tmp_path: Path) -> None:
    (example,) = read_examples(write(tmp_path / "rows.jsonl", as_lines([MT_BENCH | {"turn": 2}])))
    assert example.question == "Who?\n\nWhy?"
    assert example.documents[0] == Document("Ben.\n\nx") and example.meta["models"] == ["m", "n"]


def test_row_without_answer_or_gold_document_has_none(tmp_path: Path) -> None:
    row = PUBLISHED["MS MARCO"][0]
    none = row | {"answers": ["No Answer Present."], "passages": PASSAGES[:1]}
    several = row | {"passages": [*PASSAGES, PASSAGES[1]], "query_id": 20}
    first, second = read_examples(write(tmp_path / "rows.jsonl", as_lines([none, several])))
    assert (first.answers, first.gold_index, second.gold_index) == ([], None, None)


UNRECOGNIZED: list[Any] = [
    {"version": "1.1", "data": []}, {"question": "Who?", "documents": None}, {},
]  # fmt: skip


@pytest.mark.parametrize("row", UNRECOGNIZED, ids=str)
def test_row_without_documents_names_field_and_form(row: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", as_lines([ROWS[0], row]))
    with pytest.raises(ValidationErrors, match="ctxs, passages or context") as raised:
        read_examples(path)
    assert [(problem.line, problem.field) for problem in raised.value.problems] == [(2, "documents")]


NODE = {
    "id_": "n1",
    "embedding": None,
    "metadata": {"source": "a.md"},
    "text": "Ann.",
    "start_char_idx": None,
}
DOCUMENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "LangChain": (
        {"id": None, "metadata": {"source": "a.md"}, "page_content": "Ann.", "type": "Document"},
        {"source": "a.md", "type": "Document"}),
    "dumps of LangChain": (
        {"lc": 1, "kwargs": {"metadata": {"source": "a.md"}, "page_content": "Ann."}},
        {"lc": 1, "source": "a.md"}),
    "LlamaIndex": (NODE, {"id_": "n1", "source": "a.md"}),
    "node with score": ({"node": NODE, "score": 0.5}, {"id_": "n1", "source": "a.md", "score": 0.5}),
    "haystack": ({"id": "h", "content": "Ann.", "score": None, "source": "a"}, {"id": "h", "source": "a"}),
    "BEIR": ({"_id": "d1", "title": "", "text": "Ann.", "metadata": {}}, {"_id": "d1"}),
    "hit": ({"id": 3, "score": 0.7, "text": "Ann."}, {"id": 3, "score": 0.7}),
    "Elasticsearch": ({"_id": "3", "_score": 7, "_source": {"text": "Ann."}}, {"_id": "3", "_score": 7}),
    "Qdrant": ({"id": 3, "score": 0.7, "payload": {"content": "Ann."}}, {"id": 3, "score": 0.7}),
    "pandas": ({"title": float("nan"), "text": "Ann.", "url": float("nan")}, {}),
    "facts of any name": (
        {"text": "Ann.", "context": "chapter 1", "passages": 3}, {"context": "chapter 1", "passages": 3}),
    "null text": ({"text": None, "title": None, "page_content": "Ann."}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_of_other_tool_is_equal_in_every_reader(name: str, tmp_path: Path) -> None:
    document, metadata = DOCUMENTS[name]
    body = parse_body({"messages": [{"role": "user", "content": "Who?"}], "documents": [document]}, ChatBody)
    request = Request.model_validate({"question": "Who?", "documents": [document]})
    found = [body.documents, request.documents, as_documents(document), as_documents([document])]
    found.append(DataRow.model_validate({"question": "Who?", "documents": [document]}).documents)
    for content in ([document], document):
        found.append(read_documents([write(tmp_path / "a.json", json.dumps(content))]))
    for one in found:
        assert one == [Document("Ann.")] and one[0].metadata == metadata


@pytest.mark.parametrize("document", [{"id": 3, "score": 0.7}, {"text": None, "id": "a"}, {"ids": [[1]]}])
def test_hit_without_text_names_forms_of_text(document: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", as_lines([document]))
    row = write(tmp_path / "rows.jsonl", as_lines([{"question": "Who?", "documents": [document]}]))
    for read in (
        lambda: read_documents([path]),
        lambda: read_examples(row),
        lambda: as_documents([document]),
    ):
        with pytest.raises(InputError, match="page_content or content"):
            read()


def test_null_is_absent_and_id_may_be_a_number(tmp_path: Path) -> None:
    names = ("task", "answers", "choices", "gold_index", "meta", "system", "prefix", "source", "instruction")
    row = {"id": 7, "question": "Who?", "documents": ["Ann."], **dict.fromkeys(names)}
    (example,) = read_examples(write(tmp_path / "rows.jsonl", as_lines([row])))
    assert (example.id, example.task, example.answers, example.meta) == ("7", "retrieval_qa", [], {})
    ((name, request),) = read_requests(tmp_path / "rows.jsonl", Request)
    assert (name, request) == ("7", example.comparison())
    del row["id"]
    path = write(
        tmp_path / "a.json", json.dumps({name: row[name] for name in row.keys() & Request.model_fields})
    )
    assert read_requests(path, Request) == [(str(path), example.comparison())]


def test_fields_of_requests_apply_to_rows(tmp_path: Path) -> None:
    row = {"id": 1, "question": "Who?", "documents": ["Ann.", "Ben."], "labels": ["A", "B"]}
    judged = row | {"task": "judge", "system": "Be kind.", "instruction": "Judge."}
    found = read_requests(write(tmp_path / "a.jsonl", as_lines([row, judged])), LabeledRequest)
    assert [request.labels for _, request in found] == [["A", "B"]] * 2
    assert [(request.instruction, request.system) for _, request in found] == [
        ("", ""),
        ("Judge.", "Be kind."),
    ]


@pytest.mark.parametrize("task", ["my-own", 3, ["a"], "judge"])
def test_given_task_overrides_that_of_row(task: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", as_lines([ROWS[0] | {"task": task}]))
    assert read_examples(path, task="kv_retrieval")[0].task == "kv_retrieval"
    if task != "judge":
        with pytest.raises(ValidationErrors, check=has_field("task")):
            read_examples(path)
    table = write(tmp_path / "rows.csv", "task,question,document1\nqa,,Ann.\n")
    assert read_examples(table, task="molecule_generation")[0].question == ""
    with pytest.raises(InputError, check=has_field("task")):
        read_examples(path, task="poetry")


FIELDS = (
    *(name for row, *_ in PUBLISHED.values() for name in row),
    "documents",
    "gold_index",
    "task",
    "meta",
)
VALUES = JUNK | st.sampled_from([value for row, *_ in PUBLISHED.values() for value in row.values()])


@given(row=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6))
def test_any_row_is_read_or_refused(row: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = write(tmp_path_factory.getbasetemp() / "row.json", json.dumps(row | {"question": "Who?"}))
    readers: list[Callable[[], list[Any]]] = [
        lambda: read_examples(path), lambda: read_documents([path]), lambda: read_requests(path, Request)
    ]  # fmt: skip
    for read in readers:
        with no_harm(), suppress(InputError):
            assert len(read()) > 0


def test_csv_cell_may_be_longer_than_limit_of_csv(tmp_path: Path) -> None:
    csv.field_size_limit(131_072)  # the default
    long = "x, " * 100_000
    documents = write(tmp_path / "a.csv", f'text\n"{long}"\n')
    assert read_documents([documents]) == [Document(long)]
    rows = write(tmp_path / "b.csv", f'question,document1\nWho?,"{long}"\n')
    assert read_examples(rows)[0].documents == [Document(long)]


def test_other_columns_of_documents_are_metadata(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ",Unnamed: 0.1,Unnamed: 3,url,Content\n0,0,0,u,Ann.\n1,1,1,,Ben.\n")
    assert [one.metadata for one in read_documents([path])] == [{"url": "u"}, {}]


@pytest.mark.parametrize(
    "content", [b"Ann.", gzip.compress(b"Ann." * 99)[:20], b""], ids=["text", "cut off", "empty"]
)
def test_damaged_gzip_file_is_rejected(content: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl.gz").write_bytes(content)
    for read in (lambda: read_examples(path), lambda: read_documents([path])):
        with pytest.raises(InputError, check=has_field(str(path))):
            read()


def test_unpacked_documents_have_the_limit_of_files(tmp_path: Path) -> None:
    path = tmp_path / "a.txt.gz"
    for count in (19_999_999, 20_000_001):
        write(path, "x" * count)
        assert path.stat().st_size < 30_000
        if count < 20_000_000:
            assert len(read_documents([path])[0].text) == count
    with pytest.raises(InputError, check=has_field(str(path))):
        read_documents([path])


def test_row_of_array_is_named_by_its_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", json.dumps([ROWS[0], {"documents": ["a"]}, 3], indent=1))
    with pytest.raises(ValidationErrors, match="row 2: ") as raised:
        read_examples(path)
    assert [(problem.line, problem.field) for problem in raised.value.problems] == [(2, "question"), (3, "")]


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        (["D83D", "DE00"], "\U0001f600"),
        (["D835", "DC00"], "\U0001d400"),
        (["D83D"], ""),
        (["DE00", "D83D"], ""),
    ],
)
def test_halves_of_characters_in_pdf_are_joined_or_left_out(
    codes: list[str], text: str, tmp_path: Path
) -> None:
    """The font maps each half to a character of its own."""
    (path := tmp_path / "a.pdf").write_bytes(pdf_of_characters(["0041", *codes, "0042"]))
    (document,) = read_documents([path])
    assert document.text == f"A{text}B"
    assert join_surrogates(f"A{''.join(chr(int(code, 16)) for code in codes)}B") == document.text
    as_documents([document])[0].text.encode()
