"""State of the form before a run: its length in tokens, and the reason why it cannot be run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.errors import PineError
from pine_engine.methods.table import METHODS, Output
from pine_engine.models.load import context_words
from pine_engine.scheduling.work import Work
from viz.page.answers.shown import Inputs
from viz.page.common.failures import explain, notice
from viz.page.common.host_settings import HostSettings
from viz.page.form.checks import check_form, too_long
from viz.page.form.form import Form, TokenCount, count_tokens
from viz.page.jobs.job_bar import JobBar, Updates
from viz.page.jobs.sources import Choice, Sources

if TYPE_CHECKING:  # imports torch
    from pine_engine.backend import Backend


@dataclass(frozen=True)
class FormState:
    """Form and model with what the page shows about them before a run.

    Attributes:
        form: Form.
        model: Selected model; None for that of the host.
        sources: Models of the page.
        engine: Model; None before it is loaded.
        count: Lengths in tokens; None if they are unknown.
        problem: Reason why the form cannot be run; "" for none.
    """

    form: Form
    model: Choice | None
    sources: Sources
    engine: "Backend | None" = None
    count: TokenCount | None = None
    problem: str = ""

    @property
    def inputs(self) -> Inputs:
        """Return form and model, as results store them."""
        return self.form, self.model

    @property
    def num_tokens(self) -> int:
        """Return the length of the prompt in tokens; 0 if it is unknown."""
        return self.count.total if self.count else 0

    @property
    def fitting(self) -> "tuple[pine.Method, ...]":
        """Return the methods that fit the model; none before it is loaded."""
        return tuple(self.engine.methods) if self.engine else ()

    def lacks(self, output: Output) -> bool:
        """Check whether the model is known not to return an output."""
        return self.engine is not None and self.engine.misfit(output) is not None

    def estimate(self, bar: JobBar, work: Work, label: str = "") -> Updates:
        """Return the update of the estimate below a start button, none while lengths are unknown."""
        if self.problem:
            return {bar.estimate: ""}
        if self.count is None or self.engine is None:
            return {}
        speed = self.sources.runs.speed(self.engine.model_name)
        sentence = speed.estimate(work, label, self.engine.describe_prompts)
        return {bar.estimate: notice(sentence, kind="count")}


def inspect_form(form: Form, model: Choice | None, sources: Sources, settings: HostSettings) -> FormState:
    """Count the tokens of a form, and find the first reason why it cannot be run."""
    engine, count, problem = None, None, ""
    try:
        if engine := sources.now(form.task, model):
            count = count_tokens(form, engine)
            misfits = {METHODS[name].label: engine.misfit(METHODS[name]) for name in form.methods}
            untick = (f"Untick {label} in the settings: {why}." for label, why in misfits.items() if why)
            problem = next(untick, "") or too_many_tokens(count, form.max_new_tokens, settings)
        check_form(form, settings)
    except PineError as error:
        problem = explain(error)
    return FormState(form, model, sources, engine, count, problem)


def total_sentence(count: TokenCount, max_new_tokens: int) -> str:
    """Describe the lengths of prompt and answer, and the context length of the model, in tokens."""
    if count.max_context_length is None:
        return f"about {count.total:,} prompt + {max_new_tokens} answer tokens"
    context = context_words(count.max_context_length)
    return f"{count.total:,} prompt + {max_new_tokens} answer tokens (context: {context})"


def too_many_tokens(count: TokenCount, max_new_tokens: int, settings: HostSettings) -> str:
    """Return why a prompt does not fit, or ""."""
    if count.max_context_length is None or count.total + max_new_tokens <= count.max_context_length:
        return too_long(count.total, settings) or ""
    return f"Prompt too long: {total_sentence(count, max_new_tokens)}. Shorten or remove documents."
