"""Examples of assets/examples.json."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter, field_validator

from pine_engine.prompts.tasks import TASKS
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.form.documents import entries_from
from viz.page.form.form import MAX_NEW_TOKENS, Form

NO_EXAMPLE = "Examples"  # first choice of the list, shown beside own documents
EXAMPLES_FILE = Path(__file__).parents[3] / "assets" / "examples.json"

NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class ExampleDocument(BaseModel, frozen=True, extra="forbid"):
    """One document of an example; the title may be empty."""

    text: NonEmpty
    title: str = ""


class FormExample(BaseModel, frozen=True, extra="forbid"):
    """One example."""

    name: NonEmpty
    task: NonEmpty
    question: str
    documents: Annotated[tuple[ExampleDocument, ...], Field(min_length=2, max_length=MAX_DOCUMENTS)]
    instruction: str = ""  # empty for the instruction of the task
    note: str = ""  # one sentence on what to observe
    answers: tuple[NonEmpty, ...] = ()  # accepted answers; empty if nothing is scored

    @property
    def gold(self) -> int:
        """Return the index of the first document that contains an accepted answer, or 0."""
        holding = (
            place
            for place, document in enumerate(self.documents)
            if any(answer in document.text for answer in self.answers)
        )
        return next(holding, 0)

    def form(self, methods: Sequence[str], max_new_tokens: int = MAX_NEW_TOKENS) -> Form:
        """Return the form of the example, with these methods."""
        entries = entries_from([(document.title, document.text) for document in self.documents])
        return Form(self.task, self.question, self.instruction, tuple(methods), max_new_tokens, entries)

    @field_validator("task")
    @classmethod
    def _known_task(cls, name: str) -> str:
        return TASKS[name].name


def load_examples() -> tuple[FormExample, ...]:
    """Return the examples of the page."""
    return TypeAdapter(tuple[FormExample, ...]).validate_json(EXAMPLES_FILE.read_bytes())
