"""Rows of known formats without documents: the name of the format, and how to get the documents."""

from collections.abc import Mapping
from typing import Any

from pine_engine.rows.hits import is_kilt

_FOLDER = "put corpus.jsonl, queries.jsonl and a run file into one folder, and give the folder"
_FORMATS = (
    (
        {"user_input", "reference_contexts"},
        "a test set of ragas has no retrieved_contexts; retrieve them, or give "
        "--column documents=reference_contexts",
    ),
    (
        {"reference_contexts"},
        "a test set has no retrieved contexts; retrieve them, or give --column documents=reference_contexts",
    ),
    ({"user_input"}, "a row of ragas has no retrieved_contexts; add them"),
    ({"input", "actual_output"}, "a test case of deepeval has no retrieval_context; add it"),
    ({"input", "expected_output"}, "a golden of deepeval has no retrieval_context or context; add it"),
    ({"_id", "text", "title"}, f"a document of a BEIR corpus has no question; {_FOLDER}"),
    ({"_id", "text"}, f"a query of BEIR has no documents; {_FOLDER}"),
    ({"id", "contents"}, f"a document of a Pyserini corpus has no question; {_FOLDER}"),
    ({"question_decomposition"}, "a row of MuSiQue has no paragraphs; use the file that has them"),
    ({"question", "supporting_facts"}, "a row of HotpotQA has no context; use the file that has it"),
    ({"question", "is_impossible"}, "a question of SQuAD has no context; give the whole file"),
    ({"query", "pos"}, "a row of FlagEmbedding has no neg; mine negatives first"),
)
"""Fields of a row by which a format is known, in the order in which they are tried, and what is missing."""

KILT = "a row of KILT names pages of Wikipedia without their texts; add these as documents"


def missing_documents(row: Mapping[str, Any]) -> str:
    """Return why a row of a known format has no documents, "" for other rows."""
    if is_kilt(row):
        return KILT
    return next((reason for fields, reason in _FORMATS if row.keys() >= fields), "")


def rows_inside(row: Mapping[str, Any]) -> str:
    """Return that an object without a question has a list of rows, "" for another one."""
    lists = (name for name, value in row.items() if isinstance(value, list) and value)
    rows = next((name for name in lists if all(isinstance(one, Mapping) for one in row[name])), None)
    return "" if rows is None else f"the rows are in the list {rows!r:.40}; save this list as the file"
