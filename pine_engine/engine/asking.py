"""Arguments of a run: the prompt, or question and documents, and the options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from pine_engine.attention.trace import TraceRequest
from pine_engine.engine.prefix_cache import Memory
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import InputError
from pine_engine.given import in_words, whole_number
from pine_engine.methods.table import Method, get_methods
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import DocumentLike, Prompt
from pine_engine.prompts.tasks import USUAL_TASK, get_task

PromptGiven = Prompt | TokenLayout | None
"""A prompt. None if question and documents are passed instead."""

DocumentsGiven = DocumentLike | Iterable[DocumentLike] | None
"""One or more documents. None if a prompt is passed instead."""

MethodsGiven = str | Method | Iterable[str | Method] | None
"""Methods, see get_methods."""

MAX_NEW_TOKENS = 64
"""Default limit of tokens per answer."""


class RequestParts(TypedDict, total=False):
    """Keyword arguments that replace the prompt of `Engine.run`."""

    question: str
    documents: DocumentsGiven
    task: str
    instruction: str
    system: str


class RunOptions(RequestParts, total=False):
    """Keyword arguments of `Engine.run`."""

    methods: MethodsGiven
    max_new_tokens: int
    trace: bool | TraceRequest
    keep_logits: bool
    stop_at_end: bool
    memory: Memory | None


@dataclass(frozen=True)
class RunSettings:
    """Validated options of a run. Engine.run documents them."""

    methods: tuple[Method, ...]
    max_new_tokens: int
    trace: TraceRequest | None
    keep_logits: bool
    stop_at_end: bool
    memory: Memory


def split_options(options: RunOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of the request and the other options. Raises InputError for an unknown option."""
    check_names(options, RunOptions)
    parts = {name: value for name, value in options.items() if name in RequestParts.__annotations__}
    return parts, {name: value for name, value in options.items() if name not in parts}


def check_names(options: Mapping[str, Any], expected: type) -> None:
    """Raise InputError for an option that is not in the TypedDict."""
    for name in options:
        if name not in expected.__annotations__:
            names = ", ".join(expected.__annotations__)
            raise InputError(f"unknown option: got {name}, expected one of {names}", field=name)


def check_options(
    *,
    methods: MethodsGiven = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    trace: bool | TraceRequest = False,
    keep_logits: bool = False,
    stop_at_end: bool = True,
    memory: Memory | None = None,
) -> RunSettings:
    """Return validated options. Raises InputError for an invalid method, limit, trace or memory."""
    if trace is not None and not isinstance(trace, bool | TraceRequest):
        raise InputError(f"the trace is {in_words(trace)}; give True, False or a TraceRequest(...)")
    if memory is not None and not isinstance(memory, Memory):
        raise InputError(f"the memory is {in_words(memory)}; give a Memory(), or leave it out")
    return RunSettings(
        methods=get_methods(methods),
        max_new_tokens=whole_number(max_new_tokens, "answer length", least=0, unit=" tokens"),
        trace=TraceRequest() if trace is True else trace or None,
        keep_logits=keep_logits,
        stop_at_end=stop_at_end,
        memory=Memory() if memory is None else memory,
    )


def tokenize_request(
    model: PreparedModel,
    prompt: PromptGiven,
    *,
    question: str = "",
    documents: DocumentsGiven = None,
    task: str = USUAL_TASK,
    instruction: str = "",
    system: str = "",
) -> TokenLayout:
    """Return the token ids of the prompt, or of that which the task builds from its parts.

    Raises InputError for both, for neither, and for an invalid part or prompt.
    """
    has_parts = documents is not None or any((question, instruction, system)) or task != USUAL_TASK
    if prompt is not None and has_parts:
        raise InputError(
            "a prompt was given, and parts of one; give the prompt alone, or question, documents, task, "
            "instruction and system without it",
            field="prompt",
        )
    if prompt is None and not has_parts:
        raise InputError(
            'nothing was asked; give question="..." and documents=["...", "..."], or a prompt of your own',
            field="prompt",
        )
    if prompt is None:
        if documents is None:
            raise InputError('there are no documents; give documents=["...", "..."]', field="documents")
        prompt = get_task(task).prompt(
            model.tokenizer, question=question, documents=documents, instruction=instruction, system=system
        )
    return model.tokenize(prompt)
