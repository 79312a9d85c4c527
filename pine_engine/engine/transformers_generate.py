"""Context manager that makes `generate` of a transformers model run under a method.

`generate` calls the model once with the prompts and once for each further token, and passes the cache that
the last call returned. So it is enough to replace `model.forward` by an object that computes the prefill of
each prompt separately, and returns logits and a cache with one state per sequence.
"""

import copy
import functools
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
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

ROOM = 64
"""Space for new tokens of a sequence at first. It is doubled when it is used up."""

UNDERSTOOD = {"attention_mask", "position_ids", "logits_to_keep", "return_dict", "use_cache"}
"""Arguments of forward that are ignored, because the layouts define their values."""


@contextmanager
def patch_generate(
    model: PreTrainedModel | Engine,
    layouts: TokenLayout | Prompt | Iterable[TokenLayout | Prompt],
    *,
    method: str | Method = "pine",
) -> Generator[dict[str, Tensor], None, None]:
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
        InputError: For no prompt, an unknown method, a prompt or answer that exceeds the context, a model
            that is inside such a `with` already, and options of generate that are not supported.
        ModelError: If the attention of the model is not supported; from generate, for logits that are not
            finite, and if it runs another model than the one found here.
    """
    row = get_method(method)
    stock = model.model if isinstance(model, Engine) else check_model(model)
    prompts = as_tuple_of(layouts, (TokenLayout, Prompt), "prompt", "give at least one token layout")
    generating = generating_module(stock)
    if isinstance(vars(generating).get("forward"), _AnsweringForward):
        raise InputError(
            "the model is inside another `with patch_generate(...)` already; leave that one first, or "
            "give all "
            "layouts to one, or load the model once more for another thread"
        )
    engine = model if isinstance(model, Engine) else Engine(model)
    read = engine.tokenize_all(prompts)
    for layout in read:
        engine.check_length(layout, 0)
    forward = _AnsweringForward(engine, read, row, generating.forward)
    with (
        # Module.compile keeps what calls the model's own forward.
        _shadowed(generating, forward=forward, _compiled_call_impl=None),
        _shadowed(stock, generate=_checked(stock, forward)),
    ):
        yield {"input_ids": forward.input_ids, "attention_mask": forward.attention_mask}


@contextmanager
def _shadowed(module: nn.Module, **attributes: Any) -> Generator[None, None, None]:
    """Set instance attributes of a module inside the `with`."""
    own = {name: vars(module)[name] for name in attributes if name in vars(module)}
    vars(module).update(attributes)
    try:
        yield
    finally:
        for name in attributes:
            vars(module).pop(name, None)
        vars(module).update(own)


def _checked(model: Any, forward: "_AnsweringForward") -> Callable[..., Any]:
    """Return the model's `generate`, which raises ModelError if it has run another forward pass."""
    generate = model.generate

    @functools.wraps(generate)
    def checked(*args: Any, **options: Any) -> Any:
        calls = forward.num_calls
        output = generate(*args, **options)
        if forward.num_calls == calls:
            raise ModelError(
                f"`generate` of this {type(model).__name__} did not run under patch_generate(): it "
                f"calls another "
                "model than the transformers model found in it. Give patch_generate() the model that "
                "generates."
            )
        return output

    return checked


class _AnsweringForward:
    """Replacement of model.forward."""

    def __init__(
        self,
        engine: Engine,
        layouts: Sequence[TokenLayout],
        method: Method,
        own_forward: Callable[..., Any],
    ) -> None:
        self._engine = engine
        self._layouts = layouts
        self._method = method
        self._own_forward = own_forward
        self._patched_models: tuple[PatchedModel, ...] = ()
        self._read: list[tuple[SequenceState, Tensor]] = []
        self.num_calls = 0

        device = engine.device  # of a model spread over several, where the first tokens go
        longest = max(layout.num_tokens for layout in layouts)
        settings = engine.model.generation_config
        padding = 0 if settings is None or settings.pad_token_id is None else settings.pad_token_id
        self.input_ids = torch.full((len(layouts), longest), padding, device=device)
        self.attention_mask = torch.zeros_like(self.input_ids)
        for index, layout in enumerate(layouts):
            self.input_ids[index, longest - layout.num_tokens :] = torch.tensor(layout.ids, device=device)
            self.attention_mask[index, longest - layout.num_tokens :] = 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., Any]:
        """Return the forward of a copy of the model, which an engine makes for an update."""
        return copy.deepcopy(self._own_forward, memo)

    @torch.no_grad()
    def __call__(
        self, input_ids: Tensor, past_key_values: Cache | None = None, **options: Any
    ) -> CausalLMOutputWithPast:
        """Return logits (sequences, tokens, V) and cache; of prompts, from their last token on."""
        self.num_calls += 1
        given = [name for name, value in options.items() if value is not None and value is not False]
        unknown = [name for name in given if name not in UNDERSTOOD]
        if unknown:
            raise InputError(
                f"the model was called with {', '.join(unknown)}, which cannot be had under "
                f"patch_generate(); "
                "call generate without"
            )
        if options.get("use_cache") is False:
            raise InputError("patch_generate() needs the cache; call generate without use_cache=False")
        if isinstance(past_key_values, _AnswerCache):
            logits = past_key_values.feed(self._engine, input_ids)
            return self._output(logits, past_key_values)

        is_default = type(past_key_values) is DynamicCache and not past_key_values.offloading
        if past_key_values is not None and not (is_default and past_key_values.get_seq_length() == 0):
            raise InputError(
                f"patch_generate() keeps a cache of its own and got a {type(past_key_values).__name__}; call "
                "generate without past_key_values and without cache_implementation"
            )
        logits, cache = self._start(self._sequences_per_prompt(input_ids))
        behind = input_ids[:, self.input_ids.shape[1] :]
        if behind.shape[1]:
            logits = torch.cat((logits, cache.feed(self._engine, behind)), dim=1)
        return self._output(logits, cache)

    def _output(self, logits: Tensor, cache: "_AnswerCache") -> CausalLMOutputWithPast:
        for index, sequence in enumerate(logits):
            check_finite(sequence, self._method.name, cache.num_fed_tokens, index)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)

    def _sequences_per_prompt(self, input_ids: Tensor) -> int:
        """Return the number of sequences per prompt. Raises InputError for tokens of other prompts."""
        count, length = self.input_ids.shape
        repeats, rest = divmod(len(input_ids), count)
        expected = self.input_ids.repeat_interleave(repeats, dim=0)
        if rest or not torch.equal(input_ids[:, :length], expected):
            raise InputError(
                f"the model was called with {tuple(input_ids.shape)} tokens that are not the {count} prompts "
                "of patch_generate(); give generate the inputs that `with` yields, and no option that "
                "changes or "
                "splits them (prefill_chunk_size, guidance_scale, token_healing)"
            )
        return repeats

    def _start(self, repeats: int) -> tuple[Tensor, "_AnswerCache"]:
        """Return the logits (prompts * repeats, 1, V) after the prompts, and a cache for each sequence."""
        patched_models = self._engine.patched_models
        if patched_models is not self._patched_models:  # at first, and after a change of the model
            self._read = [
                passes.prefill(patched_models, layout, self._method, reserved_tokens=ROOM, logits_to_keep=1)
                for layout in self._layouts
            ]
            self._patched_models = patched_models
        rows = [
            SequenceState(row.state, row.cache.copy(ROOM)) for row, _ in self._read for _ in range(repeats)
        ]
        logits = torch.stack([logits for _, logits in self._read]).repeat_interleave(repeats, dim=0)
        return logits, _AnswerCache(rows, self.input_ids.shape[1])


class _AnswerCache(Cache):
    """One state per sequence, all with the same number of new tokens."""

    def __init__(self, rows: list[SequenceState], prompt_length: int) -> None:
        super().__init__(layers=[])
        self._rows = rows
        self._prompt_length = prompt_length
        self.num_fed_tokens = 0
        self._room = ROOM

    def feed(self, engine: Engine, input_ids: Tensor) -> Tensor:
        """Append tokens (sequences, n) and return their logits (sequences, n, V)."""
        num_fed_tokens = self.num_fed_tokens + input_ids.shape[1]
        for row in self._rows:
            engine.check_length(row.state.plan.layout, num_fed_tokens)
        if num_fed_tokens > self._room:
            self._make_room(2 * num_fed_tokens)
        logits = passes.extend(self._rows, input_ids.tolist(), is_step=input_ids.shape[1] == 1)
        self.num_fed_tokens = num_fed_tokens
        return logits

    def _make_room(self, reserved_tokens: int) -> None:
        states: dict[int, PromptState] = {}
        for row in self._rows:
            if id(row.state) not in states:
                states[id(row.state)] = new_state(
                    row.state.plan,
                    patched_model=row.state.patched_model,
                    reserved_tokens=reserved_tokens,
                    recorder=None,
                )
        self._rows = [
            SequenceState(states[id(row.state)], row.cache.copy(reserved_tokens - self.num_fed_tokens))
            for row in self._rows
        ]
        self._room = reserved_tokens

    def _take(self, indices: Sequence[int]) -> None:
        """Select sequences. One that is selected twice is copied."""
        rows: list[SequenceState] = []
        for place, index in enumerate(indices):
            row = self._rows[index]
            if index in indices[:place]:
                row = SequenceState(row.state, row.cache.copy(self._room - self.num_fed_tokens))
            rows.append(row)
        self._rows = rows

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of tokens, including the padding."""
        return self._prompt_length + self.num_fed_tokens

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Select sequences, int64 (sequences,)."""
        self._take(beam_idx.tolist())

    def batch_select_indices(self, indices: Tensor) -> None:
        """Select sequences, int64 (n,)."""
        self._take(indices.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence."""
        self._take([index for index in range(len(self._rows)) for _ in range(repeats)])

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last tokens; their number is negative, as in transformers."""
        assert 0 <= -tokens_to_remove <= self.num_fed_tokens
        for row in self._rows:
            row.cache.truncate(row.cache.length + tokens_to_remove)
        self.num_fed_tokens += tokens_to_remove
