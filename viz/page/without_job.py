"""Job that answers a form without each of its documents, for the sources of the words of its answers."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from pine_engine.engine.events import RunResult
from pine_engine.errors import InputError
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Work
from viz.drawing.identity import document_letter
from viz.page.answers.answering import prepare_answers
from viz.page.answers.order_answers import Order
from viz.page.answers.shown import Shown
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.form import Form
from viz.page.internals.left_out_job import LeftOutView, prepare_left_out

if TYPE_CHECKING:  # these import torch
    import pine_engine as pine
    from pine_engine.backend import Backend

Texts = Mapping[str, tuple[str | None, ...]]
"""Answers by method without each document, in the order of the letters; None for an unknown one."""


@dataclass(frozen=True)
class WithoutView:
    """State of the job.

    Attributes:
        sentence: Progress in one line.
        texts: Finished answers.
        scores: Scores of the answers on the page without each document, by method.
        num_left: Number of documents whose answers are not finished; 1 more while scores are missing.
        done: Work so far.
    """

    sentence: str = field(compare=False)
    texts: Texts
    num_left: int
    scores: "Mapping[str, pine.LeaveOneOut]" = field(default_factory=dict)
    done: Work = field(default=Work(), compare=False)

    @property
    def is_complete(self) -> bool:
        """True if everything is finished."""
        return self.num_left == 0


def can_leave_out(form: Form) -> bool:
    """Check whether a form has an answer in words without one of its documents."""
    return len(form.entries) > 1 and not form.row.has_letters


def without_document(form: Form, letter: int) -> Form:
    """Return the form after the removal of a document, as if its card were removed."""
    kept = (entry for entry in form.entries if entry.letter != letter)
    return replace(
        form, entries=tuple(replace(one, letter=one.letter - (one.letter > letter)) for one in kept)
    )


def prepare_without(
    engine: "Backend",
    form: Form,
    letters: Sequence[int],
    settings: HostSettings = DEFAULTS,
    result: RunResult | None = None,
) -> PreparedJob[WithoutView]:
    """Plan the answers of a form without each of these documents.

    result: answers to the form, whose log-probabilities without each document are computed, too.

    Raises InputError for a form with one document or with answers by letter.
    """
    if not can_leave_out(form):
        raise InputError(f"Cannot leave out one of {len(form.entries)} {form.row.nouns.documents}.")
    jobs = {
        letter: prepare_answers(engine, without_document(form, letter), settings, trace=False)
        for letter in letters
    }
    scores = None
    if result and result.answered and not engine.misfit("logprobs"):
        scores = prepare_left_out(cast("pine.Engine", engine), result, engine.model_name)
    work = sum((job.work for job in (*jobs.values(), scores) if job), Work())
    return PreparedJob(work, partial(answer_without, form=form, jobs=jobs, scores=scores))


def answer_without(
    engine: "Backend",
    *,
    form: Form,
    jobs: Mapping[int, PreparedJob[Shown]],
    scores: PreparedJob[LeftOutView] | None = None,
) -> Generator[WithoutView, None, None]:
    """Answer without one document after another, then compute `scores` of the answers with all documents.

    Closing the generator stops the model.
    """
    texts: dict[str, tuple[str | None, ...]] = dict.fromkeys(form.methods, (None,) * len(form.entries))
    done = Work()
    for number, (letter, job) in enumerate(jobs.items(), start=1):
        name = form.row.nouns.named(document_letter(letter))
        for shown in job.views(engine):
            answers = {card.method: card.text for card in shown.cards if shown.is_complete}
            texts |= {
                method: (*texts[method][:letter], text, *texts[method][letter + 1 :])
                for method, text in answers.items()
            }
            sentence = f"Without {name} ({number} of {len(jobs)}): {shown.sentence}"
            num_left = len(jobs) - number + (not shown.is_complete) + (scores is not None)
            view = WithoutView(sentence, dict(texts), num_left, done=done + shown.done)
            yield view
        done += shown.done
    for scored in scores.views(engine) if scores else ():
        complete = {one.score.method: one for one in scored.complete}
        number, count = scored.progress
        sentence = f"Log-probabilities without each {form.row.nouns.document}: prompt {number} of {count}"
        view = replace(
            view, sentence=sentence, scores=complete, num_left=not scored.is_complete, done=done + scored.done
        )
        yield view
    nouns = form.row.nouns
    left_out = f"one {nouns.document}" if len(jobs) == 1 else f"each of {len(jobs)} {nouns.documents}"
    yield replace(view, sentence=f"Done: answers without {left_out}.")


def falls_of(scores: "Mapping[str, pine.LeaveOneOut]", order: Order) -> dict[str, tuple[float, ...]]:
    """Return the fall of the log-probability of each answer in an order, in the order of the letters."""
    return {
        method: tuple(fall for _, fall in sorted(zip(order, one.differences, strict=True)))
        for method, one in scores.items()
    }
