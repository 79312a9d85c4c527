"""A session: what a visitor has entered and chosen, as a file and as a link."""

import base64
import binascii
import zlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from pine_engine.errors import InputError
from pine_engine.prompts.tasks import get_task
from viz.page.common.bounds import MAX_DOCUMENTS
from viz.page.common.failures import first_problem
from viz.page.form.documents import Entries, Entry
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS, Form
from viz.page.form.method_boxes import OFFERED

LONGEST_LINK = 32_000
"""Characters of a session in a link. It is sent to no server; what cuts longer ones is a program that hands
them to the browser: on Windows in a command line, which has at most 32,767.
"""

LARGEST_BYTES = 1_000_000
"""Of a session as JSON, also when it comes out of a small link."""

Text = Annotated[str, StringConstraints(max_length=200_000)]
ShortText = Annotated[str, StringConstraints(max_length=2_000)]


class _SessionModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SharedDocument(_SessionModel):
    """A document in a slot."""

    letter: Annotated[int, Field(ge=0, lt=MAX_DOCUMENTS)]
    """0 is A; it travels with the document."""

    title: ShortText = ""
    text: Text = ""


class Session(_SessionModel):
    """Everything that makes the page what it is, apart from what the model computes."""

    format: Literal["pine-explorer session"] = "pine-explorer session"
    version: Literal[1] = 1
    task: ShortText
    question: Text = ""
    instruction: Text = ""
    accepted: Text = ""
    """The answers that are right, one a line."""

    methods: tuple[ShortText, ...]
    max_new_tokens: Annotated[int, Field(ge=MIN_NEW_TOKENS, le=MAX_NEW_TOKENS)]
    documents: Annotated[tuple[SharedDocument, ...], Field(max_length=MAX_DOCUMENTS)]
    """In the order of their slots."""

    ran: bool = False
    """Whether the answers were there, so that opening it runs them again."""

    model: ShortText = ""
    """Which gave them, in words; opening the session says so and loads nothing."""

    selection: dict[ShortText, str | int | bool | None] = Field(default_factory=dict, max_length=20)
    """What the pictures show, as Selection takes picks."""

    tab: ShortText = ""
    """The picture that is shown; "" for the first."""

    @field_validator("task")
    @classmethod
    def _known_task(cls, name: str) -> str:
        return get_task(name).name

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := sorted(set(names) - set(OFFERED)):
            raise InputError(f"unknown method {unknown[0]!r}; choose from: {', '.join(OFFERED)}")
        return names

    @field_validator("documents")
    @classmethod
    def _each_letter_once(cls, documents: tuple[SharedDocument, ...]) -> tuple[SharedDocument, ...]:
        if sorted(document.letter for document in documents) != list(range(len(documents))):
            raise InputError(f"the letters of {len(documents)} documents are not 0 to {len(documents) - 1}")
        return documents

    @property
    def form(self) -> Form:
        """What is asked."""
        return Form(
            self.task, self.question, self.instruction, self.methods, self.max_new_tokens, self.entries
        )

    @property
    def entries(self) -> Entries:
        """The documents as the editor has them."""
        return tuple(Entry(document.letter, document.title, document.text) for document in self.documents)


def session_of(
    form: Form,
    *,
    accepted: str,
    ran: bool = False,
    model: str = "",
    selection: dict[str, Any] | None = None,
    tab: str = "",
) -> Session:
    """The session of a form. Raises InputError for one that is too large, or whose text is no Unicode."""
    try:
        return Session(
            task=form.task,
            question=form.question,
            instruction=form.instruction,
            accepted=accepted,
            methods=form.methods,
            max_new_tokens=form.max_new_tokens,
            documents=tuple(
                SharedDocument(letter=entry.identity, title=entry.title, text=entry.text)
                for entry in form.entries
            ),
            ran=ran,
            model=model,
            selection=selection or {},
            tab=tab,
        )
    except ValidationError as error:
        raise InputError(f"this cannot be saved: {first_problem(error)}") from error


def to_json(session: Session) -> str:
    """The session as a file has it. Raises InputError for one that could not be opened again."""
    text = session.model_dump_json(indent=2) + "\n"
    if (size := len(text.encode())) > LARGEST_BYTES:
        raise InputError(
            f"this cannot be saved: it has {size:,} bytes, more than {LARGEST_BYTES:,}; shorten it"
        )
    return text


def to_code(session: Session) -> str:
    """The session as letters, digits, - and _; any length."""
    packed = zlib.compress(to_json(session).encode(), 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def from_code(code: str) -> Session:
    """The session that to_code has written. Raises InputError for anything else."""
    if len(code) % 4 == 1:  # which no whole code has
        raise InputError("the link is cut off; copy the whole of it")
    try:
        packed = base64.b64decode(code.encode() + b"=" * (-len(code) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        read = unpacking.decompress(packed, LARGEST_BYTES + 1)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise InputError("the link is damaged; copy the whole of it") from error
    if len(read) <= LARGEST_BYTES and not unpacking.eof:
        raise InputError("the link is cut off; copy the whole of it")
    return _read(read, "the link")


def from_file(path: Path) -> Session:
    """The session in a file that was saved on the page. Raises InputError for anything else."""
    if path.stat().st_size > LARGEST_BYTES:
        raise InputError(
            f"the file {path.name} has more than {LARGEST_BYTES:,} bytes; it is no saved session"
        )
    return _read(path.read_bytes(), f"the file {path.name}")


def _read(read: bytes, name: str) -> Session:
    if len(read) > LARGEST_BYTES:
        raise InputError(f"{name} holds more than {LARGEST_BYTES:,} bytes; it is no saved session")
    try:
        return Session.model_validate_json(read)
    except ValidationError as error:
        raise InputError(f"{name} is no saved session: {first_problem(error)}") from error
