"""Wrappers around a model behind an address: those that combine the answers to texts in several orders."""

from collections.abc import Sequence
from functools import partial

import torch

from pine_engine.endpoint.client import Endpoint
from pine_engine.endpoint.replies import Reply
from pine_engine.endpoint.requests import TextRequest
from pine_engine.errors import InputError
from pine_engine.lab.debias.combining import DebiasResult, average_labels, count_votes
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.debias.plan import DebiasPlan, in_order
from pine_engine.lab.debias.wrappers import DEBIASERS, Wrapper
from pine_engine.methods.table import get_method


def check_measured(method: MeasuredMethod) -> None:
    """Raise InputError if a method, or the wrapper around it, does not run on an endpoint."""
    Endpoint.check_method(method.base)
    if method.wrapper:
        check_wrapper(method.wrapper)


def check_wrapper(wrapper: Wrapper) -> None:
    """Raise InputError if a wrapper needs probabilities that a server does not return."""
    if not wrapper.votes:
        known = ", ".join(row.name for row in DEBIASERS.values() if row.votes)
        reason = "needs the probability of every label or token in each run, which a server does not return"
        message = f"{wrapper.name} {reason}; use a loaded model, or choose from: {known}"
        raise InputError(message, field="wrapper")


def plan_requests(endpoint: Endpoint, plan: DebiasPlan) -> list[list[TextRequest]]:
    """Return the requests of a plan, one per order of each question; the first of several is repeated."""
    check_wrapper(plan.wrapper)
    method = get_method(plan.base)
    endpoint.check_method(method)
    make = partial(TextRequest, method=method, has_logprobs=not plan.majority)
    return [
        [
            make(
                in_order(request, order).tokenize(endpoint),
                max_new_tokens=plan.max_new_tokens or 1,
                is_repeated=index == 0 and len(orders) > 1,
            )
            for index, order in enumerate(orders)
        ]
        for request, orders in zip(plan.requests, plan.orders, strict=True)
    ]


def debias_replies(plan: DebiasPlan, index: int, replies: Sequence[Reply]) -> DebiasResult:
    """Return the result of a request from the replies in its orders.

    Raises InputError if a request was refused, or a label is none of the likely first tokens.
    """
    if errors := [reply.error for reply in replies if reply.error]:
        raise InputError(
            f"{len(errors)} of {len(replies)} orders have no answer: {errors[0]}", field="prompt"
        )
    request, orders = plan.requests[index], plan.orders[index]
    if plan.majority:
        return count_votes(plan.wrapper, request, orders, [reply.found.text for reply in replies])
    observed = [[_label_logprob(reply, label) for label in request.labels] for reply in replies]
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
