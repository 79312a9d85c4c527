"""Run a form and update the answer cards during the run."""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import pine_engine as pine
from pine_engine.engine.events import Event, RunResult
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.runs import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.cards.answers import AnswerCard
from viz.drawing.identity import document_letter
from viz.figures.answer_tokens import AnswerTokens, answer_tokens
from viz.page.answers.cards import waiting_cards
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form
from viz.page.jobs.meter import Meter

REDRAW_S = 0.1  # minimum time between two redraws, in seconds


@dataclass(frozen=True)
class TriedOrder:
    """Answers to the documents in one order."""

    order: tuple[int, ...]  # identity of the document in each slot
    answer_records: dict[str, AnswerTokens]  # answer of each method, token by token

    @property
    def label(self) -> str:
        """Return the name of the order, such as "C A B"."""
        return " ".join(map(document_letter, self.order))


@dataclass(frozen=True)
class FinishedRun(TriedOrder):
    """Inputs and results of a finished run, kept in the session."""

    result: RunResult
    titles: tuple[str, ...]  # title in each slot; may be empty
    prompt_tokens: tuple[str, ...]  # text of each token of the prompt
    model: str
    dtype: str
    tried: tuple[TriedOrder, ...] = ()  # the same documents in the other orders of the shuffle test
    recorded: str = ""  # date and model of a recorded run; empty for a run of this session
    form: Form | None = None  # form of the run; None for a recorded run
    address: str = ""  # name that loads the model

    @property
    def answer_tokens(self) -> dict[str, tuple[str, ...]]:
        """Text of each answer token, by method."""
        return {method: answer.tokens for method, answer in self.answer_records.items()}


@dataclass(frozen=True)
class RunView:
    """State of the page during a run."""

    cards: tuple[AnswerCard, ...]
    sentence: str = field(compare=False)  # progress of the run, in one line
    done: Work = field(compare=False)  # work so far
    finished: FinishedRun | None = None  # finished run, in the last view

    @property
    def progress(self) -> tuple[int, int]:
        """Return the number of methods whose prefill is done, and of all."""
        return self.done.prompts, len(self.cards)

    @property
    def is_complete(self) -> bool:
        """Return True if all answers are there."""
        return self.finished is not None


def advance(card: AnswerCard, event: Event) -> AnswerCard:
    """Return the card after one more event of its method."""
    match event:
        case pine.PrefillProgress():
            return replace(card, state="reading", prefill=event)
        case pine.PrefillDone(seconds=seconds):
            # Until the prefill of all methods is done: all answers are decoded in one batch.
            return replace(card, state="waiting", prefill_s=seconds)
        case pine.TokenGenerated(step=step, text=text):
            return replace(card, state="writing", num_tokens=step + 1, text=text)
        case pine.GenerationFinished(answer=answer):
            return replace(
                card,
                state="finished",
                text=answer.text,
                num_tokens=len(answer.token_ids),
                prefill_s=answer.prefill_s,
                decode_s_per_token=answer.decode_s_per_token,
                finish_reason=answer.finish_reason,
            )
        case pine.RunFinished():
            return card


def finished_cards(result: RunResult) -> tuple[AnswerCard, ...]:
    """Return the cards of a finished run."""
    cards = waiting_cards(tuple(result.answers))
    return tuple(advance(card, pine.GenerationFinished(result.answers[card.method])) for card in cards)


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
) -> PreparedJob[RunView]:
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
) -> Generator[RunView, None, None]:
    """Run the form and yield views; the last has the finished run."""
    cards = {card.method: card for card in waiting_cards(form.methods)}
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
            if isinstance(event, pine.RunFinished):
                continue
            method = event.answer.method if isinstance(event, pine.GenerationFinished) else event.method
            cards[method] = advance(cards[method], event)
            if time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                yield RunView(tuple(cards.values()), progress_sentence(event), meter.work)
    assert isinstance(event, pine.RunFinished)
    meter.finish(event.result)
    seconds = time.monotonic() - began
    sentence = f"Done: {layout.num_tokens:,} prompt tokens in {seconds:.1f} s ({engine.model_name})."
    yield RunView(tuple(cards.values()), sentence, meter.work, finish_run(engine, form, event.result))


def finish_run(engine: "pine.Engine", form: Form, result: RunResult) -> FinishedRun:
    """Return the finished run of the form; a run without traces has no answer records."""
    return FinishedRun(
        result=result,
        order=form.order,
        titles=tuple(map(form.title, form.entries)),
        prompt_tokens=tuple(engine.decode_tokens(result.layout.ids)),
        answer_records=read_answers(engine, result, form.order),
        model=engine.model_name,
        dtype=engine.dtype,
        form=form,
        address=engine.model_ref,
    )


def read_answers(engine: "pine.Engine", result: RunResult, order: tuple[int, ...]) -> dict[str, AnswerTokens]:
    """Return the answers of the traced methods, token by token."""
    return {
        method: answer_tokens(engine.decode_tokens, result, method, order, METHODS[method].label)
        for method in result.traces
    }
