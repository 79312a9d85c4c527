"""Requests and data rows in JSON: documents, a question and the task; and the reader of text files.

A document is a text or {"text": ..., "title": ...}.
"""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticSerializationError

from pine_engine.errors import InputError
from pine_engine.prompts.messages import KWARGS, ChatTemplateKwargs, MessagesInput, read_chat
from pine_engine.prompts.parse_errors import (
    Problem,
    ValidationErrors,
    format_validation_errors,
    rows_or_mistakes,
    unexpected,
)
from pine_engine.prompts.prompt import DocumentInput, Prompt
from pine_engine.prompts.tasks import TASKS, USUAL_TASK

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout

STDIN = Path("-")

MAX_DOCUMENTS = 10_000
"""Documents of one row or request. More are rejected before a record is made of any."""


class _WithDocuments(BaseModel):
    """Fields that requests and rows share."""

    question: str = ""
    documents: list[DocumentInput] = Field(min_length=1, max_length=MAX_DOCUMENTS)
    system: str = ""
    task: str = USUAL_TASK

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"documents": value}
        if isinstance(value, dict | cls):
            return value
        raise unexpected(value, 'an object with "documents", or a list of texts')

    def check(self, source: str = "") -> None:
        """Raise ValidationErrors, with the name of the source, if no prompt can be built."""
        if problems := list(self._problems()):
            raise ValidationErrors(problems, source)

    def _problems(self) -> Iterator[Problem]:
        if self.task not in TASKS:
            yield Problem(f"unknown task {self.task!r:.60}; choose from: {', '.join(TASKS)}", "task")
        else:
            yield from TASKS[self.task].problems(self.question, self.documents)
        try:
            self.model_dump_json()
        except PydanticSerializationError:
            yield Problem("it holds half of a surrogate pair, which is no character; remove it")


class Request(_WithDocuments):
    """A question with documents, and optionally an instruction, a system message and a task.

    `messages` of a chat may replace question and system message, which are then those of the chat.
    `chat_template_kwargs` are arguments of the chat template.
    """

    model_config = ConfigDict(extra="forbid")

    instruction: str = ""
    messages: MessagesInput = Field(default=[], exclude_if=lambda messages: not messages)
    chat_template_kwargs: ChatTemplateKwargs = Field(default={}, exclude_if=lambda kwargs: not kwargs)

    @model_validator(mode="after")
    def _take_question_of_chat(self) -> Self:
        if self.messages:
            try:
                chat = read_chat(self.messages, question=self.question, system=self.system)
            except InputError as error:
                raise ValueError(str(error)) from error
            self.question, self.system = chat.question, chat.system
        return self

    def prompt(self, engine: Any) -> Prompt:
        """Return the prompt for the model of an engine.

        Args:
            engine: Engine with a tokenizer.

        Raises:
            InputError: The task is unknown, or a part of the request is empty.
        """
        names = ("question", "documents", "instruction", "system", "messages", KWARGS)
        parts = {name: getattr(self, name) for name in names}
        return TASKS[self.task].prompt(engine.tokenizer, **parts)

    def tokenize(self, engine: Any) -> "TokenLayout":
        """Return the tokens of the prompt.

        Args:
            engine: Engine with a tokenizer.

        Raises:
            InputError: As for `prompt`.
        """
        layout: TokenLayout = engine.tokenize(self.prompt(engine))
        return layout

    def with_kwargs(self, kwargs: ChatTemplateKwargs) -> Self:
        """Return the request with arguments of the chat template; its own have priority."""
        return self.model_copy(update={KWARGS: kwargs | self.chat_template_kwargs})

    def with_date(self, engine: Any) -> Self:
        """Return the request with the date of today, if the chat template of the model prints the date."""
        kwargs = TASKS[self.task].with_date(engine.tokenizer, self.chat_template_kwargs)
        return self.model_copy(update={KWARGS: kwargs})


class LabeledRequest(Request):
    """A request with the labels that the model may answer with."""

    labels: list[str] = []


class DataRow(_WithDocuments):
    """One example of a data set; other fields are ignored, and the id of a row without one is its line.

    The prefix is the instruction of a task whose instruction opens the user message, `system` that of others.
    """

    id: str = ""
    prefix: str = ""

    def complete(self, line: int) -> Self:
        """Return the row with an id. Raises ValidationErrors if no prompt can be built."""
        self.id = self.id or f"line {line}"
        self.check()
        return self

    def with_task(self, task: str) -> Self:
        """Return the row with another task, without an instruction that is the one of the former task."""
        instruction = TASKS[self.task].instruction
        fields = {name: "" for name in ("system", "prefix") if getattr(self, name) == instruction}
        return self.model_copy(update={**fields, "task": TASKS[task].name})

    def comparison(self) -> Request:
        """Return the request of the row."""
        is_in_system = TASKS[self.task].instruction_role == "system"
        instruction, system = (self.system, "") if is_in_system else (self.prefix, self.system)
        fields = {"instruction": instruction, "system": system, "documents": list(self.documents)}
        return Request.model_validate({"question": self.question, "task": self.task} | fields)


Model = TypeVar("Model", bound=BaseModel)
RequestType = TypeVar("RequestType", bound=Request)
Row = TypeVar("Row", bound=DataRow)


def read_request(path: Path, model: type[RequestType]) -> RequestType:
    """Return the request in a JSON file. Raises InputError with all problems of the file."""
    request = parse_json(model, read_text(path), str(path))
    request.check(str(path))
    return request


def read_requests(path: Path, limit: int | None = None) -> list[tuple[str, Request]]:
    """Return requests with names: that of a JSON file, or one per line of JSONL; "-" is either on stdin.

    A line is a request or a data row. Raises InputError with all problems of the file.
    """
    is_stdin = path == STDIN
    if path.suffix != ".jsonl" and not is_stdin:
        return [(str(path), read_request(path, Request))]
    text = read_text(path)
    first, _, rest = text.strip().partition("\n")
    lines = [(1, text)] if is_stdin and not (rest and _content(first)) else _numbered_lines(text, path)
    return list(islice((row for _, row in rows_or_mistakes(path, lines, _read_request_line)), limit))


def _read_request_line(line: int, text: str) -> tuple[str, Request]:
    if isinstance(fields := _content(text), dict) and fields.keys() - Request.model_fields:
        row = read_row(DataRow, line, text)
        return row.id, row.comparison()
    request = parse_json(Request, text, is_line=True)
    request.check()
    return f"line {line}", request


def _content(text: str) -> Any:
    """Return the content of JSON, None for other text."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)


def read_rows(path: Path, model: type[Row], limit: int | None = None) -> dict[int, Row]:
    """Return the first rows of a JSONL file by line number. Raises InputError with all problems of them."""
    return dict(islice(rows_or_mistakes(path, each_line(path), partial(read_row, model)), limit))


def read_row(model: type[Row], line: int, text: str) -> Row:
    """Return the row in a line of JSONL. Raises ValidationErrors."""
    return parse_json(model, text, is_line=True).complete(line)


def each_line(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank with their numbers, at least one."""
    return _numbered_lines(read_text(path), path)


def _numbered_lines(text: str, path: Path) -> Iterator[tuple[int, str]]:
    is_empty = True
    # Not splitlines(), which would also cut at U+2028 and others that a JSON string may contain.
    for number, line in enumerate(io.StringIO(text, newline="\n"), start=1):
        if line.strip():
            is_empty = False
            yield number, line.removesuffix("\n")
    if is_empty:
        raise InputError(f"{path} has no rows; expected one JSON object per line", field=str(path))


def read_text(path: Path) -> str:
    """Return UTF-8 text of a file, of stdin for "-", without byte order mark. Raises InputError."""
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig") if path == STDIN else path.read_text("utf-8-sig")
        if "\0" in text:  # UTF-16 without a byte order mark, or no text
            raise ValueError
        return text
    except (OSError, ValueError) as error:
        problem = "is not UTF-8 text; save it as UTF-8"
        if isinstance(error, OSError):
            problem = f"cannot be read: {error.strerror}; give the path of a file that exists"
        raise InputError(f"{path} {problem}", field=str(path)) from error


def parse_json(model: type[Model], text: str, source: str = "", *, is_line: bool = False) -> Model:
    """Return JSON as a model. Raises ValidationErrors with all wrong fields and the name of the source."""
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        problem = "a number is too long, or it is nested too deeply"
        if isinstance(error, json.JSONDecodeError):
            problem = f"{error.msg} at {'' if is_line else f'line {error.lineno} '}column {error.colno}"
        raise ValidationErrors([Problem(f"it is not JSON: {problem}")], source) from error
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error), source) from error
