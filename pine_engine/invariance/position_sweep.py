"""Where the answer stands: a document moved through all slots, and how likely an answer then is.

The paper's first figure, on any documents: the slot of the one that matters changes what vanilla says.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.engine.likelihood import Score, score_answers
from pine_engine.engine.streaming import in_thread, layer_reports, stop_if
from pine_engine.errors import InputError
from pine_engine.methods.table import get_methods
from pine_engine.prompts.layout import TokenLayout, moved_order
from pine_engine.prompts.prompt import Prompt


@dataclass(frozen=True)
class SlotScored:
    """What every method makes of the answer with the document in one slot.

    order: order[p] is the document at place p. scores: by method name, in nats.
    """

    slot: int
    order: tuple[int, ...]
    scores: dict[str, Score]


@dataclass(frozen=True)
class OrderEffects:
    """Vanilla's log-probabilities over the slots, less their mean, taken apart; nats per slot.

    rope: what positions alone do. causal: what attention from later documents to earlier ones adds. Each is
    less its own mean, and total, vanilla less its mean, is their sum.
    """

    total: tuple[float, ...]
    rope: tuple[float, ...]
    causal: tuple[float, ...]


def sweep_document(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    *,
    document: int,
    answer: str,
    methods: Sequence[str] | None = None,
) -> Generator[Event | SlotScored, None, None]:
    """Scores the answer with the document in each slot, first to last; yields PrefillProgress and SlotScored.

    document: its place in the prompt. answer: a text that follows the prompt, taken as data.
    Nothing is remembered between slots, so that a method whose scores stay has earned it; in one slot
    methods share what they read alike, as in Engine.score, whose scores these are.
    Closing the generator stops the model within one layer.
    Raises InputError for an unknown method or document, an answer without tokens, and a prompt that does
    not fit the context.
    """
    rows = get_methods(methods)
    layout = engine.tokenize(prompt)
    if not 0 <= document < layout.num_documents:
        raise InputError(
            f"there is no document {document}; give 0 to {layout.num_documents - 1}, counted from 0"
        )
    ids = engine.tokenize_answer(answer)
    engine.check_length(layout, len(ids))

    @torch.inference_mode()
    def work(emit: Callable[[Event | SlotScored], None], cancelled: threading.Event) -> None:
        for slot in range(layout.num_documents):
            order = moved_order(layout.num_documents, document, slot)
            moved = layout.reorder(order)
            read, logits = passes.prefill_each(
                engine.wirings,
                moved,
                rows,
                room=len(ids),
                on_layer_of=lambda method: layer_reports(method.name, engine.num_layers, emit, cancelled),
            )
            scored = score_answers(read, logits, answer, ids, on_layer=lambda _: stop_if(cancelled))
            scores = {score.method: score for score in scored}
            emit(SlotScored(slot, order, scores))

    return in_thread(work)


def order_effects(vanilla: Sequence[float], nia: Sequence[float]) -> OrderEffects:
    """What RoPE and what causal attention do to vanilla, from the log-probabilities (nats) in each slot.

    Under NIA no document sees another, so which slot a document has changes nothing but positions; what
    vanilla changes beyond that is inter-document causal attention.
    Source: the paper's comparison of vanilla with NIA.
    """
    added = [whole - alone for whole, alone in zip(vanilla, nia, strict=True)]
    return OrderEffects(total=_centred(vanilla), rope=_centred(nia), causal=_centred(added))


def _centred(values: Sequence[float]) -> tuple[float, ...]:
    mean = fmean(values)
    return tuple(value - mean for value in values)
