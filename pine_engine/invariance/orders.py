"""Whether an answer depends on the order of the documents: every order answered, compared with the first."""

from collections.abc import Generator, Iterable, Sequence

from pine_engine.attention.trace import TraceRequest
from pine_engine.engine.engine import Engine, check_engine
from pine_engine.engine.events import Event
from pine_engine.engine.options import MethodsGiven, RunOptions
from pine_engine.engine.orders import OrderRow, known_orders
from pine_engine.engine.streaming import in_thread
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt


def compare_orders(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    *,
    methods: MethodsGiven = None,
    orders: Iterable[Sequence[int]],
    max_new_tokens: int = 32,
    stop_at_end: bool = True,
    trace: bool | TraceRequest = False,
) -> Generator[Event | OrderRow, None, None]:
    """Answers the prompt in every order, and tells as it goes; Engine.shuffle waits and returns a result.

    Yields the events of all runs as Engine.generate does, and for each order in turn, in place of RunDone, an
    OrderRow: the run's result, and how each answer compares with that of the first order.
    `isinstance(event, OrderRow)` tells them apart. Every order is read by itself; the answers of the
    first two, and then of as many as memory has room for, are written together, so that their events stand
    between each other.

    orders: each the documents' places, see orders_to_try. methods, max_new_tokens, stop_at_end, trace: as
    Engine.run takes them, for every order. Every order is computed from scratch, with its logits kept.
    Closing the generator stops the computing.
    Raises InputError at the first step: for no order, for what is none of the documents, and as Engine.run.
    """
    check_engine(engine)
    layout = engine.tokenize(prompt)
    options = RunOptions(
        methods=methods,
        max_new_tokens=max_new_tokens,
        trace=trace,
        keep_logits=True,
        stop_at_end=stop_at_end,
    )
    yield from in_thread(engine.run_orders(layout, options, known_orders(layout, orders)).work)
