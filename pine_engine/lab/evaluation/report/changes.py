"""Answers that change with the order of the documents, also of examples without accepted answers."""

from collections.abc import Iterable, Sequence

import numpy as np

from pine_engine.lab.debias.measured import is_order_invariant, method_label
from pine_engine.lab.evaluation.cautions import label_cautions
from pine_engine.lab.evaluation.document_orders import AGAIN
from pine_engine.lab.evaluation.grid import answers_differ
from pine_engine.lab.evaluation.intervals import share
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.report.tables import Curve, CurveLine, Table, in_percent

CHANGES = "Answers that change"


def changed_examples(records: Iterable[Record]) -> dict[str, list[bool]]:
    """Return by method whether the answer to each example changes, also where no answers are accepted."""
    by_method: dict[str, dict[str, list[Record]]] = {}
    for record in (one for one in records if one.order_name != AGAIN):
        by_method.setdefault(record.method, {}).setdefault(record.example, []).append(record)
    found: dict[str, list[bool]] = {}
    for method, examples in by_method.items():
        is_written = any(record.text is not None for several in examples.values() for record in several)
        changes = [answers_differ(one, "generated" if is_written else "chosen") for one in examples.values()]
        if known := [is_changed for is_changed in changes if is_changed is not None]:
            found[method] = known
    return found


def changes_table(records: Sequence[Record]) -> Table:
    """Return the number of examples with several answers by method, and why those of PINE can change."""
    found = changed_examples(records)
    rows = tuple(
        (method_label(method), "yes" if is_order_invariant(method) else "no", f"{sum(known)} of {len(known)}")
        for method, known in found.items()
    )
    changed = [method for method, known in found.items() if any(known)]
    note = " ".join(label_cautions(records, changed))
    return Table(CHANGES, ("method", "order-invariant", "examples"), rows, note=note)


def changes_bars(records: Iterable[Record]) -> list[Curve]:
    """Return bars of the share of examples with several answers by method; [] if none can be compared."""
    if not (found := changed_examples(records)):
        return []
    shares = tuple(share(np.array(known, dtype=float)) for known in found.values())
    line = CurveLine("examples", 0, tuple(one and in_percent(one) for one in shares))
    places = tuple(map(method_label, found))
    note = "Share of the examples whose answer depends on the order."
    bars = Curve(
        "changed-answers", CHANGES, "method", "examples, %", places, (line,), has_bars=True, note=note
    )
    return [bars]
