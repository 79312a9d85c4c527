"""Files and API calls into inputs, in one form: a document is a text, or {"text": ..., "title": ...}.

A plain list of them, in place of an object that has them, is a prompt's documents.
"""

import io
import json
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError, PydanticSerializationError

from pine_engine.errors import InputError
from pine_engine.input_validation import describe
from pine_engine.prompts.parse_errors import (
    ValidationErrors,
    format_validation_errors,
    rows_or_mistakes,
    told,
)
from pine_engine.prompts.prompt import Document, Prompt
from pine_engine.prompts.tasks import TASKS, USUAL_TASK, get_task

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout


MAX_DOCUMENTS = 10_000
"""Documents of one row or request. More are rejected by their number, before a record is made of any."""


class TextReader(Protocol):
    """What reads a prompt of text: an engine with a tokenizer."""

    tokenizer: Any

    def tokenize(self, prompt: Prompt) -> "TokenLayout":
        """The prompt's tokens."""


class DocumentInput(BaseModel):
    """A document with an optional title; a text is one without."""

    model_config = ConfigDict(extra="forbid")

    text: str
    title: str = ""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"text": given}
        if isinstance(given, dict | cls):
            return given
        raise unexpected(given, 'a text or {"text": ..., "title": ...}')


def to_document(given: DocumentInput) -> Document:
    """The document as prompts take it."""
    return Document(given.text, given.title)


class _Asked(BaseModel):
    """Documents, and what is asked of them."""

    question: str = ""
    documents: list[DocumentInput] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    system: str = ""
    task: str = USUAL_TASK

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        if isinstance(given, list):
            return {"documents": given}
        if isinstance(given, dict | cls):
            return given
        raise unexpected(given, 'an object with "documents", or a list of texts')

    def check(self) -> None:
        """Raises ValidationErrors with all for which no prompt can be made of it."""
        if found := list(self._mistakes()):
            raise ValidationErrors(*found)

    def _mistakes(self) -> Iterator[str]:
        if self.task not in TASKS:
            yield f"unknown task {self.task!r}; choose from: {', '.join(TASKS)}"
        elif get_task(self.task).needs_question and not self.question.strip():
            yield "there is no question; write one"
        for number, document in enumerate(self.documents, start=1):
            if not document.text.strip():
                yield f"document {number} is empty; write some text or remove it"
        try:
            self.model_dump_json()
        except PydanticSerializationError:
            yield "it holds half of a surrogate pair, which is no character; remove it"


class Request(_Asked):
    """What one run is asked: documents, a question, and optionally an instruction and a task."""

    model_config = ConfigDict(extra="forbid")

    instruction: str = ""

    def prompt(self, engine: TextReader) -> Prompt:
        """The text that the model reads. Raises InputError for an empty part or an unknown task."""
        return get_task(self.task).prompt(
            engine.tokenizer,
            question=self.question,
            documents=[to_document(given) for given in self.documents],
            instruction=self.instruction,
            system=self.system,
        )

    def tokenize(self, engine: TextReader) -> "TokenLayout":
        """The prompt's tokens. Raises InputError as prompt does."""
        return engine.tokenize(self.prompt(engine))


class LabeledRequest(Request):
    """A comparison, and the labels that the model may answer with."""

    labels: list[str] = []


class DataRow(_Asked):
    """One example of a data set, in the schema that `verify` reads; other fields are ignored.

    id: a row of a file that gives none is named by its line, such as "line 3".
    """

    id: str = ""
    prefix: str = ""

    def asked_as(self, task: str) -> Self:
        """The same row for another task. An instruction that is its own task's gives way to the other's.

        Raises InputError for an unknown task.
        """
        own = get_task(self.task).instruction
        fields = {name: "" for name in ("system", "prefix") if getattr(self, name) == own}
        return self.model_copy(update={**fields, "task": get_task(task).name})

    def comparison(self) -> Request:
        """The row as a question to the engine. A system text stands where the task expects one."""
        in_system = get_task(self.task).instruction_role == "system"
        return Request(
            question=self.question,
            documents=list(self.documents),
            instruction=self.system if in_system else self.prefix,
            system="" if in_system else self.system,
            task=self.task,
        )


Model = TypeVar("Model", bound=BaseModel)
AnyRequest = TypeVar("AnyRequest", bound=Request)
Row = TypeVar("Row", bound=DataRow)


def read_comparison(path: Path) -> Request:
    """The comparison in a JSON file. Raises InputError that names the file and all that is wrong in it."""
    return _read_request(Request, path)


def read_labelled_comparison(path: Path) -> LabeledRequest:
    """The same with labels, which may be none."""
    return _read_request(LabeledRequest, path)


def _read_request(model: type[AnyRequest], path: Path) -> AnyRequest:
    try:
        request = parse(model, read_text(path))
        request.check()
    except ValidationErrors as error:
        raise InputError(told(str(path), ": ", error.sentences)) from error
    return request


def read_rows(path: Path, limit: int | None = None) -> list[DataRow]:
    """The rows of a JSONL file, at most `limit`. Raises InputError as read_lines does."""
    return list(read_lines(DataRow, path, limit).values())


def read_lines(model: type[Row], path: Path, limit: int | None = None) -> dict[int, Row]:
    """The rows of a JSONL file as that model, at most `limit`, by the number of their line, counted from 1.

    Raises InputError that names all lines with mistakes, if there are any among these rows, or says that
    there is no row.
    """
    return dict(islice(rows_or_mistakes(path, each_line(path), partial(read_row, model)), limit))


def read_row(model: type[Row], line: int, text: str) -> Row:
    """The row in a line of JSONL with that number. Raises ValidationErrors."""
    return checked(line, parse(model, text, line))


def checked(line: int, row: Row) -> Row:
    """The row of that line, with an id. Raises ValidationErrors if no prompt can be made of it."""
    row.id = row.id or f"line {line}"
    row.check()
    return row


def each_line(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a JSONL file that are not blank, each with its number.

    Raises InputError for a file that cannot be read, or has none.
    """
    is_empty = True
    # Not splitlines(), which would also cut at U+2028 and others that may stand inside a JSON string.
    for number, line in enumerate(io.StringIO(read_text(path), newline="\n"), start=1):
        if line.strip():
            is_empty = False
            yield number, line.removesuffix("\n")
    if is_empty:
        raise InputError(f"{path} has no rows; expected one JSON object per line")


def read_text(path: Path) -> str:
    """The text of a file. Raises InputError that names the file if there is none, or it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}; give the path of a file that exists"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as UTF-8") from error


def parse_json(model: type[Model], text: str, where: str) -> Model:
    """JSON as that model. where: what the text is called in the InputError that names all wrong fields."""
    try:
        return parse(model, text)
    except ValidationErrors as error:
        raise InputError(told(where, ": ", error.sentences)) from error


def parse(model: type[Model], text: str, line: int | None = None) -> Model:
    """JSON as that model; line: the number of the line that it is, if it is one. Raises ValidationErrors."""
    try:
        content: Any = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} " if line is None else ""
        raise ValidationErrors(f"it is not JSON: {error.msg} at {place}column {error.colno}") from error
    except (ValueError, RecursionError) as error:
        raise ValidationErrors(
            "it cannot be read as JSON: a number in it is too long, or it is nested too deeply"
        ) from error
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ValidationErrors(*format_validation_errors(error)) from error


def unexpected(given: Any, expected: str) -> PydanticCustomError:
    """What a validator raises for what is given in another form."""
    sentence = f"got {describe(given)}, expected {expected}"
    return PydanticCustomError("unexpected", "{sentence}", {"sentence": sentence})
