"""Record the answers that the page shows before a run: `make record`, or `python -m tools.record`.

Runs every example of assets/examples.json with the model of its task or the embedded one, and the example of
the tutorial in all document orders. Writes assets/recorded/answers.json, why.json and tutorial.npz.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import pine_engine as pine
from pine_engine.attention.trace import TokenRange, TokenWeights
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import TUTORIAL_METHODS
from pine_engine.prompts.tasks import TASKS
from viz.page.answers.answering import prepare_answers
from viz.page.answers.order_answers import OrderAnswers
from viz.page.answers.record import RunRecord
from viz.page.answers.recordings import ANSWERS_FILE, MAX_NEW_TOKENS, write_answers
from viz.page.answers.run import Run
from viz.page.answers.shared import record_of_run
from viz.page.answers.tutorial_recording import TUTORIAL_RECORDING, Recording, write_recording
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import Form
from viz.page.form.options import DEFAULT_METHODS
from viz.page.form.orders import DEFAULT_ORDERS
from viz.page.internals.attention_job import attention_request, prepare_attention
from viz.page.internals.left_out_job import prepare_left_out
from viz.page.selection import first_selection
from viz.page.shuffle_job import prepare_shuffle
from viz.page.why import METHODS, WHY_FILE, can_explain, why_record
from viz.page.without_job import can_leave_out, falls_of, without_document

EXAMPLE = load_examples()[0].name


def record(engine: Engine, form: Form, *, example: str) -> Recording:
    """Return the runs of a form with three or four documents, in the order as entered and in all others."""
    run = _shuffle(engine, form)
    first, second, third, *rest = run.order
    exchanged = _run(engine, form, (third, second, first, *rest))
    return Recording(
        example=example,
        run=_recorded(_with_attention(engine, run)),
        exchanged=_recorded(_pine_importance(exchanged)),
    )


def _recorded(run: Run) -> Run:
    """Return the run as it is read from its file: the answers, and the origins of those that have traces."""
    orders = {order: OrderAnswers(answers.texts, answers.records) for order, answers in run.orders.items()}
    orders[run.order] = replace(orders[run.order], origins=run.origins)
    return replace(run, source="recorded", orders=orders, caption="", first_certificate=None)


def _with_attention(engine: Engine, run: Run) -> Run:
    """Add the attention between all tokens in the initially selected head."""
    request = attention_request(run, first_selection(run))
    *_, last = prepare_attention(engine, request).views(engine)
    assert last.weights
    of = TokenRange(request.layer, request.head, 0, request.layout.num_tokens)
    traces = dict(run.result.traces)
    for method, weights in last.weights.items():
        token_weights = TokenWeights(of, weights.astype(np.float32))
        traces[method] = replace(traces[method], token_weights=(token_weights,))
    return replace(run, result=replace(run.result, traces=traces))


def _shuffle(engine: Engine, form: Form) -> Run:
    """Return the run in all orders."""
    *_, last = prepare_shuffle(engine, form, count=DEFAULT_ORDERS, seed=0, controls=False).views(engine)
    assert last.run is not None
    return last.run


def _run(engine: Engine, form: Form, order: Sequence[int]) -> Run:
    """Return a run with the documents in this order."""
    entries = tuple(form.entries[slot] for slot in order)
    *_, last = prepare_answers(engine, replace(form, entries=entries)).views(engine)
    assert last.run is not None
    return last.run


def _pine_importance(run: Run) -> Run:
    """Return the part of a run with PINE's importance of the documents for the question.

    The run has all methods, because logits depend on the shape of the batch.
    """
    queries = slice(run.result.layout.suffix_length)
    trace = run.result.traces["pine"]
    assert trace.suffix_importance is not None
    short = replace(
        trace,
        suffix_starts=trace.suffix_starts[:, :, queries],
        suffix_importance=trace.suffix_importance[:, :, queries],
        suffix_attention=None,
    )
    answers = run.orders[run.order]
    return replace(
        run,
        form=replace(run.form, methods=("pine",)),
        result=replace(run.result, answers={"pine": run.result.answers["pine"]}, traces={"pine": short}),
        orders={run.order: OrderAnswers({"pine": answers.texts["pine"]}, {"pine": answers.records["pine"]})},
    )


def example_form(name: str) -> Form:
    """Return the form of an example with the methods of the tutorial."""
    example = next(example for example in load_examples() if example.name == name)
    return example.form([row.name for row in TUTORIAL_METHODS], MAX_NEW_TOKENS)


def run_example(engine: Engine, example: FormExample) -> Run:
    """Return the run of an example in several orders, with the default methods."""
    run = _shuffle(engine, example.form(DEFAULT_METHODS, MAX_NEW_TOKENS))
    return replace(run, source="recorded")


def with_texts_without(engine: Engine, run: Run) -> Run:
    """Return the run with the answers without each document, and the falls of its answers, in all orders.

    Two orders that differ in the place of a document alone have one answer without it. Falls are those of the
    methods of *Why*; of an order-invariant one they are equal in all orders.
    """
    if not can_leave_out(run.form):
        return run
    found: dict[Form, dict[str, str]] = {}
    orders = dict(run.orders)
    falls: dict[str, tuple[float, ...]] = {}
    for order, answers in run.orders.items():
        lettered = {entry.letter: entry for entry in run.form.entries}
        form = replace(run.form, entries=tuple(lettered[letter] for letter in order))
        forms = [without_document(form, letter) for letter in sorted(order)]
        for reduced in forms:
            if reduced not in found:
                *_, last = prepare_answers(engine, reduced, trace=False).views(engine)
                found[reduced] = {card.method: card.text for card in last.cards}
        texts = {method: tuple(found[one][method] for one in forms) for method in answers.texts}
        changed = [name for name in METHODS if name not in falls or not pine.METHODS[name].is_order_invariant]
        falls |= _falls(engine, replace(form, methods=tuple(changed)))
        orders[order] = replace(answers, texts_without=texts, falls=dict(falls))
    return replace(run, orders=orders)


def _falls(engine: Engine, form: Form) -> dict[str, tuple[float, ...]]:
    """Return the fall of each answer's log-probability without each document, in nats."""
    *_, last = prepare_answers(engine, form, trace=False).views(engine)
    assert last.run is not None
    *_, scored = prepare_left_out(engine, last.run.result, engine.model_name).views(engine)
    return falls_of(scored.scores, form.order)


def shown_parts(record: RunRecord) -> RunRecord:
    """Return the record without times and tokens of its answers, which are shown after a run only."""
    left_out: dict[str, Any] = {"token_ids": (), "tokens": (), "logprobs": (), "times": {}}
    answers = tuple(one.model_copy(update=left_out) for one in record.answers)
    return record.model_copy(update={"answers": answers})


def main() -> None:
    """Record the examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--example", default=EXAMPLE, help="name of an example of assets/examples.json")
    parser.add_argument("--file", type=Path, default=TUTORIAL_RECORDING, help="file for its run")
    parser.add_argument("--answers", type=Path, default=ANSWERS_FILE, help="file for the answers")
    parser.add_argument("--why", type=Path, default=WHY_FILE, help="file for the steps of Why")
    arguments = parser.parse_args()
    examples = load_examples()
    models = {example.name: TASKS[example.task].model or None for example in examples}
    engines = {model: Engine.load(model, dtype="float32") for model in {*models.values(), None}}
    arguments.answers.parent.mkdir(exist_ok=True)
    answers, steps = {}, {}
    for number, example in enumerate(examples, start=1):
        print(f"{number} of {len(examples)}: {example.name}", flush=True)
        run = run_example(engines[models[example.name]], example)
        answers[example.name] = shown_parts(
            record_of_run(with_texts_without(engines[models[example.name]], run))
        )
        if can_explain(run):
            steps[example.name] = why_record(run)
    write_answers(answers, arguments.answers)
    arguments.why.write_text(json.dumps(steps, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{arguments.answers}: {len(answers)} examples; {arguments.why}: {len(steps)}")
    recording = record(engines[None], example_form(arguments.example), example=arguments.example)
    arguments.file.parent.mkdir(exist_ok=True)
    write_recording(recording, arguments.file)
    orders = recording.run.orders
    for method in recording.run.answer_records:
        texts = {answers.texts[method] for answers in orders.values()}
        print(f"{method}: {len(texts)} answers in {len(orders)} orders, {sorted(texts)}")
    print(f"{arguments.file}: {arguments.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
