"""Evaluation of examples: every example under every method in every document order, record by record."""

from collections.abc import Iterable, Sequence
from functools import partial

import torch

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.lab.debias.estimators import Correction
from pine_engine.lab.evaluation.computed_run import ComputedRun
from pine_engine.lab.evaluation.document_orders import AS_IS
from pine_engine.lab.evaluation.learning import Corrections
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.examples import Example
from pine_engine.scheduling.scheduler import Coroutine
from pine_engine.scheduling.worker import RunControl


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
    """Report each record when it is complete, and the events of its runs. Raises Cancelled after a stop.

    A prompt that is too long, a document order that an example does not have, a method that does not fit the
    model, and logits that are not finite become records with an error.
    found: existing records, which are not computed again.
    dataset: examples of the whole run, of which `examples` may be a shard; None if they are the same.
    """
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
