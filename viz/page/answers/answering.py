"""Run a form: the answer cards before, during and after the run, with parsed answers and scores."""

import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pine_engine as pine
from pine_engine.endpoint.repeats import Repeats
from pine_engine.engine.events import Event, RunResult
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.scoring import SCORES
from pine_engine.prompts.tasks import Task
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.cards.answers import AnswerCard, Reading, answer_grid
from viz.cards.molecules import molecule_svg
from viz.page.answers.run import finish_run
from viz.page.answers.shown import Shown
from viz.page.common.failures import notice
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend

REDRAW_S = 0.1  # minimum time between two redraws, in seconds
MAX_REASONS = 3  # refused answers whose reason is shown


class Meter:
    """Completed work of runs over one prompt, summed from the events of a backend.

    Attributes:
        work: Work so far.
        repeats: For each repeated request, True if both answers are equal.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self.work = Work()
        self.repeats: list[bool] = []
        self._prompt_tokens = prompt_tokens

    def see(self, event: Event) -> None:
        """Add an event."""
        match event:
            case pine.PrefillDone(seconds=seconds):
                self.work += Work(prompts=1, prompt_tokens=self._prompt_tokens, prefill_s=seconds)
            case pine.TokenGenerated():
                self.work += Work(new_tokens=1)
            case pine.Repeated(is_equal=is_equal):
                self.repeats.append(is_equal)
            case pine.GenerationFinished(answer=answer) if answer.num_prompt_tokens is not None:
                self.work += Work(1, answer.num_prompt_tokens, answer.num_tokens)

    def finish(self, result: RunResult) -> None:
        """Add the results of one order."""
        self.work += Work(orders=1, decode_s=sum(answer.decode_s for answer in result.answers.values()))


def advance(cards: tuple[AnswerCard, ...], event: Event) -> tuple[AnswerCard, ...]:
    """Return the cards, of the first order, after one more event of one method."""
    changes: dict[str, Any]
    match event:
        case pine.PrefillProgress(method=method, order=0):
            changes = {"state": "reading", "prefill": event}
        case pine.PrefillDone(method=method, seconds=seconds, order=0):
            # Until the first token is known.
            changes = {"state": "waiting", "prefill_s": seconds}
        case pine.TokenGenerated(method=method, step=step, text=text, thinking=thinking, order=0):
            changes = {"state": "writing", "num_tokens": step + 1, "text": text, "thinking": thinking}
        case pine.GenerationFinished(answer=answer, order=0):
            return tuple(
                AnswerCard.finished(answer) if card.method == answer.method else card for card in cards
            )
        case pine.RequestsPlanned():
            return tuple(replace(card, state="writing") for card in cards)
        case _:
            return cards
    return tuple(replace(card, **changes) if card.method == method else card for card in cards)


def stopped_cards(cards: Sequence[AnswerCard]) -> tuple[AnswerCard, ...]:
    """Return the cards after Stop: unfinished ones are marked as stopped and keep their text."""
    return tuple(card if card.state == "finished" else replace(card, state="stopped") for card in cards)


def accepted_answers(typed: str | None) -> tuple[str, ...]:
    """Return the accepted answers, one per non-empty line."""
    return tuple(filter(None, (line.strip() for line in (typed or "").splitlines())))


def is_correct_by(
    task: Task, accepted: Sequence[str], cut_off: Collection[str] = ()
) -> Callable[[str], bool] | None:
    """Return the check of an answer by the rule of the task; None if no answers are accepted.

    Answers that are cut off are not correct.
    """
    return (lambda text: text not in cut_off and task.score(text, accepted) == 1) if accepted else None


def scoring_note(task: Task, accepted: Sequence[str]) -> str:
    """Return the rule by which an answer is correct, with the accepted answers; "" without any."""
    return f"Correct if {SCORES[task.rule][1]}. Accepted: {'; '.join(accepted)}" if accepted else ""


def shown_html(shown: Shown, accepted: Sequence[str] = ()) -> str:
    """Render the cards with parsed and scored answers, and the source of recorded ones."""
    task, cards = shown.form.row, []
    for card in shown.cards:
        reading = read_answer(task, card.text, accepted) if card.state == "finished" else None
        if reading and card.finish_reason == "length":
            reading = replace(reading, is_cut_off=reading.score == 1)
        cards.append(replace(card, model=task.model, reading=reading))
    return answer_grid(cards) + (notice(f"{shown.recorded}.") if shown.recorded else "")


def read_answer(task: Task, text: str, accepted: Sequence[str]) -> Reading:
    """Parse a whole answer, and score it if any answers are accepted."""
    parsed = task.parse(text)
    score = task.score(text, accepted) if accepted else None
    draw = DRAWINGS.get(task.drawn_as)
    html, remark = draw(parsed) if draw and parsed is not None else ("", "")
    return Reading(parsed, task.nouns.finding, score, html, remark, scoring_note(task, accepted))


def draw_molecule(smiles: str) -> tuple[str, str]:
    """Return escaped HTML of the molecule of a SMILES string, or "" and a remark why there is none."""
    try:
        svg = molecule_svg(smiles)
    except ImportError as error:
        return "", f"Cannot draw molecule: {error}"
    return (svg, "") if svg else ("", "Invalid molecule")


DRAWINGS = {"molecule": draw_molecule}  # drawing of a parsed answer, by Task.drawn_as


def progress_sentence(event: Event) -> str:
    """Describe the progress of the engine in one line."""
    match event:
        case pine.PrefillProgress(method=method, share=share, pass_number=number):
            which = f"pass {number}, " if number > 1 else ""
            return f"{METHODS[method].label}: reading documents, {which}{share:.0%}"
        case pine.PrefillDone(method=method):
            return f"{METHODS[method].label}: reading documents, 100%"
        case pine.RequestsPlanned(sentence=sentence):
            return f"Sending {sentence}"
        case pine.RequestProgress(place=place):
            return place
        case _:
            return "Generating answers"


def prepare_answers(
    engine: "Backend", form: Form, settings: HostSettings = DEFAULTS, *, trace: bool = True
) -> PreparedJob[Shown]:
    """Tokenize a form, and plan one answer per method.

    Raises PineError for an invalid form, and for a method that the engine does not have.
    """
    layout = form_layout(form, engine, settings)
    engine.select_methods(form.methods)
    work = planned(
        tokens=layout.num_tokens // engine.ids_per_token,
        methods=len(form.methods),
        new_tokens=form.max_new_tokens,
        bytes_at_once=engine.run_bytes(layout, form.methods, form.max_new_tokens),
    )
    shared = settings.share_equal_runs
    return PreparedJob(work, partial(answer, form=form, layout=layout, trace=trace, shares_documents=shared))


def answer(
    engine: "Backend", *, form: Form, layout: TokenLayout, trace: bool, shares_documents: bool
) -> Generator[Shown, None, None]:
    """Run the form and yield views; the last has the run, unless an answer was refused.

    Raises InputError if all answers were refused.
    """
    engine, _ = engine.bind_template_kwargs(form.parsed_kwargs)
    view = Shown(form, tuple(map(AnswerCard, form.methods)), planned=(form.order,))
    meter = Meter(layout.num_tokens)
    events = engine.generate(
        layout,
        methods=form.methods,
        max_new_tokens=form.max_new_tokens,
        trace=trace and engine.misfit("traces") is None,
        prefix_cache=engine.active_prefixes if shares_documents else None,
    )
    began = drawn = time.monotonic()
    with closing(events):
        for event in events:
            meter.see(event)
            view = replace(view, cards=advance(view.cards, event))
            if time.monotonic() - drawn >= REDRAW_S or isinstance(event, pine.RequestsPlanned):
                drawn = time.monotonic()
                yield replace(view, sentence=progress_sentence(event), done=meter.work)
    assert isinstance(event, pine.RunFinished)
    refused = {(1, name): one.refusal for name, one in event.result.answers.items() if one.refusal}
    if not refused:
        meter.finish(event.result)
        repeats = count_repeats(engine, meter)
        view = replace(view, run=finish_run(engine, form, event.result, repeats=repeats))
    num_tokens = layout.num_tokens // engine.ids_per_token
    done = f"Done: {num_tokens:,} prompt tokens in {time.monotonic() - began:.1f} s ({engine.conditions})."
    sentence = " ".join([done, *remarks(engine, meter, refused, len(form.methods))])
    yield replace(view, sentence=sentence, done=meter.work)


def count_repeats(engine: "Backend", meter: Meter) -> Repeats | None:
    """Return the number of repeated requests; None for an engine, whose answers repeat."""
    return None if engine.misfit("traces") is None else Repeats.count(meter.repeats)


def remarks(
    engine: "Backend", meter: Meter, refused: Mapping[tuple[int, str], str], num_prompts: int
) -> list[str]:
    """Return in sentences what limits the answers of a run.

    Reasons of refused answers are by the number of the order, from 1, and by method.

    Raises:
        InputError: All answers were refused.
    """
    sentences = list(map(str.capitalize, Repeats.count(meter.repeats).notes()))
    if engine.answer_warning:
        sentences.append(f"{engine.answer_warning.capitalize()}.")
    if not refused:
        return sentences
    if len(refused) == num_prompts:
        raise InputError(next(iter(refused.values())), field="prompt")
    reasons = [
        f"{METHODS[method].label} in order {number}: {reason.rstrip('.')}"
        for (number, method), reason in list(refused.items())[:MAX_REASONS]
    ]
    reasons += [f"and {len(refused) - MAX_REASONS} others"] if len(refused) > MAX_REASONS else []
    counted = f"No answer to {len(refused)} of {num_prompts} prompts: {'; '.join(reasons)}"
    return [f"{counted}. Their orders are not compared.", *sentences]
