"""Passes of a stock model: prefill and extend with its own cache, and the validation of both.

Tokens that follow a prompt are fed one by one, as `generate` of transformers does, so that an answer is
bitwise identical whether it is decoded, scored or fed again.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.model_validation import TOLERANCE, check_adapters, check_finite, logit_deviation
from pine_engine.attention.state import SequenceState, input_device
from pine_engine.attention.strategy import PromptState
from pine_engine.errors import ModelError, one_line
from pine_engine.models.support import PROBE_TOKENS
from pine_engine.network.stock_model import StockModel, num_bytes, run_stock, stock_model
from pine_engine.network.thread_tuner import OnLayer

NUM_STEPS = 3  # decode steps of the validation


@dataclass
class StockCache(KVCache):
    """Cache of a stock model.

    That of the prompt is kept, because a recurrent state cannot be truncated: after `truncate`, the remaining
    tokens are fed again to a copy.

    Attributes:
        prompt: Tokens of the prompt.
        of_prompt: Cache of transformers after the prompt, which no pass changes.
        ids: Tokens that follow the prompt.
        current: Cache after these tokens; None if they have to be fed.
    """

    prompt: tuple[int, ...] = ()
    of_prompt: Any = None
    ids: list[int] = field(default_factory=list)
    current: Any = None

    @property
    def length(self) -> int:
        """Tokens of prompt and continuation."""
        return len(self.prompt) + len(self.ids)

    @property
    def num_bytes(self) -> int:
        """Memory in bytes of the cache after the prompt and of the current one."""
        return len(self.prompt) + 2 * num_bytes(self.of_prompt)

    def copy(self, num_free_tokens: int | None = None) -> "StockCache":
        """Return a copy that shares the cache after the prompt."""
        return replace(self, ids=list(self.ids), current=None)

    def truncate(self, length: int) -> None:
        """Remove all tokens after the first `length` ones, which contain the prompt."""
        if length < self.length:
            del self.ids[length - len(self.prompt) :]
            self.current = None

    def feed(self, model: StockModel, ids: Sequence[int], on_layer: OnLayer) -> Tensor:
        """Append tokens and return their logits (n, V)."""
        device = input_device(model.network)
        if model.cache_name is None:
            tokens = torch.tensor([[*self.prompt, *self.ids, *ids]], device=device)
            logits = run_stock(model, tokens, logits_to_keep=len(ids), on_layer=on_layer)[0]
            self.ids += ids
            return logits
        missing: list[int] = []
        current, self.current = self.current, None  # a pass that is stopped leaves a part of its tokens
        if current is None:
            current, missing = copy.deepcopy(self.of_prompt), list(self.ids)
        by_token = []
        for token in (*missing, *ids):
            logits, current = run_stock(
                model, torch.tensor([[token]], device=device), current, on_layer=on_layer
            )
            by_token.append(logits)
        self.ids += ids
        self.current = current
        return torch.cat(by_token[len(missing) :])


def prefill_stock(state: PromptState, logits_to_keep: int, on_layer: OnLayer) -> tuple[SequenceState, Tensor]:
    """Return the state of a prompt and the logits (logits_to_keep, V) of its last tokens; 0 keeps all."""
    model, prompt = state.patched_model, state.plan.layout.ids
    assert isinstance(model, StockModel)
    ids = torch.tensor([prompt], device=input_device(model.network))
    logits, cache = run_stock(model, ids, logits_to_keep=logits_to_keep, on_layer=on_layer)
    return SequenceState(state, StockCache([], prompt=tuple(prompt), of_prompt=cache)), logits


def extend_stock(
    model: StockModel, rows: Sequence[SequenceState | None], ids: Sequence[Sequence[int]], on_layer: OnLayer
) -> Tensor:
    """Feed tokens to each row of this model and return the logits (rows, n, V), zeros for other rows."""
    outputs = {
        slot: row.cache.feed(model, ids[slot], on_layer)
        for slot, row in enumerate(rows)
        if row and row.state.patched_model is model and isinstance(row.cache, StockCache)
    }
    zeros = torch.zeros_like(next(iter(outputs.values())))
    return torch.stack([outputs.get(slot, zeros) for slot in range(len(rows))])


@torch.inference_mode()
def validate_stock_model(model: PreTrainedModel, reason: str) -> StockModel:
    """Return a model that runs as it is, after a test of its forward pass and its cache.

    Two prompts are continued in turns with the model's cache, and compared with passes over whole sequences.
    A model whose cache gives other logits, such as one with its state in modules, runs without a cache.
    `reason` states why methods that place documents do not fit.

    Raises:
        ModelError: The forward pass raises an error, logits are not finite, or tokens attend to later ones.
    """
    check_adapters(model)
    stock, label = stock_model(model, reason), type(model).__name__
    vocab_size: int = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(0)
    sequences = torch.randint(vocab_size, (2, PROBE_TOKENS), generator=generator).tolist()
    alone = replace(stock, cache_name=None)
    try:
        expected = [StockCache([]).feed(alone, ids, _no_progress) for ids in sequences]
        for logits in expected:
            check_finite(stock.network, logits)
        prompts = [ids[:-NUM_STEPS] for ids in sequences]
        causal = [StockCache([]).feed(alone, ids, _no_progress) for ids in prompts]
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"{label}: it cannot be run ({one_line(error)}); use another model") from error
    for whole, logits in zip(expected, causal, strict=True):
        if not logit_deviation(logits, whole[:-NUM_STEPS]) <= TOLERANCE[whole.dtype]:
            message = f"{label}: its tokens attend to later ones, so it writes no text from left to right"
            raise ModelError(f"{message}; use a decoder such as Llama, Qwen2 or Mistral")
    return stock if _has_exact_cache(stock, prompts, sequences, expected) else alone


def _has_exact_cache(
    stock: StockModel,
    prompts: Sequence[list[int]],
    sequences: Sequence[list[int]],
    expected: Sequence[Tensor],
) -> bool:
    """Check that steps with the model's cache give the logits (n, V) of passes over whole sequences."""
    if stock.cache_name is None:
        return False
    device = input_device(stock.network)
    try:
        caches = []
        for prompt in prompts:
            _, cache = run_stock(stock, torch.tensor([prompt], device=device))
            if cache is None:
                return False
            caches.append(StockCache([], prompt=tuple(prompt), of_prompt=cache))
        steps: list[list[Tensor]] = [[] for _ in prompts]
        for place in range(-NUM_STEPS, 0):
            for cache, ids, logits in zip(caches, sequences, steps, strict=True):
                logits.append(cache.feed(stock, ids[place:][:1], _no_progress))
    except Exception:  # of the model's own code, for a cache that it does not support
        return False
    return all(
        logit_deviation(torch.cat(logits), whole[-NUM_STEPS:]) <= TOLERANCE[whole.dtype]
        for logits, whole in zip(steps, expected, strict=True)
    )


def _no_progress(_: float) -> None:
    """Report nothing."""
