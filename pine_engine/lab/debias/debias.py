"""Permutation, calibration and routing: their arithmetic, and run_debias (specification, section 8).

Sources: Zheng et al. 2024, chujiezheng/LLM-MCQ-Bias; Zhao et al. 2021, tonyzhaozh/few-shot-learning;
Yoon et al. 2025, soyoung97/RoToR (routing). Calibration of every token is a definition of this project.
"""

import math
import re
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from unicodedata import normalize

import torch
from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, RunFinished
from pine_engine.engine.generation import (
    ActiveGeneration,
    check_finite,
    decode_in_steps,
    pending_prefill,
    prefill_answer,
)
from pine_engine.engine.likelihood import (
    LabelIds,
    label_ids,
    label_log_probabilities,
    log_probabilities,
)
from pine_engine.engine.passes import PassOptions
from pine_engine.engine.run import prepare_run
from pine_engine.errors import ModelError
from pine_engine.lab.debias.estimators import Correction, softmax
from pine_engine.lab.debias.table import DEFAULT_BASE, DebiasPlan, Steps, Wrapper, content_free_prompts
from pine_engine.methods.table import Method, get_method
from pine_engine.prompts.orders import Order
from pine_engine.prompts.prompt import Prompt
from pine_engine.prompts.request import LabeledRequest
from pine_engine.prompts.scoring import TIE
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.scheduler import Coroutine, PendingPrefill, stream_shared
from pine_engine.scheduling.worker import RunControl

CANDIDATES = 100  # number of the most likely first tokens that are calibrated; the others cannot be chosen

Vote = TypeVar("Vote", int, str)


@dataclass(frozen=True)
class DebiasResult:
    """Answer to one request.

    Attributes:
        answer: A label, of the chosen document in the input order; "tie"; "" if no answer names a label; or
            the generated text.
        scores: Probability, votes or calibrated score of each label. Empty for generated text.
        base_answers: Number of runs of the base method for each of its answers. Empty for generated text.
    """

    answer: str
    scores: dict[str, float]
    base_answers: dict[str, int]


def run_debias(engine: Engine, plan: DebiasPlan) -> Generator[Event | DebiasResult, None, None]:
    """Run a plan; yield the events of all prompts, and a result for each request in turn.

    Closing the generator stops the model.

    Args:
        engine: Engine with a tokenizer.
        plan: Plan of plan_debias.

    Raises:
        InputError: For a label of several tokens, and, before the first prompt, for a request that has no
            prompt or a prompt that is too long.
        ModelError: The base method does not fit the model.
    """
    engine.check_method(get_method(plan.base))
    for request in plan.requests:
        engine.check_length(request.tokenize(engine), plan.max_new_tokens)
    if plan.majority:
        for request, orders in zip(plan.requests, plan.orders, strict=True):
            yield from _vote(engine, plan, request, orders)
        return

    run = _generate if plan.wrapper.steps else _score_labels if plan.wrapper.margin is None else _route
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


def count_votes(
    wrapper: Wrapper, request: LabeledRequest, orders: Sequence[Order], texts: Sequence[str]
) -> DebiasResult:
    """Return the vote of the answers generated in each order.

    Each votes for the document whose label it names, or for a tie.
    """
    labels, tie = request.labels, len(request.documents)
    task = TASKS[request.task].sized(tie)

    def vote(text: str, order: Order) -> int | None:
        place = named_label(text, labels)
        if place is None:
            return tie if task.has_letters and task.parse(text) == TIE else None
        return with_tie(order, len(labels))[place]

    votes = list(map(vote, texts, orders))
    winners = most_voted(votes)
    is_tie = len(winners) > 1 or winners == [tie] or (wrapper.must_agree and len(set(votes)) > 1)
    answer = TIE if is_tie else "".join(labels[document] for document in winners)
    scores = {label: float(votes.count(document)) for document, label in enumerate(labels)}
    names: dict[int | None, str] = {None: "", **dict(enumerate(labels)), tie: TIE}
    return DebiasResult(answer, scores, dict(Counter(names[document] for document in votes)))


def with_tie(order: Order, num_labels: int) -> Order:
    """Return what each label names: the documents of an order, then labels such as a tie, which stay."""
    return (*order, *range(len(order), num_labels))


def _tie_label(request: LabeledRequest) -> int | None:
    """Return the index of the label of a tie, None if the task offers none."""
    return len(request.documents) if TASKS[request.task].has_tie else None


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


def average_labels(
    wrapper: Wrapper,
    request: LabeledRequest,
    logprobs: Sequence[Sequence[float]],
    orders: Sequence[Order],
    correction: Correction | None = None,
) -> DebiasResult:
    """Return the likeliest label by `combine_labels`, with the favorite of each run."""
    named = [with_tie(order, len(request.labels)) for order in orders]
    scores = combine_labels(wrapper, logprobs, named, correction)
    # The runs behind those of the orders are content-free.
    favorites = (order[_argmax(run)] for order, run in zip(named, logprobs, strict=False))
    return _likeliest(request, scores, favorites)


def _likeliest(request: LabeledRequest, scores: Sequence[float], favorites: Iterable[int]) -> DebiasResult:
    """Return the label with the largest score as the answer; `favorites` are the labels of the base runs."""
    by_label = dict(zip(request.labels, scores, strict=True))
    names = dict(enumerate(request.labels))
    if (tie := _tie_label(request)) is not None:
        names[tie] = TIE
    is_tie = 1 < len(scores) == scores.count(scores[0])
    answer = TIE if is_tie else names[_argmax(scores)]
    return DebiasResult(answer, by_label, dict(Counter(map(names.__getitem__, favorites))))


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
        control.report(_likeliest(request, scores, map(_argmax, observed)))


def route(confidences: Sequence[float], margin: float) -> int:
    """Return 1, the base method, if its confidence exceeds vanilla's by `margin` or more, otherwise 0."""
    return int(len(confidences) > 1 and confidences[0] + margin <= confidences[1])


def mean_probability(logprobs: Sequence[float]) -> float:
    """Return the mean probability of an answer's tokens, its confidence; 0 for an empty answer."""
    return math.fsum(map(math.exp, logprobs)) / max(len(logprobs), 1)


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


def in_order(request: LabeledRequest, order: Order) -> LabeledRequest:
    """Reorder the documents. The prompt is built afterwards, so labels in it stay at their places."""
    return request.model_copy(update={"documents": [request.documents[index] for index in order]})


def named_label(text: str, labels: Sequence[str]) -> int | None:
    """Return the index of the label that an answer names, None if it names none.

    The last label that occurs as [[label]] (specification 9.1), otherwise the label that is the answer or
    begins it, followed by one of . : , ) or the end of the line.
    """
    text = normalize("NFKC", text)
    places = [text.rfind(f"[[{label}]]") for label in labels]
    if max(places) >= 0:
        return places.index(max(places))
    begins = (re.match(rf"\W*{re.escape(label)}([.:,)\n]|\s*$)", text) for label in labels)
    return next((index for index, found in enumerate(begins) if found), None)


def combine_labels(
    wrapper: Wrapper,
    logprobs: Sequence[Sequence[float]],
    orders: Sequence[Order],
    correction: Correction | None = None,
) -> tuple[float, ...]:
    """Return the mean probability of each document over the base runs, or the calibrated scores of labels.

    logprobs: of the labels in each run; with calibration, of the prompt and then the content-free prompts.
    orders: orders[i][p] is the document that label p names in run i, or p for a tie. If the runs must agree
    and do not, all have the same probability. correction: of the probabilities in each run.
    """
    if wrapper.calibrated == "labels":
        # Probability of the prompt over the mean of the content-free prompts, both with sum 1.
        own, *free = torch.tensor(logprobs, dtype=torch.float64)
        mean = torch.stack(free).logsumexp(0).log_softmax(0)
        return tuple((own.log_softmax(0) - mean).exp().tolist())
    observed = [softmax(run) for run in logprobs]
    num_documents = len(orders[0])
    favorites = set(map(_favorite, observed, orders)) if wrapper.must_agree else set()
    if len(favorites) > 1:
        return (1 / num_documents,) * num_documents
    if correction:
        observed = list(map(correction.correct, observed))
    # Sums are exactly rounded, so full permutation is bitwise identical for every input order.
    return tuple(
        math.fsum(run[order.index(document)] for order, run in zip(orders, observed, strict=True))
        / len(observed)
        for document in range(num_documents)
    )


def _favorite(run: Sequence[float], order: Order) -> int | None:
    """Return the document with the largest probability in a run, None for several."""
    return None if run.count(max(run)) > 1 else order[_argmax(run)]


def log_mean(logs: Sequence[float]) -> float:
    """Return the logarithm of the mean of probabilities from their logarithms, independent of their order."""
    largest = max(logs)
    if largest == -math.inf:
        return largest
    return largest + math.log(math.fsum(math.exp(value - largest) for value in logs) / len(logs))


def most_voted(votes: Iterable[Vote | None]) -> list[Vote]:
    """Return the answers with the most votes in ascending order: several in a tie, none without votes."""
    counts = Counter(vote for vote in votes if vote is not None)
    most = max(counts.values(), default=0)
    return sorted(vote for vote, count in counts.items() if count == most)


def _argmax(numbers: Sequence[float]) -> int:
    """Return the index of the largest number, the first of equals."""
    return max(range(len(numbers)), key=numbers.__getitem__)


def calibrated_prompt(
    index: int, method: str, prompts: Sequence[tuple[SequenceState, Tensor]], steps: Steps, seconds: float
) -> ActiveGeneration:
    """Return a prompt whose answer is calibrated, for decoding in a batch.

    prompts: state and logits (1, V) of the prompt, then of the content-free prompts. seconds: all prefills.
    """
    states = tuple(state for state, _ in prompts)
    return ActiveGeneration(
        index=index,
        method=method,
        rows=states[: num_continued(len(states), steps)],
        logits=torch.cat([logits for _, logits in prompts]),
        prefill_s=seconds,
        choose=lambda logits: _choose(log_probabilities(logits), steps),
    )


def num_continued(num_prompts: int, steps: Steps | None) -> int:
    """Return the number of prompts that are continued with the answer."""
    return num_prompts if steps == "every" else 1


def _choose(logprobs: Tensor, steps: Steps) -> tuple[int, float]:
    """Choose a token from logprobs (n, V), the prompt first; return it with its uncalibrated log-probability.

    `first` subtracts probabilities among the candidates, `every` divides them over the vocabulary. Without
    content-free prompts, the most likely token is chosen.
    """
    own, free = logprobs[0], logprobs[1:]
    if not len(free):
        token = int(own.argmax())
    elif steps == "every":
        # The factor 1/n of the mean is the same for all tokens.
        token = int((own - free.logsumexp(0)).argmax())
    else:
        candidates = own.topk(min(CANDIDATES, len(own))).indices
        least = free[:, candidates].amin(0)
        token = int(candidates[(own[candidates].softmax(0) - least.softmax(0)).argmax()])
    return token, float(own[token])
