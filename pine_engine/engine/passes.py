"""The two forward passes: prefill of a prompt, and extend, which continues from its state."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pine_engine.attention.forward import decode_attention, prefill_attention
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.recomputed import recompute_attention, tokens_to_recompute
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import SequenceState, input_device, new_state
from pine_engine.attention.strategy import PromptState
from pine_engine.attention.trace import TraceConfig
from pine_engine.engine.calibration import calibrated_shares
from pine_engine.engine.prefix_cache import find_documents, find_prefix, fork
from pine_engine.engine.reordering import Pass, reorder_documents
from pine_engine.engine.streams import MergedState, StreamsCache, plain_sequences, split_streams
from pine_engine.engine.superposition import QuestionRecorder, best_paths, path_bias, path_scores
from pine_engine.methods.plan import AttentionPlan, build_plan
from pine_engine.methods.table import METHODS, Method
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.parallel import num_processes
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
    tokens may follow. 0 keeps all logits, also of every copy of a repeated question. `on_layer` may raise.
    Prefixes and documents of `cached_sequences`, states of the same networks, are reused if equal.
    """
    patched_model = _patched_model(patched_models, layout)
    cached_sequences = plain_sequences(list(cached_sequences))
    if method.merge:
        return _prefill_streams(
            patched_models,
            layout,
            method,
            reserved_tokens=reserved_tokens,
            logits_to_keep=logits_to_keep,
            recorder=recorder,
            on_layer=on_layer,
            cached_sequences=cached_sequences,
        )
    plan = build_plan(method, _reorder(patched_models, layout, method, on_layer))
    layout = plan.layout
    if method.key_weighting == "saliency":
        return _prefill_paths(
            patched_models,
            plan,
            reserved_tokens=reserved_tokens,
            logits_to_keep=logits_to_keep,
            recorder=recorder,
            on_layer=on_layer,
            cached_sequences=cached_sequences,
        )
    log_weights = None
    if method.key_weighting == "calibrated":
        run, processes = _vanilla(patched_models, on_layer), num_processes(patched_model.network)
        log_weights = calibrated_shares(layout, method, run, patched_model.content_free, processes)
        if recorder:
            recorder.log_weights = log_weights
    state = new_state(
        plan,
        patched_model=patched_model,
        reserved_tokens=reserved_tokens,
        recorder=recorder,
        log_weights=log_weights,
    )
    if logits_to_keep and (source := find_documents(cached_sequences, state)):
        row = fork(source, state, reserved_tokens)
        return row, prefill_suffix([row], logits_to_keep, on_layer)[0]
    if method.recomputed != "nothing":
        options: dict[str, Any] = {"on_layer": on_layer, "cached_sequences": cached_sequences}
        alone = replace(method, recomputed="nothing")
        options |= {"reserved_tokens": 0, "logits_to_keep": 1}
        source, _ = prefill(patched_models, plan.prompt, alone, **options)
        return _recompute(source, SequenceState(state, KVCache([])), logits_to_keep, on_layer)
    prefix_of = find_prefix(cached_sequences, state)
    first = layout.prefix_length if prefix_of else 0
    ids = torch.tensor([layout.ids[first:]], device=input_device(patched_model.network))
    row = SequenceState(state, KVCache([]))
    with _tuned_prompt(patched_model, method, ids, layout, on_layer) as (begin_layer, threads):
        attend = prefill_attention(row, begin_layer, prefix_of, threads)
        position_ids = state.position_ids(first, ids.shape[1])
        logits = run_pass(patched_model.network, attend, ids, position_ids, logits_to_keep=logits_to_keep)
    return row, logits[0]


def fork_documents(
    patched_models: Sequence[PatchedModel],
    layout: TokenLayout,
    method: Method,
    *,
    reserved_tokens: int,
    recorder: TraceRecorder | None,
    cached_sequences: Sequence[SequenceState],
) -> SequenceState | None:
    """Return the state of a prompt before its suffix, with documents of cached states; see `prefill`.

    None if no documents can be reused, and for methods that need other passes before the suffix.
    """
    if not (cached_sequences and method.has_one_pass):
        return None
    state = new_state(
        build_plan(method, layout),
        patched_model=_patched_model(patched_models, layout),
        reserved_tokens=reserved_tokens,
        recorder=recorder,
    )
    source = find_documents(cached_sequences, state)
    return source and fork(source, state, reserved_tokens)


def prefill_suffix(rows: Sequence[SequenceState], logits_to_keep: int, on_layer: OnLayer) -> Tensor:
    """Return the logits (rows, logits_to_keep, V) of the suffix of rows with reused documents, in one batch.

    The rows have the same prompt. The logits are bitwise those of `prefill` where linear layers are
    batch-invariant.
    """
    state = rows[0].state
    layout, patched_model = state.plan.layout, state.patched_model
    ids = torch.tensor([layout.suffix] * len(rows), device=input_device(patched_model.network))
    with _tuned_prompt(patched_model, len(rows), ids, layout, on_layer) as (begin_layer, threads):
        attend = decode_attention(rows, begin_layer, threads)
        position_ids = torch.cat(
            [row.state.position_ids(layout.documents_end, layout.suffix_length) for row in rows]
        )
        return run_pass(patched_model.network, attend, ids, position_ids, logits_to_keep=logits_to_keep)


@contextmanager
def _tuned_prompt(
    patched_model: PatchedModel, kind: Hashable, ids: Tensor, layout: TokenLayout, on_layer: OnLayer
) -> Iterator[tuple[OnLayer, int | None]]:
    """Tune the threads of a prompt's tokens (B, n); yield the function of a layer and attention's threads."""
    if not _can_change_num_threads(patched_model, ids):
        yield on_layer, None
        return
    with patched_model.thread_tuner.prompt(kind, ids.numel(), on_layer) as begin_layer:
        yield begin_layer, attention_threads(layout.num_tokens)


def _patched_model(patched_models: Sequence[PatchedModel], layout: TokenLayout) -> PatchedModel:
    """Return the network for prompts of this length."""
    return next(
        each
        for each in patched_models
        if each.max_prompt_length is None or layout.num_tokens <= each.max_prompt_length
    )


def _prefill_streams(
    patched_models: Sequence[PatchedModel],
    layout: TokenLayout,
    method: Method,
    *,
    reserved_tokens: int,
    logits_to_keep: int,
    recorder: TraceRecorder | None,
    on_layer: OnLayer,
    cached_sequences: Sequence[SequenceState],
) -> tuple[SequenceState, Tensor]:
    """Prefill all streams of a prompt, and merge the logits of its last tokens."""
    first, *others = split_streams(layout, method)
    empty, kept = None, logits_to_keep
    if method.splits_documents:
        empty, kept = first, logits_to_keep or first[0].suffix_length
    rows: list[SequenceState] = []
    logits: list[Tensor] = []
    for stream in (*others, first):
        of_row = TraceRecorder(TraceConfig(alternatives=0)) if recorder else None
        row, of_stream = prefill(
            patched_models,
            *stream,
            reserved_tokens=reserved_tokens,
            logits_to_keep=kept,
            recorder=of_row,
            on_layer=on_layer,
            # No other prompt ends where the stream without a document does.
            cached_sequences=[] if stream is empty else [*cached_sequences, *rows],
        )
        rows.append(row)
        logits.append(of_stream)
        if recorder and of_row and stream is not empty:
            recorder.streams.append((of_row, row.state.plan))
    plan, patched_model = build_plan(method, layout), rows[0].state.patched_model
    state = PromptState(plan, patched_model, None, reserved_tokens, rows[0].state.positions)
    merged = MergedState(state, StreamsCache([], streams=(rows[-1], *rows[:-1])))
    return merged, merged.merge(torch.stack([logits[-1], *logits[:-1]]), 1)


def _prefill_paths(
    patched_models: Sequence[PatchedModel],
    plan: AttentionPlan,
    *,
    reserved_tokens: int,
    logits_to_keep: int,
    recorder: TraceRecorder | None,
    on_layer: OnLayer,
    cached_sequences: Sequence[SequenceState],
) -> tuple[SequenceState, Tensor]:
    """Score every document with its question, then continue with the task from the best of them.

    The logits of the question are those of its best copy.
    """
    layout, length = plan.layout, plan.question_length
    of_question = QuestionRecorder(plan) if recorder else None
    first, logits = prefill(
        patched_models,
        plan.prompt,
        replace(plan.method, key_weighting="nothing"),
        reserved_tokens=0,
        logits_to_keep=0,
        recorder=of_question,
        on_layer=on_layer,
        cached_sequences=cached_sequences,
    )
    # A reused prefix has no logits.
    logits = nn.functional.pad(logits, (0, 0, layout.num_tokens - len(logits), 0))
    scores = path_scores(logits, plan)
    best = best_paths(scores, plan)[0]
    state = new_state(
        plan,
        patched_model=first.state.patched_model,
        reserved_tokens=reserved_tokens,
        recorder=recorder,
        log_weights=path_bias(scores, plan),
    )
    if recorder and of_question:
        recorder.question, recorder.log_weights = of_question.shares_of(best), state.log_weights
    row = fork(first, state, reserved_tokens)
    of_task = extend([row], [layout.suffix], on_layer)[0]
    end = layout.document_slice(best).stop
    before = logits[end - length : end] if logits_to_keep else logits[: layout.documents_end]
    return row, torch.cat((before, of_task))[-logits_to_keep:]


def _recompute(
    source: SequenceState, row: SequenceState, logits_to_keep: int, on_layer: OnLayer
) -> tuple[SequenceState, Tensor]:
    """Compute some document tokens again and the suffix, after documents that were prefilled alone."""
    state, layout = row.state, row.state.plan.layout
    device = input_device(state.patched_model.network)
    tokens = torch.cat(
        (tokens_to_recompute(state.plan), torch.arange(layout.documents_end, layout.num_tokens))
    )
    ids = torch.tensor([layout.ids], device=device)[:, tokens.to(device)]
    position_ids = state.position_ids(0, layout.num_tokens)[:, tokens.to(device)]
    attend = recompute_attention(row, source, on_layer)
    logits = run_pass(state.patched_model.network, attend, ids, position_ids, logits_to_keep=logits_to_keep)
    return row, logits[0]


def _reorder(
    patched_models: Sequence[PatchedModel], layout: TokenLayout, method: Method, on_layer: OnLayer
) -> TokenLayout:
    """Return the prompt with its documents in the order in which the method runs."""
    first, run = patched_models[0], _vanilla(patched_models, on_layer)
    processes = num_processes(first.network)
    return layout.reorder(reorder_documents(layout, method, run, first.content_free, processes))


def _vanilla(patched_models: Sequence[PatchedModel], on_layer: OnLayer) -> Pass:
    """Return vanilla prefill with a recorder, which returns the logits of all tokens."""

    def run(prompt: TokenLayout, recorder: TraceRecorder | None) -> Tensor:
        vanilla = METHODS["vanilla"]
        options: dict[str, Any] = {"reserved_tokens": 0, "logits_to_keep": 0, "recorder": recorder}
        return prefill(patched_models, prompt, vanilla, on_layer=on_layer, **options)[1]

    return run


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
    merged = {slot: row for slot, row in enumerate(rows) if isinstance(row, MergedState)}
    if not merged:
        return _extend_plain(rows, ids, on_layer, is_step)
    # The streams of a row are a batch of their own, whose size never changes.
    outputs = {
        slot: row.merge(
            _extend_plain(row.sequences, [ids[slot]] * len(row.sequences), on_layer, is_step), len(ids[slot])
        )
        for slot, row in merged.items()
    }
    others = [None if slot in merged else row for slot, row in enumerate(rows)]
    if any(others):
        plain = _extend_plain(others, ids, on_layer, is_step).float()
        outputs |= {slot: plain[slot] for slot in range(len(rows)) if slot not in merged}
    some = next(iter(outputs.values()))
    return torch.stack([outputs.get(slot, torch.zeros_like(some)) for slot in range(len(rows))])


def _extend_plain(
    rows: Sequence[SequenceState | None],
    ids: Sequence[Sequence[int]],
    on_layer: OnLayer,
    is_step: bool,
) -> Tensor:
    """Extend rows that are no streams."""
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
    zeros, count = torch.zeros_like(tokens[:1]), tokens.shape[1]
    position_ids = torch.cat(
        [zeros if row is None else row.state.position_ids(row.num_cached_tokens(), count) for row in batch]
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
