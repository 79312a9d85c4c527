"""Requests and data rows in JSON: documents, a question and the task; and their files.

A document is a text or {"text": ..., "title": ...}.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticSerializationError

from pine_engine.errors import InputError, UnknownNameError
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs
from pine_engine.prompts.messages import MessagesInput, read_chat
from pine_engine.prompts.prompt import Prompt
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from pine_engine.rows.chats import check_no_chat
from pine_engine.rows.columns import Columns
from pine_engine.rows.document_keys import is_null
from pine_engine.rows.documents import DocumentsInput
from pine_engine.rows.files import file_kind, load_json, parse_rows
from pine_engine.rows.parse_errors import Problem, ValidationErrors, format_validation_errors, unexpected
from pine_engine.rows.published import has_documents, row_fields
from pine_engine.rows.tables import MAX_DOCUMENTS
from pine_engine.rows.untrusted_json import ListInput

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout


def _current_name(task: str) -> str:
    """Return the present name of a task; an unknown one is reported with the other mistakes of its row."""
    try:
        return TASKS[task].name
    except UnknownNameError:
        return task


TaskName = Annotated[str, AfterValidator(_current_name)]
"""Name of a task, in any case, or a name that it had before."""


class _WithDocuments(BaseModel):
    """Fields that requests and rows share."""

    question: str = ""
    documents: DocumentsInput = Field(min_length=1, max_length=MAX_DOCUMENTS)
    system: str = ""
    task: TaskName = USUAL_TASK

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"documents": value}
        if isinstance(value, dict):
            return cls._fields(value)
        if isinstance(value, cls):
            return value
        raise unexpected(value, 'an object with "documents", or a list of texts')

    @classmethod
    def _fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        return {name: field for name, field in value.items() if not is_null(field)}

    def check(self, source: str = "") -> None:
        """Raise ValidationErrors, with the name of the source, if no prompt can be built."""
        if problems := list(self._problems()):
            raise ValidationErrors(problems, source)

    def _problems(self) -> Iterator[Problem]:
        if self.task not in TASKS:
            yield Problem(f"unknown task {self.task!r:.60}; choose from: {', '.join(TASKS)}", "task")
        else:
            yield from TASKS[self.task].problems(self.question, self.documents)
            if TASKS[self.task].has_letters:
                yield from check_no_chat([one.metadata.get("role") for one in self.documents], "documents")
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

    labels: ListInput[str] = []


def as_whole(value: Any) -> Any:
    """Return an int for a float without a fraction, which tables have for a column with nulls."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _number_as_text(value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return str(as_whole(value)) if is_number else value


class DataRow(_WithDocuments):
    """One example of a data set; other fields are ignored, and the id of a row without one is its line.

    The prefix is the instruction of a task whose instruction opens the user message, `system` that of others.
    Rows of published data sets are accepted as they are (docs/data.md).
    """

    id: Annotated[str, BeforeValidator(_number_as_text)] = ""
    prefix: str = ""

    @classmethod
    def _fields(cls, value: dict[str, Any]) -> dict[str, Any]:
        return row_fields(value)

    def complete(self, line: int, task: str = "") -> Self:
        """Return the row with an id, and this task. Raises ValidationErrors if no prompt can be built."""
        row = self.with_task(task) if task else self
        row.id = row.id or f"line {line}"
        row.check()
        return row

    def with_task(self, task: str) -> Self:
        """Return the row with another task, without an instruction that is the one of the former task."""
        instruction = TASKS[self.task].sized(len(self.documents)).instruction
        fields = {name: "" for name in ("system", "prefix") if getattr(self, name) == instruction}
        return self.model_copy(update={**fields, "task": TASKS[task].name})

    def comparison(self) -> Request:
        """Return the request of the row."""
        return Request.model_validate(self.request_fields())

    def request_fields(self) -> dict[str, Any]:
        """Return the fields of the request of the row."""
        is_in_system = TASKS[self.task].instruction_role == "system"
        instruction, system = (self.system, "") if is_in_system else (self.prefix, self.system)
        fields = {"instruction": instruction, "system": system, "documents": list(self.documents)}
        return {"question": self.question, "task": self.task} | fields


Model = TypeVar("Model", bound=BaseModel)
RequestType = TypeVar("RequestType", bound=Request)
Row = TypeVar("Row", bound=DataRow)


def read_requests(
    path: Path, model: type[RequestType], limit: int | None = None, columns: Columns | None = None
) -> list[tuple[str, RequestType]]:
    """Return the requests of a file, which are requests or data rows, with names: ids, or lines.

    `columns` have the names of fields. A JSON file of one request without an id has the name of the file.
    Path "-" is JSON or JSONL on stdin. Raises InputError with all problems of the file.
    """
    rows = list(islice(parse_rows(path, partial(_read_request, model), columns=columns), limit))
    if file_kind(path) == ".json" and len(rows) == 1:
        return [(name or str(path), request) for _, (name, request) in rows]
    return [(name or f"line {line}", request) for line, (name, request) in rows]


def _read_request(model: type[RequestType], line: int, content: Any) -> tuple[str, RequestType]:
    """Return the id, "" for none, and the request of a row. Fields of requests apply to data rows, too."""
    name = ""
    if isinstance(content, dict) and "documents" not in content and has_documents(content):
        content = {key: field for key, field in content.items() if key != "messages"}  # UltraFeedback
    if isinstance(content, dict) and not content.get("messages") and content.keys() - model.model_fields:
        row = validate(DataRow, content)
        name, row = row.id, row.complete(line)
        fields, extra = row.request_fields(), model.model_fields.keys() - DataRow.model_fields.keys()
        if content.get("instruction"):
            fields["system"] = row.system
        content = fields | {key: content[key] for key in extra & content.keys() if content[key]}
    elif isinstance(content, dict):
        content = {key: field for key, field in content.items() if key in model.model_fields}
    request = validate(model, content)
    request.check()
    return name, request


def read_rows(path: Path, model: type[Row], limit: int | None = None) -> dict[int, Row]:
    """Return the first rows of a file by line number. Raises InputError with all problems of them."""
    return dict(islice(parse_rows(path, partial(read_row, model)), limit))


def read_row(model: type[Row], line: int, content: Any, task: str = "") -> Row:
    """Return a row, of this task instead of its own. Raises ValidationErrors."""
    if task and isinstance(content, dict):
        former = content.get("task")
        is_known = isinstance(former, str) and former in TASKS
        content = content if is_known or former is None else {**content, "task": task}
    return validate(model, content).complete(line, task)


def parse_json(model: type[Model], text: str, source: str = "") -> Model:
    """Return JSON as a model. Raises ValidationErrors with all wrong fields and the name of the source."""
    return validate(model, load_json(text, source), source)


def validate(model: type[Model], content: Any, source: str = "") -> Model:
    """Return parsed JSON as a model. Raises ValidationErrors as `parse_json`."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error, given=content), source) from error
