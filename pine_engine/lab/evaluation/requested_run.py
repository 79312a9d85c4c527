"""Run of examples by a server: one request for each prompt of a plan, and the replies as records."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain

from pine_engine.endpoint.client import Endpoint
from pine_engine.endpoint.replies import Reply
from pine_engine.endpoint.requests import TextRequest, describe_requests
from pine_engine.engine.events import RequestsPlanned
from pine_engine.lab.evaluation.document_orders import AGAIN
from pine_engine.lab.evaluation.example_plan import Generation, PlannedResult, Prefill, distinct_parts
from pine_engine.lab.evaluation.example_run import ExampleRun
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.examples import Example
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.worker import NO_CONTROL, RunControl

Choices = Mapping[str, tuple[str, ...]]
"""Choices with log-probabilities, and the texts that give each."""

Part = tuple[Prefill, Generation | None, Choices]
"""Prompt of a request, the answer if one is generated, and the choices."""


def run_requests(
    endpoint: Endpoint,
    examples: Sequence[Example],
    settings: Settings,
    control: RunControl,
    *,
    found: Iterable[Record] = (),
) -> None:
    """Report the size of the requests, and each record when its replies are there; see run_evaluation.

    The first request of an example with several records is repeated, unless `again` is an order. Raises
    EndpointError if the server does not answer, and Cancelled after a stop.
    """
    found = list(found)
    if settings.keys(examples).keys() - {record.key for record in found}:
        planned = list(planned_requests(endpoint, examples, settings, found=found))
        control.report(RequestsPlanned(len(planned), describe_requests(planned)))
    sent: dict[TextRequest, tuple[ExampleRun[Endpoint], Part]] = {}
    requests = _remembered(_planned(endpoint, examples, settings, control, found), sent)
    with closing(endpoint.send(requests, control.check)) as pairs:
        for request, reply in pairs:
            run, part = sent.pop(request)
            _take(reply, *part)
            run.emit_finished()


def _remembered(
    planned: Iterable[tuple[ExampleRun[Endpoint], dict[TextRequest, Part]]],
    sent: dict[TextRequest, tuple[ExampleRun[Endpoint], Part]],
) -> Iterator[TextRequest]:
    """Yield the requests when they can be sent, and enter their runs and parts into `sent`."""
    for run, parts in planned:
        for request, part in parts.items():
            sent[request] = run, part
            yield request


def planned_requests(
    endpoint: Endpoint, examples: Sequence[Example], settings: Settings, *, found: Iterable[Record] = ()
) -> Iterator[TextRequest]:
    """Yield the requests of the records that are not found, which are not sent."""
    for _, parts in _planned(endpoint, examples, settings, NO_CONTROL, found):
        yield from parts


def _planned(
    endpoint: Endpoint,
    examples: Sequence[Example],
    settings: Settings,
    control: RunControl,
    found: Iterable[Record],
) -> Iterator[tuple[ExampleRun[Endpoint], dict[TextRequest, Part]]]:
    """Yield the run of each example with its requests, after reporting the records of what cannot be sent."""
    found = list(found)
    done = {record.key for record in found}
    repeated = {record.example for record in found if record.is_repeatable is not None}
    for example in examples:
        run = ExampleRun(endpoint, example, settings, done, {}, control)
        results = run.start()
        max_new_tokens = settings.max_new_tokens or TASKS[example.task].max_new_tokens
        is_compared = len(settings.keys([example])) > 1 and AGAIN not in settings.order_names
        is_repeated = is_compared and example.id not in repeated
        yield run, _requests(results, max_new_tokens, is_repeated=is_repeated)


def _requests(
    results: Sequence[PlannedResult], max_new_tokens: int, *, is_repeated: bool
) -> dict[TextRequest, Part]:
    """Return one request for each distinct prompt. Without a generated answer, it is for one token."""
    prefills, generations = distinct_parts(results)
    by_prefill = {generation.prefills[0]: generation for generation in generations}
    choices = {run.prefill: run.choices for result in results for run in result.runs}
    requests = {}
    for index, prefill in enumerate(prefills):
        generation = by_prefill.get(prefill)
        request = TextRequest(
            prefill.layout,
            prefill.method,
            max_new_tokens if generation else 1,
            has_logprobs=bool(choices[prefill]),
            is_repeated=is_repeated and index == 0,
        )
        requests[request] = prefill, generation, choices[prefill]
    return requests


def _take(reply: Reply, prefill: Prefill, generation: Generation | None, choices: Choices) -> None:
    """Enter a reply into the parts of a result."""
    prefill.is_done, prefill.error = True, reply.error or None
    prefill.num_tokens, prefill.is_repeatable = reply.num_prompt_tokens, reply.is_repeatable
    if generation:
        generation.answer = reply
    else:
        prefill.standalone_s = prefill.seconds = reply.seconds
    # With a part of the choices, the likeliest would be that of the choices that are likely.
    likely = reply.first_logprobs or {}
    if not any(likely.keys().isdisjoint(texts) for texts in choices.values()):
        found = likely.keys() & set(chain.from_iterable(choices.values()))
        prefill.logprobs |= {text: likely[text] for text in found}
