"""Files and API calls into inputs: JSON checked against a schema, with errors of one clear sentence."""

import io
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document, Prompt
from pine_engine.prompts.tasks import get_task

if TYPE_CHECKING:
    from pine_engine.prompts.layout import TokenLayout


class TextReader(Protocol):
    """What reads a prompt of text: an engine with a tokenizer."""

    tokenizer: Any

    def tokenize(self, prompt: Prompt) -> "TokenLayout":
        """The prompt's tokens."""


class DocumentInput(BaseModel):
    """A document with an optional title."""

    model_config = ConfigDict(extra="forbid")

    text: str
    title: str = ""


class Comparison(BaseModel):
    """What one run is asked: documents, a question, and optionally an instruction and a task."""

    model_config = ConfigDict(extra="forbid")

    question: str = ""
    documents: list[str | DocumentInput] = Field(min_length=1)
    instruction: str = ""
    system: str = ""
    task: str = "retrieval_qa"

    def prompt(self, engine: TextReader) -> Prompt:
        """The text that the model reads. Raises InputError for an empty part or an unknown task."""
        documents = [
            Document(given) if isinstance(given, str) else Document(given.text, given.title)
            for given in self.documents
        ]
        return get_task(self.task).prompt(
            engine.tokenizer,
            question=self.question,
            documents=documents,
            instruction=self.instruction,
            system=self.system,
        )

    def tokenize(self, engine: TextReader) -> "TokenLayout":
        """The prompt's tokens. Raises InputError as prompt does."""
        return engine.tokenize(self.prompt(engine))


class LabelledComparison(Comparison):
    """A comparison, and the labels that the model may answer with."""

    labels: list[str] = []


class DataRow(BaseModel):
    """One example of a data set, in the schema that `verify` reads; other fields are ignored."""

    id: str
    task: str
    system: str = ""
    prefix: str = ""
    question: str = ""
    documents: list[DocumentInput] = Field(min_length=1)

    def asked_as(self, task: str) -> Self:
        """The same row for another task. An instruction that is its own task's gives way to the other's.

        Raises InputError for an unknown task.
        """
        own = get_task(self.task).instruction
        fields = {name: "" for name in ("system", "prefix") if getattr(self, name) == own}
        return self.model_copy(update={**fields, "task": get_task(task).name})

    def comparison(self) -> Comparison:
        """The row as a question to the engine. A system text stands where the task expects one."""
        in_system = get_task(self.task).instruction_role == "system"
        return Comparison(
            question=self.question,
            documents=list(self.documents),
            instruction=self.system if in_system else self.prefix,
            system="" if in_system else self.system,
            task=self.task,
        )


Model = TypeVar("Model", bound=BaseModel)


def read_comparison(path: Path) -> Comparison:
    """The comparison in a JSON file. Raises InputError that names the file and what is wrong in it."""
    return parse_json(Comparison, read_text(path), str(path))


def read_labelled_comparison(path: Path) -> LabelledComparison:
    """The same with labels, which may be none."""
    return parse_json(LabelledComparison, read_text(path), str(path))


def read_rows(path: Path, limit: int | None = None) -> list[DataRow]:
    """The rows of a JSONL file, at most `limit`. Raises InputError that names the line."""
    return list(read_lines(DataRow, path, limit).values())


def read_lines(model: type[Model], path: Path, limit: int | None = None) -> dict[int, Model]:
    """The rows of a JSONL file as that model, at most `limit`, by the number of their line, counted from 1.

    Raises InputError that names the line, or says that there is no row.
    """
    return dict(islice(each_line(model, path), limit))


def each_line(model: type[Model], path: Path) -> Iterator[tuple[int, Model]]:
    """The rows of a JSONL file as that model, each with the number of its line, parsed as they are asked for.

    Raises InputError that names the line, or says that there is no row.
    """
    is_empty = True
    # Not splitlines(), which would also cut at U+2028 and others that may stand inside a JSON string.
    for number, line in enumerate(io.StringIO(read_text(path), newline="\n"), start=1):
        if line.strip():
            is_empty = False
            yield number, parse_json(model, line.removesuffix("\n"), f"{path}, line {number}")
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
    """JSON as that model. where: what the text is called in the InputError that names the wrong field."""
    try:
        content: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where} is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} cannot be read as JSON: a number in it is too long, or it is nested too deeply"
        ) from error
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # A list item that fits none of its types is reported once per type; the deepest says most.
        first = max(error.errors(), key=lambda problem: len(problem["loc"]))
        field = ".".join(str(part) for part in first["loc"] if part not in ("str", "DocumentInput"))
        shown = field if field.isprintable() else ascii(field)  # a name in the file may be any text
        raise InputError(f"{where}: {shown or 'the file'}: {first['msg'].lower()}") from error
