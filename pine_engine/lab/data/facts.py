"""Benchmark `facts`: questions about one of several facts of the same kind, one fact per document.

Scoring is strict: a correct answer contains the value of the document with the answer, and no value of
another document.
"""

import random
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pine_engine.lab.data.readers import Row, check_num_documents
from pine_engine.prompts.tasks import document_letter

MIN_DOCUMENTS, MAX_DOCUMENTS = 2, 20


def _load_kinds() -> list[dict[str, Any]]:
    """Return the templates of each kind of fact, and the subjects and values that fill them."""
    content = tomllib.loads(Path(__file__).with_name("facts.toml").read_text("utf-8"))
    words = {name: text.split() for name, text in content["words"].items()}
    return [entry | {key: words[entry[key]] for key in ("subjects", "values")} for entry in content["kind"]]


KINDS = _load_kinds()


def generate_facts(num_documents: int = 3, seed: int = 0, *, each: bool = False) -> Iterator[Row]:
    """Yield retrieval_qa questions without end, the kinds in turn; the first N are equal for every N.

    seed: of the names, values, statements and of the slot with the answer. each: one row about each document
    instead of one row about a random document. Raises InputError for a number of documents that is out of
    range. Scores of the documents are those of a search by words.
    """
    check_num_documents(num_documents, MIN_DOCUMENTS, MAX_DOCUMENTS)
    source = random.Random(f"facts {num_documents} {seed}")
    number = 0
    while True:
        for kind in KINDS:
            number += 1
            subjects = source.sample(kind["subjects"], num_documents)
            values = source.sample(kind["values"], num_documents)
            gold = source.randrange(num_documents)
            documents = [
                {"title": "", "text": source.choice(kind["statements"]).format(subject=subject, value=value)}
                for subject, value in zip(subjects, values, strict=True)
            ]
            for asked in range(num_documents) if each else [gold]:
                question = kind["question"].format(subject=subjects[asked])
                yield {
                    "id": f"facts-{num_documents}-{seed}-{number}" + f"-{document_letter(asked)}" * each,
                    "task": "retrieval_qa",
                    "question": question,
                    "prefix": kind["instruction"],
                    "documents": [
                        {**one, "score": _shared_words(question, one["text"])} for one in documents
                    ],
                    "gold_index": asked,
                    "answers": [values[asked]],
                    "rejected_answers": [value for index, value in enumerate(values) if index != asked],
                    "source": f"facts, seed {seed}",
                    "license": "Apache-2.0",
                    "meta": {"kind": kind["name"]},
                }


def _shared_words(question: str, text: str) -> float:
    """Return the share of the words of a question that a text has."""
    words, found = (set(re.findall(r"\w+", one.casefold())) for one in (question, text))
    return len(words & found) / len(words)
