"""The two forward passes: prefill of a prompt, and extend, which continues from its state."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from pine_engine.attention.forward import decode_attention, prefill_attention
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.recomputed import recompute_attention, tokens_to_recompute
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import SequenceState, input_device, new_state
from pine_engine.attention.strategy import PromptState, check_fit
from pine_engine.attention.trace import TraceConfig
from pine_engine.engine.prefix_cache import find_documents, find_prefix, fork
from pine_engine.engine.reordering import FirstPass, calibrated_shares, reorder_documents
from pine_engine.engine.stock_passes import extend_stock, prefill_stock
from pine_engine.engine.streams import MergedState, StreamsCache, split_streams
from pine_engine.engine.superposition import QuestionRecorder, best_paths, path_bias, path_scores
from pine_engine.methods.plan import AttentionPlan, build_plan
from pine_engine.methods.table import METHODS, Method
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.model_patching import PatchedModel
from pine_engine.network.parallel import num_processes
from pine_engine.network.registration import run_pass
from pine_engine.network.stock_model import StockModel
from pine_engine.network.thread_tuner import OnLayer, attention_threads
from pine_engine.prompts.layout import TokenLayout


@dataclass(frozen=True)
class PassOptions:
    """Networks of a prefill, its logits, recorder and progress, and the states that it reuses.

    Attributes:
        patched_models: Networks for prompts of increasing length.
        reserved_tokens: Maximum number of tokens that follow the prompt.
        logits_to_keep: Number of last tokens whose logits are returned. 0 keeps all, also those of every copy
            of a repeated question.
        recorder: Recorder of a trace.
        on_layer: Called before each layer. May raise an exception, which stops the pass.
        cached_sequences: States of the same networks. Equal prefixes and documents are reused.
    """

    patched_models: Sequence[PatchedModel]
    reserved_tokens: int = 0
    logits_to_keep: int = 1
    recorder: TraceRecorder | None = None
    on_layer: OnLayer = lambda _: None
    cached_sequences: Sequence[SequenceState] = ()

    def state(self, plan: AttentionPlan, log_weights: tuple[float, ...] | None = None) -> PromptState:
        """Return the state of a prompt, in the network for prompts of its length."""
        num_tokens = plan.layout.num_tokens
        patched_model = next(
            each
            for each in self.patched_models
            if each.max_prompt_length is None or num_tokens <= each.max_prompt_length
        )
        return new_state(
            plan,
            patched_model=patched_model,
            reserved_tokens=self.reserved_tokens,
            recorder=self.recorder,
            log_weights=log_weights,
        )

    def first_pass(self) -> FirstPass:
        """Return the vanilla prefill by which some methods score documents before their own prefill."""

        def run(prompt: TokenLayout, recorder: TraceRecorder | None, num_logits: int) -> Tensor:
            options = PassOptions(
                self.patched_models, logits_to_keep=num_logits, recorder=recorder, on_layer=self.on_layer
            )
            return prefill(prompt, METHODS["vanilla"], options)[1]

        patched_model = self.patched_models[0]
        return FirstPass(run, patched_model.content_free, num_processes(patched_model.network))


def prefill(layout: TokenLayout, method: Method, options: PassOptions) -> tuple[SequenceState, Tensor]:
    """Return the state of a prompt under one method and the logits (logits_to_keep, V) of its last tokens.

    Runs under torch.inference_mode. Raises ModelError if the method does not fit the model.
    """
    check_fit(method, options.patched_models[0])
    if method.merge:
        return _prefill_streams(layout, method, options)
    plan = build_plan(method, reorder_documents(layout, method, options.first_pass()))
    if method.key_weighting == "saliency":
        return _prefill_paths(plan, options)
    log_weights = None
    if method.key_weighting == "calibrated":
        log_weights = calibrated_shares(plan.layout, method, options.first_pass())
        if options.recorder:
            options.recorder.log_weights = log_weights
    state = options.state(plan, log_weights)
    if isinstance(state.patched_model, StockModel):
        return prefill_stock(state, options.logits_to_keep, options.on_layer)
    if options.logits_to_keep and (source := find_documents(options.cached_sequences, state)):
        row = fork(source, state, options.reserved_tokens)
        return row, prefill_suffix([row], options)[0]
    if method.recomputed != "nothing":
        return _prefill_recomputed(state, options)
    return _prefill_together([state], [options])[0]


def prefill_orders(
    layouts: Sequence[TokenLayout], method: Method, options: Sequence[PassOptions]
) -> list[tuple[SequenceState, Tensor]]:
    """Return the results of `prefill` for orders of one prompt, in one batch if no bit depends on its size.

    The options of the orders differ in recorder and reused states.
    """
    model = options[0].patched_models[0]
    is_invariant = is_batch_invariant(model.network.dtype, input_device(model.network))
    if len(layouts) > 1 and is_invariant and method.has_one_pass and not isinstance(model, StockModel):
        pairs = zip(layouts, options, strict=True)
        states = [each.state(build_plan(method, layout)) for layout, each in pairs]
        if not find_documents(options[0].cached_sequences, states[0]):
            return _prefill_together(states, options)
    return [prefill(layout, method, each) for layout, each in zip(layouts, options, strict=True)]


def _prefill_together(
    states: Sequence[PromptState], options: Sequence[PassOptions]
) -> list[tuple[SequenceState, Tensor]]:
    """Prefill prompts of equal length under one method in one batch, after known prefixes."""
    plan, network = states[0].plan, states[0].patched_model.network
    found = [find_prefix(each.cached_sequences, state) for state, each in zip(states, options, strict=True)]
    prefixes_of = [prefix for prefix in found if prefix]
    prefixes_of = prefixes_of if len(prefixes_of) == len(found) else []
    first = plan.layout.prefix_length if prefixes_of else 0
    rows = [SequenceState(state, KVCache([])) for state in states]
    ids = torch.tensor([state.plan.layout.ids[first:] for state in states], device=input_device(network))
    with _tuned_prompt(states[0], plan.method, ids, options[0].on_layer) as (begin_layer, threads):
        attend = prefill_attention(rows, begin_layer, prefixes_of, threads)
        position_ids = torch.cat([state.position_ids(first, ids.shape[1]) for state in states])
        logits = run_pass(network, attend, ids, position_ids, logits_to_keep=options[0].logits_to_keep)
    return list(zip(rows, logits, strict=True))


def fork_documents(
    layout: TokenLayout, recorders: Mapping[Method, TraceRecorder | None], options: PassOptions
) -> dict[Method, SequenceState]:
    """Return the states of a prompt before its suffix, with documents of `cached_sequences`.

    Methods that need other passes before the suffix have none. `recorders` replace that of the options.
    """
    rows: dict[Method, SequenceState] = {}
    for method, recorder in recorders.items():
        if options.cached_sequences and method.has_one_pass:
            state = replace(options, recorder=recorder).state(build_plan(method, layout))
            if source := find_documents(options.cached_sequences, state):
                rows[method] = fork(source, state, options.reserved_tokens)
    return rows


def prefill_suffix(rows: Sequence[SequenceState], options: PassOptions) -> Tensor:
    """Return the logits (rows, logits_to_keep, V) of the suffix of rows with reused documents, in one batch.

    The rows have the same prompt. The logits are bitwise those of `prefill` where linear layers are
    batch-invariant.
    """
    state = rows[0].state
    layout, network = state.plan.layout, state.patched_model.network
    ids = torch.tensor([layout.suffix] * len(rows), device=input_device(network))
    with _tuned_prompt(state, len(rows), ids, options.on_layer) as (begin_layer, threads):
        attend = decode_attention(rows, begin_layer, threads)
        position_ids = torch.cat(
            [row.state.position_ids(layout.documents_end, layout.suffix_length) for row in rows]
        )
        return run_pass(network, attend, ids, position_ids, logits_to_keep=options.logits_to_keep)


@contextmanager
def _tuned_prompt(
    state: PromptState, kind: Hashable, ids: Tensor, on_layer: OnLayer
) -> Iterator[tuple[OnLayer, int | None]]:
    """Tune the threads of a prompt's tokens (B, n); yield the function of a layer and attention's threads."""
    if not _can_change_num_threads(state.patched_model, ids):
        yield on_layer, None
        return
    threads = attention_threads(state.plan.layout.num_tokens)  # before the tuner changes their number
    with state.patched_model.thread_tuner.prompt(kind, ids.numel(), on_layer) as begin_layer:
        yield begin_layer, threads


def _prefill_streams(
    layout: TokenLayout, method: Method, options: PassOptions
) -> tuple[SequenceState, Tensor]:
    """Prefill all streams of a prompt, and merge the logits of its last tokens."""
    first, *others = split_streams(layout, method)
    empty = first if method.splits_documents else None
    if empty and not options.logits_to_keep:
        options = replace(options, logits_to_keep=empty[0].suffix_length)
    rows: list[SequenceState] = []
    logits: list[Tensor] = []
    for stream in (*others, first):
        recorder = TraceRecorder(TraceConfig(alternatives=0)) if options.recorder else None
        # No other prompt ends where the stream without a document does.
        cached = () if stream is empty else (*options.cached_sequences, *rows)
        row, stream_logits = prefill(*stream, replace(options, recorder=recorder, cached_sequences=cached))
        rows.append(row)
        logits.append(stream_logits)
    if options.recorder:
        states = [row.state for row in (rows[:-1] if empty else rows)]
        options.recorder.streams = [(state.recorder, state.plan) for state in states if state.recorder]
    one = rows[0].state
    plan = build_plan(method, layout)
    state = PromptState(plan, one.patched_model, None, options.reserved_tokens, one.positions)
    merged = MergedState(state, StreamsCache([], streams=(rows[-1], *rows[:-1])))
    return merged, merged.merge(torch.stack([logits[-1], *logits[:-1]]), 1)


def _prefill_paths(plan: AttentionPlan, options: PassOptions) -> tuple[SequenceState, Tensor]:
    """Score every document with its question, then continue with the task from the best of them.

    The logits of the question are those of its best copy.
    """
    layout, length, recorder = plan.layout, plan.question_length, options.recorder
    of_question = QuestionRecorder(plan) if recorder else None
    method = replace(plan.method, key_weighting="nothing")
    all_logits = replace(options, reserved_tokens=0, logits_to_keep=0, recorder=of_question)
    first, logits = prefill(plan.prompt, method, all_logits)
    # A reused prefix has no logits.
    logits = nn.functional.pad(logits, (0, 0, layout.num_tokens - len(logits), 0))
    scores = path_scores(logits, plan)
    best = best_paths(scores, plan)[0]
    state = options.state(plan, path_bias(scores, plan))
    if recorder and of_question:
        recorder.question, recorder.log_weights = of_question.shares_of(best), state.log_weights
    row = fork(first, state, options.reserved_tokens)
    of_task = extend([row], [layout.suffix], options.on_layer)[0]
    end = layout.document_slice(best).stop
    before = logits[end - length : end] if options.logits_to_keep else logits[: layout.documents_end]
    return row, torch.cat((before, of_task))[-options.logits_to_keep :]


def _prefill_recomputed(state: PromptState, options: PassOptions) -> tuple[SequenceState, Tensor]:
    """Prefill documents alone, then compute some of their tokens again, and the suffix."""
    plan, layout, network = state.plan, state.plan.layout, state.patched_model.network
    threads = torch.get_num_threads()
    alone = replace(options, reserved_tokens=0, logits_to_keep=1, recorder=None)
    source, _ = prefill(plan.prompt, replace(plan.method, recomputed="nothing"), alone)
    row = SequenceState(state, KVCache([]))
    tokens = torch.cat((tokens_to_recompute(plan), torch.arange(layout.documents_end, layout.num_tokens)))
    tokens = tokens.to(input_device(network))
    ids = torch.tensor([layout.ids], device=tokens.device)[:, tokens]
    position_ids = state.position_ids(0, layout.num_tokens)[:, tokens]
    with _tuned_prompt(state, plan.method, ids, options.on_layer) as (begin_layer, _):
        attend = recompute_attention(row, source, begin_layer, threads)
        logits = run_pass(network, attend, ids, position_ids, logits_to_keep=options.logits_to_keep)
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
    rows: Sequence[SequenceState | None], ids: Sequence[Sequence[int]], on_layer: OnLayer, is_step: bool
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
    if isinstance(patched_model, StockModel):
        return extend_stock(patched_model, rows, ids, on_layer)
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
    threads = None if count == 1 else torch.get_num_threads()  # fused attention can depend on their number
    if _can_change_num_threads(patched_model, tokens):
        tuner = patched_model.thread_tuner
        tuning = (
            tuner.step(len(tokens), on_layer) if is_step else tuner.prompt("extend", tokens.numel(), on_layer)
        )
    with tuning as begin_layer:
        attend = decode_attention(batch, begin_layer, threads)
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
