"""Plans of the runs of a wrapper, made and checked without a model: orders, content-free prompts, priors.

`run_debias` and the evaluation follow plans. In an order, order[p] is the document at place p.
"""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pine_engine.errors import InputError
from pine_engine.lab.debias.wrappers import DEBIASERS, DEFAULT_BASE, Wrapper, check_base
from pine_engine.methods.table import get_method
from pine_engine.prompts.orders import MAX_ORDERS, Order, document_orders
from pine_engine.prompts.prompt import Prompt, Segment
from pine_engine.prompts.request import LabeledRequest, Request
from pine_engine.prompts.tasks import TASKS, document_letter

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts that replace the content of each document in a content-free prompt."""

SEED = 0  # seed of the hash that selects the examples of an evaluation from which a wrapper learns

_PLACEHOLDER = "\ue002"  # private-use character in place of a document's content while a prompt is built


def learned_samples(count: int, share: float, seed: int = 0) -> set[int]:
    """Return the indices of the requests from which a wrapper learns: a random share, at least one."""
    return set(random.Random(seed).sample(range(count), max(1, int(count * share))))


def is_learned_example(example: str, share: float) -> bool:
    """Check whether a wrapper learns from the example of an id, in every dataset and every part of one."""
    digest = hashlib.sha256(f"{SEED}:{example}".encode()).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def content_free_prompts(engine: Any, request: Request) -> list[Prompt]:
    """Return one prompt per content-free text, in place of the content, but not the title, of documents."""
    # An empty document is invalid, so the prompt is built with a placeholder.
    documents = [replace(document, text=_PLACEHOLDER) for document in request.documents]
    template = request.model_copy(update={"documents": documents}).prompt(engine)

    def fill(segment: Segment, content: str) -> Segment:
        return tuple(replace(piece, text=piece.text.replace(_PLACEHOLDER, content)) for piece in segment)

    return [
        replace(template, documents=tuple(fill(segment, content) for segment in template.documents))
        for content in CONTENT_FREE
    ]


def in_order(request: LabeledRequest, order: Order) -> LabeledRequest:
    """Reorder the documents. The prompt is built afterwards, so labels in it stay at their places."""
    return request.model_copy(update={"documents": [request.documents[index] for index in order]})


@dataclass(frozen=True)
class DebiasPlan:
    """Requests under one wrapper."""

    wrapper: Wrapper
    base: str
    requests: tuple[LabeledRequest, ...]
    orders: tuple[tuple[Order, ...], ...]  # in which the base method is run, for each request
    majority: bool
    max_new_tokens: int  # limit of a generated answer, 0 if none is generated
    learned_samples: frozenset[int]  # indices of the requests from which a correction is learned

    @property
    def num_prompts(self) -> int:
        """Number of prefills; those of representative orders, which are not known yet, do not count."""
        others = 0 if self.wrapper.calibrated == "nothing" else len(CONTENT_FREE)
        if self.wrapper.margin is not None:
            others = len({DEFAULT_BASE, self.base}) - 1
        return sum(len(orders) + others for orders in self.orders)


def plan_debias(
    requests: Sequence[LabeledRequest],
    *,
    wrapper: str,
    base: str = "vanilla",
    majority: bool = False,
    max_new_tokens: int = 64,
    samples: int = 10,
    seed: int = 0,
    max_orders: int = MAX_ORDERS,
) -> DebiasPlan:
    """Plan the runs of a wrapper, and check that all requests fit it.

    Args:
        requests: Requests, with labels where the wrapper needs them. Default of judges: the letters of the
            answers.
        wrapper: Name in `DEBIASERS`.
        base: Method that is run several times.
        majority: True for a vote of generated answers; otherwise, probabilities of the labels are averaged.
        max_new_tokens: Limit of a generated answer.
        samples: Orders of `permutation_sampled`.
        seed: Seed of the sampled orders, and of the requests from which a wrapper learns.
        max_orders: Limit of `permutation_full`.

    Raises:
        InputError: For an unknown name, no request, labels that do not fit, or too many orders.
    """
    row = DEBIASERS[wrapper]
    check_base(row, get_method(base))
    base = get_method(base).name
    if not requests:
        raise InputError("no request to answer: expected at least one", field="requests")
    if majority and not row.votes:
        names = ", ".join(other.name for other in DEBIASERS.values() if other.votes)
        raise InputError(f"{wrapper} takes no majority of answers; choose from: {names}", field="majority")
    requests = [_with_labels(row, request) for request in requests]
    _check_labels(row, requests)
    learned = learned_samples(len(requests), row.learned_share, seed) if row.learns else set()
    is_text = row.margin is not None and not all(request.labels for request in requests)
    orders = []
    for index, request in enumerate(requests):
        kind = None if row.learns and index not in learned else row.orders
        options = {"samples": samples, "seed": seed, "max_orders": max_orders}
        orders.append(tuple(document_orders(len(request.documents), kind, **options)))
    return DebiasPlan(
        wrapper=row,
        base=base,
        requests=tuple(requests),
        orders=tuple(orders),
        majority=majority,
        max_new_tokens=max_new_tokens if majority or row.steps or row.represents or is_text else 0,
        learned_samples=frozenset(learned),
    )


def _with_labels(wrapper: Wrapper, request: LabeledRequest) -> LabeledRequest:
    """Return a request with the letters of the documents as labels, if the wrapper needs labels."""
    if request.labels or not wrapper.needs_labels or not TASKS[request.task].has_letters:
        return request
    letters = map(document_letter, range(len(request.documents) + TASKS[request.task].has_tie))
    return request.model_copy(update={"labels": list(letters)})


def _check_labels(wrapper: Wrapper, requests: Sequence[LabeledRequest]) -> None:
    for request in requests:
        num_labels, has_tie = len(request.labels), TASKS[request.task].has_tie
        expected, message = len(request.documents) + has_tie, None
        if not num_labels and wrapper.needs_labels:
            message = f"{wrapper.name} needs labels: got none, expected some, such as A and B"
        elif wrapper.learns and has_tie:
            message = f"{wrapper.name} has no prior of a tie, which is no document; use the task judge"
        elif wrapper.orders and wrapper.needs_labels and num_labels != expected:
            kinds = "one per document and one for a tie" if has_tie else "one per document"
            message = f"labels do not fit: got {num_labels}, expected {expected}, {kinds}"
        elif wrapper.max_documents and len(request.documents) > wrapper.max_documents:
            message = f"{wrapper.name} needs at most {wrapper.max_documents} documents"
            message += f": got {len(request.documents)}; use permutation_borda"
        elif wrapper.num_labels not in (None, num_labels):
            message = f"{wrapper.name} needs {wrapper.num_labels} labels: got {num_labels}"
        elif wrapper.learns and request.labels != requests[0].labels:
            message = f"{wrapper.name} has requests with different labels; give the same labels throughout"
        if message:
            raise InputError(message, field="labels")
