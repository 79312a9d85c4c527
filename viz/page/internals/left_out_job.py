"""Job that scores answers without each document."""

import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

import pine_engine as pine
from pine_engine.engine.events import RunResult
from pine_engine.errors import InputError
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Work, planned
from viz.page.answers.answering import REDRAW_S, prepare_answers, progress_sentence
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.form import Form
from viz.page.internals.attention_job import check_model


@dataclass(frozen=True)
class LeftOutView:
    """State of the job.

    Attributes:
        model: Model of the scores.
        result: Prompt and answers that are scored; None before the answers.
        scores: Scores so far, by method.
        progress: Number of scored prompts, and of all.
    """

    sentence: str = field(compare=False)
    model: str = ""
    result: RunResult | None = None
    scores: "dict[str, pine.LeaveOneOut]" = field(default_factory=dict)
    progress: tuple[int, int] = (0, 1)
    done: Work = field(default=Work(), compare=False)

    @property
    def is_complete(self) -> bool:
        """Return True if all scores are there."""
        return self.progress[0] == self.progress[1]

    @property
    def complete(self) -> "list[pine.LeaveOneOut]":
        """Return the methods that were scored without every document."""
        count = self.result.layout.num_documents if self.result else 0
        return [one for one in self.scores.values() if len(one.without) == count]


def left_out_request(run: Run, method: str) -> RunResult:
    """Return prompt and answer of one method of a run, without its trace."""
    return RunResult(run.result.layout, {method: run.result.answers[method]}, {})


def prepare_left_out(engine: "pine.Engine", result: RunResult, model: str) -> PreparedJob[LeftOutView]:
    """Plan the scores of answers without each document. Raises InputError for another model."""
    check_model(engine, model)
    return PreparedJob(_work(engine, result), partial(score, result=result))


def prepare_answers_left_out(
    engine: "pine.Engine", form: Form, settings: HostSettings = DEFAULTS
) -> PreparedJob[LeftOutView]:
    """Plan the answers of a form and their scores without each document.

    Raises InputError for one document, and for a model that returns no log-probabilities.
    """
    if reason := engine.misfit("logprobs"):
        raise InputError(reason)
    if len(form.entries) < 2:
        raise InputError("Add a second document to leave one out.")
    answers = prepare_answers(engine, form, settings, trace=False)
    num_prompts = len(form.methods) * (len(form.entries) + 1)
    scores = Work(num_prompts, num_prompts * answers.work.prompt_tokens // len(form.methods))
    return PreparedJob(answers.work + scores, partial(answer_and_score, answers=answers))


def _work(engine: "pine.Engine", result: RunResult) -> Work:
    layout, methods = result.layout, tuple(result.answers)
    length = max(len(answer.token_ids) for answer in result.answers.values())
    return planned(
        tokens=layout.num_tokens + length,
        methods=len(methods),
        orders=layout.num_documents + 1,
        bytes_at_once=engine.run_bytes(layout, methods[:1], length),
    )


def answer_and_score(
    engine: "pine.Engine", answers: PreparedJob[Shown]
) -> Generator[LeftOutView, None, None]:
    """Run a form, then score its answers."""
    for view in answers.views(engine):
        yield LeftOutView(view.sentence, done=view.done)
    assert view.run is not None
    for scored in score(engine, view.run.result):
        yield replace(scored, done=view.done + scored.done)


def score(engine: "pine.Engine", result: RunResult) -> Generator[LeftOutView, None, None]:
    """Score the answers without each document; closing the generator stops the model."""
    count = len(result.answered) * (result.layout.num_documents + 1)
    view = LeftOutView("", engine.model_name, result, progress=(0, count))
    began = drawn = scoring = time.monotonic()
    events = pine.score_without_documents(engine, result)
    with closing(events):
        for event in events:
            if isinstance(event, pine.LeaveOneOut):
                spent, scoring = time.monotonic() - scoring, time.monotonic()
                number = view.progress[0] + 1
                view = replace(
                    view,
                    sentence=f"Prompt {number} of {count} done",
                    scores={**view.scores, event.score.method: event},
                    progress=(number, count),
                    done=view.done + Work(1, result.layout.num_tokens, prefill_s=spent),
                )
                yield view
            elif time.monotonic() - drawn >= REDRAW_S:
                drawn = time.monotonic()
                prompt = f"Prompt {view.progress[0] + 1} of {count}"
                yield replace(view, sentence=f"{prompt}: {progress_sentence(event)}")
    seconds = time.monotonic() - began
    yield replace(view, sentence=f"Done: {count} prompts in {seconds:.1f} s ({engine.dtype}).")
