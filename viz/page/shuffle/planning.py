"""How much work a job is, counted before it begins.

Imports the engine and with it torch, like answering.py.
"""

from collections.abc import Sequence

from pine_engine.engine.engine import Engine
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.jobs import plan_example
from pine_engine.evaluation.settings import Settings
from pine_engine.prompts.tasks import get_task
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form.form import Form, form_layout
from viz.page.form.orders import with_controls
from viz.page.jobs.cost import Work, planned
from viz.page.shuffle.shuffling import orders_for

# Each raises InputError for what cannot be done, as the job itself does.


def plan_answers(engine: Engine, form: Form, settings: HostSettings = DEFAULTS) -> Work:
    """The work of one answer per method."""
    tokens = form_layout(form, engine, settings).num_tokens
    return planned(tokens=tokens, methods=len(form.methods), new_tokens=form.max_new_tokens)


def plan_shuffle(
    engine: Engine,
    form: Form,
    *,
    count: int,
    seed: int,
    controls: bool,
    settings: HostSettings = DEFAULTS,
) -> Work:
    """The work of a shuffle, from the arguments of shuffling.shuffle."""
    layout = form_layout(form, engine, settings)
    methods = with_controls(form.methods) if controls else form.methods
    return planned(
        tokens=layout.num_tokens,
        methods=len(methods),
        orders=len(orders_for(layout.num_documents, count, seed, settings)),
        new_tokens=form.max_new_tokens,
    )


def plan_standing(engine: Engine, form: Form, *, answer: str, settings: HostSettings = DEFAULTS) -> Work:
    """The work of moving a document through all slots; answer: "" where it is to be written first."""
    layout = form_layout(form, engine, settings)
    tokens, given = layout.num_tokens, answer.strip()
    length = len(engine.tokenize_answer(given)) if given else form.max_new_tokens
    moving = planned(tokens=tokens + length, methods=len(form.methods), orders=layout.num_documents)
    if given:
        return moving
    return moving + planned(tokens=tokens, methods=1, new_tokens=form.max_new_tokens)


def plan_measurement(engine: Engine, examples: Sequence[Example], settings: Settings) -> Work:
    """The work of a measurement; what is computed once for several records counts once."""
    work = Work()
    for example in examples:
        longest = settings.max_new_tokens or get_task(example.task).max_new_tokens
        plan = plan_example(engine, example, settings)
        for job in plan.jobs:
            work += planned(tokens=job.layout.num_tokens, methods=1)
        for line in plan.lines:
            work += Work(new_tokens=line.num_rows * longest)
    return work
