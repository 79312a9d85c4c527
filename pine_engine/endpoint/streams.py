"""Events of runs on a server: one request per method and document order of each prompt, and their replies."""

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from pine_engine.endpoint.replies import Reply
from pine_engine.endpoint.requests import TextRequest, describe_requests, text_requests
from pine_engine.engine.events import (
    Answer,
    Event,
    GenerationFinished,
    Repeated,
    RequestProgress,
    RequestsPlanned,
    RunFinished,
    RunResult,
)
from pine_engine.engine.order_results import OrderComparison, OrderResult
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.orders import Order
from pine_engine.scheduling.worker import RunControl, stream_in_thread

BEAT_S = 0.5
"""Maximum seconds between two events, so that a run can be stopped while the server computes."""

Send = Callable[[Sequence[TextRequest], Callable[[], None]], Iterator[tuple[TextRequest, Reply]]]
"""`Endpoint.send`."""


@dataclass
class PromptRun:
    """Requests of one prompt and their replies.

    Attributes:
        layout: Prompt in its first document order.
        orders: Document orders to compare; None for the answers in the first order alone.
        requests: Requests by order, and in an order by method.
        replies: Replies so far.
        references: First answer of each method, with which those in later orders are compared.
        num_finished: Number of finished orders, which are reported one after the other.
    """

    layout: TokenLayout
    orders: Sequence[Order] | None
    requests: list[TextRequest]
    replies: dict[TextRequest, Reply] = field(default_factory=dict)
    references: dict[str, Answer] = field(default_factory=dict)
    num_finished: int = 0

    def take(self, request: TextRequest, reply: Reply) -> Iterator[Event | OrderResult]:
        """Yield the events of a reply: its answer, and the results of the orders that it completes."""
        self.replies[request] = reply
        if reply.is_repeatable is not None:
            yield Repeated(request.method.name, reply.is_repeatable)
        size = len(self.requests) // (1 if self.orders is None else len(self.orders))
        order = self.requests.index(request) // size
        yield GenerationFinished(reply.answer(request.method.name), order)
        while found := self.requests[self.num_finished * size :][:size]:
            if not all(one in self.replies for one in found):
                return
            answers: dict[str, Answer] = {}
            for one in found:
                answers[one.method.name] = self.replies[one].answer(one.method.name)
            result = RunResult(found[0].layout, answers, {})
            yield RunFinished(result) if self.orders is None else self._compared(result)
            self.num_finished += 1

    def _compared(self, result: RunResult) -> OrderResult:
        """Compare the answers of an order; a method that the server refuses has no comparison in it."""
        assert self.orders is not None
        comparisons = {}
        for method, answer in result.answers.items():
            if answer.refusal:
                continue
            reference = self.references.setdefault(method, answer)
            comparisons[method] = OrderComparison(
                answer,
                same_text=answer.content == reference.content,
                first_difference=None,
                max_abs_logit_diff=math.nan,
                bitwise_identical=None,
                reference_logprob=math.nan,
            )
        return OrderResult(self.orders[self.num_finished], comparisons, result)


def stream_runs(
    send: Send,
    layouts: Sequence[TokenLayout],
    orders: Sequence[Sequence[Order]] | None,
    methods: Sequence[Method],
    max_new_tokens: int,
) -> Generator[tuple[int, Event | OrderResult], None, None]:
    """Send the requests of several prompts, and yield (index of the prompt, event) as replies arrive.

    The first request of a prompt with several is sent twice. Events of all prompts have the index 0. Closing
    the generator cancels the requests. `send` yields requests with their replies. `orders` are the document
    orders of each prompt, or None for answers in the order of the prompts.

    Raises:
        EndpointError: After the answers that arrive, as `Endpoint.send`.
    """
    of_prompts: Sequence[Sequence[Order] | None] = orders or [None] * len(layouts)
    runs = [
        PromptRun(layout, of_prompt, text_requests(layout, methods, max_new_tokens, of_prompt))
        for layout, of_prompt in zip(layouts, of_prompts, strict=True)
    ]
    index_of = {request: index for index, run in enumerate(runs) for request in run.requests}
    requests = list(index_of)
    yield 0, RequestsPlanned(len(requests), describe_requests(requests))

    def work(control: RunControl) -> None:
        for pair in send(requests, control.check):
            control.report(pair)

    num_replies = 0
    received: Generator[tuple[TextRequest, Reply] | tuple[()], None, None]
    received = stream_in_thread(work, beat=(BEAT_S, ()))
    with closing(received):
        for pair in received:
            if not pair:
                yield 0, RequestProgress(num_replies, len(requests))
                continue
            num_replies += 1
            index = index_of[pair[0]]
            for event in runs[index].take(*pair):
                yield index, event
