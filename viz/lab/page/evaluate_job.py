"""Evaluation of a small dataset: rows, methods and orders go in, records come out."""

import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pine_engine.errors import InputError
from pine_engine.lab.evaluation.record import Record, count_repeats
from pine_engine.lab.evaluation.settings import Settings, check_outputs, choose, max_visited, run_info
from pine_engine.prompts.chat_templates import KWARGS, parse_kwargs
from pine_engine.prompts.examples import Example
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.job import PreparedJob
from pine_engine.scheduling.work import Work, format_seconds
from viz.lab.page.data_sets import DataSet, check_rows, check_rows_shipped
from viz.page.answers.answering import progress_sentence
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.form import checks
from viz.page.form.read_only import NO_TEMPLATE_KWARGS

if TYPE_CHECKING:
    from pine_engine.backend import Backend
from viz.lab.page.evaluate_view import MeasureView

BEAT_S = 0.5  # seconds between two views
SAMPLED = 4  # number of examples whose tokens are counted for an estimate


@dataclass(frozen=True)
class MeasureRequest:
    """Request of an evaluation.

    limit: number of examples, from the first. logprobs: None for log-probabilities if the model returns them.
    """

    rows: DataSet
    limit: int
    methods: tuple[str, ...]
    orders: tuple[str, ...]
    generate: bool
    logprobs: bool | None
    max_new_tokens: int
    chat_template_kwargs: str = ""  # arguments of the chat template as JSON

    @property
    def examples(self) -> tuple[Example, ...]:
        """Return the examples to evaluate."""
        return self.rows.examples[: self.limit]

    def settings(self, host: HostSettings = DEFAULTS) -> Settings:
        """Return the validated settings. Raises InputError for the first invalid value."""
        if not self.methods:
            raise InputError("No method selected. Select at least one.")
        check_rows(len(self.examples))
        if host.read_only:
            check_rows_shipped(self.examples)
            if self.chat_template_kwargs.strip():
                raise InputError(NO_TEMPLATE_KWARGS)
        checks.check_answer_length(self.max_new_tokens)
        chosen = choose(
            self.examples,
            methods=self.methods,
            order_names=self.orders,
            generate=self.generate,
            logprobs=self.logprobs,
            max_new_tokens=self.max_new_tokens,
            chat_template_kwargs=parse_kwargs(self.chat_template_kwargs),
        )
        keys = chosen.keys(self.examples, chosen.measured[:1])
        checks.check_orders(max(Counter(example for example, _, _ in keys).values(), default=0))
        for method in chosen.measured:
            checks.check_orders(max_visited(method, self.examples))
        return chosen


def work_sentence(request: MeasureRequest, host: HostSettings = DEFAULTS) -> str:
    """Describe the planned records. Raises InputError as `settings` does."""
    settings = request.settings(host)
    planned = settings.keys(request.examples)
    orders = {name for _, _, name in planned}
    counts = {"example": len(request.examples), "method": len(settings.methods), "order": len(orders)}
    product = " × ".join(f"{count} {noun}{'s' if count != 1 else ''}" for noun, count in counts.items())
    return f"{product} = {len(planned)} record{'s' if len(planned) != 1 else ''}"


def prepare_measure(
    backend: "Backend", request: MeasureRequest, host: HostSettings = DEFAULTS
) -> PreparedJob[MeasureView]:
    """Plan the work from the first examples; results shared by several records count once.

    Raises InputError as `settings` does.
    """
    from pine_engine.lab.evaluation.computed_run import caches_at_once  # these import torch
    from pine_engine.lab.evaluation.example_plan import ExamplePlan, distinct_parts

    backend, settings = _bound(backend, request, host)
    sample = request.examples[:SAMPLED]
    work = Work()
    for example in sample:
        longest = settings.max_new_tokens or TASKS[example.task].max_new_tokens
        results = ExamplePlan(backend, example, settings).results
        prefills, generations = distinct_parts(results)
        if backend.misfit("logprobs") and len(prefills) > 1:  # a server answers the first request twice
            prefills, generations = [*prefills[:1], *prefills], [*generations[:1], *generations]
        tokens = sum(prefill.layout.num_tokens for prefill in prefills) // backend.ids_per_token
        new_tokens = longest * sum(generation.num_rows for generation in generations)
        num_bytes = caches_at_once(results, partial(backend.run_bytes, max_new_tokens=longest))
        work += Work(len(prefills), tokens, new_tokens, len(prefills), bytes_at_once=num_bytes)
    work = work.times(len(request.examples) / max(1, len(sample)))
    return PreparedJob(work, partial(measure_rows, request=request, host=host))


def _bound(backend: "Backend", request: MeasureRequest, host: HostSettings) -> "tuple[Backend, Settings]":
    """Return the backend with the arguments of its chat template, and the settings on it."""
    if request.logprobs is None:
        request = replace(request, logprobs=backend.misfit("logprobs") is None)
    settings = request.settings(host)
    check_outputs(backend, settings, request.examples)
    backend, kwargs = backend.bind_template_kwargs(settings.chat_template_kwargs)
    return backend, settings.model_copy(update={KWARGS: kwargs})


def measure_rows(
    backend: "Backend", request: MeasureRequest, host: HostSettings = DEFAULTS
) -> Generator[MeasureView, None, None]:
    """Evaluate the examples; closing the generator stops the model.

    Raises InputError for an invalid request, or for a prompt that is longer than the host allows.
    """
    from pine_engine.lab.evaluation.measure import BEAT, stream_evaluation  # imports torch

    backend, settings = _bound(backend, request, host)
    if host.max_prompt_tokens is not None:  # without a limit the engine makes too long rows records
        for example in request.examples:
            num_tokens = example.comparison().tokenize(backend).num_tokens // backend.ids_per_token
            if why := checks.too_long(num_tokens, host):
                raise InputError(f"Example {example.id}: {why}")
    info = run_info(settings, backend, data=request.rows.name, data_sha256=request.rows.sha256)
    began = time.monotonic()
    last_view = began - BEAT_S  # the first progress is shown at once
    view = MeasureView("", info, tuple(settings.keys(request.examples)))
    yield replace(view, sentence=_progress(view, began))
    events = stream_evaluation(backend, request.examples, info, beat=(BEAT_S, BEAT))
    with closing(events):
        for event in events:
            if isinstance(event, Record):
                view = replace(view, records=(*view.records, event))
                yield replace(view, sentence=_progress(view, began))
            elif event == BEAT:
                yield replace(view, sentence=f"{_progress(view, began)}, generating answers")
            elif time.monotonic() - last_view >= BEAT_S:
                last_view = time.monotonic()
                yield replace(view, sentence=f"{_progress(view, began)}; {progress_sentence(event)}")
    sentence = f"Done: {len(view.records)} records in {time.monotonic() - began:.1f} s."
    if num_errors := sum(record.error is not None for record in view.records):
        sentence += f" {num_errors} of them have an error."
    sentence = " ".join([sentence, *map(str.capitalize, count_repeats(view.records).notes())])
    yield replace(view, sentence=sentence)


def _progress(view: MeasureView, began: float) -> str:
    """Describe the progress: "12 of 48 records, about 30 s left"."""
    done, total = len(view.records), len(view.planned)
    counted = f"{done} of {total} records"
    if not 0 < done < total:
        return counted
    return f"{counted}, about {format_seconds((time.monotonic() - began) / done * (total - done))} left"
