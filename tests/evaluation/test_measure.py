"""Evaluation on a tiny model: records agree with the engine, for every selection of methods."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import PrefillProgress
from pine_engine.errors import Cancelled, InputError
from pine_engine.evaluation.document_orders import arrange
from pine_engine.evaluation.measure import Measurement, measure
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.rewardbench import SUBSETS, find_subset
from pine_engine.evaluation.settings import Key, choose
from pine_engine.methods.table import METHODS
from tests.support.measured_rows import PAIR, QUESTION, evaluate_records, outcome, watch_prefills
from tests.support.tokenizers import letter_tokenizer

ROUNDING = 1e-4
"""Float32 log-probabilities of about -100 nats, from GEMMs of other shapes."""

METHOD_NAMES = ["vanilla", "nia", "pcw", "sp", "pine", "pine_input_order"]


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(max_context_length=900, head_dim=32), letter_tokenizer(), stop_token_ids=())


@pytest.fixture(scope="module")
def everything(engine: Engine) -> dict[Key, Record]:
    return evaluate_records(
        engine, [QUESTION], methods=METHOD_NAMES, order_names=["as-is", "gold-all", "shuffled:3"]
    )


def test_record_agrees_with_engine(engine: Engine, everything: dict[Key, Record]) -> None:
    texts = set()
    for method in METHOD_NAMES:
        for name in ("as-is", "gold-at:3", "shuffled:3"):
            record = everything["q", method, name]
            order = arrange(QUESTION, name)
            layout = QUESTION.comparison().tokenize(engine).reorder(order.permutation)
            answer = engine.run(layout, methods=[method], max_new_tokens=6).answers[method]
            (score,) = engine.score(layout, ["It shines"], methods=[method])[method]
            assert record.text == answer.text
            assert record.answer_tokens == len(answer.token_ids)
            assert record.answer_logprob == pytest.approx(score.total, abs=ROUNDING)
            assert record.prompt_tokens == layout.num_tokens
            assert record.gold_slot == order.slots.index(1)
            assert record.answers == ("It shines", "shines")
            texts.add(record.text)
    assert len(texts) > 3


def test_invariant_methods_are_computed_once(
    everything: dict[Key, Record],
) -> None:
    by_method = {
        method: [record for record in everything.values() if record.method == method]
        for method in METHOD_NAMES
    }
    for method, found in by_method.items():
        assert len(found) == 6
        # gold-at:1 is as stored.
        expected = 1 if METHODS[method].is_order_invariant else 5
        assert sum(record.was_computed for record in found) == expected
        assert len({record.answer_logprob for record in found}) == expected
        assert all((record.seconds > 0) == record.was_computed for record in found)


def test_equal_documents_keep_their_labels(engine: Engine) -> None:
    """Swapped they are the same tokens, while the accepted letter is another."""
    twins = PAIR.model_copy(update={"documents": [PAIR.documents[0], PAIR.documents[0]]})
    methods = ["vanilla", "pine", "permutation_full"]
    together = evaluate_records(engine, [twins, QUESTION], methods=methods, order_names=["as-is", "swapped"])
    for method in methods:
        for name in ("as-is", "swapped"):
            (alone,) = evaluate_records(engine, [twins], methods=[method], order_names=[name]).values()
            assert alone.error is None
            assert outcome(together[alone.key]) == outcome(alone)
    as_is, swapped = (together["p", "vanilla", name] for name in ("as-is", "swapped"))
    assert as_is.text == swapped.text and as_is.answers != swapped.answers
    assert as_is.answer_logprob != swapped.answer_logprob


def test_method_without_answer_reserves_no_tokens(engine: Engine) -> None:
    """Whatever is measured beside it."""
    options = {"order_names": ["as-is"], "max_new_tokens": engine.max_context_length - 5}
    alone = evaluate_records(engine, [PAIR], methods=["calibration_labels"], **options)
    beside = evaluate_records(engine, [PAIR], methods=["calibration_labels", "vanilla"], **options)
    (key,) = alone
    assert alone[key].error is None and "may have" in (beside["p", "vanilla", "as-is"].error or "")
    assert outcome(beside[key]) == outcome(alone[key])


def test_without_guarantee_every_order_is_computed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"methods": ["pine"], "order_names": ["as-is", "reversed"], "generate": False}
    assert [record.was_computed for record in evaluate_records(engine, [QUESTION], **options).values()] == [
        True,
        False,
    ]
    monkeypatch.setattr(Engine, "invariance_warning", "Equal bits are not promised.")
    assert all(record.was_computed for record in evaluate_records(engine, [QUESTION], **options).values())


def test_record_is_independent_of_other_methods(tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    model = tiny_llama(max_context_length=900, head_dim=32, dtype=torch.bfloat16)
    engine = Engine(model, letter_tokenizer())
    all_of_it = evaluate_records(
        engine, [QUESTION], methods=METHOD_NAMES, order_names=["as-is", "gold-all", "reversed"]
    )
    for method in METHOD_NAMES:
        alone = evaluate_records(engine, [QUESTION], methods=[method], order_names=["reversed"])
        (record,) = alone.values()
        assert outcome(record) == outcome(all_of_it[record.key])


def test_prompt_and_prefix_are_computed_once(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = QUESTION.comparison().tokenize(engine)
    prefills = watch_prefills(engine, monkeypatch)
    evaluate_records(engine, [QUESTION], methods=["vanilla", "pine"], order_names=["gold-all"])
    assert [name for name, _ in prefills] == ["vanilla", "vanilla", "pine", *["vanilla"] * 3]
    prefix, *rest = (tokens for _, tokens in prefills)
    assert prefix - layout.prefix_length < 12
    assert all(tokens - (layout.num_tokens - layout.prefix_length) < 12 for tokens in rest)


def test_methods_with_equal_encoding_share_documents(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    suffix = QUESTION.comparison().tokenize(engine).suffix_length
    prefills = watch_prefills(engine, monkeypatch)
    evaluate_records(
        engine, [QUESTION], methods=["sp", "pcw", "pcw_right"], order_names=["as-is", "reversed"]
    )
    assert [name for name, _ in prefills] == ["vanilla", "pcw", "sp", "pcw_right"]
    assert [tokens for _, tokens in prefills[2:]] == [suffix, suffix]


def test_prefill_seconds_add_up(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr("pine_engine.evaluation.shared_prefill.time.perf_counter", lambda: float(next(clock)))
    found = evaluate_records(engine, [QUESTION], methods=["vanilla", "pcw", "sp"], generate=False)
    # The prefix, vanilla, PCW and SP's suffix take a second each, and so does scoring for each method.
    assert {record.method: record.prefill_s for record in found.values()} == {
        "vanilla": 2, "pcw": 2, "sp": 3
    }  # fmt: skip
    assert sum(record.seconds for record in found.values()) == pytest.approx(4 + 3)
    seconds = {record.method: record.seconds for record in found.values()}
    assert seconds["vanilla"] == pytest.approx(1 + 1 / 3 + 1)
    assert seconds["pcw"] == pytest.approx(1 / 2 + 1 / 3 + 1)


def test_judge_selects_the_more_likely_choice(engine: Engine) -> None:
    found = evaluate_records(engine, [PAIR], methods=["vanilla", "pine"], order_names=["as-is", "swapped"])
    for key, record in found.items():
        order = arrange(PAIR, key[2])
        layout = order.request(PAIR).tokenize(engine)
        scores = engine.score(layout, [*record.answers, "[[A]]", "[[B]]"], methods=[key[1]])[key[1]]
        accepted = "B" if key[2] == "as-is" else "A"
        assert [score.text for score in scores] == [accepted, "[[A]]", "[[B]]"]
        assert record.answer_logprob == pytest.approx(scores[0].total, abs=ROUNDING)
        assert record.choice_logprobs == pytest.approx(
            {score.text: score.total for score in scores[1:]}, abs=ROUNDING
        )
        likelier = max(scores[1:], key=lambda score: score.total).text
        assert record.choice_score == float(likelier == f"[[{accepted}]]")
        assert record.gold_slot == (1 if key[2] == "as-is" else 0)
        assert (record.parsed, record.score) == (None, 0.5)
    assert {record.choice_score for record in found.values()} == {0, 1}


def test_equally_likely_choices_share_the_score(tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    model = tiny_llama(max_context_length=900)
    model.lm_head.weight.zero_()
    tied = Engine(model, letter_tokenizer())
    (record,) = evaluate_records(tied, [PAIR], methods=["pine"], generate=False).values()
    assert record.choice_score == 0.5


def test_labels_change_the_prompt_of_pine_and_slots_do_not(engine: Engine) -> None:
    names = ["as-is", "swapped", "segments-swapped", "labels-swapped"]
    twins = PAIR.model_copy(update={"id": "twins", "documents": [PAIR.documents[0]] * 2})
    found = evaluate_records(engine, [PAIR, twins], methods=["vanilla", "pine"], order_names=names)
    computed = [(by, name) for (one, by, name), record in found.items() if one == "p" and record.was_computed]
    assert {name for by, name in computed if by == "vanilla"} == set(names)
    assert {name for by, name in computed if by == "pine"} == {"as-is", "swapped"}
    pine = {name: found["p", "pine", name] for name in names}
    assert pine["as-is"].choice_logprobs == pine["segments-swapped"].choice_logprobs
    assert pine["swapped"].choice_logprobs == pine["labels-swapped"].choice_logprobs
    assert pine["as-is"].choice_logprobs != pine["swapped"].choice_logprobs
    assert (pine["segments-swapped"].answers, pine["labels-swapped"].answers) == (("B",), ("A",))
    one, other = (found["twins", "pine", name] for name in ("as-is", "swapped"))
    assert one.choice_logprobs == other.choice_logprobs and one.answer_logprob != other.answer_logprob
    assert {one.choice_score, other.choice_score} == {0, 1}


def test_unselected_metrics_are_none(engine: Engine) -> None:
    (scored,) = evaluate_records(engine, [QUESTION], methods=["pine"], generate=False).values()
    assert (scored.text, scored.parsed, scored.score, scored.answer_tokens) == (None,) * 4
    assert scored.answer_logprob is not None and scored.choice_logprobs is None
    (written,) = evaluate_records(engine, [PAIR], methods=["pine"], logprobs=False).values()
    assert (written.answer_logprob, written.choice_logprobs, written.choice_score) == (None,) * 3
    assert written.text
    open_end = QUESTION.model_copy(update={"answers": []})
    (unscored,) = evaluate_records(engine, [open_end], methods=["pine"]).values()
    assert unscored.text and (unscored.score, unscored.answer_logprob) == (None, None)
    undecided = PAIR.model_copy(update={"answers": []})
    (weighed,) = evaluate_records(engine, [undecided], methods=["pine"], generate=False).values()
    assert weighed.choice_logprobs is not None and set(weighed.choice_logprobs) == {"[[A]]", "[[B]]"}
    assert (weighed.answer_logprob, weighed.choice_score) == (None, None)


def test_failed_example_becomes_error_record(engine: Engine) -> None:
    long = QUESTION.model_copy(update={"id": "long", "documents": [*QUESTION.documents] * 9})
    unanswered = QUESTION.model_copy(update={"id": "open", "gold_index": None})
    silent = QUESTION.model_copy(update={"id": "silent", "answers": [""]})
    examples, options = [long, unanswered, silent, QUESTION], {"order_names": ["as-is", "gold-last"]}
    found = evaluate_records(engine, examples, methods=["vanilla", "pine"], **options)
    errors = {key: record.error for key, record in found.items() if record.error}
    assert len(found) == 16 and {key[0] for key in errors} == {"long", "open", "silent"}
    assert "900" in errors["long", "pine", "gold-last"]
    assert ("open", "vanilla", "gold-last") in errors and ("open", "vanilla", "as-is") not in errors
    assert ("silent", "vanilla", "as-is") in errors
    for key in errors:
        assert (found[key].was_computed, found[key].seconds, found[key].text) == (False, 0, None)


def test_out_of_memory_costs_one_example(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = passes.prefill

    def read(patched_models: Any, layout: Any, method: Any, **options: Any) -> Any:
        if method.name == "pine":
            raise torch.OutOfMemoryError
        return prefill(patched_models, layout, method, **options)

    monkeypatch.setattr(passes, "prefill", read)
    found = evaluate_records(engine, [QUESTION, PAIR], methods=["vanilla", "pine", "nia"], generate=False)
    assert [(record.method, record.error is None) for record in found.values()] == [
        ("vanilla", True), ("pine", False), ("nia", False)
    ] * 2  # fmt: skip
    assert "memory" in str(found["q", "pine", "as-is"].error)


@pytest.mark.parametrize("generate", [True, False])
@pytest.mark.parametrize("layer", [1, 4])
def test_stop_takes_effect_in_the_next_layer(engine: Engine, layer: int, generate: bool) -> None:
    """The prefix has two layers, and so has the rest; behind them comes decoding, or scoring."""
    cancelled, seen = threading.Event(), []

    def emit(item: object) -> None:
        seen.append(item)
        if len(seen) == layer:
            cancelled.set()

    settings = choose([QUESTION], methods=["vanilla"], generate=generate, logprobs=not generate)
    with pytest.raises(Cancelled):
        Measurement(engine, [QUESTION], settings, ()).work(emit, cancelled)
    assert len(seen) == layer


@pytest.mark.parametrize(
    "options",
    [
        {"generate": False, "logprobs": False},
        {"max_new_tokens": 0},
        {"methods": ["pines"]},
        {"order_names": ["sideways"]},
    ],
)
def test_invalid_option_is_refused_before_prefill(engine: Engine, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        measure(engine, [QUESTION], **options)


def test_closed_iterator_stops_the_model(engine: Engine) -> None:
    events = measure(engine, [QUESTION], methods=["sp"], max_new_tokens=6)
    first = next(events)
    assert isinstance(first, PrefillProgress) and first.method == "sp"
    events.close()
    assert list(events) == []


def test_judge_record_has_section_and_weight(engine: Engine) -> None:
    (known,) = evaluate_records(engine, [PAIR], methods=["pine"], generate=False).values()
    assert (known.section, known.subset, known.weight) == ("Chat Hard", "llmbar-adver-GPTInst", 92)
    own = PAIR.model_copy(update={"meta": {"subset": "mine"}})
    (unknown,) = evaluate_records(engine, [own], methods=["pine"], generate=False).values()
    assert (unknown.section, unknown.subset, unknown.weight) == (None, "mine", None)


def test_section_weights_have_published_sums() -> None:
    weights: dict[str, float] = {}
    for subset in SUBSETS:
        weights[subset.section] = weights.get(subset.section, 0) + subset.weight
        assert find_subset(subset.name.upper()) is subset
    # Sums of the table in the specification; code weighs as much as math-prm.
    assert weights == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 1968}
    assert find_subset(None) is find_subset("mine") is None


def test_batch_size_is_fixed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of 8 rows has other bits than one of 16 on some processors, so that texts could differ."""
    widths = set()
    extend = passes.extend

    def watched(rows: Sequence[Any], *arguments: Any, **options: Any) -> Any:
        widths.add(len(rows))
        return extend(rows, *arguments, **options)

    monkeypatch.setattr(passes, "extend", watched)
    for names, orders in ((["pine"], ["as-is"]), (METHOD_NAMES, ["gold-all"])):
        evaluate_records(engine, [QUESTION], methods=names, order_names=orders, logprobs=False)
    assert len(widths - {1}) == 1  # suffixes that follow documents read before are fed one by one
