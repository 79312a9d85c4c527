"""Rows in the forms in which data sets are published, as fields of a data row.

Lost in the Middle and DPR (`ctxs`), HotpotQA and SQuAD (`context`), MS MARCO (`passages`), MuSiQue
(`paragraphs`), ragas and deepeval; replies of search services and retrieval sets (hits.py); and for judges
JudgeBench (`response_A`), RewardBench, UltraFeedback and HH-RLHF (`chosen`), MT-Bench (`conversation_a`).
A chat in a field is its last message (chats.py). Rows of multiple choice are in options.py.
"""

import string
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pine_engine.input_validation import describe
from pine_engine.rows.cells import parse_cell
from pine_engine.rows.chats import compared_texts, find_chat, replies_of, reply_of, split_reply
from pine_engine.rows.columns import FIELDS, NUMBERED
from pine_engine.rows.document_keys import TEXT_NAMES, flat_keys, is_null
from pine_engine.rows.hits import CHROMA, find_hits, retrieval_fields
from pine_engine.rows.incomplete import missing_documents, rows_inside
from pine_engine.rows.options import has_options, option_fields
from pine_engine.rows.parse_errors import Problem, ValidationErrors

DOCUMENT_NAMES = (
    *("documents", "ctxs", "passages", "paragraphs", "retrieval_context", "retrievalContext"),
    *("context", "contexts", "retrieved_contexts"),
)
"""Fields with documents. `context` of deepeval has those that a retriever should find."""

REFERENCE_NAMES = (
    *("ground_truth", "ground_truths", "ground_truth_answer", "ground_truth_answers"),
    *("reference", "references", "reference_answer", "reference_answers", "reference_output"),
    *("expected_answer", "expected_answers", "expected_output", "expectedOutput"),
    *("correct_answer", "correct_answers", "gold_answer", "gold_answers", "target", "targets"),
)
"""Fields with the accepted answers of a row.

Beside one of them, also an empty one, `answer` is the output of a model.
"""

ANSWER_NAMES = ("answers", *REFERENCE_NAMES, "answer")
_NAMES = {
    "documents": DOCUMENT_NAMES,
    "question": ("question", "query", "user_input", "search_query", "input"),
    "answers": ANSWER_NAMES,
    "id": ("id", "_id", "query_id"),
}
"""Names of each field, the first one of this project."""

_CONVERSATION = ("turns", "scenario")
"""Fields of a conversation of deepeval, which has no question."""

_ID_NAMES = ("id", "_id", "docid", "doc_id")
"""Fields of a document with the id that an object of `relevance` names."""

_GOLD_NAMES = ("isgold", "is_selected", "is_supporting")
"""Fields of a document that are true or 1 if it has the answer."""

JUDGED_NAMES = (
    *(("response_A", "response_B"), ("response_a", "response_b")),  # tables have names in lower case
    *(("chosen", "rejected"), ("conversation_a", "conversation_b")),
)
"""Fields with the answers that a judge compares."""

_PROMPT_NAMES = ("question", "query", "prompt")
"""Fields with the request that these answer, a text or a chat."""

NO_ANSWER = "No Answer Present."
"""Answer of MS MARCO where no passage has one."""


def usual_fields(columns: Sequence[str]) -> dict[str, str]:
    """Return the field that each column of a row is by its name, "" for none. One of several names counts."""
    first = {field: next((name for name in names if name in columns), "") for field, names in _NAMES.items()}
    if first["answers"] == "answer" and not set(columns).isdisjoint(REFERENCE_NAMES):
        first["answers"] = ""
    by_name = {name: field for field, name in first.items()}
    others = {*FIELDS, *filter(NUMBERED.fullmatch, columns)} - _NAMES.keys() - {"text", "title"}
    return {name: by_name.get(name, name if name in others else "") for name in columns}


def has_documents(row: Any) -> bool:
    """Check whether a value is an object with documents. Metadata of a document may have these names."""
    if not isinstance(row, Mapping):
        return False
    names = {name for name, field in row.items() if not is_null(field)}
    is_row = not names.isdisjoint(DOCUMENT_NAMES) or any(names.issuperset(pair) for pair in JUDGED_NAMES)
    is_row = is_row or "documents" in retrieval_fields(row) or find_hits(row) is not None
    is_row = is_row or _is_multiple_choice(row)
    return "documents" in names or (names.isdisjoint(TEXT_NAMES) and is_row)


def is_row(value: Any) -> bool:
    """Check whether a value is an object with documents, or with a question or a conversation and no text."""
    if has_documents(value) or not isinstance(value, Mapping):
        return isinstance(value, Mapping)
    return "text" not in flat_keys(value) and not value.keys().isdisjoint(
        (*_NAMES["question"], *_CONVERSATION)
    )


def without_nulls(value: Any) -> Any:
    """Return JSON without the keys of objects whose value is null or NaN, as a table has for none."""
    if isinstance(value, Mapping):
        return {key: without_nulls(field) for key, field in value.items() if not is_null(field)}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def row_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row under the names of this project, without nulls; others stay as they are.

    Raises ValidationErrors that names the format, if a row of a known format has no documents.
    """
    fields: dict[str, Any] = without_nulls(row)
    if _is_multiple_choice(fields):
        fields = option_fields(fields)
    fields |= _judged_fields(fields)
    fields = {**retrieval_fields(fields), **fields}
    named = next((name for name in DOCUMENT_NAMES if name in fields), "")
    hits = find_hits(fields)
    if hits and (not named or hits.service == CHROMA or isinstance(fields[named], Mapping)):
        question = {} if hits.question is None else {"question": hits.question}
        fields = {**question, **fields, "documents": hits.documents()}
    for name, names in _NAMES.items():
        found = next((one for one in names if one in fields), None)
        if found == "answer" and not row.keys().isdisjoint(REFERENCE_NAMES):
            continue
        if found is not None:
            fields[name] = fields.pop(found)
        if found == "context" and isinstance(fields[name], str):
            fields[name] = _parse_context(fields[name], fields.get("title", ""))
    query = fields.get("question")
    if isinstance(query, Mapping) and "text" in query:  # RankLLM
        fields = {"id": query.get("qid", ""), **fields, "question": query["text"]}
    if not query and (talk := next((name for name in _CONVERSATION if name in row), "")):
        reason = f"{talk}: a conversation, as of deepeval, is not read; give a row for each question"
        raise ValidationErrors([Problem(f"{reason}, with question and documents", talk)])
    if "documents" not in fields and (
        reason := missing_documents(row) or ("" if query else rows_inside(row))
    ):
        raise ValidationErrors([Problem(f"documents: {reason}", "documents")])
    if "documents" in fields:
        fields["documents"], flags = _documents(fields["documents"])
        if sum(flags) == 1:
            fields.setdefault("gold_index", flags.index(True))
        elif any(flags):
            fields.setdefault("relevance", list(map(int, flags)))
        if "relevance" in fields:
            fields |= _relevance(fields)
    for name in ("answers", "choices", "rejected_answers"):
        if name in fields:
            fields[name] = replies_of(fields[name], name)
    answers = fields.get("answers")
    if isinstance(answers, Mapping):  # SQuAD: texts with their places
        answers = answers.get("text", [])
    if answers is not None:
        is_missing = answers in ([NO_ANSWER], [""]) or fields.get("answerable") is False  # MuSiQue
        fields["answers"] = [] if is_missing else answers
    aliases = fields.get("answer_aliases")  # MuSiQue
    if isinstance(aliases, list) and isinstance(answers, list) and fields["answers"]:
        fields["answers"] = [*answers, *(alias for alias in aliases if alias not in answers)]
    return fields


def _parse_context(context: str, title: Any) -> Any:
    """Return one text with its title (SQuAD), or the list of titles and sentences in it (2WikiMultihopQA)."""
    with suppress(ValueError):
        found = parse_cell(context)
        if found and all(isinstance(one, list) and len(one) == 2 for one in found):
            return found
    return [{"text": context, "title": title}]


def _is_multiple_choice(row: Mapping[str, Any]) -> bool:
    """Check whether a row has options in place of documents. A single text precedes the question."""
    has_documents = any(isinstance(row.get(name), list | dict) for name in DOCUMENT_NAMES)
    is_judged = any(row.keys() >= set(pair) for pair in JUDGED_NAMES)
    return has_options(row) and not has_documents and not is_judged


def _judged_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row with answers to compare, none for another row."""
    names = next((pair for pair in JUDGED_NAMES if row.keys() >= set(pair)), None)
    if names is None or "documents" in row:
        return {}
    models = row.get("models")
    if names[0] == "conversation_a":  # MT-Bench
        winner = str(row.get("winner"))
        good = {"model_a": ["A"], "model_b": ["B"]}.get(winner, ["tie"] if winner.startswith("tie") else [])
        (question, first), (_, second) = (_texts_of_turns(row[name], name, row.get("turn")) for name in names)
        texts, models = [first, second], [row.get("model_a"), row.get("model_b")]
    else:
        answers = [(name, one) for name in names for one in _alternatives(row, name)]
        prompt_name = next((name for name in _PROMPT_NAMES if row.get(name)), "question")
        system = row.get("system", "") if names[0] == "chosen" else ""
        question, texts = compared_texts(answers, (prompt_name, row.get(prompt_name, "")), system)
        good = {"A>B": ["A"], "B>A": ["B"]}.get(str(row.get("label")), [])
        if names[0] == "chosen":  # RewardBench has one of each, RewardBench 2 lists
            models = models or [row[name] for name in ("chosen_model", "rejected_model") if name in row]
            good = list(string.ascii_uppercase[: sum(name == "chosen" for name, _ in answers)])
    meta = {"subset": row.get("subset"), "models": models}
    fields: dict[str, Any] = {
        "task": row.get("task", "judge_tie" if names[0] == "conversation_a" else "judge"),
        "question": question,
        "documents": texts,
        "answers": good,
        **({"system": ""} if names[0] == "chosen" else {}),  # the assistants', not the judge's
        "meta": without_nulls({**meta, **row["meta"]} if isinstance(row.get("meta"), Mapping) else meta),
    }
    if len(good) == 1 and good[0] in string.ascii_uppercase:
        fields["gold_index"] = string.ascii_uppercase.index(good[0])
    return fields | ({"id": row["pair_id"]} if "pair_id" in row else {})


def _alternatives(row: Mapping[str, Any], name: str) -> list[Any]:
    """Return the answers of a field, which are several in RewardBench 2, never the messages of a chat."""
    value = row[name]
    is_several = name in ("chosen", "rejected") and isinstance(value, list)
    return value if is_several and find_chat(value, name) is None else [value]


def _texts_of_turns(conversation: Any, field: str, turn: Any) -> tuple[str, str]:
    """Return the texts of the user and of the assistant, up to a turn counted from 1."""
    turns = find_chat(conversation, field)
    if turns is None:
        message = f"{field}: got {describe(conversation)}, expected a list of messages"
        raise ValidationErrors([Problem(message, field)])
    turns = turns[: 2 * turn] if isinstance(turn, int) else turns
    split_reply(turns, field)
    user, assistant = (
        "\n\n".join(one.text for one in turns if one.role == role) for role in ("user", "assistant")
    )
    return user, assistant


def _documents(value: Any) -> tuple[Any, list[bool]]:
    """Return a list of documents, and for each whether it has the answer; other values as they are."""
    if isinstance(value, Mapping):  # columns in place of a list of objects
        columns = list(value.values())
        if not columns or not all(isinstance(one, list) and len(one) == len(columns[0]) for one in columns):
            return value, []
        value = [dict(zip(value, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if not isinstance(value, list):
        return value, []
    flags = [
        isinstance(document, Mapping) and any(document.get(name) in (True, 1) for name in _GOLD_NAMES)
        for document in value
    ]
    value = [reply_of(one, "documents") if isinstance(one, list) else one for one in value]
    return list(map(_document, value)), flags


def _relevance(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the relevance of each document from a list, or from an object of their ids, as qrels have.

    A single relevant document is the gold one. No grades for a value of another type.
    """
    grades, documents = fields.get("relevance"), fields["documents"]
    if isinstance(grades, Mapping) and isinstance(documents, list):
        facts = [flat_keys(one) if isinstance(one, Mapping) else {} for one in documents]
        names = [next((str(one[name]) for name in _ID_NAMES if name in one), "") for one in facts]
        grades = [grades.get(name, 0) for name in names]
    if not isinstance(grades, list):
        return {"relevance": []}
    relevant = [place for place, grade in enumerate(grades) if isinstance(grade, int | float) and grade > 0]
    gold = {"gold_index": relevant[0]} if len(relevant) == 1 and "gold_index" not in fields else {}
    return {"relevance": grades, **gold}


def _document(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2 and isinstance(value[1], list):  # HotpotQA
        value = {"title": value[0], "sentences": value[1]}
    if not isinstance(value, Mapping):
        return value
    fields = dict(value)
    for name in ("passage_text", "paragraph_text"):  # MS MARCO, MuSiQue
        if name in fields:
            fields.setdefault("text", fields.pop(name))
    sentences = fields.get("sentences")
    if isinstance(sentences, list) and all(isinstance(sentence, str) for sentence in sentences):
        fields.setdefault("text", _join_sentences(fields.pop("sentences")))
    return fields


def _join_sentences(sentences: list[str]) -> str:
    """Return sentences as one text: those of HotpotQA begin with a space, those of 2WikiMultihopQA do not."""
    is_spaced = any(sentence[:1].isspace() for sentence in sentences[1:])
    return ("" if is_spaced else " ").join(sentences)
