"""Arguments of the API calls: models that check them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gradio as gr
from pydantic import BaseModel, Field

from pine_engine.errors import InputError, PineError
from pine_engine.methods.table import Method, get_methods
from pine_engine.prompts.chat_templates import dump_kwargs
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.rows.documents import DocumentsInput
from pine_engine.rows.untrusted_json import ListInput
from viz.page.common.failures import explain
from viz.page.common.host_settings import HostSettings
from viz.page.files.reading_files import FileReader
from viz.page.form.checks import check_answer_length
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.jobs.sources import Sources

METHOD_NAMES = Field(None, description="Method names. Default: vanilla, nia, pcw, pine.")
NEW_TOKENS = "Maximum number of new tokens."
TEMPLATE_KWARGS = Field(None, description="Arguments of the chat template. Default: none.")
ACCEPTED = Field(
    None, description="Accepted answers. A correct answer contains one as whole words. Default: no scoring."
)


@dataclass(frozen=True)
class Host:
    """Models, limits and file reader with which the calls are computed."""

    sources: Sources
    settings: HostSettings
    reader: FileReader

    def select_methods(self, names: list[str] | None) -> tuple[Method, ...]:
        """Return the named methods, or the default ones that fit the model of the host, if it is loaded."""
        sources = self.sources
        engine = sources.now(USUAL_TASK) if sources.main.status.stage == "ready" else None
        return engine.select_methods(names or None) if engine else get_methods(names or None)


class Question(BaseModel):
    """Question about documents: the arguments that calls have in common."""

    question: str = Field(description="Question about the documents.")
    documents: DocumentsInput = Field(description='Documents in prompt order, as text or {"title", "text"}.')
    methods: ListInput[str] | None = METHOD_NAMES
    max_new_tokens: int = Field(64, description=NEW_TOKENS)
    instruction: str = Field(
        "", description="Instruction before the documents. Default: the instruction of the task."
    )
    chat_template_kwargs: dict[str, Any] | None = TEMPLATE_KWARGS

    def form(self, host: Host) -> Form:
        """Return the form of the question. Raises gr.Error that names an invalid argument."""
        with name_argument("question"):
            if not self.question.strip():
                raise InputError("must not be empty.")
        with name_argument("documents"):
            if not self.documents:
                raise InputError("expected at least one document.")
        for place, document in enumerate(self.documents):
            with name_argument(f"documents[{place}]"):
                if not document.text.strip():
                    raise InputError("text is empty. Add text or omit it.")
        with name_argument("methods"):
            methods = tuple(method.name for method in host.select_methods(self.methods))
        with name_argument("max_new_tokens"):
            check_answer_length(self.max_new_tokens)
        entries = entries_from([(one.title, one.text, one.score) for one in self.documents])
        prompt = USUAL_TASK, self.question, self.instruction
        return Form(*prompt, methods, self.max_new_tokens, entries, dump_kwargs(self.chat_template_kwargs))


class ScoredQuestion(Question):
    """Arguments of /compare."""

    answers: ListInput[str] | None = ACCEPTED


class ShuffledQuestion(Question):
    """Arguments of /shuffle."""

    orders: int = Field(6, description="Number of orders; up to 4 documents, all orders are run.")
    seed: int = Field(0, description="Random seed for the orders.")
    answers: ListInput[str] | None = ACCEPTED


class TracedQuestion(Question):
    """Arguments of /trace."""

    max_new_tokens: int = Field(8, description=NEW_TOKENS)
    arrays: bool = Field(
        False, description="Include per-layer and per-head arrays (about 0.5 MB for 12 documents)."
    )


class LeftOutQuestion(Question):
    """Arguments of /leave_one_out."""

    max_new_tokens: int = Field(16, description=NEW_TOKENS)


@contextmanager
def name_argument(name: str) -> Iterator[None]:
    """Raise gr.Error with the name of the argument for any error in the block."""
    try:
        yield
    except PineError as error:
        raise gr.Error(f"Invalid argument {name}: {explain(error)}", print_exception=False) from error
