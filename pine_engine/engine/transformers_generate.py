"""Context manager that makes `generate` of a transformers model run under a method.

`generate` passes on the cache of the last call of `model.forward`. So `forward` is replaced by an object that
prefills each prompt separately, and returns logits and a cache with one state per sequence.
"""

import copy
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from pine_engine.attention.state import SequenceState, new_state
from pine_engine.attention.strategy import PromptState
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.generation import check_finite
from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_tuple_of
from pine_engine.methods.table import Method, get_method
from pine_engine.models.load import check_model
from pine_engine.network.model_patching import PatchedModel, generating_module
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt

RESERVED_TOKENS = 64
"""Initial space for new tokens of a sequence. It is doubled when it is used up."""

IGNORED = {"attention_mask", "position_ids", "logits_to_keep", "return_dict", "use_cache", "tokenizer"}
"""Arguments of forward whose values the layouts define, and the tokenizer of stop strings."""


@contextmanager
def patch_generate(
    model: PreTrainedModel | Engine,
    layouts: TokenLayout | Prompt | Iterable[TokenLayout | Prompt],
    *,
    method: str | Method = "pine",
) -> Generator[dict[str, Any], None, None]:
    """Make model.generate answer prompts under a method, inside a `with` statement.

    Example::

        with patch_generate(model, layouts, method="pine") as inputs:
            output = model.generate(**inputs, max_new_tokens=32, num_beams=3)

    Decoding strategies, logits processors, stopping criteria and streamers of transformers work as usual.
    Each prompt has one prefill, at the first call and after a change of the model. All sequences are decoded
    in one batch; generation.py documents its rounding. Inside, the model answers these prompts only, in one
    thread; an Engine on the same model may run. Afterwards, the model is as before, also after an error.

    Args:
        model: Model with any attention implementation, or a PeftModel or torch.compile wrapper around one. It
            is validated at each entry, an Engine is not.
        layouts: One or more prompts; of text only for an Engine with a tokenizer.
        method: Method of all prompts.

    Yields:
        input_ids and attention_mask, int64 (prompts, tokens), padded on the left.

    Raises:
        InputError: For no prompt, an unknown method or one that merges streams, a prompt or answer that
            exceeds the context, a model that is inside such a `with` already, and options of generate that
            are not supported.
        ModelError: If the method does not fit the model; from generate, for logits that are not
            finite, and if it runs another model than the one found here.
    """
    selected = get_method(method)
    if selected.merge:
        message = f"patch_generate does not support {selected.name}, which merges several runs"
        raise InputError(f"{message}. Use Engine.run.", field="method")
    stock = model.model if isinstance(model, Engine) else check_model(model)
    prompts = as_tuple_of(layouts, (TokenLayout, Prompt), "prompt", "give at least one token layout")
    generating = generating_module(stock)
    if isinstance(vars(generating).get("forward"), _MethodForward):
        message = "the model is already inside `with patch_generate(...)`. Leave it, or load another model."
        raise InputError(message, field="model")
    engine = model if isinstance(model, Engine) else Engine(model)
    engine.check_method(selected)
    tokenized = [engine.tokenize(prompt) for prompt in prompts]
    for layout in tokenized:
        engine.check_length(layout, 0)
    forward = _MethodForward(engine, tokenized, selected, generating.forward)
    with (
        # Module.compile keeps a call of the forward of the model.
        _patched(generating, forward=forward, _compiled_call_impl=None),
        _patched(stock, generate=_checked(stock, forward)),
    ):
        yield {"input_ids": forward.input_ids, "attention_mask": forward.attention_mask}


@contextmanager
def _patched(module: nn.Module, **attributes: Any) -> Generator[None, None, None]:
    """Set instance attributes of a module inside the `with`."""
    before = {name: vars(module)[name] for name in attributes if name in vars(module)}
    vars(module).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            vars(module).pop(name, None)
        vars(module).update(before)


def _checked(model: Any, forward: "_MethodForward") -> Callable[..., Any]:
    """Return the model's `generate`, which raises ModelError if it has run another forward pass."""
    generate = model.generate

    @wraps(generate)
    def checked(*args: Any, **options: Any) -> Any:
        num_calls = forward.num_calls
        output = generate(*args, **options)
        if forward.num_calls == num_calls:
            name = type(model).__name__
            message = f"`generate` of {name} does not run its transformers model. Pass the inner model."
            raise ModelError(message, field="model")
        return output

    return checked


class _MethodForward:
    """Replacement of model.forward."""

    def __init__(
        self, engine: Engine, layouts: Sequence[TokenLayout], method: Method, own_forward: Callable[..., Any]
    ) -> None:
        self._engine = engine
        self._layouts = layouts
        self._method = method
        self._own_forward = own_forward
        self._patched_models: tuple[PatchedModel, ...] = ()
        self._prefilled: list[tuple[SequenceState, Tensor]] = []
        self.num_calls = 0

        # On the device of the first tokens, for a model on several devices.
        ids = [torch.tensor(layout.ids, device=engine.device) for layout in layouts]
        padding = getattr(engine.model.generation_config, "pad_token_id", None) or 0
        pad = partial(pad_sequence, batch_first=True, padding_side="left")
        self.input_ids = pad(ids, padding_value=padding)
        self.attention_mask = pad([torch.ones_like(each) for each in ids])

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        """Return the forward of a copy of the model, which an engine makes for an update."""
        return copy.deepcopy(self._own_forward, memo)

    @torch.no_grad()
    def __call__(
        self, input_ids: Tensor, past_key_values: Cache | None = None, **options: Any
    ) -> CausalLMOutputWithPast:
        """Return logits (sequences, tokens, V) and cache; of prompts, from their last token on."""
        self.num_calls += 1
        used = [name for name, value in options.items() if value is not None and value is not False]
        unsupported = [name for name in used if name not in IGNORED]
        unsupported += ["use_cache=False"] * (options.get("use_cache") is False)
        cache = past_key_values
        is_new = type(cache) is DynamicCache and not cache.offloading and not cache.get_seq_length()
        if not isinstance(cache, _SequencesCache | None) and not is_new:
            unsupported.append(f"past_key_values or cache_implementation of {type(cache).__name__}")
        if unsupported:
            message = f"patch_generate() does not support {', '.join(unsupported)}. Call generate without."
            raise InputError(message, field=unsupported[0])
        if isinstance(cache, _SequencesCache):
            return self._output(cache.feed(self._engine, input_ids), cache)
        logits, cache = self._start(self._sequences_per_prompt(input_ids))
        after_prompt = input_ids[:, self.input_ids.shape[1] :]
        if after_prompt.shape[1]:
            logits = torch.cat((logits, cache.feed(self._engine, after_prompt)), dim=1)
        return self._output(logits, cache)

    def _output(self, logits: Tensor, cache: "_SequencesCache") -> CausalLMOutputWithPast:
        for index, sequence in enumerate(logits):
            check_finite(sequence, self._method.name, cache.num_fed_tokens, index)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _sequences_per_prompt(self, input_ids: Tensor) -> int:
        """Return the number of sequences per prompt. Raises InputError for tokens of other prompts."""
        count, length = self.input_ids.shape
        repeats, rest = divmod(len(input_ids), count)
        if rest or not torch.equal(input_ids[:, :length], self.input_ids.repeat_interleave(repeats, dim=0)):
            found, shape = tuple(input_ids.shape), tuple(self.input_ids.shape)
            advice = "Pass its inputs, and no option that runs other tokens, such as guidance_scale."
            message = f"invalid input_ids: got {found}, expected those of `with`, {shape}. {advice}"
            raise InputError(message, field="input_ids")
        return repeats

    def _start(self, repeats: int) -> tuple[Tensor, "_SequencesCache"]:
        """Return the logits (prompts * repeats, 1, V) after the prompts, and a cache for each sequence."""
        patched_models = self._engine.patched_models
        if patched_models is not self._patched_models:  # at first, and after a change of the model
            options = passes.PassOptions(patched_models, reserved_tokens=RESERVED_TOKENS)
            self._prefilled = [passes.prefill(layout, self._method, options) for layout in self._layouts]
            self._patched_models = patched_models
        rows = [
            SequenceState(row.state, row.cache.copy(RESERVED_TOKENS))
            for row, _ in self._prefilled
            for _ in range(repeats)
        ]
        logits = torch.stack([logits for _, logits in self._prefilled]).repeat_interleave(repeats, dim=0)
        return logits, _SequencesCache(rows, self.input_ids.shape[1])


class _SequencesCache(Cache):
    """One state per sequence, all with the same number of new tokens."""

    def __init__(self, rows: list[SequenceState], prompt_length: int) -> None:
        super().__init__(layers=[])
        self._rows = rows
        self._prompt_length = prompt_length
        self._reserved_tokens = RESERVED_TOKENS
        self.num_fed_tokens = 0

    def feed(self, engine: Engine, input_ids: Tensor) -> Tensor:
        """Append tokens (sequences, n) and return their logits (sequences, n, V)."""
        num_fed_tokens = self.num_fed_tokens + input_ids.shape[1]
        for row in self._rows:
            engine.check_length(row.state.plan.prompt, num_fed_tokens)
        if num_fed_tokens > self._reserved_tokens:
            self._reserve(2 * num_fed_tokens)
        logits = passes.extend(self._rows, input_ids.tolist(), is_step=input_ids.shape[1] == 1)
        self.num_fed_tokens = num_fed_tokens
        return logits

    def _reserve(self, reserved_tokens: int) -> None:
        states: dict[int, PromptState] = {}
        for row in self._rows:
            before = row.state
            if id(before) not in states:
                states[id(before)] = new_state(
                    before.plan,
                    patched_model=before.patched_model,
                    reserved_tokens=reserved_tokens,
                    recorder=None,
                    log_weights=before.log_weights,
                )
        self._reserved_tokens = reserved_tokens
        self._rows = [self._copy(row, states[id(row.state)]) for row in self._rows]

    def _copy(self, row: SequenceState, state: PromptState) -> SequenceState:
        return SequenceState(state, row.cache.copy(self._reserved_tokens - self.num_fed_tokens))

    def _select(self, indices: Sequence[int]) -> None:
        """Select sequences. One that is selected twice is copied."""
        rows = [self._rows[index] for index in indices]
        self._rows = [
            self._copy(row, row.state) if index in indices[:slot] else row
            for slot, (index, row) in enumerate(zip(indices, rows, strict=True))
        ]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._prompt_length + self.num_fed_tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self._select(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        self._select(indices.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        self._select([index for index in range(len(self._rows)) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens; their number is negative, as in transformers."""
        assert 0 <= -tokens_to_remove <= self.num_fed_tokens
        for row in self._rows:
            row.cache.truncate(row.cache.length + tokens_to_remove)
        self.num_fed_tokens += tokens_to_remove
