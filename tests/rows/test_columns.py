"""Columns under the names of fields, and tables as spreadsheets save them."""

import csv
import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from pine_engine import Document, InputError
from pine_engine.prompts.examples import read_examples
from pine_engine.rows.columns import parse_columns
from pine_engine.rows.decoding import decode
from pine_engine.rows.document_files import read_documents
from pine_engine.rows.files import preview_rows
from pine_engine.rows.published import usual_fields
from tests.support.errors import has_field

ROW = {"Prompt": "Wer hat den Schlüssel?", "Text A": "Änne hat ihn.", "Text B": "Öde.", "Soll": "Änne"}
PAIRS = ["question=Prompt", "document1=Text A", "document2=Text B", "answers=Soll"]


def as_table(delimiter: str, *rows: dict[str, str]) -> str:
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


TABLES: dict[str, bytes] = {
    "utf8.csv": as_table(",", ROW).encode(),
    "german.csv": f"sep=;\r\n{as_table(';', ROW)}".encode("utf-8-sig"),
    "quoted.csv": f'"sep=|"\r\n{as_table("|", ROW)}'.encode(),
    "unicode.txt": as_table("\t", ROW).encode("utf-16"),
    "big-endian.csv": "\ufeff".encode("utf-16-be") + as_table("\t", ROW).encode("utf-16-be"),
    "rows.json": json.dumps([ROW, ROW]).encode(),
    "rows.jsonl": json.dumps(ROW).encode(),
    "utf16.jsonl": json.dumps(ROW, ensure_ascii=False).encode("utf-16"),
    "ansi.csv": as_table(";", ROW, *[ROW] * 3).encode("cp1252"),
}


@pytest.mark.parametrize("name", TABLES)
def test_named_columns_are_read_in_every_file(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (path := tmp_path / name).write_bytes(TABLES[name])
    with caplog.at_level(logging.WARNING):
        example = read_examples(path, columns=parse_columns(PAIRS))[0]
    assert (example.question, example.answers) == (ROW["Prompt"], ["Änne"])
    assert example.documents == [Document("Änne hat ihn."), Document("Öde.")]
    assert ("cp1252" in caplog.text) == (name == "ansi.csv")


def test_named_column_of_table_replaces_that_of_its_field(tmp_path: Path) -> None:
    row = {"question": "Wo?", "Prompt": "Wer?", "document1": "a", "document2": "b"}
    (path := tmp_path / "a.csv").write_text(as_table(",", row), encoding="utf-8")
    (example,) = read_examples(path, columns=parse_columns(["question=Prompt"]))
    assert (example.question, len(example.documents)) == ("Wer?", 2)


TEXTS_BY_ENCODING = {
    "cp1252": [
        "text\ncafé\n",
        "Frage;Text\nWer hat den Schlüssel?;Änne hat ihn.\n",
        "question;text\nQui a la clé?;“Anne” l'a – bien sûr, œuf à 5 €.\n",
    ],
    "cp1250": ["otázka;text\nKdo má klíč?;Ďábel má žlutý klíč, řekl Šimon.\n"],
    "cp1251": ["вопрос;text\nУ кого ключ?;Ключ у Анны, а лодка у Бориса.\n"],
    "cp1253": ["ερώτηση;text\nΠοιος έχει το κλειδί;Η Άννα έχει το κλειδί.\n"],
    "cp1254": ["soru;text\nAnahtar kimde?;Anahtar Ayşe'de, ışık Güneş'te değil.\n"],
    "cp932": ["質問;text\n鍵は誰が持っていますか;アンが鍵を持っています。\n"],
    "cp949": ["질문;text\n열쇠는 누가 있나요?;안나가 열쇠를 가지고 있습니다.\n"],
    "gb18030": ["问题;text\n谁有钥匙?;安娜有船屋的钥匙。\n"],
}


@pytest.mark.parametrize("encoding", TEXTS_BY_ENCODING)
def test_guess_is_the_encoding_of_a_spreadsheet(encoding: str) -> None:
    for text in TEXTS_BY_ENCODING[encoding]:
        assert decode(text.encode(encoding), may_guess=True) == (text, encoding)
        assert (
            decode(text.encode(), may_guess=True)
            == decode(text.encode("utf-16"), may_guess=False)
            == (text, "")
        )
        with pytest.raises(ValueError, match="decode"):
            decode(text.encode(encoding), may_guess=False)


def test_line_with_separator_counts_as_a_line(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("sep=;\ntext\na\nb;c\n")
    with pytest.raises(InputError, match="line 4"):
        read_documents([path])


@pytest.mark.parametrize(
    "pairs",
    [
        ["question"],
        ["=prompt"],
        ["question="],
        ["poem=prompt"],
        ["question=a", "question=b"],
        ["id=a", "task=a"],
    ],
)
def test_invalid_column_is_rejected(pairs: list[str]) -> None:
    with pytest.raises(InputError, check=has_field("column")):
        parse_columns(pairs)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_missing_column_is_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("q,document1\nWho?,Ann\n" if name == "a.csv" else '{"q": "Who?", "documents": ["Ann"]}')
    assert read_examples(path, columns={"q": "question"})[0].question == "Who?"
    with pytest.raises(InputError, match=r"'query'.*q'?, '?document"):
        read_examples(path, columns={"query": "question"})


def test_named_column_replaces_the_usual_one(tmp_path: Path) -> None:
    row = {"question": "Why?", "prompt": "Who?", "documents": ["Ann"], "answer": "Ben", "gold": "Ann"}
    (path := tmp_path / "a.json").write_text(json.dumps(row))
    columns = parse_columns(["question=prompt", "answers=gold"])
    assert read_examples(path)[0].question == "Why?"
    (example,) = read_examples(path, columns=columns)
    assert (example.question, example.answers) == ("Who?", ["Ann"])
    assert read_examples(path, columns={"answer": ""})[0].answers == []


def test_path_and_key_of_texts_may_be_named(tmp_path: Path) -> None:
    hit = {"id": 1, "distance": 0.5, "entity": {"chunk": "Ann.", "head": "T"}}
    row = {"input": {"text": "Who?"}, "reply": {"data": [hit]}}
    (path := tmp_path / "a.json").write_text(json.dumps(row))
    columns = parse_columns(["question=input.text", "text=chunk", "title=head"])
    (example,) = read_examples(path, columns=columns)
    assert (example.question, example.documents) == ("Who?", [Document("Ann.", "T")])


def test_preview_has_the_names_of_the_file(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_bytes(TABLES["german.csv"])
    assert preview_rows(path, 3) == [{name.lower(): cell for name, cell in ROW.items()}]
    (path := tmp_path / "a.jsonl").write_bytes(TABLES["rows.jsonl"])
    assert preview_rows(path, 3) == [ROW]
    assert usual_fields(["query", "input", "answer", "reference", "document1", "url", "gold_index"]) == {
        "query": "question", "input": "", "answer": "", "reference": "answers", "document1": "document1",
        "url": "", "gold_index": "gold_index",
    }  # fmt: skip


def test_lists_in_csv_of_deepeval_are_split(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("input,actual_output,retrieval_context\nWho?,Ben,Ann.|Ben.\n")
    assert read_examples(path)[0].documents == [Document("Ann."), Document("Ben.")]


@pytest.mark.parametrize("name", ["letter.docx", "slides.pptx", "page.html", "rows.xlsx"])
def test_missing_markitdown_is_named_for_its_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "markitdown", None)
    (path := tmp_path / name).write_bytes(b"PK")
    with pytest.raises(
        InputError, match=r"pip install 'markitdown\[docx,pptx,xlsx\]==", check=has_field("markitdown")
    ):
        read_documents([path])
    with pytest.raises(InputError, match=name):
        read_examples(path)


def test_office_files_are_read(tmp_path: Path) -> None:
    pytest.importorskip("markitdown", reason="markitdown is not installed")
    pd: Any = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    pd.DataFrame([ROW | {"gold_index": 0}]).to_excel(path := tmp_path / "rows.xlsx", index=False)
    (example,) = read_examples(path, columns=parse_columns(PAIRS))
    assert (example.answers, example.gold_index) == (["Änne"], 0)
    (page := tmp_path / "page.html").write_text("<h1>Keys</h1><p>Ann has <b>one</b>.</p><script>x</script>")
    (document,) = read_documents([page])
    assert document.title == "page" and "Ann has **one**." in document.text and "script" not in document.text
    (damaged := tmp_path / "a.docx").write_bytes(b"PK")
    with pytest.raises(InputError, check=has_field(str(damaged))):
        read_documents([damaged])
