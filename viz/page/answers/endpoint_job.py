"""Answers of an endpoint to a form in one or several document orders: one request per method and order."""

import math
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pine_engine as pine
from pine_engine.endpoint import NOT_GREEDY
from pine_engine.endpoint.repeats import Repeats
from pine_engine.engine.events import RunResult
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, get_methods
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.runs import PreparedJob
from pine_engine.scheduling.work import Work, planned
from pine_engine.scheduling.worker import RunControl, stream_in_thread
from viz.cards.answers import AnswerCard
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.run import Run, Shown
from viz.page.common.host_settings import HostSettings
from viz.page.form.checks import form_layout
from viz.page.form.form import Form

if TYPE_CHECKING:  # imports torch
    from pine_engine.endpoint.client import Endpoint
    from pine_engine.endpoint.replies import Reply, TextAnswer

BEAT_S = 0.5  # seconds between two views, so that Stop takes effect while the server computes


def prepare_requests(
    endpoint: "Endpoint", form: Form, slots: Sequence[Order], settings: HostSettings
) -> PreparedJob[Shown]:
    """Plan the requests of a form. Raises InputError for an invalid form, and for a method that does not fit.

    slots: document orders, relative to that of the form, which is the first.
    """
    layout = form_layout(form, endpoint, settings)
    for method in get_methods(form.methods):
        endpoint.check_method(method)
    tokens = layout.num_tokens // endpoint.ids_per_token
    work = planned(
        tokens=tokens,
        methods=len(form.methods),
        orders=len(slots),
        new_tokens=form.max_new_tokens,
        bytes_at_once=len(slots) * endpoint.run_bytes(layout, form.methods, form.max_new_tokens),
    )
    return PreparedJob(work, partial(send_requests, form=form, layout=layout, slots=slots))


def send_requests(
    endpoint: "Endpoint", *, form: Form, layout: TokenLayout, slots: Sequence[Order]
) -> Generator[Shown, None, None]:
    """Send the requests, and yield a view after each answer; closing the generator cancels them.

    Refused requests have no answer, and their orders are in no run. Raises EndpointError if the server does
    not answer, and InputError if it refuses all prompts.
    """
    from pine_engine.endpoint.requests import TextRequest, describe_requests, text_requests

    endpoint = endpoint.with_template_kwargs(form.parsed_kwargs)
    requests = text_requests(layout, get_methods(form.methods), form.max_new_tokens, slots)
    orders = tuple(tuple(form.order[slot] for slot in order) for order in slots)
    order_of = {request: orders[place // len(form.methods)] for place, request in enumerate(requests)}
    answers: dict[Order, dict[str, TextAnswer]] = {order: {} for order in orders}
    refused: dict[tuple[Order, str], str] = {}
    view = Shown(form, tuple(map(AnswerCard, form.methods)), orders)
    yield replace(view, sentence=f"Sending {describe_requests(requests)}")
    began = time.monotonic()

    def work(control: RunControl) -> None:
        for pair in endpoint.send(requests, control.check):
            control.report([pair])

    received: Generator[list[tuple[TextRequest, Reply]], None, None]
    received = stream_in_thread(work, beat=(BEAT_S, []))
    with closing(received):
        for pairs in received:
            for request, reply in pairs:
                place = order_of[request], request.method.name
                if reply.error:
                    refused[place] = reply.error
                else:
                    answers[place[0]][place[1]] = reply.answer(place[1])
                cards = tuple(
                    _card(method, answers[form.order].get(method), refused.get((form.order, method), ""))
                    for method in form.methods
                )
                run = _run(endpoint, form, layout, answers)
                used = Work(1, reply.num_prompt_tokens, reply.num_tokens)
                done = replace(view.done + used, orders=len(run.orders) if run else 0)
                view = replace(view, cards=cards, run=run, done=done)
            yield replace(view, sentence=f"{view.done.prompts} of {len(requests)} prompts answered")
    if len(refused) == len(requests):
        raise InputError(next(iter(refused.values())), field="prompt")
    seconds = time.monotonic() - began
    num_answered = len(requests) - len(refused)
    counted = f"{num_answered} of {len(requests)}" if refused else str(len(requests))
    sentences = [f"Done: {counted} prompts in {seconds:.1f} s ({endpoint.model_name})."]
    if refused:
        sentences.append(_refusals(refused, orders))
    if view.run and view.run.repeats:
        sentences += map(str.capitalize, view.run.repeats.notes())
    if not endpoint.is_greedy:
        sentences.append(f"{NOT_GREEDY.capitalize()}.")
    yield replace(view, sentence=" ".join(sentences))


def _card(method: str, answer: "TextAnswer | None", refusal: str) -> AnswerCard:
    """Return the card of a method in the order of the form."""
    if refusal:
        return AnswerCard(method, "stopped", refusal=refusal)
    return AnswerCard.finished(answer) if answer else AnswerCard(method, "writing")


def _refusals(refused: dict[tuple[Order, str], str], orders: Sequence[Order]) -> str:
    """Return the refused requests in a sentence, with the reason of the first."""
    (order, method), reason = next(iter(refused.items()))
    first = f"{METHODS[method].label} in order {orders.index(order) + 1}: {reason}"
    return f"No answer to {len(refused)}, such as {first}. Their orders are not compared."


def _run(
    endpoint: "Endpoint", form: Form, layout: TokenLayout, answers: "dict[Order, dict[str, TextAnswer]]"
) -> Run | None:
    """Return the run of the orders in which all methods have answers, None before the first one has them."""
    complete = {order: found for order, found in answers.items() if len(found) == len(form.methods)}
    if form.order not in complete:
        return None
    results = {
        order: RunResult(layout, {method: found[method] for method in form.methods}, {})
        for order, found in complete.items()
    }
    first = results[form.order]
    repeats = Repeats.count(one.reply.is_repeatable for one in answers[form.order].values())
    return Run(
        form=form,
        model=endpoint.model_name,
        dtype=endpoint.dtype,
        address=endpoint.model_ref,
        result=first,
        prompt_tokens=(),
        orders={order: _compared(order, result, first) for order, result in results.items()},
        caption=(
            f"{endpoint.model_name}, behind an endpoint; {endpoint.sampling}, max {form.max_new_tokens} new "
            "tokens. Each row is computed by its own requests. Texts are compared with row 1. "
            f"{''.join(map(str.capitalize, repeats.notes()))}"
        ),
        repeats=repeats,
    )


def _compared(order: Order, result: RunResult, first: RunResult) -> OrderAnswers:
    """Return the answers in an order, with their texts compared with those in the first order."""
    comparisons = {
        method: pine.OrderComparison(
            answer,
            same_text=answer.content == first.answers[method].content,
            first_difference=None,
            max_abs_logit_diff=math.nan,
            bitwise_identical=None,
            reference_logprob=math.nan,
        )
        for method, answer in result.answers.items()
    }
    texts = {method: answer.text for method, answer in result.answers.items()}
    return OrderAnswers(texts, comparison=pine.OrderResult(order, comparisons, result))
