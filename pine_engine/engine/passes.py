"""The two passes through the network: a prompt is read (prefill), and what was read goes on (extend)."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from pine_engine.attention.decode import ContinuationPass
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.prefill import PrefillPass
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import Row, input_device, new_state
from pine_engine.engine.padding import rows_alike
from pine_engine.engine.prefix_cache import find_documents, find_prefix, fork
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import Method
from pine_engine.network.pace import attention_threads
from pine_engine.network.registration import run_pass
from pine_engine.network.rowwise import knows_no_number
from pine_engine.network.wiring import Wiring
from pine_engine.prompts.layout import TokenLayout


def prefill(
    wirings: Sequence[Wiring],
    layout: TokenLayout,
    method: Method,
    *,
    room: int,
    rows_kept: int,
    recorder: TraceRecorder | None = None,
    on_layer: Callable[[int], None] = lambda _: None,
    donors: Iterable[Row] = (),
) -> tuple[Row, Tensor]:
    """Reads a prompt under one method: its row, and the logits (rows_kept, V) of its last tokens.

    wirings: of an engine; the one for prompts of this length reads it, and what it answers too. room: how
    many tokens may follow. rows_kept: 0 for all. on_layer: called at the start of each layer; what it raises
    ends the pass. donors: rows of the same wirings whose prefix, or prefix and documents, need not be read
    again where they are the same. To be called under torch.inference_mode.
    """
    wiring = next(each for each in wirings if each.longest is None or layout.num_tokens <= each.longest)
    state = new_state(build_plan(method, layout), wiring=wiring, room=room, recorder=recorder)
    # A trace tells how documents were read, and where single tokens are asked for, prefixes too.
    donors = [] if recorder and recorder.request.token_ranges else list(donors)
    if recorder is None and (donor := find_documents(donors, state)):
        row = fork(donor, state, room)
        return row, extend([row], [layout.suffix], on_layer)[0, -rows_kept:]
    prefix_of = find_prefix(donors, state)
    first = layout.prefix_length if prefix_of else 0
    ids = torch.tensor([layout.ids[first:]], device=input_device(wiring.network))
    row = Row(state, KVCache([]))
    pace = wiring.pace.prompt(method, ids.shape[1]) if _may_be_paced(wiring, ids) else None
    threads = attention_threads(layout.num_tokens) if pace else None
    with pace or nullcontext(lambda: None) as begin_layer:
        logits = run_pass(
            wiring.network,
            PrefillPass(row, room, _both(begin_layer, on_layer), prefix_of, threads),
            ids,
            state.position_ids(first, ids.shape[1]),
            logits_to_keep=rows_kept,
        )
    return row, logits[0]


def prefill_each(
    wirings: Sequence[Wiring],
    layout: TokenLayout,
    methods: Iterable[Method],
    *,
    room: int,
    on_layer_of: Callable[[Method], Callable[[int], None]],
) -> tuple[list[Row], list[Tensor]]:
    """Reads a prompt under several methods, what they read alike once for all.

    Returns the row of each, and the logits (1, V) of its last token.
    on_layer_of: what is called at the start of each layer while a method reads. All else as in prefill.
    """
    read: list[Row] = []
    last: list[Tensor] = []
    for method in methods:
        row, logits = prefill(
            wirings, layout, method, room=room, rows_kept=1, on_layer=on_layer_of(method), donors=read
        )
        read.append(row)
        last.append(logits)
    return read, last


def extend(
    rows: Sequence[Row | None],
    ids: Sequence[Sequence[int]],
    on_layer: Callable[[int], None] = lambda _: None,
    *,
    is_step: bool = False,
) -> Tensor:
    """Feeds the same number of tokens to each row: logits (rows, tokens, V).

    rows: of any prompts and methods of one engine, None for one that has ended; it keeps its place in the
    batch where the shape of a matrix product can change the last bit of its rows, and is left out where it
    cannot. on_layer: as in prefill. is_step: each row is fed one token of an answer that is being written,
    with packed weights where the model has them.
    """
    wirings = list({id(row.state.wiring): row.state.wiring for row in rows if row}.values())
    parts = [_extend_under(wiring, rows, ids, on_layer, is_step) for wiring in wirings]
    if len(parts) == 1:
        return parts[0]
    own = torch.tensor([wirings.index(row.state.wiring) if row else 0 for row in rows])
    return torch.stack(parts)[own, torch.arange(len(rows))]


def _may_be_paced(wiring: Wiring, tokens: Tensor) -> bool:
    """Whether no bit of what is computed for tokens (B, n) depends on the number of threads."""
    return tokens.numel() > 1 and knows_no_number(wiring.network.dtype, tokens.device)


def _both(begin_layer: Callable[[], None], on_layer: Callable[[int], None]) -> Callable[[int], None]:
    def on_each(layer: int) -> None:
        begin_layer()
        on_layer(layer)

    return on_each


def _extend_under(
    wiring: Wiring,
    rows: Sequence[Row | None],
    ids: Sequence[Sequence[int]],
    on_layer: Callable[[int], None],
    is_step: bool,
) -> Tensor:
    """extend for those of the rows that this network has read; the logits of all others are zero."""
    places = rows_alike(wiring, rows)
    fed = [row if (row := rows[place]) and row.state.wiring is wiring else None for place in places]
    tokens = torch.tensor([ids[place] for place in places], device=input_device(wiring.network))
    zeros = torch.zeros_like(tokens[:1])
    position_ids = torch.cat(
        [zeros if row is None else row.state.position_ids(row.num_read(), tokens.shape[1]) for row in fed]
    )
    pace = wiring.pace.step(len(tokens)) if is_step and _may_be_paced(wiring, tokens) else None
    with pace or nullcontext(lambda: None) as begin_layer:
        going_on = ContinuationPass(fed, _both(begin_layer, on_layer))
        logits = run_pass(wiring.network, going_on, tokens, position_ids, is_step=is_step)
    if len(places) == len(rows):
        return logits
    whole = logits.new_zeros(len(rows), *logits.shape[1:])
    whole[torch.tensor(places, device=logits.device)] = logits
    return whole
