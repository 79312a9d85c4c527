"""The two forward passes: prefill of a prompt, and extend, which continues from its state."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from pine_engine.attention.forward import decode_attention, prefill_attention
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import SequenceState, input_device, new_state
from pine_engine.engine.prefix_cache import find_documents, find_prefix, fork
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import Method
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.registration import run_pass
from pine_engine.network.thread_tuner import OnLayer, attention_threads
from pine_engine.prompts.layout import TokenLayout


def prefill(
    patched_models: Sequence[PatchedModel],
    layout: TokenLayout,
    method: Method,
    *,
    reserved_tokens: int,
    logits_to_keep: int,
    recorder: TraceRecorder | None = None,
    on_layer: OnLayer = lambda _: None,
    cached_sequences: Iterable[SequenceState] = (),
) -> tuple[SequenceState, Tensor]:
    """Return the state of a prompt under one method and the logits (logits_to_keep, V) of its last tokens.

    Runs under torch.inference_mode, in the network for prompts of this length. At most `reserved_tokens`
    tokens may follow; 0 keeps all logits. `on_layer` may raise. Prefixes and documents of
    `cached_sequences`, states of the same networks, are reused if equal.
    """
    patched_model = next(
        each
        for each in patched_models
        if each.max_prompt_length is None or layout.num_tokens <= each.max_prompt_length
    )
    plan = build_plan(method, layout)
    state = new_state(plan, patched_model=patched_model, reserved_tokens=reserved_tokens, recorder=recorder)
    # A trace needs the prefill of documents, and one of single tokens also that of the prefix.
    cached_sequences = [] if recorder and recorder.request.token_ranges else list(cached_sequences)
    if recorder is None and (source := find_documents(cached_sequences, state)):
        row = fork(source, state, reserved_tokens)
        return row, extend([row], [layout.suffix], on_layer)[0, -logits_to_keep:]
    prefix_of = find_prefix(cached_sequences, state)
    first = layout.prefix_length if prefix_of else 0
    ids = torch.tensor([layout.ids[first:]], device=input_device(patched_model.network))
    row = SequenceState(state, KVCache([]))
    tuning: AbstractContextManager[OnLayer] = nullcontext(on_layer)
    threads = None
    if _can_change_num_threads(patched_model, ids):
        tuning = patched_model.thread_tuner.prompt(method, ids.shape[1], on_layer)
        threads = attention_threads(layout.num_tokens)
    with tuning as begin_layer:
        attend = prefill_attention(row, begin_layer, prefix_of, threads)
        position_ids = state.position_ids(first, ids.shape[1])
        logits = run_pass(patched_model.network, attend, ids, position_ids, logits_to_keep=logits_to_keep)
    return row, logits[0]


def extend(
    rows: Sequence[SequenceState | None],
    ids: Sequence[Sequence[int]],
    on_layer: OnLayer = lambda _: None,
    *,
    is_step: bool = False,
) -> Tensor:
    """Feed the same number of tokens to each row and return the logits (rows, tokens, V).

    None is a free slot, which stays in the batch where the batch size can change a logit. `is_step`: one
    token of each answer, for which 4-bit weights are used.
    """
    patched_models = list(dict.fromkeys(row.state.patched_model for row in rows if row))
    parts = [_extend_under(patched_model, rows, ids, on_layer, is_step) for patched_model in patched_models]
    if len(parts) == 1:
        return parts[0]
    part_of_row = torch.tensor([patched_models.index(row.state.patched_model) if row else 0 for row in rows])
    return torch.stack(parts)[part_of_row, torch.arange(len(rows))]


def _extend_under(
    patched_model: PatchedModel,
    rows: Sequence[SequenceState | None],
    ids: Sequence[Sequence[int]],
    on_layer: OnLayer,
    is_step: bool,
) -> Tensor:
    """Extend the rows of one network; the logits of all others are zero."""
    slots = batch_rows(patched_model, rows)
    batch = [
        row if (row := rows[slot]) and row.state.patched_model is patched_model else None for slot in slots
    ]
    tokens = torch.tensor([ids[slot] for slot in slots], device=input_device(patched_model.network))
    zeros = torch.zeros_like(tokens[:1])
    position_ids = torch.cat(
        [
            zeros if row is None else row.state.position_ids(row.num_cached_tokens(), tokens.shape[1])
            for row in batch
        ]
    )
    tuning: AbstractContextManager[OnLayer] = nullcontext(on_layer)
    if is_step and _can_change_num_threads(patched_model, tokens):
        tuning = patched_model.thread_tuner.step(len(tokens), on_layer)
    with tuning as begin_layer:
        attend = decode_attention(batch, begin_layer)
        logits = run_pass(patched_model.network, attend, tokens, position_ids, is_step=is_step)
    if len(slots) == len(rows):
        return logits
    of_all_rows = logits.new_zeros(len(rows), *logits.shape[1:])
    of_all_rows[torch.tensor(slots, device=logits.device)] = logits
    return of_all_rows


def batch_rows(patched_model: PatchedModel, rows: Sequence[SequenceState | None]) -> list[int]:
    """Return the slots of the batch that a network computes together.

    If linear layers are batch-invariant for 2 or more rows, these are its own rows, or a single one and a
    neighbor. Otherwise all slots, so that the batch size never changes (docs/exactness.md).
    """
    network = patched_model.network
    if not is_batch_invariant(network.dtype, input_device(network)):
        return list(range(len(rows)))
    slots = [slot for slot, row in enumerate(rows) if row and row.state.patched_model is patched_model]
    if len(slots) == 1 < len(rows):
        return sorted((slots[0], 0 if slots[0] else 1))
    return slots


def _can_change_num_threads(patched_model: PatchedModel, tokens: Tensor) -> bool:
    """Check that the number of threads does not change the logits of tokens (B, n)."""
    return tokens.numel() > 1 and is_batch_invariant(patched_model.network.dtype, tokens.device)
