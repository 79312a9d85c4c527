"""Rows of multiple choice as published: MMLU, MMMLU, ARC, CommonsenseQA, MedQA, RACE, and plain ones.

The options are a list, texts with labels, an object by label, or the fields `A`, `B`, ... The right one is a
label, a letter, an index from 0, or its text. Names of fields may have any case.
"""

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from pine_engine.input_validation import describe
from pine_engine.rows.parse_errors import Problem, ValidationErrors

OPTION_NAMES = ("options", "choices")

TASKS_OF_OPTIONS = ("options", "option_texts")
"""Tasks of such rows, the first one if the row names none. Rows of others have documents."""

_QUESTION_NAMES = ("question", "question_stem", "stem", "query")
_PASSAGE_NAMES = ("article", "passage", "context")
_ANSWER_NAMES = (
    "answerkey",
    "answer_key",
    "answer_index",
    "answer_idx",
    "answers",
    "answer",
    "correct_answer",
)
"""Fields of which the first one counts. `answer` may be an index, a letter or a text."""


def has_options(row: Mapping[str, Any]) -> bool:
    """Check whether a row has a question and options, and no other task. It may have documents, too."""
    fields = _in_lower_case(row)
    has_task = str(fields.get("task") or TASKS_OF_OPTIONS[0]).lower() in TASKS_OF_OPTIONS
    has_question = not fields.keys().isdisjoint(_QUESTION_NAMES)
    return has_task and has_question and bool(_names_of_options(fields))


def option_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row with options under the names of this project; others stay as they are.

    Raises ValidationErrors for options that are no texts, and for an answer that is none or several of them.
    """
    fields = _in_lower_case(row)
    question, names = fields.get("question"), _names_of_options(fields)
    if isinstance(question, Mapping):  # CommonsenseQA as its authors publish it
        fields |= question
    texts, labels = _texts_and_labels(fields, names)
    stem = next((fields[name] for name in _QUESTION_NAMES[1:] if name in fields), question)
    stem = question if isinstance(question, str) else stem
    passage = next((fields[name] for name in _PASSAGE_NAMES if isinstance(fields.get(name), str)), "")
    name = next((name for name in _ANSWER_NAMES if name in fields), "answer")
    answer = fields.get(name)
    values = answer if isinstance(answer, list) else [] if answer in (None, "") else [answer]
    accepted = sorted({_index(value, texts, labels, name) for value in values})
    used = {*names, *_QUESTION_NAMES, *_PASSAGE_NAMES, *_ANSWER_NAMES}
    return {
        "task": TASKS_OF_OPTIONS[0],
        **{key: value for key, value in row.items() if key.lower() not in used},
        "question": f"{passage}\n\n{stem}" if passage and isinstance(stem, str) else stem,
        "documents": texts,
        "answers": [string.ascii_uppercase[index] for index in accepted],
        **({"gold_index": accepted[0]} if len(accepted) == 1 else {}),
    }


def _in_lower_case(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in row.items() if isinstance(key, str)}


def _names_of_options(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields with the options, () for none."""
    question = fields.get("question")
    nested = question if isinstance(question, Mapping) else {}
    if name := next((name for name in OPTION_NAMES if name in fields or name in nested), ""):
        return (name,)
    letters = tuple(letter for letter in string.ascii_lowercase if letter in fields)
    return letters if letters[:2] == ("a", "b") else ()


def _texts_and_labels(fields: Mapping[str, Any], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts of the options, and their labels if the row has any."""
    options: Any
    labels: list[Any] = []
    if len(names) > 1:
        if "".join(names) not in string.ascii_lowercase:
            raise _error(f"options have a gap: got {', '.join(names).upper()}, expected A, B, ...", names[0])
        options = [fields[name] for name in names]
    else:
        options = fields[names[0]]
        if isinstance(options, Mapping):
            texts, named = options.get("text"), options.get("label")
            if isinstance(texts, list) and isinstance(named, list):
                options, labels = texts, named
            else:
                options, labels = list(options.values()), list(options)
        elif isinstance(options, list) and options and all(isinstance(one, Mapping) for one in options):
            labels = [one["label"] for one in options if "label" in one]
            options = [one.get("text") for one in options]
    field = names[0]
    if not isinstance(options, list):
        raise _error(f"{field}: got {describe(options)}, expected a list of texts", field)
    if len(options) > len(string.ascii_uppercase) or (labels and len(labels) != len(options)):
        expected = f"{len(labels)}, one per label" if labels else f"at most {len(string.ascii_uppercase)}"
        raise _error(f"{field}: wrong number of options: got {len(options)}, expected {expected}", field)
    for index, one in enumerate(options):
        if not isinstance(one, str | int | float) or not str(one).strip():
            place = f"{field}[{index}]"
            raise _error(f"{place}: got {describe(one)}, expected the text of an option", place)
    return list(map(str, options)), list(map(str, labels))


def _index(value: Any, texts: Sequence[str], labels: Sequence[str], field: str) -> int:
    """Return the index of the option that a value names by its label, letter, index or text."""
    is_whole = isinstance(value, float) and value.is_integer()  # a table with nulls
    text = str(int(value) if is_whole else value).strip()
    named, letters = text.strip("().: ").upper(), string.ascii_uppercase[: len(texts)]
    found = {index for index, label in enumerate(labels) if label.strip().upper() == named}
    if not found:
        found = {index for index, letter in enumerate(letters) if letter == named}
        if re.fullmatch(r"\d{1,2}", text) and int(text) < len(texts):
            found.add(int(text))
        if isinstance(value, str) or not found:
            found |= {index for index, one in enumerate(texts) if one.strip() == text}
    if len(found) == 1:
        return found.pop()
    expected = (
        f"a letter from A to {letters[-1:]}, an index from 0 to {len(texts) - 1}, or the text of an option"
    )
    problem = f"{field}: unknown option: got {describe(value)}, expected {expected}"
    if found:
        names = " and ".join(string.ascii_uppercase[index] for index in sorted(found))
        problem = f"{field}: got {describe(value)}, which names the options {names}; give {expected}"
    raise _error(problem, field)


def _error(message: str, field: str) -> ValidationErrors:
    return ValidationErrors([Problem(message, field)])
