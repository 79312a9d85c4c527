"""Record the answers that the page shows before a run: `make record`, or `python -m tools.record`.

Answers every example of assets/examples.json, with the embedded model or the task's own, and one of them, for
the tutorial, in all orders of its documents. Writes assets/recorded/answers.json and tutorial.npz.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pine_engine.attention.trace import TokenRange, TokenWeights
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import TUTORIAL_METHODS
from pine_engine.prompts.tasks import TASKS
from viz.cards.shuffle import InOrders
from viz.page.answers.answering import FinishedRun, TriedOrder, answer
from viz.page.answers.recorded_answers import (
    ANSWERS_FILE,
    RecordedAnswer,
    RecordedAnswers,
    fingerprint,
    write_answers,
)
from viz.page.answers.recordings import TUTORIAL_RECORDING, Recording, write_recording
from viz.page.attention_job import attend, attention_request
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import Form
from viz.page.form.method_boxes import DEFAULT_METHODS
from viz.page.form.orders import DEFAULT_ORDERS
from viz.page.selection import first_selection
from viz.page.shuffle_job import shuffle

EXAMPLE = "When was the castle built? (3 documents)"
MAX_NEW_TOKENS = 24


def recorded_sentence(engine: Engine) -> str:
    """Return the model of a recording: "Precomputed with ... (float32, revision)"."""
    version = ", ".join(filter(None, (str(engine.dtype), engine.revision)))
    return f"Precomputed with {engine.model_name} ({version})"


def record(engine: Engine, form: Form, *, example: str) -> Recording:
    """Answers the form in the order as entered and in all others. It has three documents or four."""
    sentence = recorded_sentence(engine)
    finished, _ = _shuffled(engine, form)
    as_entered = finished.order
    exchanged = (as_entered[2], as_entered[1], as_entered[0], *as_entered[3:])
    return Recording(
        example=example,
        question=form.question,
        run=replace(_with_attention(engine, finished), recorded=sentence, form=None),
        exchanged=replace(_for_the_proof(_run(engine, form, exchanged)), recorded=sentence, form=None),
    )


def _with_attention(engine: Engine, run: FinishedRun) -> FinishedRun:
    """The run with the attention of the head that is shown first, token by token."""
    request = attention_request(run, first_selection(run))
    *_, last = attend(engine, request)
    assert last.weights
    of = TokenRange(request.layer, request.head, 0, request.layout.num_tokens)
    traces = dict(run.result.traces)
    for method, weights in last.weights.items():
        kept = TokenWeights(of, weights.astype(np.float32))
        traces[method] = replace(traces[method], token_weights=(kept,))
    return replace(run, result=replace(run.result, traces=traces))


def _shuffled(engine: Engine, form: Form) -> tuple[FinishedRun, InOrders]:
    """Return the run in the order as entered with those in other orders, and the answers by order."""
    views = shuffle(engine, form, count=DEFAULT_ORDERS, seed=0, controls=False)
    *_, last = views
    assert last.finished is not None
    return last.finished, last.in_orders


def _run(engine: Engine, form: Form, order: Sequence[int]) -> FinishedRun:
    """The run with the documents in this order."""
    entries = tuple(form.entries[place] for place in order)
    *_, last = answer(engine, replace(form, entries=entries))
    assert last.finished is not None
    return last.finished


def _for_the_proof(run: FinishedRun) -> FinishedRun:
    """What PINE's trace says of documents and question.

    It comes out of a run of all methods: in a run of its own, a batch of another shape, last bits differ.
    """
    rows = slice(run.result.layout.suffix_length)
    trace = run.result.traces["pine"]
    assert trace.suffix_importance is not None
    short = replace(
        trace,
        suffix_starts=trace.suffix_starts[:, :, rows],
        suffix_importance=trace.suffix_importance[:, :, rows],
        suffix_attention=None,
    )
    return replace(
        run,
        result=replace(run.result, answers={"pine": run.result.answers["pine"]}, traces={"pine": short}),
        answer_records={"pine": run.answer_records["pine"]},
    )


def example_form(name: str) -> Form:
    """The example of that name with the methods of the tutorial."""
    example = next(example for example in load_examples() if example.name == name)
    return example.form([row.name for row in TUTORIAL_METHODS], MAX_NEW_TOKENS)


def record_answers(engine: Engine, example: FormExample) -> RecordedAnswers:
    """Answers an example in several orders with the methods that are ticked when the page is opened."""
    form = example.form(DEFAULT_METHODS, MAX_NEW_TOKENS)
    run, tried = _shuffled(engine, form)
    return RecordedAnswers(
        fingerprint=fingerprint(example),
        recorded=recorded_sentence(engine),
        orders=tried.orders,
        answers=tuple(
            RecordedAnswer(
                method=method,
                text=said.text,
                num_tokens=len(said.token_ids),
                finish_reason=said.finish_reason,
                in_orders=tried.answers[method],
                starts=tuple(tuple(one.starts[method].tolist()) for one in tried.positions),
            )
            for method, said in run.result.answers.items()
        ),
        lengths=tuple(tried.positions[0].lengths.tolist()),
    )


def main() -> None:
    """Records the examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--example", default=EXAMPLE, help="name of an example of assets/examples.json")
    parser.add_argument("--file", type=Path, default=TUTORIAL_RECORDING, help="where to write its run")
    parser.add_argument("--answers", type=Path, default=ANSWERS_FILE, help="where to write the answers")
    arguments = parser.parse_args()
    examples = load_examples()
    models = {example.name: TASKS[example.task].model or None for example in examples}
    engines = {model: Engine.load(model, dtype="float32") for model in {*models.values(), None}}
    arguments.answers.parent.mkdir(exist_ok=True)
    answers = {example.name: record_answers(engines[models[example.name]], example) for example in examples}
    write_answers(answers, arguments.answers)
    print(f"{arguments.answers}: {len(answers)} examples")
    recording = record(engines[None], example_form(arguments.example), example=arguments.example)
    arguments.file.parent.mkdir(exist_ok=True)
    write_recording(recording, arguments.file)
    tried: list[TriedOrder] = [recording.run, *recording.run.tried]
    for method in recording.run.answer_records:
        texts = {one.answer_records[method].text for one in tried}
        print(f"{method}: {len(texts)} answers in {len(tried)} orders, {sorted(texts)}")
    print(f"{arguments.file}: {arguments.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
