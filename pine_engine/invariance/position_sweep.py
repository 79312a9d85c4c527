"""Position sweep: one document in every slot, with the log-probability of an answer, as in the paper."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from statistics import fmean

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.engine.likelihood import Score, score_methods
from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.orders import moved_order
from pine_engine.prompts.prompt import Prompt
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.worker import RunControl


@dataclass(frozen=True)
class SlotScored:
    """Log-probability of the answer with the document in one slot."""

    slot: int
    order: tuple[int, ...]  # order[p] is the document in slot p
    scores: dict[str, Score]  # by method name, in nats


@dataclass(frozen=True)
class OrderEffects:
    """Vanilla's log-probabilities by slot, in nats, centered and split into two effects."""

    total: tuple[float, ...]  # vanilla, the sum of rope and causal
    rope: tuple[float, ...]  # effect of positions
    causal: tuple[float, ...]  # effect of attention from later documents to earlier ones


def sweep_document(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    *,
    document: int,
    answer: str,
    methods: Sequence[str] | None = None,
) -> Generator[Event | SlotScored, None, None]:
    """Score an answer with one document in each slot; yield PrefillProgress and SlotScored.

    Slots share no cached states, so equal scores are computed, not reused. Closing the generator stops the
    model within one layer.

    Args:
        engine: Engine that scores.
        prompt: Prompt with the documents in their input order.
        document: Index of the document, counted from 0.
        answer: Text that follows the prompt.
        methods: Methods by name. Default: as in Engine.run.

    Raises:
        InputError: For an unknown method or document, an answer without tokens, or a prompt that exceeds the
            context length.
    """
    selected = engine.select_methods(methods)
    layout = engine.tokenize(prompt)
    if not 0 <= document < layout.num_documents:
        expected = f"0 to {layout.num_documents - 1}"
        raise InputError(f"invalid document: got {document}, expected {expected}", field="document")
    ids = engine.tokenize_answer(answer)
    engine.check_length(layout, len(ids))

    def work(control: RunControl) -> Coroutine[None]:
        for slot in range(layout.num_documents):
            order = moved_order(layout.num_documents, document, slot)
            moved, answers = layout.reorder(order), [(answer, ids)]
            scores = yield from score_methods(engine, moved, selected, answers, control=control)
            control.report(SlotScored(slot, order, {method: score for method, (score,) in scores.items()}))

    return stream_shared(work)


def order_effects(vanilla: Sequence[float], nia: Sequence[float]) -> OrderEffects:
    """Split vanilla's dependence on the slot into the effects of RoPE and of causal attention.

    Under NIA documents do not attend to each other, so that a slot only changes positions.
    Source: comparison of vanilla with NIA in the paper.

    Args:
        vanilla: Log-probability of the answer in each slot, in nats.
        nia: Log-probability of the answer in each slot under NIA, in nats.
    """
    causal = [both - rope for both, rope in zip(vanilla, nia, strict=True)]
    return OrderEffects(total=_center(vanilla), rope=_center(nia), causal=_center(causal))


def _center(values: Sequence[float]) -> tuple[float, ...]:
    mean = fmean(values)
    return tuple(value - mean for value in values)
