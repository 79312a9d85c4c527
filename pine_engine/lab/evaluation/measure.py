"""Evaluation of examples: every example under every method in every document order, record by record."""

from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Literal, cast

import torch

from pine_engine.backend import Backend
from pine_engine.endpoint.client import Endpoint
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.lab.debias.estimators import Correction
from pine_engine.lab.evaluation.computed_run import ComputedRun
from pine_engine.lab.evaluation.document_orders import AS_IS
from pine_engine.lab.evaluation.learning import Corrections
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.requested_run import run_requests
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.examples import Example
from pine_engine.scheduling.scheduler import Coroutine, stream_shared
from pine_engine.scheduling.worker import RunControl, stream_in_thread

Beat = Literal["beat"]
BEAT: Beat = "beat"  # item in place of an event, so that a stop takes effect during batched decoding


def stream_evaluation(
    backend: Backend,
    examples: Sequence[Example],
    settings: Settings,
    *,
    found: Iterable[Record] = (),
    dataset: Sequence[Example] | None = None,
    beat: tuple[float, Beat] | None = None,
) -> Generator[Event | Record | Beat, None, None]:
    """Yield each record when it is complete, and the events of its runs. Closing the generator stops them.

    A prompt that is too long or refused, a document order that an example does not have, a method that does
    not fit the model, and logits that are not finite become records with an error. Records that are found
    are not computed again. `examples` may be a shard of `dataset`, which by default is the same. `beat` has
    seconds, and an item that is yielded whenever there is no event for so long.

    Raises:
        EndpointError: The server does not answer.
    """
    if isinstance(backend, Endpoint):
        requests = partial(run_requests, backend, examples, settings, found=found)
        return stream_in_thread(requests, beat=beat)
    engine = cast(Engine, backend)
    run = partial(run_evaluation, engine, examples, settings, found=found, dataset=dataset)
    return stream_shared(run, beat=beat)


@torch.inference_mode()
def run_evaluation(
    engine: Engine,
    examples: Sequence[Example],
    settings: Settings,
    control: RunControl,
    *,
    found: Iterable[Record] = (),
    dataset: Sequence[Example] | None = None,
) -> Coroutine[None]:
    """Report records and events of a loaded model, see stream_evaluation. Raises Cancelled after a stop."""
    found = list(found)
    done = {record.key for record in found}
    corrections = Corrections(dataset or examples)
    for record in found:
        corrections.learn(record)
    # An example of another shard has no records here.
    without_records = RunControl(partial(_report_events, corrections, control), control.cancelled)
    with_records = RunControl(partial(_report, corrections, control), control.cancelled)
    for example in examples:
        control.check()
        learned: dict[str, Correction | None] = {}
        for method in settings.measured:
            is_done = settings.keys([example], [method]).keys() <= done
            if is_done or not (method.wrapper and method.wrapper.learns):
                continue
            while (unknown := corrections.next_unknown(example, method)) is not None:
                changes = {"methods": (method.name,), "order_names": (AS_IS,), "generate": False}
                alone = settings.model_copy(update=changes)
                run = ComputedRun(engine, unknown, alone, set(), {method.name: None}, without_records)
                yield from run.compute()
            learned[method.name] = corrections.correction(example, method)
        yield from ComputedRun(engine, example, settings, done, learned, with_records).compute()


def _report(corrections: Corrections, control: RunControl, item: Event | Record) -> None:
    corrections.learn(item)
    control.report(item)


def _report_events(corrections: Corrections, control: RunControl, item: Event | Record) -> None:
    corrections.learn(item)
    if not isinstance(item, Record):
        control.report(item)
