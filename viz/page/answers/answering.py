"""Run a form and update the answer cards during the run."""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pine_engine as pine
from pine_engine.engine.events import Event, RunResult
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.runs import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.cards.answers import AnswerCard
from viz.page.answers.cards import waiting_cards
from viz.page.answers.run import Shown, finish_run
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form

REDRAW_S = 0.1  # minimum time between two redraws, in seconds


class Meter:
    """Completed work of runs over one prompt, summed from the events of the engine."""

    def __init__(self, prompt_tokens: int) -> None:
        self.work = Work()
        self._prompt_tokens = prompt_tokens

    def see(self, event: Event) -> None:
        """Add an event."""
        match event:
            case pine.PrefillDone(seconds=seconds):
                self.work += Work(prompts=1, prompt_tokens=self._prompt_tokens, read_s=seconds)
            case pine.TokenGenerated():
                self.work += Work(new_tokens=1)

    def finish(self, result: RunResult) -> None:
        """Add the results of one order; methods share their decoding steps."""
        answers = result.answers.values()
        steps = max(len(answer.token_ids) for answer in answers)
        self.work += Work(orders=1, write_s=steps * max(answer.decode_s_per_token for answer in answers))


def advance(cards: tuple[AnswerCard, ...], event: Event) -> tuple[AnswerCard, ...]:
    """Return the cards after one more event of one method."""
    changes: dict[str, Any]
    match event:
        case pine.PrefillProgress(method=method):
            changes = {"state": "reading", "prefill": event}
        case pine.PrefillDone(method=method, seconds=seconds):
            # Until the prefill of all methods is done: all answers are decoded in one batch.
            changes = {"state": "waiting", "prefill_s": seconds}
        case pine.TokenGenerated(method=method, step=step, text=text):
            changes = {"state": "writing", "num_tokens": step + 1, "text": text}
        case pine.GenerationFinished(answer=answer):
            method = answer.method
            changes = {
                "state": "finished",
                "text": answer.text,
                "num_tokens": len(answer.token_ids),
                "prefill_s": answer.prefill_s,
                "decode_s_per_token": answer.decode_s_per_token,
                "finish_reason": answer.finish_reason,
            }
        case pine.RunFinished():
            return cards
    return tuple(replace(card, **changes) if card.method == method else card for card in cards)


def finished_cards(result: RunResult) -> tuple[AnswerCard, ...]:
    """Return the cards of a finished run."""
    cards = waiting_cards(tuple(result.answers))
    for answer in result.answers.values():
        cards = advance(cards, pine.GenerationFinished(answer))
    return cards


def progress_sentence(event: Event) -> str:
    """Describe the progress of the engine in one line."""
    match event:
        case pine.PrefillProgress(method=method, place=place):
            return f"{METHODS[method].label}: prefill, {place}"
        case pine.PrefillDone(method=method):
            return f"{METHODS[method].label}: prefill done"
        case _:
            return "Generating answers"


def prepare_answers(
    engine: "pine.Engine", form: Form, settings: HostSettings = DEFAULTS, *, trace: bool = True
) -> PreparedJob[Shown]:
    """Tokenize a form, and plan one answer per method. Raises InputError for an invalid form."""
    layout = form_layout(form, engine, settings)
    work = planned(
        tokens=layout.num_tokens,
        methods=len(form.methods),
        new_tokens=form.max_new_tokens,
        bytes_at_once=engine.run_bytes(layout, form.methods, form.max_new_tokens),
    )
    shares_documents = settings.share_equal_runs
    return PreparedJob(
        work, partial(answer, form=form, layout=layout, trace=trace, shares_documents=shares_documents)
    )


def answer(
    engine: "pine.Engine", *, form: Form, layout: TokenLayout, trace: bool, shares_documents: bool
) -> Generator[Shown, None, None]:
    """Run the form and yield views; the last has the run."""
    view = Shown(form, waiting_cards(form.methods), planned=(form.order,))
    meter = Meter(layout.num_tokens)
    events = engine.generate(
        layout,
        methods=form.methods,
        max_new_tokens=form.max_new_tokens,
        trace=trace,
        prefix_cache=engine.active_prefixes if shares_documents else None,
    )
    began = drawn = time.monotonic()
    with closing(events):
        for event in events:
            meter.see(event)
            view = replace(view, cards=advance(view.cards, event))
            if time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                yield replace(view, sentence=progress_sentence(event), done=meter.work)
    assert isinstance(event, pine.RunFinished)
    meter.finish(event.result)
    seconds = time.monotonic() - began
    sentence = f"Done: {layout.num_tokens:,} prompt tokens in {seconds:.1f} s ({engine.model_name})."
    run = finish_run(engine, form, event.result)
    yield replace(view, sentence=sentence, done=meter.work, run=run)
