"""Position sweep: a form goes in, curves that grow slot by slot come out. Imports torch.

Nothing is cached between slots.
"""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import RunFinished
from pine_engine.errors import InputError
from pine_engine.invariance.position_sweep import OrderEffects, SlotScored, order_effects, sweep_document
from pine_engine.methods.table import METHODS, get_methods
from viz.drawing.identity import document_letter
from viz.figures.position_sweep import sweep_sentence
from viz.page.answers.answering import REDRAW_S, progress_sentence
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form
from viz.page.form.limits import check_orders
from viz.page.form.read_only import check_reference
from viz.page.jobs.cost import Work, planned
from viz.page.jobs.metering import Meter

REFERENCE_METHOD = "pine"
"""Method whose answer is the default target: it favors no slot."""


@dataclass(frozen=True)
class SweepView:
    """State of the page during a sweep."""

    sentence: str
    done: Work | None = None
    """Work so far."""

    steps: tuple[SlotScored, ...] = ()
    """Scores so far; empty if none was added."""

    slots: int = 0
    """Planned number of slots."""

    finding: str = ""
    """Range of each method, in words."""

    effects: OrderEffects | None = None
    """Split of vanilla, at the end."""


def stand(
    engine: Engine, form: Form, *, document: int, answer: str, settings: HostSettings = DEFAULTS
) -> Generator[SweepView, None, None]:
    """Move a document through all slots; closing the generator stops the model.

    The methods of the form include vanilla and NIA; an empty answer stands for that of PINE. Raises
    InputError for an invalid form.
    """
    layout = form_layout(form, engine, settings)
    check_orders(layout.num_documents, settings)
    if settings.read_only:
        check_reference(answer.strip(), form)
    if layout.num_documents < 2:
        raise InputError("There is one document only; add another, so that it can move.")
    if document not in form.order:
        raise InputError(f"There is no document {document_letter(document)} any more; choose another.")
    began = drawn = time.monotonic()
    answer = answer.strip()
    meter = Meter(layout.num_tokens)
    if not answer:
        events = engine.generate(layout, methods=[REFERENCE_METHOD], max_new_tokens=form.max_new_tokens)
        with closing(events):
            for event in events:
                meter.see(event)
                if isinstance(event, RunFinished):
                    meter.finish(event.result)
                    answer = event.result.answers[REFERENCE_METHOD].text.strip()
                elif time.monotonic() - drawn >= REDRAW_S:
                    drawn = time.monotonic()
                    yield SweepView(f"The reference answer: {progress_sentence(event)}")
    if not answer:
        label = METHODS[REFERENCE_METHOD].label
        raise InputError(f"{label} answers with nothing; write a reference answer.")

    slots = layout.num_documents
    setting = f"{engine.model_name}, {engine.dtype} on {engine.device}"
    scored: list[SlotScored] = []
    done, scoring = replace(meter.work, orders=0), time.monotonic()
    results = sweep_document(
        engine, layout, document=form.order.index(document), answer=answer, methods=form.methods
    )
    yield SweepView(f"Slot 1 of {slots}")
    with closing(results):
        for item in results:
            if isinstance(item, SlotScored):
                scored.append(item)
                count = len(form.methods)
                spent, scoring = time.monotonic() - scoring, time.monotonic()
                done += Work(count, count * layout.num_tokens, orders=1, read_s=spent)
                finding = sweep_sentence(
                    scored,
                    slots=slots,
                    document=document,
                    answer=answer,
                    setting=setting,
                    labels={row.name: row.label for row in get_methods(form.methods)},
                )
                yield SweepView(f"Slot {len(scored)} done", done, tuple(scored), slots, finding)
            elif time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                yield SweepView(f"Slot {len(scored) + 1} of {slots}: {progress_sentence(item)}")
    vanilla, nia = ([step.scores[name].total for step in scored] for name in ("vanilla", "nia"))
    seconds = time.monotonic() - began
    yield SweepView(
        f"Done: {slots} slots in {seconds:.1f} s. Reference answer: “{answer}”",
        steps=tuple(scored),
        slots=slots,
        finding=finding,
        effects=order_effects(vanilla, nia),
    )


def plan_sweep(engine: Engine, form: Form, *, answer: str, settings: HostSettings = DEFAULTS) -> Work:
    """Plan the work of a sweep, including the target answer if it is empty."""
    layout = form_layout(form, engine, settings)
    tokens, target = layout.num_tokens, answer.strip()
    length = len(engine.tokenize_answer(target)) if target else form.max_new_tokens
    moving = planned(tokens=tokens + length, methods=len(form.methods), orders=layout.num_documents)
    if target:
        return moving
    return moving + planned(tokens=tokens, methods=1, new_tokens=form.max_new_tokens)
