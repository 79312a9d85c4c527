"""Arguments of a run: the prompt, or question and documents, and the options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from pine_engine.attention.trace import TraceConfig
from pine_engine.engine.prefix_cache import PrefixCache
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, describe
from pine_engine.methods.table import Method, get_methods
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import DocumentLike, Prompt
from pine_engine.prompts.tasks import USUAL_TASK, get_task

PromptLike = Prompt | TokenLayout | None
"""A prompt. None if question and documents are passed instead."""

DocumentsLike = DocumentLike | Iterable[DocumentLike] | None
"""One or more documents. None if a prompt is passed instead."""

MethodsLike = str | Method | Iterable[str | Method] | None
"""Methods, see get_methods."""

MAX_NEW_TOKENS = 64
"""Default limit of tokens per answer."""


class RequestParts(TypedDict, total=False):
    """Keyword arguments that replace the prompt of `Engine.run`."""

    question: str
    documents: DocumentsLike
    task: str
    instruction: str
    system: str


class RunOptions(RequestParts, total=False):
    """Keyword arguments of `Engine.run`."""

    methods: MethodsLike
    max_new_tokens: int
    trace: bool | TraceConfig
    return_logits: bool
    stop_at_eos: bool
    prefix_cache: PrefixCache | None


@dataclass(frozen=True)
class RunSettings:
    """Validated options of a run. Engine.run documents them."""

    methods: tuple[Method, ...]
    max_new_tokens: int
    trace: TraceConfig | None
    return_logits: bool
    stop_at_eos: bool
    prefix_cache: PrefixCache


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
    methods: MethodsLike = None,
    max_new_tokens: int = MAX_NEW_TOKENS,
    trace: bool | TraceConfig = False,
    return_logits: bool = False,
    stop_at_eos: bool = True,
    prefix_cache: PrefixCache | None = None,
) -> RunSettings:
    """Return validated options. Raises InputError for an invalid method, limit, trace or cache."""
    if trace is not None and not isinstance(trace, bool | TraceConfig):
        raise InputError(f"the trace is {describe(trace)}; give True, False or a TraceConfig(...)")
    if prefix_cache is not None and not isinstance(prefix_cache, PrefixCache):
        raise InputError(f"prefix_cache is {describe(prefix_cache)}; give a PrefixCache(), or leave it out")
    return RunSettings(
        methods=get_methods(methods),
        max_new_tokens=as_int(max_new_tokens, "answer length", least=0, unit=" tokens"),
        trace=TraceConfig() if trace is True else trace or None,
        return_logits=return_logits,
        stop_at_eos=stop_at_eos,
        prefix_cache=PrefixCache() if prefix_cache is None else prefix_cache,
    )


def tokenize_request(
    model: PreparedModel,
    prompt: PromptLike,
    *,
    question: str = "",
    documents: DocumentsLike = None,
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
