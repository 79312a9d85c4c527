"""Calls of the model: the logits of a prefill, and the calls of a module; caches in use."""

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.attention.state import SequenceState
from pine_engine.engine import passes


@torch.inference_mode()
def prefill_logits(engine: Engine, layout: TokenLayout, method: str) -> Tensor:
    options = passes.PassOptions(engine.patched_models, logits_to_keep=0)
    return passes.prefill(layout, METHODS[method], options)[1]


def unpadded_gemm(rows: Tensor, columns: Tensor, added: Tensor | float = 0) -> Tensor:
    """Multiply as attention did before it avoided single rows and columns."""
    return rows @ columns + added


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


def watch_caches(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Return a function that counts the caches of prompts, prefilled from now on, that are in use."""
    caches, prefill = list[weakref.ref[Any]](), passes.prefill

    def watched(*args: Any, **options: Any) -> tuple[SequenceState, Tensor]:
        row, logits = prefill(*args, **options)
        caches.append(weakref.ref(row.cache))
        return row, logits

    monkeypatch.setattr(passes, "prefill", watched)
    return lambda: sum(cache() is not None for cache in caches)
