"""run_debias: a plan of a wrapper, computed by a backend."""

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from pine_engine.endpoint.client import Endpoint
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, RunFinished
from pine_engine.engine.generation import (
    ActiveGeneration,
    check_finite,
    decode_in_steps,
    pending_prefill,
    prefill_answer,
)
from pine_engine.engine.hidden_states import record_hidden_states
from pine_engine.engine.likelihood import LabelIds, label_ids, label_log_probabilities, log_probabilities
from pine_engine.engine.passes import PassOptions
from pine_engine.engine.run import prepare_run
from pine_engine.errors import InputError, ModelError
from pine_engine.lab.debias.calibrated_tokens import calibrated_prompt, num_continued
from pine_engine.lab.debias.clusters import cluster_states
from pine_engine.lab.debias.combining import (
    DebiasFailure,
    DebiasResult,
    argmax,
    average_labels,
    count_votes,
    likeliest_label,
    mean_probability,
    route,
)
from pine_engine.lab.debias.estimators import Correction, softmax
from pine_engine.lab.debias.plan import DebiasPlan, content_free_prompts, in_order
from pine_engine.lab.debias.requested import request_answers
from pine_engine.lab.debias.wrappers import DEFAULT_BASE, check_wrapper
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import Method, get_method
from pine_engine.prompts.orders import Order
from pine_engine.prompts.prompt import Prompt
from pine_engine.prompts.request import LabeledRequest
from pine_engine.scheduling.scheduler import Coroutine, PendingPrefill, stream_shared
from pine_engine.scheduling.worker import RunControl

if TYPE_CHECKING:
    from pine_engine.backend import Backend


def run_debias(backend: "Backend", plan: DebiasPlan) -> Generator[Event | DebiasResult, None, None]:
    """Run a plan; yield the events of all prompts, and a result for each request in turn.

    Closing the generator stops the model.

    Args:
        backend: Engine with a tokenizer, or endpoint.
        plan: Plan of plan_debias.

    Raises:
        InputError: For a label of several tokens, for a request that a server refuses, and, before the first
            prompt, for a request that has no prompt or a prompt that is too long.
        PineError: The base method or the wrapper does not fit the backend.
    """
    waiting: dict[int, DebiasResult] = {}
    num_results = 0
    for index, event in debias_each(backend, plan):
        if isinstance(event, DebiasFailure):
            raise InputError(event.reason, field="prompt")
        if not isinstance(event, DebiasResult):
            yield event
            continue
        waiting[index] = event
        while num_results in waiting:
            yield waiting.pop(num_results)
            num_results += 1


def debias_each(
    backend: "Backend", plan: DebiasPlan
) -> Generator[tuple[int, Event | DebiasResult | DebiasFailure], None, None]:
    """Run a plan; yield (index of the request, event), the last of a request is its result or failure.

    Raises PineError as run_debias, for what is known before the first prompt.
    """
    check_wrapper(backend, plan.wrapper)
    methods = backend.select_methods([plan.base])
    for request in plan.requests:
        layout = request.tokenize(backend)
        backend.check_length(layout, plan.max_new_tokens)
        check_scores(layout, methods)
    if isinstance(backend, Endpoint):
        yield from request_answers(backend, plan)
        return
    index = 0
    with closing(_compute(cast(Engine, backend), plan)) as events:
        for event in events:
            yield index, event
            index += isinstance(event, DebiasResult)


def _compute(engine: Engine, plan: DebiasPlan) -> Generator[Event | DebiasResult, None, None]:
    """Run a plan by a loaded model; the results are in the order of the requests."""
    if plan.majority:
        for request, orders in zip(plan.requests, plan.orders, strict=True):
            yield from _vote(engine, plan, request, orders)
        return
    run = _generate if plan.wrapper.steps else _score_labels if plan.wrapper.margin is None else _route
    run = _represent if plan.wrapper.represents else run
    yield from stream_shared(partial(run, engine, plan))


def _vote(
    engine: Engine, plan: DebiasPlan, request: LabeledRequest, orders: Sequence[Order]
) -> Generator[Event | DebiasResult, None, None]:
    """Generate an answer in each order; each votes for the document whose label it names."""
    texts = []
    for order in orders:
        prompt = in_order(request, order).prompt(engine)
        for event in engine.generate(prompt, methods=[plan.base], max_new_tokens=plan.max_new_tokens):
            if isinstance(event, RunFinished):
                texts.append(event.result.answers[plan.base].text)
            else:
                yield event
    yield count_votes(plan.wrapper, request, orders, texts)


@torch.inference_mode()
def _score_labels(engine: Engine, plan: DebiasPlan, control: RunControl) -> Coroutine[None]:
    """Combine the probabilities that the labels have as the next token."""
    method, wrapper = get_method(plan.base), plan.wrapper
    ids = [label_ids(engine, request.labels) for request in plan.requests]
    observed: list[list[list[float]]] = []

    def combine(index: int, correction: Correction | None = None) -> None:
        result = average_labels(
            wrapper, plan.requests[index], observed[index], plan.orders[index], correction
        )
        control.report(result)

    for index, (request, orders) in enumerate(zip(plan.requests, plan.orders, strict=True)):
        prompts = [in_order(request, order).prompt(engine) for order in orders]
        if wrapper.calibrated == "labels":
            prompts += content_free_prompts(engine, request)
        observed.append([])
        for prompt in prompts:
            observed[-1].append((yield from _label_logprobs(engine, prompt, method, ids[index], control)))
        if not wrapper.learns:
            combine(index)
    if estimator := wrapper.estimator:
        learned = [observed[index] for index in sorted(plan.learned_samples)]
        correction = estimator.fit([estimator.learn(list(map(softmax, runs))) for runs in learned])
        for index in range(len(observed)):
            combine(index, None if index in plan.learned_samples else correction)


def _label_logprobs(
    engine: Engine, prompt: Prompt, method: Method, ids: LabelIds, control: RunControl
) -> Coroutine[list[float]]:
    """Return the log-probability of each label as the next token."""
    layout = engine.tokenize(prompt)
    engine.check_length(layout, 0)
    yield pending_prefill(engine, layout.num_tokens)
    answer = prefill_answer(engine, layout, method, PassOptions(engine.patched_models), control=control)
    check_finite(answer.logits, method.name, 0)
    logprobs: list[float] = label_log_probabilities(log_probabilities(answer.logits[-1]), ids).tolist()
    return logprobs


@torch.inference_mode()
def _route(engine: Engine, plan: DebiasPlan, control: RunControl) -> Coroutine[None]:
    """Answer under vanilla and the base method, by labels or in text, and take one of the answers."""
    methods = [get_method(name) for name in dict.fromkeys((DEFAULT_BASE, plan.base))]
    margin = plan.wrapper.margin or 0.0
    for request in plan.requests:
        prompt, labels = request.prompt(engine), request.labels
        if not labels:
            run = prepare_run(engine, prompt, methods=methods, max_new_tokens=plan.max_new_tokens)
            answers = list((yield from run.compute(control)).answers.values())
            taken = route([mean_probability(answer.logprobs) for answer in answers], margin)
            control.report(DebiasResult(answers[taken].text, {}, {}))
            continue
        ids = label_ids(engine, labels)
        observed = []
        for method in methods:
            observed.append(softmax((yield from _label_logprobs(engine, prompt, method, ids, control))))
        scores = observed[route(list(map(max, observed)), margin)]
        control.report(likeliest_label(request, scores, map(argmax, observed)))


@torch.inference_mode()
def _represent(engine: Engine, plan: DebiasPlan, control: RunControl) -> Coroutine[None]:
    """Cluster the orders by hidden states, and answer in the order nearest to the center of each cluster.

    The prefills of these orders are not reported again.
    """
    method, silent = get_method(plan.base), RunControl(cancelled=control.cancelled)
    for request, visited in zip(plan.requests, plan.orders, strict=True):
        contents = [(document.title, document.text) for document in request.documents]
        # Independent of the order in which the documents were given, if all orders are visited.
        orders = [order for _, order in sorted(([contents[index] for index in one], one) for one in visited)]
        layouts, states = [], []
        for order in orders:
            layout = engine.tokenize(in_order(request, order).prompt(engine))
            engine.check_length(layout, plan.max_new_tokens)
            yield pending_prefill(engine, layout.num_tokens)
            with record_hidden_states(engine) as recorded:
                prefill_answer(engine, layout, method, PassOptions(engine.patched_models), control=control)
            layouts.append(layout)
            states.append(recorded[-1])
        clusters = cluster_states(orders, np.stack(states))
        answers = []
        for index in clusters.representatives:
            run = prepare_run(engine, layouts[index], methods=[method], max_new_tokens=plan.max_new_tokens)
            result = yield from run.compute(silent)
            answers.append(result.answers[method.name].text)
        control.report(DebiasResult(answers[0], {}, {}, replace(clusters, answers=tuple(answers))))


@torch.inference_mode()
def _generate(engine: Engine, plan: DebiasPlan, control: RunControl) -> Coroutine[None]:
    """Generate answers with the first or every token calibrated.

    With `every`, all prompts are continued with the same answer in one batch. The log-probabilities of the
    answer are those of its prompt, before calibration.
    """
    method, steps = get_method(plan.base), plan.wrapper.steps
    assert steps

    def prefill(prompts: Sequence[Prompt]) -> Iterator[ActiveGeneration | PendingPrefill]:
        began = time.perf_counter()
        prefilled = []
        for prompt in prompts:
            layout = engine.tokenize(prompt)
            engine.check_length(layout, plan.max_new_tokens)
            yield pending_prefill(engine, layout.num_tokens)
            options = PassOptions(engine.patched_models, reserved_tokens=plan.max_new_tokens)
            answer = prefill_answer(engine, layout, method, options, control=control)
            prefilled.append((answer.rows[0], answer.logits))
        yield calibrated_prompt(0, method.name, prefilled, steps, time.perf_counter() - began)

    for request in plan.requests:
        prompts = [request.prompt(engine), *content_free_prompts(engine, request)]
        for item in decode_in_steps(
            engine,
            prefill(prompts),
            max_new_tokens=plan.max_new_tokens,
            batch_size=num_continued(len(prompts), steps),
            control=control,
        ):
            if not isinstance(item, ActiveGeneration):
                yield item
            elif item.error:
                raise ModelError(item.error)
            else:
                control.report(DebiasResult(item.found.text, {}, {}))
