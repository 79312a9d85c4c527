"""Records the run that the lesson shows: `make record`, or `python -m viz.page.record`.

Takes an example of assets/examples.json, answers it in all orders of its documents with the embedded model,
and writes assets/recorded/lesson.npz.
"""

import argparse
import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pine_engine.engine import Engine
from pine_engine.invariance import orders_to_try
from viz.identity import document_letter
from viz.page.answering import FinishedRun, answer
from viz.page.documents import entries_from
from viz.page.examples import load_examples
from viz.page.form import Form
from viz.page.recordings import LESSON_RECORDING, Recording, write_recording
from viz.page.shuffling import try_orders
from viz.page.told import TriedOrder

EXAMPLE = "Who has the key? (3 documents)"
METHODS = ("vanilla", "nia", "pcw", "sp", "pine")
MAX_NEW_TOKENS = 16


def recorded_sentence(engine: Engine, date: datetime.date) -> str:
    """When and with what a run was recorded: "Recorded on 1 March 2026 with ..., float32"."""
    revision = f" (revision {engine.revision})" if engine.revision else ""
    return f"Recorded on {date.day} {date:%B %Y} with {engine.model_name}{revision}, {engine.dtype}"


def record(engine: Engine, form: Form, *, example: str, date: datetime.date) -> Recording:
    """Answers the form in the order as entered and in all others. It has three documents or four."""
    sentence = recorded_sentence(engine, date)
    as_entered, *others = orders_to_try(len(form.entries))
    run = _run(engine, form, as_entered, sentence)
    tried = []
    for order in others:
        told = _run(engine, form, order, sentence).told
        tried.append(TriedOrder(order, " ".join(map(document_letter, order)), told))
    columns, rows, caption = try_orders(engine, form, [as_entered, *others])
    exchanged = (as_entered[2], as_entered[1], as_entered[0], *as_entered[3:])
    return Recording(
        example=example,
        question=form.question,
        run=replace(run, tried=tuple(tried)),
        exchanged=_run(engine, replace(form, methods=("pine",)), exchanged, sentence),
        columns=columns,
        rows=rows,
        caption=f"{sentence}. {caption}",
    )


def _run(engine: Engine, form: Form, order: Sequence[int], sentence: str) -> FinishedRun:
    entries = tuple(form.entries[place] for place in order)
    *_, last = answer(engine, replace(form, entries=entries))
    assert last.finished is not None
    return replace(last.finished, recorded=sentence)


def example_form(name: str) -> Form:
    """The example of that name with the methods of the lesson."""
    example = next(example for example in load_examples() if example.name == name)
    return Form(
        task=example.task,
        question=example.question,
        instruction=example.instruction,
        methods=METHODS,
        max_new_tokens=MAX_NEW_TOKENS,
        entries=entries_from([(document.title, document.text) for document in example.documents]),
    )


def main() -> None:
    """Records the example with the embedded model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--example", default=EXAMPLE, help="name of an example of assets/examples.json")
    parser.add_argument("--file", type=Path, default=LESSON_RECORDING, help="where to write the recording")
    arguments = parser.parse_args()
    recording = record(
        Engine.load(),
        example_form(arguments.example),
        example=arguments.example,
        date=datetime.date.today(),
    )
    arguments.file.parent.mkdir(exist_ok=True)
    write_recording(recording, arguments.file)
    for column in recording.columns:
        answers = [row.cells[column.method].text for row in recording.rows]
        print(f"{column.label}: {len(set(answers))} answers in {len(answers)} orders, {sorted(set(answers))}")
    print(f"{arguments.file}: {arguments.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
