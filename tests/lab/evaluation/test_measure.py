"""Evaluation on a tiny model: records agree with the engine, and wrapped ones with their base method."""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from pine_engine import (
    DEBIASERS,
    METHODS,
    TASKS,
    DebiasResult,
    Document,
    Engine,
    InputError,
    TokenLayout,
    run_debias,
)
from pine_engine.engine import passes
from pine_engine.engine.events import PrefillProgress
from pine_engine.engine.generation import ActiveGeneration
from pine_engine.errors import Cancelled
from pine_engine.lab.debias.measured import measured_method
from pine_engine.lab.debias.plan import content_free_prompts, plan_debias
from pine_engine.lab.evaluation import computed_run, learning
from pine_engine.lab.evaluation.document_orders import DocumentOrder, arrange
from pine_engine.lab.evaluation.example_plan import BaseRun, ExamplePlan, Generation, Prefill
from pine_engine.lab.evaluation.measure import run_evaluation
from pine_engine.lab.evaluation.outcome import combine
from pine_engine.lab.evaluation.record import Key, Record
from pine_engine.lab.evaluation.settings import choose, max_visited
from pine_engine.prompts.examples import Example
from pine_engine.prompts.orders import document_orders
from pine_engine.prompts.request import LabeledRequest
from pine_engine.prompts.scoring import parse_verdict
from pine_engine.prompts.tasks import document_letter
from pine_engine.prompts.thinking import SplitAnswer
from pine_engine.scheduling.scheduler import compute_alone
from pine_engine.scheduling.worker import RunControl
from tests.support import measured_rows
from tests.support.families import FAMILIES, TinyLlama, make
from tests.support.forward import watch_caches
from tests.support.measured_rows import PAIR, QUESTION, evaluate_records, outcome, watch_prefills
from tests.support.tiers import first_daily
from tests.support.tokenizers import letter_tokenizer

ROUNDING = 1e-4
"""Float32 log-probabilities of about -100 nats, from GEMMs of other shapes."""

METHOD_NAMES = ["vanilla", "pcw", "sp", "pine"]
SWAPS = ["as-is", "swapped", "segments-swapped", "labels-swapped"]
THREE = QUESTION.model_copy(update={"documents": QUESTION.documents[:3]})
LABELED = THREE.model_copy(update={"id": "labeled", "choices": ["he", "you"], "answers": ["you"]})
MANY = THREE.model_copy(update={"id": "many", "documents": THREE.documents * 3})
CALIBRATED = ["calibration_labels", "calibration_first", "calibration_every"]


@pytest.mark.parametrize(
    ("example", "methods", "names"),
    [
        (QUESTION, ["vanilla", "sp", "pine"], ["as-is", "shuffled:3"]),
        (PAIR, ["vanilla", "pine"], ["as-is", "swapped"]),
        (LABELED, ["pine"], ["reversed"]),
    ],
)
def test_record_equals_run(engine: Engine, example: Example, methods: list[str], names: list[str]) -> None:
    found = evaluate_records(engine, [example], methods=methods, order_names=names)
    for (_, method, name), record in found.items():
        order = arrange(example, name)
        layout = order.request(example).tokenize(engine).reorder(order.permutation)
        answer = engine.run(layout, methods=[method], max_new_tokens=6).answers[method]
        texts = [order.answers(example)[0], *example.scored_choices]
        accepted, *choices = engine.score(layout, texts, methods=[method])[method]
        assert (record.text, record.answer_tokens) == (answer.text, len(answer.token_ids))
        assert record.answer_logprob == pytest.approx(accepted.total, abs=ROUNDING)
        assert (record.prompt_tokens, record.gold_slot) == (layout.num_tokens, order.slots.index(1))
        assert record.answers == order.answers(example)
        if choices:
            expected = {choice.text: choice.total for choice in choices}
            assert record.choice_logprobs == pytest.approx(expected, abs=ROUNDING)
            likelier = max(choices, key=lambda choice: choice.total).text
            assert record.choice_score == float(record.answers[0] in (likelier, likelier.strip("[]")))
        if example is PAIR:
            assert (record.parsed, record.score, record.weight) == (None, 0.5, 92)
            assert (record.section, record.subset) == ("Chat Hard", "llmbar-adver-GPTInst")
    assert len({record.text for record in found.values()}) > len(methods) / 2
    if example is not LABELED:
        assert {record.choice_score for record in found.values()} == ({0, 1} if example is PAIR else {None})


@pytest.mark.parametrize("warning", [None, "Bitwise identity is not guaranteed."])
def test_measure_invariant_method_is_computed_once(
    engine: Engine, warning: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "invariance_warning", warning)
    options: dict[str, Any] = {"order_names": ["as-is", "gold-all", "shuffled:3"], "generate": False}
    found = evaluate_records(engine, [QUESTION], methods=METHOD_NAMES, **options).values()
    for method in METHOD_NAMES:
        of_method = [record for record in found if record.method == method]
        expected = 1 if METHODS[method].is_order_invariant else 5  # gold-at:1 is as stored
        assert sum(record.was_computed for record in of_method) == (5 if warning else expected)
        assert len({record.answer_logprob for record in of_method}) == expected
        assert all((record.seconds > 0) == record.was_computed for record in of_method)


def test_measure_same_order_again_is_computed(engine: Engine) -> None:
    names, orders = ["vanilla", "pine"], ["as-is", "again", "reversed"]
    found = evaluate_records(engine, [QUESTION], methods=names, order_names=orders, generate=False)
    computed = {(method, order) for (_, method, order), record in found.items() if record.was_computed}
    assert computed == {("vanilla", order) for order in orders} | {("pine", "as-is"), ("pine", "again")}
    for method in names:
        as_is, again = (found[QUESTION.id, method, order].answer_logprob for order in orders[:2])
        assert as_is == again


def test_measure_labels_but_not_slots_change_pine(engine: Engine) -> None:
    """Twins have equal documents: swapped they are the same tokens, and another letter is accepted."""
    twins = PAIR.model_copy(update={"id": "twins", "documents": [PAIR.documents[0]] * 2})
    methods = ["vanilla", "pine", "permutation_full"]
    found = evaluate_records(engine, [PAIR, twins], methods=methods, order_names=SWAPS)
    computed = {(key[1], key[2]) for key, record in found.items() if key[0] == "p" and record.was_computed}
    assert {name for method, name in computed if method == "vanilla"} == set(SWAPS)
    assert {name for method, name in computed if method == "pine"} == {"as-is", "swapped"}
    pine = [found["p", "pine", name] for name in SWAPS]
    logprobs = [record.choice_logprobs for record in pine]
    assert logprobs[0] == logprobs[2] != logprobs[1] == logprobs[3]
    assert [record.answers for record in pine] == [("B",), ("A",), ("B",), ("A",)]
    as_is, swapped = (found["twins", "pine", name] for name in ("as-is", "swapped"))
    assert (as_is.text, as_is.choice_logprobs) == (swapped.text, swapped.choice_logprobs)
    assert as_is.answer_logprob != swapped.answer_logprob
    assert {as_is.choice_score, swapped.choice_score} == {0, 1}
    for key in [(twins.id, f"{method}{base}", "swapped") for method, base in
                (("vanilla", ""), ("permutation_full", ":vanilla"))]:  # fmt: skip
        (alone,) = evaluate_records(engine, [twins], methods=[key[1]], order_names=["swapped"]).values()
        assert outcome(found[key]) == outcome(alone)


@pytest.mark.parametrize("margin", [0.2, -1.0])
def test_routed_record_is_that_of_a_method(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, margin: float
) -> None:
    """Streams are copied, because each answer to a prompt continues its own cache."""
    monkeypatch.setitem(DEBIASERS, "routing", replace(DEBIASERS["routing"], margin=margin))
    names = ["vanilla", "ensemble", "routing:ensemble", "calibration_first:ensemble"]
    found = evaluate_records(engine, [PAIR], methods=names, order_names=["swapped"])
    routed, *records = (found["p", name, "swapped"] for name in (names[2], *names[:2]))
    assert (routed.error, routed.prompts) == (None, 2)
    layout = arrange(PAIR, "swapped").request(PAIR).tokenize(engine)
    answers = engine.run(layout, methods=names[:2], max_new_tokens=6).answers
    confidences = [float(np.mean(np.exp(answers[name].logprobs))) for name in names[:2]]
    assert routed.text == records[int(confidences[0] + margin <= confidences[1])].text
    shares = [likely(record.choice_logprobs) for record in records]
    chosen = shares[int(max(shares[0]) + margin <= max(shares[1]))]
    assert likely(routed.choice_logprobs) == pytest.approx(chosen, abs=1e-5)


@pytest.mark.parametrize(
    ("example", "methods", "dtype"),
    first_daily(
        [
            (QUESTION, METHOD_NAMES, torch.bfloat16),
            (PAIR, ["vanilla", "pine", *DEBIASERS, *(f"{name}:pine" for name in CALIBRATED)], torch.float32),
        ]
    ),
)
def test_measure_record_is_independent_of_other_records(
    tiny_llama: TinyLlama, example: Example, methods: list[str], dtype: torch.dtype
) -> None:
    engine = Engine(tiny_llama(max_context_length=900, head_dim=32, dtype=dtype), letter_tokenizer())
    options: dict[str, Any] = {"order_names": ["as-is", "reversed"], "max_new_tokens": 4}
    everything = evaluate_records(engine, [example], methods=methods, **options)
    assert [record.error for record in everything.values() if record.error] == []
    again = evaluate_records(engine, [example], methods=methods, **options, recompute=True)
    assert all(record.was_computed for record in again.values())
    done = [record for index, record in enumerate(everything.values()) if index % 3]
    rest = evaluate_records(engine, [example], methods=methods, **options, found=done)
    assert rest.keys() == everything.keys() - {record.key for record in done}
    alone: dict[Key, Record] = {}
    options["order_names"] = ["reversed"]
    for name in methods:
        alone |= evaluate_records(engine, [example], methods=[name], **options)
    for found in (again, rest, alone):
        assert all(outcome(record) == outcome(everything[key]) for key, record in found.items())


@pytest.mark.parametrize(
    ("example", "methods", "names", "options", "expected"),
    [
        # The prefix, then the prompts without it.
        (QUESTION, ["vanilla", "pine"], ["gold-all"], {}, ["vanilla", "vanilla", "pine", *["vanilla"] * 3]),
        (QUESTION, ["sp", "pcw", "pcw_right"], ["as-is", "reversed"], {},
         ["vanilla", "pcw", "sp", "pcw_right"]),
        # The content-free prompts are the same in both orders.
        (PAIR, ["vanilla", "permutation_full", "pride"], SWAPS[:2], {}, ["vanilla"] * (1 + 2)),
        (PAIR, ["vanilla", *CALIBRATED], SWAPS[:2], {}, ["vanilla"] * (1 + 2 + 3)),
        (PAIR, ["vanilla", *CALIBRATED], SWAPS[:2], {"recompute": True}, ["vanilla"] * (1 + 2 + 6)),
        (QUESTION, ["pine", "permutation_cyclic:pine", "calibration_every:pine"], ["as-is", "reversed"], {},
         ["vanilla", *["pine"] * 4]),
    ],
)  # fmt: skip
def test_measure_computes_prompts_and_shared_parts_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch,
    example: Example, methods: list[str], names: list[str], options: dict[str, Any], expected: list[str],
) -> None:  # fmt: skip
    layout = example.comparison().tokenize(engine)
    prefills = watch_prefills(engine, monkeypatch)
    evaluate_records(engine, [example], methods=methods, order_names=names, max_new_tokens=2, **options)
    assert [name for name, _ in prefills] == expected
    if methods[0] == "sp":  # continues from the documents of pcw
        assert [tokens for _, tokens in prefills[2:]] == [layout.suffix_length] * 2
    if methods == ["vanilla", "pine"]:
        prefix, *rest = (tokens for _, tokens in prefills)
        assert prefix - layout.prefix_length < 12
        assert all(tokens - (layout.num_tokens - layout.prefix_length) < 12 for tokens in rest)


def test_measure_seconds_of_records_add_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prefill, each scoring and each decoding step takes a second."""
    ticks = iter(range(10_000))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))

    def found(example: Example, *methods: str, **options: Any) -> list[Record]:
        return list(evaluate_records(engine, [example], methods=methods, **options).values())

    # The prefix, vanilla, PCW and SP's suffix, and the scoring of each method.
    shared = found(QUESTION, "vanilla", "pcw", "sp", generate=False)
    assert [record.prefill_s for record in shared] == [2, 2, 3]
    seconds = [1 + 1 / 3 + 1, 1 / 2 + 1 / 3 + 1, 1 / 2 + 1 / 3 + 1 + 1]
    assert [record.seconds for record in shared] == pytest.approx(seconds)
    # The prefix, five prompts (as-is, swapped and three content-free), and the scoring of each.
    wrapped = found(PAIR, "vanilla", "permutation_full", "calibration_labels", generate=False)
    assert [record.prefill_s for record in wrapped] == [2, 4, 8]
    each = 1 / 5 + 1 + 1
    assert [one.seconds for one in wrapped] == pytest.approx([each / 3, each / 3 + each, each / 3 + 3 * each])
    # Six tokens take five steps, of six rows: one of vanilla, one more of permutation, four of calibration.
    decoded = found(PAIR, "vanilla", "permutation_full", "calibration_every", logprobs=False)
    assert [record.decode_s for record in decoded] == pytest.approx([5 / 6, 10 / 6, 20 / 6])
    assert sum(record.seconds for record in decoded) == pytest.approx(1 + 5 + 5 + 5)


@pytest.mark.parametrize(
    ("example", "options", "measured"),
    [
        (QUESTION, {"generate": False}, {"answer_logprob"}),
        (PAIR, {"logprobs": False}, {"text", "answer_tokens", "score"}),
        (QUESTION.model_copy(update={"answers": []}), {}, {"text", "answer_tokens", "parsed"}),
        (PAIR.model_copy(update={"answers": []}), {"generate": False}, {"choice_logprobs"}),
    ],
)
def test_measure_unselected_metric_is_none(
    engine: Engine, example: Example, options: dict[str, Any], measured: set[str]
) -> None:
    fields = {"text", "parsed", "score", "answer_tokens", "answer_logprob", "choice_logprobs", "choice_score"}
    (record,) = evaluate_records(engine, [example], methods=["pine"], **options).values()
    assert {name for name in fields if getattr(record, name) is not None} == measured


def test_measure_failed_example_becomes_error_record(engine: Engine) -> None:
    long = QUESTION.model_copy(update={"id": "long", "documents": [*QUESTION.documents] * 9})
    no_gold = QUESTION.model_copy(update={"id": "open", "gold_index": None})
    silent = QUESTION.model_copy(update={"id": "silent", "answers": [""]})
    options: dict[str, Any] = {"order_names": ["as-is", "gold-last"], "generate": False}
    methods = ["vanilla", "pine", "permutation_cyclic"]
    found = evaluate_records(engine, [long, no_gold, silent, QUESTION], methods=methods, **options)
    failed = {key: record for key, record in found.items() if record.error}
    assert len(found) == 24 and {(key[0], key[2]) for key in failed} == {
        ("long", "as-is"), ("long", "gold-last"), ("open", "gold-last"), ("silent", "as-is"),
        ("silent", "gold-last"),
    }  # fmt: skip
    for record in failed.values():
        assert (record.was_computed, record.seconds, record.text) == (False, 0, None)


def test_measure_orders_beyond_the_limit_become_error_record(engine: Engine) -> None:
    methods = ["vanilla", "permutation_full"]
    found = evaluate_records(engine, [MANY, THREE], methods=methods, max_new_tokens=2)
    errors = [key for key, record in found.items() if record.error]
    assert errors == [("many", "permutation_full:vanilla", "as-is")]
    assert max_visited(measured_method("permutation_full"), [MANY, THREE]) == 6
    assert max_visited(measured_method("calibration_every"), [MANY, THREE]) == 1


def test_measure_method_without_answer_reserves_no_tokens(engine: Engine) -> None:
    options = {"order_names": ["as-is"], "max_new_tokens": engine.max_context_length - 5}
    alone = evaluate_records(engine, [PAIR], methods=["calibration_labels"], **options)
    beside = evaluate_records(engine, [PAIR], methods=["calibration_labels", "vanilla"], **options)
    (key,) = alone
    assert alone[key].error is None and beside["p", "vanilla", "as-is"].error
    assert outcome(beside[key]) == outcome(alone[key])


def test_measure_out_of_memory_costs_one_example(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = passes.prefill

    def fail(layout: Any, method: Any, options: Any) -> Any:
        if method.name == "pine":
            raise torch.OutOfMemoryError
        return prefill(layout, method, options)

    monkeypatch.setattr(passes, "prefill", fail)
    found = evaluate_records(engine, [QUESTION, PAIR], methods=["vanilla", "pine", "nia"], generate=False)
    assert [record.error is None for record in found.values()] == [True, False, False] * 2


def test_measure_method_that_does_not_fit_the_model_leaves_the_others() -> None:
    engine = Engine(make("llama", **FAMILIES["llama3"].options), letter_tokenizer())
    methods = ["vanilla", "attention_buckets", "routing:attention_buckets"]
    found = evaluate_records(engine, [PAIR], methods=methods, order_names=["as-is"], logprobs=False)
    assert {key[1] for key, record in found.items() if record.error} == {methods[1], methods[2]}


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("layer", [1, 4])
def test_measure_stop_takes_effect_in_the_next_layer(engine: Engine, layer: int, generate: bool) -> None:
    """The prefix has two layers, and so has the rest; behind them comes decoding, or scoring."""
    cancelled, seen = threading.Event(), list[object]()

    def emit(item: object) -> None:
        seen.append(item)
        if len(seen) == layer:
            cancelled.set()

    settings = choose([QUESTION], methods=["vanilla"], generate=generate, logprobs=not generate)
    with pytest.raises(Cancelled):
        compute_alone(run_evaluation(engine, [QUESTION], settings, RunControl(emit, cancelled)))
    assert sum(isinstance(item, PrefillProgress) for item in seen) == layer
    assert len(seen) <= layer + 1  # the first token follows from the prefill


@pytest.mark.parametrize(
    ("methods", "generate", "expected"),
    [
        (["vanilla"], True, 2 + 1 + 1),  # the batch, the prompt that follows, and the prefix
        (["vanilla", "permutation_full"], True, 2 + 1 + 1),  # they share prompts and answers
        (["vanilla", "calibration_first"], True, 2 + 1 + 1 + 4),  # four prompts that another answer continues
        (["vanilla", "permutation_full"], False, 1 + 1),  # only one state is scored at a time
        (["nia", "pcw", "sp"], False, 2 + 1),  # one state is continued by the other methods
    ],
)
def test_caches_at_once_are_those_of_the_run(
    engine: Engine, methods: list[str], generate: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(computed_run, "BATCH_SIZE", 2)
    num_caches, alive = watch_caches(monkeypatch), list[int]()
    options: dict[str, Any] = {"max_new_tokens": 2, "generate": generate, "logprobs": not generate}
    settings = choose([LABELED], methods=methods, order_names=["as-is", "reversed", "shuffled:3"], **options)
    control = RunControl(lambda _: alive.append(num_caches()))
    compute_alone(run_evaluation(engine, [LABELED], settings, control))
    planned = computed_run.caches_at_once(ExamplePlan(engine, LABELED, settings).results, lambda *_: 1.0)
    assert max(alive) <= planned == expected


def test_measure_batch_size_is_fixed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GEMM of 8 rows has other bits than one of 16 on some processors, so that texts could differ."""
    extend = Mock(side_effect=passes.extend)
    monkeypatch.setattr(passes, "extend", extend)
    for names, orders in ((["pine"], ["as-is"]), (METHOD_NAMES, ["gold-all"])):
        evaluate_records(engine, [QUESTION], methods=names, order_names=orders, logprobs=False)
    widths = {len(call.args[0]) for call in extend.call_args_list}
    assert len(widths - {1}) == 1  # suffixes that follow documents of another method are fed one by one


MEAN_ROUNDING = 1e-9
"""Float64 logarithms of means of up to 24 probabilities."""


def records(engine: Engine, examples: Sequence[Example], **options: Any) -> dict[Key, Record]:
    found = evaluate_records(engine, examples, **options)
    assert [record.error for record in found.values() if record.error] == []
    return found


def pairs(count: int) -> list[Example]:
    return list(map(Example.model_validate, measured_rows.pairs(count)))


def likely(logprobs: Mapping[str, float] | None) -> list[float]:
    assert logprobs is not None
    weights = np.exp(list(logprobs.values()))
    return [float(weight) for weight in weights / weights.sum()]


@pytest.mark.parametrize(
    ("example", "name", "names"),
    [
        (PAIR, "permutation_full:vanilla", SWAPS),
        (PAIR, "permutation_full:pcw", SWAPS),
        (THREE, "permutation_full:vanilla", ["as-is", "order:1-2-0", "order:2-1-0"]),
        (THREE, "permutation_cyclic:vanilla", ["as-is", "order:1-2-0", "order:2-1-0"]),
    ],
)
def test_permutation_averages_the_probabilities_of_its_orders(
    engine: Engine, example: Example, name: str, names: list[str]
) -> None:
    wrapper, base = name.removeprefix("permutation_").split(":")
    alone = records(engine, [example], methods=[base], order_names=["all"])
    wrapped = records(engine, [example], methods=[name], order_names=names)
    kind: Any = wrapper
    for (_, _, order_name), record in wrapped.items():
        slots = arrange(example, order_name).slots
        orders = sorted(tuple(slots[place] for place in order) for order in document_orders(len(slots), kind))
        runs = [alone[example.id, base, "order:" + "-".join(map(str, order))] for order in orders]
        mean = np.mean([np.exp(run.answer_logprob or 0) for run in runs])
        assert record.answer_logprob == pytest.approx(np.log(mean), abs=MEAN_ROUNDING)
        assert (record.prompts, record.prompt_tokens) == (len(runs), sum(run.prompt_tokens for run in runs))
        assert record.answer_tokens == sum(run.answer_tokens or 0 for run in runs)
        if example is PAIR:
            of_documents = [np.array(likely(run.choice_logprobs))[list(run.input_order)] for run in runs]
            choices = np.mean(of_documents, axis=0)[list(record.input_order)]  # a swap is its own inverse
            assert likely(record.choice_logprobs) == pytest.approx(choices, abs=MEAN_ROUNDING)
            accepted = "AB".index(record.answers[0])
            assert record.choice_score == float(choices[accepted] > choices[1 - accepted])
        else:  # rotations of one order visit the same orders, so they are computed once
            assert record.was_computed == (
                order_name == "as-is" or (kind, order_name) == ("cyclic", "order:2-1-0")
            )


def finished_run(order: DocumentOrder, text: str, logprobs: Mapping[str, float] | None = None) -> BaseRun:
    prefill = Prefill(METHODS["vanilla"], TokenLayout((), ((1,),), (2,)), "")
    prefill.logprobs |= logprobs or {}
    answer = ActiveGeneration("vanilla", (), torch.empty(0), 0.0, found=SplitAnswer("", text))
    return BaseRun(
        order,
        prefill,
        Generation((prefill,), answer=answer),
        choices={text: (text,) for text in prefill.logprobs},
    )


def judged(text: str, letters: str = "AB") -> BaseRun:
    return finished_run(DocumentOrder("", tuple("AB".index(letter) for letter in letters), (0, 1)), text)


@pytest.mark.parametrize(
    ("texts", "as_is", "swapped"),
    [
        # The better answer is the stored B, and has the letter A in the second run.
        (["[[B]] 1", "[[A]] 2"], ("[[B]] 1", "B", 1.0), ("[[A]] 2", "A", 1.0)),
        (["[[A]] 1", "[[B]] 2"], ("[[A]] 1", "A", 0.0), ("[[B]] 2", "B", 0.0)),
        (["[[A]] 1", "[[A]] 2"], ("[[A]] 1", "tie", 0.5), ("[[A]] 1", "tie", 0.5)),
        (["so?", "[[A]] 2"], ("[[A]] 2", "B", 1.0), ("[[A]] 2", "A", 1.0)),
        (["so?", "well"], ("so?", None, 0.5), ("so?", None, 0.5)),
    ],
)
def test_combine_verdicts_vote_for_documents(
    texts: list[str], as_is: tuple[object, ...], swapped: tuple[object, ...]
) -> None:
    runs = [judged(texts[0]), judged(texts[1], "BA")]
    for name, expected in (("as-is", as_is), ("swapped", swapped)):
        found = combine(measured_method("permutation_full"), PAIR, runs, arrange(PAIR, name))
        assert tuple(found[field] for field in ("text", "parsed", "score")) == expected
        reconciled = combine(measured_method("swap_reconcile"), PAIR, runs, arrange(PAIR, name))
        alone = "so?" in texts and "well" not in texts  # one verdict agrees with none
        assert (reconciled["parsed"], reconciled["score"]) == (("tie", 0.5) if alone else expected[1:])
    equal = finished_run(arrange(PAIR, "as-is"), "", {"[[A]]": -1.0, "[[B]]": -1.0})
    assert combine(measured_method("pine"), PAIR, [equal], equal.order)["choice_score"] == 0.5


def tied(count: int, answers: Sequence[str]) -> Example:
    """Return a row of the task that offers a tie."""
    row = {"id": "t", "task": "judge_tie", "system": "Decide.", "question": "?", "answers": answers}
    return Example.model_validate(row | {"documents": [f"answer {index}" for index in range(count)]})


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(
    ("accepted", "verdicts", "parsed", "score"),
    [
        ("tie", "TT", "tie", 1.0), ("tie", "AA", "tie", 1.0), ("tie", "AB", "A", 0.0), ("A", "AB", "A", 1.0),
        ("A", "TT", "tie", 0.0), ("A", "AA", "tie", 0.0), ("tie", "??", None, None),
    ],
)  # fmt: skip
def test_tie_is_a_verdict_of_votes(
    count: int, accepted: str, verdicts: str, parsed: str | None, score: float | None
) -> None:
    """T is the verdict of a tie. In the second run the first two answers change places and letters."""
    example = tied(count, [accepted])
    swapped = (1, 0, *range(2, count))
    orders = [DocumentOrder("", order, tuple(range(count))) for order in (tuple(range(count)), swapped)]
    texts = {"T": f"[[{document_letter(count)}]]", "?": "well"}
    runs = [
        finished_run(order, texts.get(verdict, f"[[{verdict}]]"))
        for order, verdict in zip(orders, verdicts, strict=True)
    ]
    for name in ("permutation_full", "swap_reconcile"):
        found = combine(measured_method(name), example, runs, orders[0])
        assert (found["parsed"], found["score"]) == (parsed, 1 / (count + 1) if score is None else score)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize(("logprobs", "likely_tie"), [((-3.0, -1.0), True), ((-1.0, -3.0), False)])
def test_tie_is_a_choice_of_log_probabilities(
    count: int, logprobs: tuple[float, float], likely_tie: bool
) -> None:
    """The log-probabilities are of letter A and of the tie; both runs name A, each another answer."""
    choices = tied(count, []).scored_choices
    assert len(choices) == count + 1
    values = dict.fromkeys(choices, -9.0) | {choices[0]: logprobs[0], choices[-1]: logprobs[1]}
    swapped = (1, 0, *range(2, count))
    orders = [DocumentOrder("", order, tuple(range(count))) for order in (tuple(range(count)), swapped)]
    runs = [finished_run(order, "", values) for order in orders]
    for accepted in ("tie", "A"):
        example = tied(count, [accepted])
        alone = combine(measured_method("vanilla"), example, runs[:1], orders[0])
        assert alone["choice_score"] == float((accepted == "tie") == likely_tie)
        # The runs agree on a tie, or name different answers, which is a tie, too.
        reconciled = combine(measured_method("swap_reconcile"), example, runs, orders[0])
        assert reconciled["choice_score"] == float(accepted == "tie")
        mean = combine(measured_method("permutation_full"), example, runs, orders[0])
        assert mean["choice_score"] == float(accepted == "tie")
        assert sum(likely(mean["choice_logprobs"])) == pytest.approx(1)


def test_every_method_scores_a_row_that_can_be_a_tie(engine: Engine) -> None:
    names = ["pine", "permutation_full", "swap_reconcile", "calibration_labels", "routing"]
    for count in (2, 3):
        for record in records(engine, [tied(count, ["tie"])], methods=names).values():
            assert record.answers == ("tie",) and len(record.choice_logprobs or {}) == count + 1
            assert record.choice_score in (0.0, 1.0) and record.scoring == "verdict"
        with pytest.raises(InputError):
            choose([tied(count, ["tie"])], methods=["pride"])


@pytest.mark.parametrize(
    ("task", "answers", "texts", "kept", "score"),
    [
        ("math_reasoning", ["72.5"], ["Answer: 7", "Answer: 72.50", "Answer: 72.5", "none"], 1, 1.0),
        ("math_reasoning", ["9"], ["Answer: 9", "Answer: 10"], 1, 0.0),  # "10" comes before "9"
        ("math_reasoning", ["9"], ["nine", "ten"], 0, 0.0),
        ("retrieval_qa", ["Rome"], ["In Oslo.", "The Rome!", "rome"], 1, 1.0),
        ("kv_retrieval", ["ab-1"], ['"zz"', '"AB-1",', "ab-1"], 1, 1.0),
        ("retrieval_qa", [], ["Oslo", "Oslo"], 0, None),
    ],
)
def test_combine_votes_are_normalized_as_by_the_task(
    task: str, answers: list[str], texts: list[str], kept: int, score: float | None
) -> None:
    documents = [Document(text=text) for text in texts]
    example = Example(id="x", task=task, question="?", documents=documents, answers=answers)
    as_is = arrange(example, "as-is")
    runs = [finished_run(as_is, text) for text in texts]
    found = combine(measured_method("permutation_cyclic:pine"), example, runs, as_is)
    expected = (texts[kept], TASKS[task].parse(texts[kept]), score)
    assert (found["text"], found["parsed"], found["score"]) == expected


@pytest.mark.parametrize("dtype", first_daily([torch.float32, torch.bfloat16]))
def test_full_permutation_is_invariant(
    tiny_llama: TinyLlama, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(text: str, **_: Any) -> str | None:
        return parse_verdict(text) or [None, "A", "B", "A", "B"][sum(map(ord, text)) % 5]

    monkeypatch.setitem(TASKS, "judge", replace(TASKS["judge"], parse=parse))
    engine = Engine(tiny_llama(max_context_length=900, head_dim=32, dtype=dtype), letter_tokenizer())
    options: dict[str, Any] = {"methods": ["permutation_full:pcw"], "recompute": True}
    question = records(engine, [THREE], **options, order_names=["all"]).values()
    assert all(record.was_computed for record in question)
    assert len({(record.text, record.parsed, record.answer_logprob) for record in question}) == 1
    for example in pairs(3):
        meant = set()
        for record in records(engine, [example], **options, order_names=SWAPS).values():
            letters = {document: "AB"[record.input_order.index(document)] for document in (0, 1)}
            logprobs = [(record.choice_logprobs or {})[f"[[{letters[document]}]]"] for document in (0, 1)]
            verdict = {letter: document for document, letter in letters.items()}.get(record.parsed or "")
            meant.add((*logprobs, verdict, record.score, record.choice_score, record.answer_logprob))
        assert len(meant) == 1


def test_judge_of_three_answers_has_three_choices(engine: Engine) -> None:
    texts = [*PAIR.documents, Document("We.")]
    example = PAIR.model_copy(update={"documents": texts, "gold_index": 2, "answers": ["C"]})
    found = records(
        engine, [example], methods=["pine", "permutation_full"], order_names=["as-is", "reversed"]
    )
    for (_, _, name), record in found.items():
        assert record.answers == (("C",) if name == "as-is" else ("A",))
        logprobs = record.choice_logprobs or {}
        assert list(logprobs) == ["[[A]]", "[[B]]", "[[C]]"]
        likeliest = max(logprobs, key=logprobs.__getitem__)
        assert record.choice_score == float(likeliest == f"[[{record.answers[0]}]]")
        assert record.score in (0.0, 1 / 3, 1.0)
    votes = [found["p", "permutation_full:vanilla", name] for name in ("as-is", "reversed")]
    assert votes[0].prompts == 6 and votes[0].choice_score == votes[1].choice_score


@pytest.mark.parametrize("base", ["vanilla", "pine"])
def test_calibrated_answers_are_those_of_run_debias(engine: Engine, base: str) -> None:
    names = [f"calibration_{steps}:{base}" for steps in ("first", "every")]
    found = records(engine, [PAIR], methods=[base, *names])
    request = LabeledRequest(**PAIR.comparison().model_dump(), labels=["A", "B"])
    for name in names:
        plan = plan_debias([request], wrapper=name.partition(":")[0], base=base, max_new_tokens=6)
        result = list(run_debias(engine, plan))[-1]
        assert isinstance(result, DebiasResult)
        record = found["p", name, "as-is"]
        assert record.text == result.answer
        assert (record.prompts, record.answer_logprob, record.choice_logprobs) == (4, None, None)
        prompts = [request.prompt(engine), *content_free_prompts(engine, request)]
        assert record.prompt_tokens == sum(engine.tokenize(prompt).num_tokens for prompt in prompts)
    assert len({record.text for record in found.values()}) > 1


@pytest.mark.parametrize("base", ["vanilla", "pine"])
def test_calibrated_choices_are_divided_by_content_free_choices(engine: Engine, base: str) -> None:
    name = f"calibration_labels:{base}"
    for record in records(engine, [PAIR], methods=[name], order_names=SWAPS).values():
        order = arrange(PAIR, record.order_name)
        request = order.request(PAIR)
        prompts = [request.prompt(engine), *content_free_prompts(engine, request)]
        layouts = [engine.tokenize(prompt).reorder(order.permutation) for prompt in prompts]
        scores = [engine.score(layout, ["[[A]]", "[[B]]"], methods=[base])[base] for layout in layouts]
        own, *free = (np.exp([score.total for score in pair]) for pair in scores)
        mean = np.mean(free, axis=0)
        corrected = (own / own.sum()) / (mean / mean.sum())
        assert likely(record.choice_logprobs) == pytest.approx(corrected / corrected.sum(), rel=1e-4)
        assert math.fsum(np.exp(list((record.choice_logprobs or {}).values()))) == pytest.approx(1)
        accepted = "AB".index(record.answers[0])
        assert record.choice_score == float(corrected[accepted] == corrected.max())
        assert (record.text, record.score, record.answer_logprob, record.prompts) == (None, None, None, 4)


def test_prior_is_learned_from_selected_examples(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed from the records of vanilla: examples 0, 3 and 4 are learned from, the others are divided."""
    monkeypatch.setattr(learning, "is_learned_example", lambda example, _: example in {"p3", "p4"})
    examples, names = pairs(6), ["as-is", "swapped"]
    alone = records(engine, examples, methods=["vanilla"], order_names=names, generate=False)
    found = records(engine, examples, methods=["pride"], order_names=names, generate=False)
    learned: list[np.ndarray] = []
    for index, example in enumerate(examples):
        is_learned = index in (0, 3, 4)
        both = [np.array(likely(alone[example.id, "vanilla", name].choice_logprobs)) for name in names]
        if is_learned:
            mean_log = np.exp(np.mean(np.log(np.array(both) + 1e-10), axis=0))
            learned.append(mean_log / mean_log.sum())
        prior = learned[-1] if is_learned else np.mean(learned, axis=0)
        for place, name in enumerate(names):
            record = found[example.id, "pride:vanilla", name]
            # Choice A names the stored answer 0 in one order and answer 1 in the other.
            expected = (both[place] + both[1 - place][::-1]) / 2
            if not is_learned:
                divided = (both[place] + 1e-10) / (prior + 1e-10)
                expected = divided / divided.sum()
            assert record.prior == pytest.approx(
                dict(zip(["[[A]]", "[[B]]"], prior, strict=True)), abs=MEAN_ROUNDING
            )
            assert likely(record.choice_logprobs) == pytest.approx(expected, abs=MEAN_ROUNDING)
            assert record.prompts == (2 if is_learned else 1)
            assert record.was_computed == (not is_learned or name == "as-is")


def test_prior_skips_an_example_beyond_the_context(engine: Engine) -> None:
    examples = pairs(3)
    long = [examples[0].documents[0], Document(text="You, or he. " * 60)]
    examples[0] = examples[0].model_copy(update={"documents": long})
    found = evaluate_records(engine, examples, methods=["pride"], generate=False)
    assert [record.error is not None for record in found.values()] == [True, False, False]
    assert [record.prompts for record in found.values() if not record.error] == [2, 1]


THREE_ANSWERS = PAIR.model_copy(update={"documents": THREE.documents})
TWO_CHOICES = PAIR.model_copy(update={"documents": [PAIR.documents[0]] * 3, "choices": ["[[A]]", "[[B]]"]})


@pytest.mark.parametrize(
    ("example", "method", "options"),
    [
        *((THREE, method, {}) for method in ("pride", "calibration_labels:pine", "pines")),
        *((example, "permutation_full", {}) for example in (MANY, TWO_CHOICES)),
        (PAIR, "pride", {"logprobs": False}),
        (THREE_ANSWERS, "calibraeval", {}),
        (LABELED, "pride", {}),
        (PAIR, "calibration_every", {"generate": False}),
        (THREE, "pine", {"generate": False, "logprobs": False}),
        (THREE, "pine", {"max_new_tokens": 0}),
        (THREE, "pine", {"order_names": ["sideways"]}),
    ],
)
def test_invalid_option_is_refused(example: Example, method: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        choose([example], methods=["vanilla", method], **options)
