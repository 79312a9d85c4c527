"""Values of the form as one record, and their tokens."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.chat_templates import ChatTemplateKwargs, parse_kwargs
from pine_engine.prompts.tasks import TASKS, Nouns, Task
from viz.drawing.identity import document_letter
from viz.page.common.limits import check_limit
from viz.page.form.documents import Entries, Entry, capital, read_entries

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

MIN_NEW_TOKENS = 8
MAX_NEW_TOKENS = 256

MAX_CHARACTERS = 500_000  # maximum characters of all texts, which take seconds to tokenize
_PLACES = {name: place for place, name in enumerate(METHODS)}


@dataclass(frozen=True)
class Form:
    """One question about documents, as typed."""

    task: str
    question: str
    instruction: str
    methods: tuple[str, ...]
    max_new_tokens: int  # maximum number of new tokens
    entries: Entries
    chat_template_kwargs: str = ""  # arguments of the chat template as JSON

    @property
    def row(self) -> Task:
        """Return the task for the documents."""
        texts = [entry.text for entry in sorted(self.entries, key=lambda entry: entry.letter)]
        return TASKS[self.task].sized(len(texts)).with_documents(texts)

    @property
    def used_instruction(self) -> str:
        """Return the instruction of the prompt: the typed one, else that of the task."""
        return shown_instruction(self.row, self.instruction).strip()

    @property
    def order(self) -> tuple[int, ...]:
        """Return the letter of the document in each slot, 0 for A."""
        return tuple(entry.letter for entry in self.entries)

    def title(self, entry: Entry) -> str:
        """Return the title of a document; "" for tasks without titles."""
        return entry.title.strip() if self.row.nouns.title else ""

    def titled_text(self, entry: Entry) -> str:
        """Return the text of a document, after its title if it has one."""
        return ": ".join(filter(None, (self.title(entry), entry.text)))

    @property
    def named_question(self) -> str:
        """Return the question, after its noun in a task that has another: "Key: Emil"."""
        noun = self.row.nouns.question
        return self.question if noun == Nouns.question else f"{capital(noun)}: {self.question}"

    @cached_property
    def parsed_kwargs(self) -> ChatTemplateKwargs:
        """Return the arguments of the chat template. Raises InputError if they are invalid."""
        return parse_kwargs(self.chat_template_kwargs)

    def check(self) -> None:
        """Raise InputError for the first missing or invalid value."""
        nouns = self.row.nouns
        check_size(self.entries, self.question, self.instruction, self.chat_template_kwargs)
        _ = self.parsed_kwargs
        if not self.entries:
            raise InputError(f"No {nouns.documents}. Add at least one.")
        for entry in self.entries:
            if not entry.text.strip():
                name = capital(nouns.named(document_letter(entry.letter)))
                raise InputError(f"{name} is empty. Enter text or remove it.")
        if self.row.needs_question and not self.question.strip():
            raise InputError(f"No {nouns.question}. Enter one.")
        if not self.methods:
            raise InputError("No method selected. Select at least one.")
        labels = [METHODS[name].label for name in self.methods if METHODS[name].needs_scores]
        letters = [entry.letter for entry in self.entries if entry.score is None]
        if labels and letters:
            name = nouns.named(document_letter(letters[0]))
            message = f"{labels[0]} needs the score of each {nouns.document} by a retriever: {name} has none."
            raise InputError(f"{message} Upload a file with scores, or select other methods.")


def check_size(entries: Entries, *others: str) -> None:
    """Raise InputError if these texts have more than the maximum of characters in total."""
    texts = (*others, *(text for entry in entries for text in (entry.title, entry.text)))
    count, advice = sum(map(len, texts)), "Shorten or remove documents."
    check_limit("Input too long", count, MAX_CHARACTERS, advice, unit=" characters")


def read_form(
    task: str,
    question: str | None,
    instruction: str | None,
    methods: Sequence[str],
    max_new_tokens: float,
    documents: str,
    chat_template_kwargs: str | None = None,
) -> Form:
    """Return the form of these widget values, in the order of `Workspace.inputs`.

    Methods are sorted in the order of the table of methods.
    """
    return Form(
        task=task,
        question=question or "",
        instruction=instruction or "",
        methods=tuple(sorted(methods, key=_PLACES.__getitem__)),
        max_new_tokens=int(max_new_tokens),
        entries=read_entries(documents),
        chat_template_kwargs=(chat_template_kwargs or "").strip(),
    )


@dataclass(frozen=True)
class TokenCount:
    """Lengths in tokens."""

    documents: tuple[int | None, ...]  # length of each slot; None for an empty one
    total: int  # length of the prompt
    max_context_length: int | None  # None if it is not known, and the lengths are estimates


def sized_instructions(task: str) -> set[str]:
    """Return the default instructions of a task for all numbers of documents."""
    return {TASKS[task].sized(size).instruction for size in range(2, 9)}


_INSTRUCTIONS = set().union(*map(sized_instructions, TASKS))


def shown_instruction(task: Task, typed: str) -> str:
    """Return the typed instruction, or that of the sized task for an empty one or a default of any task."""
    return task.instruction if typed in _INSTRUCTIONS or not typed.strip() else typed


def count_tokens(form: Form, engine: "Backend") -> TokenCount:
    """Count the tokens of the prompt, also if it is incomplete or too long for the model.

    They are estimated if `ids_per_token` of the engine is more than 1.

    Raises InputError for texts that are too long to tokenize.
    """
    check_size(form.entries, form.question, form.instruction, form.chat_template_kwargs)
    question = form.question if form.question.strip() else "?"
    entries = tuple(
        entry if entry.text.strip() else replace(entry, title="", text=".") for entry in form.entries
    )
    complete = replace(form, question=question, entries=entries or (Entry(0, "", "."),))
    layout = form_request(complete, engine).tokenize(engine)
    lengths = dict(zip(sorted(entry.letter for entry in entries), layout.lengths.tolist(), strict=False))
    documents = tuple(lengths[entry.letter] if entry.text.strip() else None for entry in form.entries)
    total = layout.num_tokens - int(layout.lengths.sum()) + sum(filter(None, documents))
    size = engine.ids_per_token
    in_tokens = tuple(length and math.ceil(length / size) for length in documents)
    return TokenCount(in_tokens, math.ceil(total / size), engine.max_context_length)


def form_request(form: Form, engine: "Backend | None" = None) -> "pine.Request":
    """Return the request of the form, with documents in the order of their letters.

    Without those arguments of the chat template that the engine renders elsewhere.
    """
    kwargs = form.parsed_kwargs
    if engine:
        _, kwargs = engine.bind_template_kwargs(kwargs)
    lettered = sorted(form.entries, key=lambda entry: entry.letter)
    return pine.Request(
        question=form.question,
        documents=[pine.Document(each.text, title=form.title(each), score=each.score) for each in lettered],
        instruction=form.used_instruction,
        task=form.task,
        chat_template_kwargs=kwargs,
    )
