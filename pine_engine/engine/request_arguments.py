"""Arguments of a run: the prompt, or question and documents, and the options."""

from collections.abc import Iterable
from typing import Any, TypedDict

from pine_engine.attention.trace import TraceConfig
from pine_engine.engine.prefix_cache import PrefixCache
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import InputError
from pine_engine.methods.table import Method
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


def tokenize_request(
    model: PreparedModel,
    prompt: PromptLike,
    *,
    question: str = "",
    documents: DocumentsLike = None,
    task: str = USUAL_TASK,
    instruction: str = "",
    system: str = "",
    **unknown: Any,
) -> TokenLayout:
    """Return the token ids of the prompt, or of the one that the task builds from its parts.

    Raises InputError for both, for neither, for an invalid part or prompt, and for an unknown option.
    """
    for name in unknown:
        raise InputError(f"unknown option: got {name}. See help(Engine.run) for all options.", field=name)
    has_parts = documents is not None or any((question, instruction, system)) or task != USUAL_TASK
    if prompt is not None and has_parts:
        raise InputError(
            "a prompt and parts of a prompt were passed. Pass the prompt, or question, documents, task, "
            "instruction and system.",
            field="prompt",
        )
    if prompt is not None:
        return model.tokenize(prompt)
    if documents is None:
        advice = 'Pass documents=["...", "..."]' + (", or a prompt." if not has_parts else ".")
        raise InputError(f"there are no documents. {advice}", field="documents" if has_parts else "prompt")
    built = get_task(task).prompt(
        model.tokenizer, question=question, documents=documents, instruction=instruction, system=system
    )
    return model.tokenize(built)
