"""One shuffle of a tiny model, traced, that all figures are drawn of."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

    from pine_engine.engine.orders import ShuffleResult


@pytest.fixture(scope="session")
def tiny_shuffle(tiny_llama: "Callable[..., LlamaForCausalLM]") -> "ShuffleResult":
    """Three documents of different lengths in all orders, under methods that place them in three ways."""
    from pine_engine.engine.engine import Engine
    from pine_engine.prompts.layout import TokenLayout
    from tests.support.reference import exact_llama

    layout = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33)), (51, 52, 53))
    return Engine(exact_llama(tiny_llama)).shuffle(
        layout, methods=["vanilla", "pcw", "pine"], max_new_tokens=3, stop_at_eos=False, trace=True
    )
