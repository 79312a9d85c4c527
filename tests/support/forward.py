"""Calls of the model: the logits of a prefill, and the calls of a module."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.engine import passes


@torch.inference_mode()
def prefill_logits(engine: Engine, layout: TokenLayout, method: str) -> Tensor:
    return passes.prefill(
        engine.patched_models, layout, METHODS[method], reserved_tokens=0, logits_to_keep=0
    )[1]


@contextmanager
def count_tokens(module: Any) -> Iterator[list[int]]:
    calls: list[int] = []

    def count(_: nn.Module, args: tuple[Tensor, ...], __: Any) -> None:
        calls.append(args[0].shape[1])

    hook = module.register_forward_hook(count)
    try:
        yield calls
    finally:
        hook.remove()
