"""Position sweep: from a form to scores of each slot.

Nothing is cached between slots.
"""

import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import pine_engine as pine
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.drawing.identity import document_letter
from viz.figures.position_sweep import sweep_sentence
from viz.page.answers.answering import REDRAW_S, Meter, progress_sentence
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form
from viz.page.form.read_only import check_reference

ALWAYS_COMPARED = ("vanilla", "nia")  # explanation of the split of vanilla by NIA, where they fit


def compared_methods(ticked: Sequence[str], fitting: "Iterable[pine.Method]" = ()) -> tuple[str, ...]:
    """Return the ticked methods with vanilla and NIA, in the order of the table of methods.

    Of vanilla and NIA, only those among the `fitting` ones, if these are known.
    """
    names = {method.name for method in fitting} or METHODS.keys()
    return tuple(name for name in METHODS if name in ticked or (name in ALWAYS_COMPARED and name in names))


@dataclass(frozen=True)
class SweepView:
    """State of a sweep.

    Attributes:
        steps: Scores so far.
        slots: Planned number of slots.
        finding: Range of each method, in words.
        effects: Split of vanilla, at the end; None if NIA does not fit the model.
    """

    sentence: str = field(compare=False)
    slots: int
    steps: "tuple[pine.SlotScored, ...]" = ()
    finding: str = ""
    effects: "pine.OrderEffects | None" = None
    done: Work = field(default=Work(), compare=False)

    @property
    def is_complete(self) -> bool:
        """Return True if all results are there."""
        return len(self.steps) == self.slots


def planned_sweep(form: Form, tokens: int, fitting: "Sequence[pine.Method]" = ()) -> Work:
    """Plan a sweep with a target answer, whose length is not known, on a prompt of this length."""
    methods = compared_methods(form.methods, fitting)
    return planned(tokens=tokens, methods=len(methods), orders=len(form.entries))


def prepare_sweep(
    engine: "pine.Engine", form: Form, *, document: int, answer: str, settings: HostSettings = DEFAULTS
) -> PreparedJob[SweepView]:
    """Tokenize a form, and plan the scores of an answer in all slots of a document.

    Vanilla and NIA are added to the methods of the form; an empty answer is replaced by that of the default
    method, which is PINE where it fits. Raises InputError for an invalid form.
    """
    if reason := engine.misfit("logprobs"):
        raise InputError(reason)
    layout, answer = form_layout(form, engine, settings), answer.strip()
    form = replace(form, methods=compared_methods(form.methods, engine.methods))
    if settings.read_only:
        check_reference(answer, form)
    if layout.num_documents < 2:
        raise InputError("Add a second document to run a sweep.")
    if document not in form.order:
        raise InputError(f"Document {document_letter(document)} no longer exists. Select another document.")
    length = len(engine.tokenize_answer(answer)) if answer else form.max_new_tokens
    work = planned(
        tokens=layout.num_tokens + length,
        methods=len(form.methods),
        orders=layout.num_documents,
        bytes_at_once=engine.run_bytes(layout, form.methods, length),
    )
    if not answer:
        work += planned(tokens=layout.num_tokens, methods=1, new_tokens=form.max_new_tokens)
    return PreparedJob(work, partial(sweep, form=form, layout=layout, document=document, answer=answer))


def sweep(
    engine: "pine.Engine", *, form: Form, layout: TokenLayout, document: int, answer: str
) -> Generator[SweepView, None, None]:
    """Move a document through all slots; closing the generator stops the model."""
    began = drawn = time.monotonic()
    meter = Meter(layout.num_tokens)
    view = SweepView("", layout.num_documents)
    if not answer:
        reference = engine.default_method  # favors no slot
        events = engine.generate(layout, methods=[reference], max_new_tokens=form.max_new_tokens)
        with closing(events):
            for event in events:
                meter.see(event)
                if isinstance(event, pine.RunFinished):
                    meter.finish(event.result)
                    answer = event.result.answers[reference.name].text.strip()
                elif time.monotonic() - drawn >= REDRAW_S:
                    drawn = time.monotonic()
                    yield replace(view, sentence=f"Target answer: {progress_sentence(event)}")
    if not answer:
        raise InputError(f"{reference.label}’s answer is empty. Enter a target answer.")

    done, scoring = replace(meter.work, orders=0), time.monotonic()
    results = pine.sweep_document(
        engine, layout, document=form.order.index(document), answer=answer, methods=form.methods
    )
    yield replace(view, sentence=f"Slot 1 of {view.slots}")
    with closing(results):
        for item in results:
            if isinstance(item, pine.SlotScored):
                count = len(form.methods)
                spent, scoring = time.monotonic() - scoring, time.monotonic()
                done += Work(count, count * layout.num_tokens, orders=1, prefill_s=spent)
                finding = sweep_sentence(
                    (*view.steps, item),
                    slots=view.slots,
                    document=document,
                    answer=answer,
                    setting=f"{engine.model_name}, {engine.dtype} on {engine.device}",
                    labels={name: pine.METHODS[name].label for name in form.methods},
                )
                view = replace(view, steps=(*view.steps, item), finding=finding, done=done)
                yield replace(view, sentence=f"Slot {len(view.steps)} done")
            elif time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                slot = f"Slot {len(view.steps) + 1} of {view.slots}"
                yield replace(view, sentence=f"{slot}: {progress_sentence(item)}")
    effects = None
    if set(ALWAYS_COMPARED) <= set(form.methods):
        totals = ([step.scores[name].total for step in view.steps] for name in ALWAYS_COMPARED)
        effects = pine.order_effects(*totals)
    seconds = time.monotonic() - began
    yield replace(
        view,
        sentence=f"Done: {view.slots} slots in {seconds:.1f} s. Target answer: “{answer}”",
        effects=effects,
    )
