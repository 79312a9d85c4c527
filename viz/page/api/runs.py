"""Run of a form for the API: the answers of all methods in one order."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace

import pine_engine as pine
from viz.page.answers.answering import progress_sentence
from viz.page.common.host_settings import HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form
from viz.page.jobs.cost import Meter, Work


@dataclass(frozen=True)
class AnswersView:
    """State of a run. progress: methods that have read the prompt, of all."""

    sentence: str
    model: str
    dtype: str
    progress: tuple[int, int]
    result: "pine.RunResult | None" = None
    done: Work | None = None

    @property
    def is_complete(self) -> bool:
        """Return True if all answers are there."""
        return self.result is not None


def run_form(
    engine: "pine.Engine", form: Form, settings: HostSettings, trace: bool = False
) -> Generator[AnswersView, None, None]:
    """Yield the progress of a run, and its result at the end. Raises InputError for an invalid form."""
    layout = form_layout(form, engine, settings)
    meter = Meter(layout.num_tokens)
    events = engine.generate(layout, methods=form.methods, max_new_tokens=form.max_new_tokens, trace=trace)
    view = AnswersView("", engine.model_name, engine.dtype, (0, len(form.methods)))
    with closing(events):
        for event in events:
            meter.see(event)
            result = event.result if isinstance(event, pine.RunFinished) else None
            if result is not None:
                meter.finish(result)
            yield replace(
                view,
                sentence=progress_sentence(event),
                progress=(meter.work.prompts, len(form.methods)),
                result=result,
                done=meter.work,
            )
