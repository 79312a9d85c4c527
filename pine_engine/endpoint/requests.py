"""Requests of one prompt each: which prompt, method and order, and the size of all of them in words."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.orders import Order

BYTES_PER_TOKEN = 4  # of English text, for estimates


@dataclass(frozen=True, eq=False)
class TextRequest:
    """One prompt to a server.

    Attributes:
        layout: Prompt of `Endpoint.tokenize`, with the documents in the order that is evaluated.
        method: Method, which may reorder the documents.
        max_new_tokens: Limit of the answer, in tokens.
        has_logprobs: True to request the likely first tokens with their log-probabilities.
        is_repeated: True to send the request twice, and to compare the answers.
    """

    layout: TokenLayout
    method: Method
    max_new_tokens: int
    has_logprobs: bool = False
    is_repeated: bool = False


def text_requests(
    layout: TokenLayout, methods: Sequence[Method], max_new_tokens: int, orders: Sequence[Order] | None = None
) -> list[TextRequest]:
    """Return a request for each document order and method; the first of several is repeated."""
    layouts = [layout] if orders is None else list(map(layout.reorder, orders))
    first, *others = product(layouts, methods)
    return [
        TextRequest(*first, max_new_tokens, is_repeated=bool(others)),
        *(TextRequest(*each, max_new_tokens) for each in others),
    ]


def describe_requests(requests: Iterable[TextRequest]) -> str:
    """Return the number of requests and of their tokens, estimated from their bytes, in a sentence."""
    num_requests = num_repeated = num_bytes = num_answer_tokens = 0
    for request in requests:
        count = 1 + request.is_repeated
        num_requests += count
        num_repeated += request.is_repeated
        num_bytes += count * request.layout.num_tokens
        num_answer_tokens += count * request.max_new_tokens
    return (
        f"requests: {num_requests:,}, of which {num_repeated:,} repeat another; about "
        f"{num_bytes // BYTES_PER_TOKEN:,} tokens of prompts, up to {num_answer_tokens:,} of answers"
    )
