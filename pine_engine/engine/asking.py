"""What an engine is asked, as a caller gives it: a prompt, or a question and documents."""

from collections.abc import Iterable
from typing import Any

from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import DocumentLike, Prompt
from pine_engine.prompts.tasks import USUAL_TASK, get_task

PromptGiven = Prompt | TokenLayout | None
"""A prompt, or None where question and documents are given instead."""

DocumentsGiven = DocumentLike | Iterable[DocumentLike] | None
"""Documents, several or a single one, or None where a prompt is given instead."""


def asked_prompt(
    tokenizer: Any,
    prompt: PromptGiven,
    question: str,
    documents: DocumentsGiven,
    task: str,
    instruction: str,
    system: str,
) -> Prompt | TokenLayout:
    """The prompt, made by the task where it is not given. Raises InputError for both, for neither, for an
    unknown task, and as Task.prompt does."""
    parts = [question, instruction, system]
    is_in_parts = documents is not None or any(parts) or task != USUAL_TASK
    if prompt is not None and is_in_parts:
        raise InputError(
            "a prompt was given, and parts of one; give the prompt alone, or question, documents, task, "
            "instruction and system without it"
        )
    if prompt is not None:
        return prompt
    if not is_in_parts:
        raise InputError(
            'nothing was asked; give question="..." and documents=["...", "..."], or a prompt of your own'
        )
    if documents is None:
        raise InputError('there are no documents; give documents=["...", "..."]')
    return get_task(task).prompt(
        tokenizer, question=question, documents=documents, instruction=instruction, system=system
    )
