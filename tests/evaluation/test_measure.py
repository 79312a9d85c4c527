"""Evaluation on a tiny model: records agree with the engine, for every selection of methods."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine import DEBIASERS, METHODS, Engine
from pine_engine.engine import passes
from pine_engine.errors import Cancelled
from pine_engine.evaluation.document_orders import arrange
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.measure import run_evaluation
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.settings import Key, choose
from tests.support.measured_rows import PAIR, QUESTION, evaluate_records, outcome, watch_prefills
from tests.support.tokenizers import letter_tokenizer

ROUNDING = 1e-4
"""Float32 log-probabilities of about -100 nats, from GEMMs of other shapes."""

METHOD_NAMES = ["vanilla", "nia", "pcw", "sp", "pine", "pine_input_order"]
SWAPS = ["as-is", "swapped", "segments-swapped", "labels-swapped"]
CALIBRATED = ["calibration_labels", "calibration_first", "calibration_every"]


@pytest.mark.parametrize(
    ("example", "methods", "names"),
    [
        (QUESTION, METHOD_NAMES, ["as-is", "gold-at:3", "shuffled:3"]),
        (PAIR, ["vanilla", "pine"], ["as-is", "swapped"]),
    ],
)
def test_record_agrees_with_engine(
    engine: Engine, example: Example, methods: list[str], names: list[str]
) -> None:
    found = evaluate_records(engine, [example], methods=methods, order_names=names)
    for (_, method, name), record in found.items():
        order = arrange(example, name)
        layout = order.request(example).tokenize(engine).reorder(order.permutation)
        answer = engine.run(layout, methods=[method], max_new_tokens=6).answers[method]
        texts = [order.answers(example)[0], "[[A]]", "[[B]]"]
        accepted, *choices = engine.score(layout, texts, methods=[method])[method]
        assert (record.text, record.answer_tokens) == (answer.text, len(answer.token_ids))
        assert record.answer_logprob == pytest.approx(accepted.total, abs=ROUNDING)
        assert (record.prompt_tokens, record.gold_slot) == (layout.num_tokens, order.slots.index(1))
        assert record.answers == order.answers(example)
        if example is PAIR:
            expected = {choice.text: choice.total for choice in choices}
            assert record.choice_logprobs == pytest.approx(expected, abs=ROUNDING)
            likelier = max(choices, key=lambda choice: choice.total).text
            assert record.choice_score == float(likelier == f"[[{record.answers[0]}]]")
            assert (record.parsed, record.score, record.weight) == (None, 0.5, 92)
            assert (record.section, record.subset) == ("Chat Hard", "llmbar-adver-GPTInst")
    assert len({record.text for record in found.values()}) > len(methods) / 2
    assert {record.choice_score for record in found.values()} == ({0, 1} if example is PAIR else {None})


def test_measure_invariant_method_is_computed_once(engine: Engine) -> None:
    options: dict[str, Any] = {"order_names": ["as-is", "gold-all", "shuffled:3"], "generate": False}
    found = evaluate_records(engine, [QUESTION], methods=METHOD_NAMES, **options).values()
    for method in METHOD_NAMES:
        of_method = [record for record in found if record.method == method]
        expected = 1 if METHODS[method].is_order_invariant else 5  # gold-at:1 is as stored
        assert sum(record.was_computed for record in of_method) == expected
        assert len({record.answer_logprob for record in of_method}) == expected
        assert all((record.seconds > 0) == record.was_computed for record in of_method)


def test_measure_without_invariance_computes_all(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "invariance_warning", "Equal bits are not promised.")
    options: dict[str, Any] = {"order_names": ["as-is", "reversed"], "generate": False}
    found = evaluate_records(engine, [QUESTION], methods=["pine"], **options)
    assert all(record.was_computed for record in found.values())


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


@pytest.mark.parametrize(
    ("example", "methods", "dtype"),
    [
        (QUESTION, METHOD_NAMES, torch.bfloat16),
        (PAIR, ["vanilla", "pine", *DEBIASERS, *(f"{name}:pine" for name in CALIBRATED)], torch.float32),
    ],
)
def test_measure_record_is_independent_of_other_records(
    tiny_llama: Callable[..., LlamaForCausalLM], example: Example, methods: list[str], dtype: torch.dtype
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
    for name in methods:
        alone |= evaluate_records(
            engine, [example], methods=[name], **options | {"order_names": ["reversed"]}
        )
    for found in (again, rest, alone):
        assert {key: outcome(record) for key, record in found.items()} == {
            key: outcome(everything[key]) for key in found
        }


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
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    example: Example,
    methods: list[str],
    names: list[str],
    options: dict[str, Any],
    expected: list[str],
) -> None:
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


def test_measure_method_without_answer_reserves_no_tokens(engine: Engine) -> None:
    options = {"order_names": ["as-is"], "max_new_tokens": engine.max_context_length - 5}
    alone = evaluate_records(engine, [PAIR], methods=["calibration_labels"], **options)
    beside = evaluate_records(engine, [PAIR], methods=["calibration_labels", "vanilla"], **options)
    (key,) = alone
    assert alone[key].error is None and beside["p", "vanilla", "as-is"].error
    assert outcome(beside[key]) == outcome(alone[key])


def test_measure_out_of_memory_costs_one_example(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = passes.prefill

    def fail(patched_models: Any, layout: Any, method: Any, **options: Any) -> Any:
        if method.name == "pine":
            raise torch.OutOfMemoryError
        return prefill(patched_models, layout, method, **options)

    monkeypatch.setattr(passes, "prefill", fail)
    found = evaluate_records(engine, [QUESTION, PAIR], methods=["vanilla", "pine", "nia"], generate=False)
    assert [record.error is None for record in found.values()] == [True, False, False] * 2


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("layer", [1, 4])
def test_measure_stop_takes_effect_in_the_next_layer(engine: Engine, layer: int, generate: bool) -> None:
    """The prefix has two layers, and so has the rest; behind them comes decoding, or scoring."""
    cancelled, seen = threading.Event(), []

    def emit(item: object) -> None:
        seen.append(item)
        if len(seen) == layer:
            cancelled.set()

    settings = choose([QUESTION], methods=["vanilla"], generate=generate, logprobs=not generate)
    with pytest.raises(Cancelled):
        run_evaluation(engine, [QUESTION], settings, emit, cancelled)
    assert len(seen) == layer


def test_measure_batch_size_is_fixed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GEMM of 8 rows has other bits than one of 16 on some processors, so that texts could differ."""
    widths = set()
    extend = passes.extend

    def watched(rows: Sequence[Any], *arguments: Any, **options: Any) -> Any:
        widths.add(len(rows))
        return extend(rows, *arguments, **options)

    monkeypatch.setattr(passes, "extend", watched)
    for names, orders in ((["pine"], ["as-is"]), (METHOD_NAMES, ["gold-all"])):
        evaluate_records(engine, [QUESTION], methods=names, order_names=orders, logprobs=False)
    assert len(widths - {1}) == 1  # suffixes that follow documents of another method are fed one by one
