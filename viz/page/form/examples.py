"""Examples of assets/examples.json."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, TypeAdapter

from pine_engine.prompts.answer_words import contains_words
from pine_engine.prompts.tasks import TASKS, document_letter
from pine_engine.rows.documents import Document
from pine_engine.rows.untrusted_json import TupleInput
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.form.documents import KNOWN_TASK, Entries, entries_from
from viz.page.form.form import MAX_NEW_TOKENS, Form

NO_EXAMPLE = "Examples"  # first choice of the list, shown beside own documents
EXAMPLES_FILE = Path(__file__).parents[3] / "assets" / "examples.json"

NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class FormExample(BaseModel, frozen=True, extra="forbid"):
    """One example."""

    name: NonEmpty
    task: Annotated[NonEmpty, KNOWN_TASK]
    question: str
    documents: Annotated[TupleInput[Document], Field(min_length=2, max_length=MAX_DOCUMENTS)]
    instruction: str = ""  # empty for the instruction of the task
    note: str = ""  # one sentence on what to observe
    answers: TupleInput[NonEmpty] = ()  # accepted answers; empty if nothing is scored
    challenge: str = ""  # label of a button below the answers that fills the form with the example

    @property
    def gold(self) -> int:
        """Return the index of the first document that contains an accepted answer or has its letter, or 0."""
        holding = (
            place
            for place, document in enumerate(self.documents)
            if contains_words(document.text, self.answers)
            or (TASKS[self.task].has_letters and document_letter(place) in self.answers)
        )
        return next(holding, 0)

    def form(self, methods: Sequence[str], max_new_tokens: int = MAX_NEW_TOKENS) -> Form:
        """Return the form of the example, with these methods."""
        entries = entries_from([(document.title, document.text) for document in self.documents])
        return Form(self.task, self.question, self.instruction, tuple(methods), max_new_tokens, entries)


@cache
def load_examples() -> tuple[FormExample, ...]:
    """Return the examples of the page."""
    return TypeAdapter(tuple[FormExample, ...]).validate_json(EXAMPLES_FILE.read_bytes())


def is_from_example(form: Form, example: FormExample) -> bool:
    """Check whether all texts of a form are from an example.

    The documents may have any order and number, and no title. The instruction may be that of the task. The
    chat template has no arguments.
    """
    shipped = Counter((document.title, document.text) for document in example.documents)
    texts = Counter(document.text for document in example.documents)
    documents = [(form.title(entry), entry.text) for entry in form.entries]
    instructions = (form.row.instruction.strip(), example.form(()).used_instruction)
    return (
        (form.task, form.question.strip()) == (example.task, example.question.strip())
        and form.used_instruction in instructions
        and not form.chat_template_kwargs
        and Counter(document for document in documents if document[0]) <= shipped
        and Counter(text for _, text in documents) <= texts
    )


def accepted_for(form: Form, accepted: str | None, typed: str | None = "") -> str:
    """Return the accepted answers; "" for those of an example whose question or documents were replaced.

    A letter is that of an example only for the task of the example: any judge has the letter B. Answers that
    the visitor has typed are not those of an example.
    """
    if not accepted or accepted == typed:
        return accepted or ""
    answered = [
        one
        for one in load_examples()
        if one.answers
        and accepted == "\n".join(one.answers)
        and (one.task == form.task or not TASKS[one.task].has_letters)
    ]
    for example in answered:
        is_held = example_of(form) or any(
            contains_words(entry.text, example.answers) for entry in form.entries
        )
        if is_held and form.question.strip() == example.question.strip():
            return accepted
    return "" if answered else accepted


def are_of_example(entries: Entries) -> bool:
    """Check whether documents are those of an example, in any order."""
    return any(_lettered(entries) == example.form(()).entries for example in load_examples())


def example_of(form: Form) -> FormExample | None:
    """Return the example whose prompt a form has, in any order of its documents; None for own documents."""
    prompt = _prompt(form)
    return next((example for example in load_examples() if _prompt(example.form(())) == prompt), None)


def _prompt(form: Form) -> tuple[object, ...]:
    texts = form.question.strip(), form.used_instruction, form.chat_template_kwargs
    return form.task, *texts, _lettered(form.entries)


def _lettered(entries: Entries) -> Entries:
    """Return the documents in the order of their letters."""
    return tuple(sorted(entries, key=lambda entry: entry.letter))
