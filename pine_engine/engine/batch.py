"""Answers to many prompts in one batch: each prompt is prefilled alone, its answer decoded beside others."""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

import torch

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Answer
from pine_engine.engine.generation import BATCH_ROWS, ActiveGeneration, decode_answers, synchronize
from pine_engine.engine.model_worker import iterate_in_worker
from pine_engine.engine.prepared_model import check_engine
from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_int, sequence
from pine_engine.methods.table import Method, get_method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt


def generate_batch(
    engine: Engine,
    prompts: Prompt | TokenLayout | Iterable[Prompt | TokenLayout],
    *,
    method: str | Method | Sequence[str | Method] = "pine",
    max_new_tokens: int = 64,
    batch_size: int = BATCH_ROWS,
) -> Generator[tuple[int, Answer], None, None]:
    """Answer prompts greedily and yield (index of the prompt, answer), each as soon as it is finished.

    A finished answer frees its slot for the next prompt, so that memory does not grow with the number of
    prompts. From batch_size 2 on, an answer is bitwise independent of its neighbors. It differs by rounding
    from `Engine.run` with one method, which is a batch of one. The model computes only while an answer is
    awaited; closing the generator stops it. `dict(generate_batch(...))` waits for all answers.

    Args:
        engine: Engine that answers.
        prompts: One or more prompts of any number of documents and any length. There is no padding.
        method: One method for all prompts, or one for each.
        max_new_tokens: Limit per answer.
        batch_size: Number of answers that are decoded together.

    Raises:
        InputError: At the call, for an unknown method, a number of methods other than that of the prompts, a
            prompt that exceeds the context, and a limit or batch size below 1.
        ModelError: After all other answers, if logits are not finite. It names the prompts without an answer.
    """
    check_engine(engine)
    layouts = engine.tokenize_all(prompts)
    names: Sequence[Any] = sequence(method) or [method] * len(layouts)
    methods = [get_method(name) for name in names]
    if len(methods) != len(layouts):
        raise InputError(
            f"{len(methods)} methods were given for {len(layouts)} prompts; give one name, or one for each"
        )
    max_new_tokens = as_int(max_new_tokens, "answer length", least=1)
    batch_size = as_int(batch_size, "batch size", least=1)
    for layout in layouts:
        engine.check_length(layout, max_new_tokens)

    @torch.inference_mode()
    def prefill() -> Iterator[ActiveGeneration]:
        for index, (layout, method) in enumerate(zip(layouts, methods, strict=True)):
            began = time.perf_counter()
            row, logits = passes.prefill(
                engine.patched_models, layout, method, reserved_tokens=max_new_tokens, logits_to_keep=1
            )
            synchronize(logits)
            yield ActiveGeneration(method.name, (row,), logits, time.perf_counter() - began, index)

    def answer() -> Generator[tuple[int, Answer], None, None]:
        errors: dict[int, ModelError] = {}
        for done in decode_answers(engine, prefill(), max_new_tokens=max_new_tokens, batch_size=batch_size):
            if done.error:
                errors[done.index] = done.error
            else:
                yield done.index, done.answer
        if errors:
            indices = ", ".join(map(str, errors))
            raise ModelError(f"prompts without an answer, by index: {indices}; {next(iter(errors.values()))}")

    return iterate_in_worker(answer())
