"""Permutation: one method on several orders of the documents, its answers combined (specification 8.1).

In an order, order[p] is the document at place p. Labels stay at their places, only the documents move.
Source: Zheng et al. 2024, chujiezheng/LLM-MCQ-Bias.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from pine_engine.debias.orders import PRIOR_FRACTION, Order, pride_samples
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Answer, Event, RunFinished
from pine_engine.engine.likelihood import (
    Label,
    LabelIds,
    label_ids,
    label_log_probabilities,
    log_probabilities,
    read_prompt,
)
from pine_engine.engine.model_worker import stream_from_worker
from pine_engine.errors import InputError
from pine_engine.methods.table import Method, get_method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt

Orderable = Prompt | TokenLayout | Callable[[Order], Prompt | TokenLayout]
"""A prompt whose documents are reordered as they are, or a function that builds the prompt of an order, for
prompts that write a document's place into it ("A.", "Document 1")."""

Vote = TypeVar("Vote", int, str)

EPSILON = 1e-10
"""Added to probabilities before their logarithm is taken, as in the released code."""


@dataclass(frozen=True)
class OptionRun:
    """One order; observed: probability of each place's label, in sum 1."""

    order: Order
    observed: tuple[float, ...]


@dataclass(frozen=True)
class OptionResult:
    """What the runs make of the documents, which are numbered as they were given.

    probabilities: of each document. answer: the most probable one, the first of equals.
    """

    runs: tuple[OptionRun, ...]
    probabilities: tuple[float, ...]

    @property
    def answer(self) -> int:
        """Index of the most probable document."""
        return most_probable(self.probabilities)


@dataclass(frozen=True)
class PrideResult:
    """prior: probability of each place's label whatever stands there, learnt on the samples learnt_from."""

    prior: tuple[float, ...]
    learnt_from: tuple[int, ...]
    results: tuple[OptionResult, ...]


@dataclass(frozen=True)
class AnswerRun:
    """A generated answer in one order; document: the one it names, None if it names none."""

    order: Order
    answer: Answer
    document: int | None


@dataclass(frozen=True)
class VoteResult:
    """What the answers vote for; votes: of each document as given."""

    runs: tuple[AnswerRun, ...]
    votes: tuple[int, ...]

    @property
    def winners(self) -> tuple[int, ...]:
        """Documents with the most votes: several in a tie, none if no answer could be read."""
        return tuple(most_voted(run.document for run in self.runs))


def permute_options(
    engine: Engine,
    prompt: Orderable,
    labels: Sequence[Label],
    *,
    orders: Sequence[Order],
    base: str = "vanilla",
) -> Generator[Event | OptionRun | OptionResult, None, None]:
    """Averages what the next token says about the documents over the orders.

    labels: what the model answers for the first, second, ... place. A base that is itself invariant can tell
    places apart only where the prompt is built for each order and names them. Yields the events of reading
    each prompt and its OptionRun, at last the OptionResult. Closing the generator stops the computing.
    Raises InputError for labels that are not one token, and if their number or an order does not fit.
    """
    method = get_method(base)
    ids = label_ids(engine, labels)
    _check_orders(orders, len(labels))

    def work(emit: Callable[[Event | OptionRun | OptionResult], None], cancelled: threading.Event) -> None:
        runs = tuple(_observe(engine, prompt, order, method, ids, emit, cancelled) for order in orders)
        emit(OptionResult(runs, average(runs)))

    return stream_from_worker(work)


def pride(
    engine: Engine,
    prompts: Sequence[Orderable],
    labels: Sequence[Label],
    *,
    orders: Sequence[Order],
    base: str = "vanilla",
    fraction: float = PRIOR_FRACTION,
    seed: int = 0,
) -> Generator[Event | OptionRun | PrideResult, None, None]:
    """Learns how probable each place's label is whatever stands there, and divides by it.

    prompts: the samples, all with as many documents as there are labels. The prior is learnt on
    pride_samples, which run in all orders and are averaged; all others run as they were given.
    Yields as permute_options does, at last the PrideResult. Raises InputError as it does.
    """
    method = get_method(base)
    ids = label_ids(engine, labels)
    _check_orders(orders, len(labels))
    as_given = tuple(range(len(labels)))
    chosen = pride_samples(len(prompts), fraction, seed)

    def work(emit: Callable[[Event | OptionRun | PrideResult], None], cancelled: threading.Event) -> None:
        runs = {
            index: tuple(
                _observe(engine, prompts[index], order, method, ids, emit, cancelled) for order in orders
            )
            for index in chosen
        }
        prior = mean_prior([pride_prior([run.observed for run in runs[index]]) for index in chosen])
        results = []
        for index, prompt in enumerate(prompts):
            if index in runs:
                results.append(OptionResult(runs[index], average(runs[index])))
                continue
            run = _observe(engine, prompt, as_given, method, ids, emit, cancelled)
            results.append(OptionResult((run,), divide_by_prior(run.observed, prior)))
        emit(PrideResult(prior, chosen, tuple(results)))

    return stream_from_worker(work)


def permute_answers(
    engine: Engine,
    prompt: Orderable,
    parse: Callable[[str], int | None],
    *,
    orders: Sequence[Order],
    base: str = "vanilla",
    max_new_tokens: int = 64,
) -> Generator[Event | AnswerRun | VoteResult, None, None]:
    """Lets the answers in all orders vote for a document.

    parse: the place an answer names, None if none; a place that is not there does not vote either.
    Yields each run's events and then its AnswerRun in place of RunFinished, at last the VoteResult.
    Raises InputError for an unknown method or an order that does not fit, before the first event.
    """
    get_method(base)
    _check_orders(orders, len(orders[0]) if orders else 0)
    runs: list[AnswerRun] = []
    for order in orders:
        layout = _in_order(engine, prompt, order)
        for event in engine.generate(layout, methods=[base], max_new_tokens=max_new_tokens):
            if not isinstance(event, RunFinished):
                yield event
                continue
            answer = event.result.answers[base]
            place = parse(answer.text)
            document = None if place is None else dict(enumerate(order)).get(place)
            runs.append(AnswerRun(order, answer, document))
            yield runs[-1]
    named_documents = [run.document for run in runs]
    yield VoteResult(tuple(runs), tuple(named_documents.count(document) for document in sorted(orders[0])))


def average(runs: Sequence[OptionRun]) -> tuple[float, ...]:
    """Mean over the orders of the probability of the label each document stood at, by document.

    Sums are exactly rounded, so that the order of the runs does not matter: all orders of the documents
    give the same to the last bit however the documents were given.
    """
    documents = range(len(runs[0].order))
    return tuple(
        math.fsum(run.observed[run.order.index(document)] for run in runs) / len(runs)
        for document in documents
    )


def pride_prior(observed: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """One sample's prior of each label: softmax of the mean over orders of ln(observed + EPSILON)."""
    logs = [
        math.fsum(math.log(value + EPSILON) for value in place) / len(observed)
        for place in zip(*observed, strict=True)
    ]
    return softmax(logs)


def mean_prior(priors: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The mean of several samples' priors."""
    return tuple(math.fsum(place) / len(priors) for place in zip(*priors, strict=True))


def divide_by_prior(observed: Sequence[float], prior: Sequence[float]) -> tuple[float, ...]:
    """Probabilities without the prior: softmax of ln(observed + EPSILON) - ln(prior + EPSILON)."""
    pairs = zip(observed, prior, strict=True)
    return softmax([math.log(value + EPSILON) - math.log(share + EPSILON) for value, share in pairs])


def softmax(logs: Sequence[float]) -> tuple[float, ...]:
    """Probabilities in sum 1 of which these are the logarithms but for a number that all have in common."""
    largest = max(logs)
    weights = [math.exp(value - largest) for value in logs]
    return tuple(weight / math.fsum(weights) for weight in weights)


def log_mean(logs: Sequence[float]) -> float:
    """Logarithm of the mean of the probabilities of which these are the logarithms, in whatever order."""
    largest = max(logs)
    if largest == -math.inf:
        return largest
    return largest + math.log(math.fsum(math.exp(value - largest) for value in logs) / len(logs))


def most_voted(votes: Iterable[Vote | None]) -> list[Vote]:
    """What has the most votes: several on a tie, in ascending order, and nothing if nobody voted."""
    counts = Counter(vote for vote in votes if vote is not None)
    most = max(counts.values(), default=0)
    return sorted(vote for vote, count in counts.items() if count == most)


def most_probable(probabilities: Sequence[float]) -> int:
    """Index of the largest number, the first of equals."""
    return max(range(len(probabilities)), key=probabilities.__getitem__)


def _check_orders(orders: Sequence[Order], num_documents: int) -> None:
    if not orders:
        raise InputError("no order was chosen; give at least one order of the documents")
    for order in orders:
        if sorted(order) != list(range(num_documents)):
            raise InputError(
                f"the order {list(order)} is not one of {num_documents} documents; give each number from 0 "
                f"to {num_documents - 1} once, and one label per document"
            )


def _in_order(engine: Engine, prompt: Orderable, order: Order) -> TokenLayout:
    if callable(prompt):
        return engine.tokenize(prompt(order))
    return engine.tokenize(prompt).reorder(order)


@torch.inference_mode()
def _observe(
    engine: Engine,
    prompt: Orderable,
    order: Order,
    method: Method,
    ids: LabelIds,
    emit: Callable[[Event | OptionRun], None],
    cancelled: threading.Event,
) -> OptionRun:
    layout = _in_order(engine, prompt, order)
    engine.check_length(layout, 0)
    _, logits = read_prompt(engine, layout, method, reserved_tokens=0, emit=emit, cancelled=cancelled)
    run = OptionRun(order, softmax(label_log_probabilities(log_probabilities(logits[-1]), ids).tolist()))
    emit(run)
    return run
