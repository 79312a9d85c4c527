"""A plan of a wrapper, computed by a server: one request per order of each question."""

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial

import torch

from pine_engine.endpoint.client import Endpoint
from pine_engine.endpoint.replies import Reply
from pine_engine.endpoint.requests import TextRequest, describe_requests
from pine_engine.engine.events import Event, GenerationFinished, Repeated, RequestsPlanned
from pine_engine.errors import InputError
from pine_engine.lab.debias.combining import DebiasFailure, DebiasResult, average_labels, count_votes
from pine_engine.lab.debias.plan import DebiasPlan, content_free_prompts, in_order
from pine_engine.methods.table import get_method
from pine_engine.scheduling.worker import RunControl, stream_in_thread


def request_answers(
    endpoint: Endpoint, plan: DebiasPlan
) -> Generator[tuple[int, Event | DebiasResult | DebiasFailure], None, None]:
    """Send the requests of a plan, and yield (index of the question, event), as replies arrive.

    The first of several requests of a question is repeated. Raises EndpointError as `Endpoint.send`.
    """
    planned = [_requests(endpoint, plan, index) for index in range(len(plan.requests))]
    index_of = {request: index for index, requests in enumerate(planned) for request in requests}
    yield 0, RequestsPlanned(len(index_of), describe_requests(index_of))
    replies: dict[TextRequest, Reply] = {}
    pairs: Generator[tuple[TextRequest, Reply], None, None]
    pairs = stream_in_thread(partial(_send, endpoint, list(index_of)))
    with closing(pairs):
        for request, reply in pairs:
            index, replies[request] = index_of[request], reply
            if reply.is_repeatable is not None:
                yield index, Repeated(plan.base, reply.is_repeatable)
            yield index, GenerationFinished(reply.answer(plan.base))
            if all(one in replies for one in planned[index]):
                yield index, _result(plan, index, [replies[one] for one in planned[index]])


def _send(endpoint: Endpoint, requests: Sequence[TextRequest], control: RunControl) -> None:
    """Report each request with its reply. In a thread of its own, so that Ctrl-C does not end a request."""
    for pair in endpoint.send(requests, control.check):
        control.report(pair)


def _requests(endpoint: Endpoint, plan: DebiasPlan, index: int) -> list[TextRequest]:
    """Return the requests of a question, one per order, then those without content."""
    request, orders, method = plan.requests[index], plan.orders[index], get_method(plan.base)
    prompts = [in_order(request, order).prompt(endpoint) for order in orders]
    if plan.wrapper.calibrated == "labels":
        prompts += content_free_prompts(endpoint, request)
    return [
        TextRequest(
            endpoint.tokenize(prompt),
            method,
            plan.max_new_tokens or 1,
            has_logprobs=not plan.majority,
            is_repeated=number == 0 and len(orders) > 1,
        )
        for number, prompt in enumerate(prompts)
    ]


def _result(plan: DebiasPlan, index: int, replies: Sequence[Reply]) -> DebiasResult | DebiasFailure:
    """Return the result of a question from the replies in its orders."""
    request, orders = plan.requests[index], plan.orders[index]
    if refusals := {number: reply.error for number, reply in enumerate(replies) if reply.error}:
        first = next(iter(refusals.values()))
        return DebiasFailure(f"{len(refusals)} of {len(replies)} orders have no answer: {first}", refusals)
    if plan.majority:
        return count_votes(plan.wrapper, request, orders, [reply.found.text for reply in replies])
    try:
        observed = [[_label_logprob(reply, label) for label in request.labels] for reply in replies]
    except InputError as error:
        return DebiasFailure(str(error))
    return average_labels(plan.wrapper, request, observed, orders)


def _label_logprob(reply: Reply, label: str) -> float:
    """Return the log-probability of a label as the first token, with or without a blank before it."""
    likely = reply.first_logprobs or {}
    spellings = [likely[text] for text in (label, f" {label}") if text in likely]
    if not spellings:
        names = ", ".join(map(repr, likely)) or "none"
        message = f"label {label!r} is none of the likely first tokens of the server: {names:.200}"
        raise InputError(f"{message}; give --majority, which counts generated answers", field="labels")
    return float(torch.tensor(spellings, dtype=torch.float64).logsumexp(0))
