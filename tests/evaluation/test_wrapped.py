"""Wrapped methods on a tiny model: their records follow from those of the base method alone."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine import METHODS, TASKS, DebiasResult, Document, Engine, InputError, TokenLayout, run_debias
from pine_engine.debias.plan import content_free_prompts, document_orders, plan_debias
from pine_engine.debias.table import measured_method
from pine_engine.engine.generation import ActiveGeneration
from pine_engine.evaluation import measure as measuring
from pine_engine.evaluation.combine import combine
from pine_engine.evaluation.document_orders import DocumentOrder, arrange
from pine_engine.evaluation.example_runs import BaseRun, Generation, Prefill
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.settings import Key, max_visited
from pine_engine.prompts.request import LabeledRequest
from pine_engine.prompts.scoring import parse_verdict
from tests.support import measured_rows
from tests.support.measured_rows import PAIR, evaluate_records
from tests.support.tokenizers import letter_tokenizer

ROUNDING = 1e-9
"""Float64 logarithms of means of up to 24 probabilities."""

QUESTION = measured_rows.QUESTION.model_copy(update={"documents": measured_rows.QUESTION.documents[:3]})
SWAPS = ["as-is", "swapped", "segments-swapped", "labels-swapped"]


@pytest.fixture
def parsable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse a verdict, or none, from any text."""

    def parse(text: str) -> str | None:
        return parse_verdict(text) or [None, "A", "B", "A", "B"][sum(map(ord, text)) % 5]

    monkeypatch.setitem(TASKS, "judge_pair", replace(TASKS["judge_pair"], parse=parse))


def records(engine: Engine, examples: Sequence[Example], **options: Any) -> dict[Key, Record]:
    found = evaluate_records(engine, examples, **options)
    assert [record.error for record in found.values() if record.error] == []
    return found


def pairs(count: int) -> list[Example]:
    return list(map(Example.model_validate, measured_rows.pairs(count)))


def likely(logprobs: Mapping[str, float] | None) -> list[float]:
    """Return probabilities with sum 1, in the order of the choices."""
    assert logprobs is not None
    weights = np.exp(list(logprobs.values()))
    return [float(weight) for weight in weights / weights.sum()]


@pytest.mark.parametrize(
    ("example", "name", "names"),
    [
        (PAIR, "permutation_full:vanilla", SWAPS),
        (PAIR, "permutation_full:pcw", SWAPS),
        (QUESTION, "permutation_full:vanilla", ["as-is", "order:1-2-0", "order:2-1-0"]),
        (QUESTION, "permutation_cyclic:vanilla", ["as-is", "order:1-2-0", "order:2-1-0"]),
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
        assert record.answer_logprob == pytest.approx(np.log(mean), abs=ROUNDING)
        assert (record.prompts, record.prompt_tokens) == (len(runs), sum(run.prompt_tokens for run in runs))
        assert record.answer_tokens == sum(run.answer_tokens or 0 for run in runs)
        if example is PAIR:
            of_documents = [np.array(likely(run.choice_logprobs))[list(run.input_order)] for run in runs]
            choices = np.mean(of_documents, axis=0)[list(record.input_order)]  # a swap is its own inverse
            assert likely(record.choice_logprobs) == pytest.approx(choices, abs=ROUNDING)
            accepted = "AB".index(record.answers[0])
            assert record.choice_score == float(choices[accepted] > choices[1 - accepted])
        else:  # rotations of one order visit the same orders, so they are computed once
            assert record.was_computed == (
                order_name == "as-is" or (kind, order_name) == ("cyclic", "order:2-1-0")
            )


def finished_run(order: DocumentOrder, text: str, logprobs: Mapping[str, float] | None = None) -> BaseRun:
    """Return a run with a generated answer and log-probabilities of choices."""
    prefill = Prefill(METHODS["vanilla"], TokenLayout((), ((1,),), (2,)), "")
    prefill.logprobs |= logprobs or {}
    answer = ActiveGeneration("vanilla", (), torch.empty(0), 0.0, text=text)
    return BaseRun(order, prefill, Generation((prefill,), answer=answer), choices=tuple(prefill.logprobs))


def judged(text: str, letters: str = "AB") -> BaseRun:
    """Return the run of a judge for which the stored answers have these letters."""
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
    equal = finished_run(arrange(PAIR, "as-is"), "", {"[[A]]": -1.0, "[[B]]": -1.0})
    assert combine(measured_method("pine"), PAIR, [equal], equal.order)["choice_score"] == 0.5


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


@pytest.mark.usefixtures("parsable")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_full_permutation_is_invariant(
    tiny_llama: Callable[..., LlamaForCausalLM], dtype: torch.dtype
) -> None:
    engine = Engine(tiny_llama(max_context_length=900, head_dim=32, dtype=dtype), letter_tokenizer())
    options: dict[str, Any] = {"methods": ["permutation_full:pcw"], "recompute": True}
    question = records(engine, [QUESTION], **options, order_names=["all"]).values()
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


def test_prior_is_learned_from_first_and_selected_examples(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed from the records of vanilla: examples 0, 3 and 4 are learned from, the others are divided."""
    monkeypatch.setattr(measuring, "is_prior_example", {"p3", "p4"}.__contains__)
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
                dict(zip(["[[A]]", "[[B]]"], prior, strict=True)), abs=ROUNDING
            )
            assert likely(record.choice_logprobs) == pytest.approx(expected, abs=ROUNDING)
            assert record.prompts == (2 if is_learned else 1)
            assert record.was_computed == (not is_learned or name == "as-is")


def test_prior_skips_an_example_beyond_the_context(engine: Engine) -> None:
    examples = pairs(3)
    long = [examples[0].documents[0], Document(text="You, or he. " * 60)]
    examples[0] = examples[0].model_copy(update={"documents": long})
    found = evaluate_records(engine, examples, methods=["pride"], generate=False)
    assert [record.error is not None for record in found.values()] == [True, False, False]
    assert [record.prompts for record in found.values() if not record.error] == [2, 1]


MANY = QUESTION.model_copy(update={"id": "many", "documents": QUESTION.documents * 3})
THREE_ANSWERS = PAIR.model_copy(update={"documents": [PAIR.documents[0]] * 3})


@pytest.mark.parametrize(
    ("example", "method", "options"),
    [
        *((QUESTION, method, {}) for method in ("pride", "calibration_labels:pine", "pines")),
        *((example, "permutation_full", {}) for example in (MANY, THREE_ANSWERS)),
        (PAIR, "pride", {"logprobs": False}),
        (PAIR, "calibration_every", {"generate": False}),
        (QUESTION, "pine", {"generate": False, "logprobs": False}),
        (QUESTION, "pine", {"max_new_tokens": 0}),
        (QUESTION, "pine", {"order_names": ["sideways"]}),
    ],
)
def test_measure_invalid_option_is_refused_before_prefill(
    engine: Engine, example: Example, method: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError):
        measuring.measure(engine, [example], methods=["vanilla", method], **options)


def test_wrapper_without_result_has_error_record(engine: Engine) -> None:
    methods = ["vanilla", "permutation_full"]
    found = evaluate_records(engine, [MANY, QUESTION], methods=methods, max_new_tokens=2)
    errors = [key for key, record in found.items() if record.error]
    assert errors == [("many", "permutation_full:vanilla", "as-is")]
    assert max_visited(measured_method("permutation_full"), [MANY, QUESTION]) == 6
    assert max_visited(measured_method("calibration_every"), [MANY, QUESTION]) == 1
