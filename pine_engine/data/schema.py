"""One example as it is written: a line of JSON in the schema that `evaluate` and `verify` read."""

import json
from dataclasses import dataclass, field
from typing import Any

from pine_engine.prompts.prompt import Document


@dataclass(frozen=True, kw_only=True)
class ExampleRow:
    """An example, its fields in the order of the schema.

    gold_index: which document holds the answer, counted from 0. answers: all that are accepted, for the
    documents as they stand here. source, license: whose the example is. meta: what a model never sees.
    """

    id: str
    task: str
    system: str = ""
    prefix: str = ""
    question: str = ""
    documents: tuple[Document, ...]
    gold_index: int | None = None
    answers: tuple[str, ...]
    source: str
    license: str
    meta: dict[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """The example as one line of JSON, with its line feed."""
        documents = [
            {"title": document.title, "text": document.text} if document.title else {"text": document.text}
            for document in self.documents
        ]
        return json.dumps({**vars(self), "documents": documents}, ensure_ascii=False) + "\n"
