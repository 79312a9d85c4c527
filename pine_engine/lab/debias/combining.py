"""Combined outputs of several runs of a method: votes, mean probabilities, routes (specification, section 8).

Sources: Zheng et al. 2024, chujiezheng/LLM-MCQ-Bias; Yoon et al. 2025, soyoung97/RoToR (routing).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from unicodedata import normalize

import torch
from torch import Tensor

from pine_engine.lab.debias.clusters import Clusters
from pine_engine.lab.debias.estimators import Correction, softmax
from pine_engine.lab.debias.rank_aggregation import AGGREGATIONS
from pine_engine.lab.debias.wrappers import Wrapper
from pine_engine.prompts.orders import Order
from pine_engine.prompts.ranking import ranking_scores
from pine_engine.prompts.request import LabeledRequest
from pine_engine.prompts.scoring import TIE
from pine_engine.prompts.tasks import TASKS

Vote = TypeVar("Vote", int, str)

MAX_ALPHA, ALPHA_SLOPE = 2.0, 5.0  # of CapCal's adaptive strength, as in the released code


@dataclass(frozen=True)
class DebiasResult:
    """Answer to one request.

    Attributes:
        answer: A label, of the chosen document in the input order; "tie"; "" if no answer names a label; or
            the generated text.
        scores: Probability, votes or calibrated score of each label. Empty for generated text.
        base_answers: Number of runs of the base method for each of its answers. Empty for generated text.
        clusters: Clusters of the orders by hidden states, of the wrapper `representative`.
    """

    answer: str
    scores: dict[str, float]
    base_answers: dict[str, int]
    clusters: Clusters | None = None


@dataclass(frozen=True)
class DebiasFailure:
    """Request without a result, because a server did not answer or its answers do not suffice.

    Attributes:
        reason: Reason in a sentence.
        refusals: Reasons of the provider, by index of the refused order.
    """

    reason: str
    refusals: dict[int, str] = field(default_factory=dict)


def count_votes(
    wrapper: Wrapper, request: LabeledRequest, orders: Sequence[Order], texts: Sequence[str]
) -> DebiasResult:
    """Return the vote of the answers generated in each order.

    Each votes for the document whose label it names, or for a tie. Rankings are aggregated.
    """
    labels, tie = request.labels, len(request.documents)
    task = TASKS[request.task].sized(tie)
    if task.ranks:
        pairs = [
            (ranking, order)
            for text, order in zip(texts, orders, strict=True)
            if (ranking := task.parse(text))
        ]
        runs = [ranking_scores(ranking, labels) for ranking, _ in pairs]
        if not runs:
            return DebiasResult("", dict.fromkeys(labels, 0.0), {"": len(texts)})
        visited = [order for _, order in pairs]
        favorites = (order[argmax(run)] for run, order in zip(runs, visited, strict=True))
        return likeliest_label(request, aggregate_rankings(wrapper, runs, visited), favorites)

    def vote(text: str, order: Order) -> int | None:
        place = named_label(text, labels)
        if place is None and task.has_letters:
            documents = [request.documents[index].text for index in order]
            parsed = task.with_documents(documents).parse(text)
            if parsed == TIE:
                return tie
            place = labels.index(parsed) if parsed in labels else None
        if place is None:
            return None
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
    favorites = (order[argmax(run)] for order, run in zip(named, logprobs, strict=False))
    return likeliest_label(request, scores, favorites)


def likeliest_label(
    request: LabeledRequest, scores: Sequence[float], favorites: Iterable[int]
) -> DebiasResult:
    """Return the label with the largest score as the answer; `favorites` are the labels of the base runs."""
    by_label = dict(zip(request.labels, scores, strict=True))
    names = dict(enumerate(request.labels))
    if TASKS[request.task].has_tie:
        names[len(request.documents)] = TIE
    is_tie = 1 < len(scores) == scores.count(scores[0])
    answer = TIE if is_tie else names[argmax(scores)]
    return DebiasResult(answer, by_label, dict(Counter(map(names.__getitem__, favorites))))


def route(confidences: Sequence[float], margin: float) -> int:
    """Return 1, the base method, if its confidence exceeds vanilla's by `margin` or more, otherwise 0."""
    return int(len(confidences) > 1 and confidences[0] + margin <= confidences[1])


def mean_probability(logprobs: Sequence[float]) -> float:
    """Return the mean probability of an answer's tokens, its confidence; 0 for an empty answer."""
    return math.fsum(map(math.exp, logprobs)) / max(len(logprobs), 1)


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
        if wrapper.subtracts_prior:
            return subtract_prior(own.softmax(0), mean.exp())
        return tuple((own.log_softmax(0) - mean).exp().tolist())
    if wrapper.aggregation:
        return aggregate_rankings(wrapper, logprobs, orders)
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


def subtract_prior(own: Tensor, prior: Tensor) -> tuple[float, ...]:
    """Return the scores of CapCal, with sum 1: own - alpha (prior - 1/k), alpha = min(5 H(own) / ln k, 2).

    These are the scores of the first step of decoding in USTC-StarTeam/CapCal (adaptive), with which all
    documents are ranked. The released code decodes one document after another, and uses one placeholder
    text and probabilities that are not divided by their sum over the documents.

    Args:
        own: Probability of each of the k labels, (k,), with sum 1.
        prior: The same without content of the documents, (k,), with sum 1.
    """
    size = len(own)
    relative_entropy = float(torch.special.entr(own).sum()) / math.log(max(size, 2))
    alpha = min(MAX_ALPHA, ALPHA_SLOPE * relative_entropy)
    scores: list[float] = (own - alpha * (prior - 1 / size)).tolist()
    return tuple(scores)


def aggregate_rankings(
    wrapper: Wrapper, scores: Sequence[Sequence[float]], orders: Sequence[Order]
) -> tuple[float, ...]:
    """Return a score of each document from the rankings of several runs, by Borda if no other is named.

    The larger the score of a label in a run, the better its rank.
    """
    runs = [
        [run[order.index(one)] for one in range(len(run))] for run, order in zip(scores, orders, strict=True)
    ]
    return AGGREGATIONS[wrapper.aggregation or "borda"](runs)


def _favorite(run: Sequence[float], order: Order) -> int | None:
    """Return the document with the largest probability in a run, None for several."""
    return None if run.count(max(run)) > 1 else order[argmax(run)]


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


def argmax(numbers: Sequence[float]) -> int:
    """Return the index of the largest number, the first of equals."""
    return max(range(len(numbers)), key=numbers.__getitem__)
