"""Wrappers over whole comparisons: what is planned, refused and answered."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from transformers import LlamaForCausalLM

from pine_engine.debias.calibration import content_free_prompts, generate_calibrated
from pine_engine.debias.orders import document_orders, pride_samples
from pine_engine.debias.permutation import (
    OptionResult,
    VoteResult,
    permute_answers,
    permute_options,
)
from pine_engine.debias.plan import plan_debias
from pine_engine.debias.run import DebiasResult, debias_report, debias_rows, named_label, run_debias
from pine_engine.debias.table import DEBIASERS
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import PrefillDone, RunFinished
from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document, Prompt
from pine_engine.prompts.request import LabeledRequest
from tests.support.tokenizers import letter_tokenizer

COMPARISON = LabeledRequest(
    question="Why?",
    documents=[
        Document(text="Moon."),
        Document(text="Hot tea.", title="T"),
        Document(text="Blue sky."),
    ],
    labels=["A", "B", "C"],
    instruction="Say.",
    system="Be kind.",
    task="judge_pair",
)
"""The task writes the letter of each document's place into it."""


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(max_context_length=900, head_dim=32), letter_tokenizer())


def changed(**fields: Any) -> LabeledRequest:
    return LabeledRequest.model_validate({**dict(COMPARISON), **fields})


def answers(engine: Engine, *comparisons: LabeledRequest, **options: Any) -> list[DebiasResult]:
    plan = plan_debias(comparisons or [COMPARISON], **options)
    return [event for event in run_debias(engine, plan) if isinstance(event, DebiasResult)]


# plans


def test_the_prompts_that_will_be_read_are_counted(engine: Engine) -> None:
    comparisons = [COMPARISON] * 3
    expected = {
        "permutation_full": 3 * 6,
        "permutation_cyclic": 3 * 3,
        "permutation_sampled": 3 * 4,
        "pride": 3 + 2,
        "calibration_labels": 3 * 4,
        "calibration_first": 3 * 4,
        "calibration_every": 3 * 4,
    }
    assert list(expected) == list(DEBIASERS)
    for wrapper, count in expected.items():
        plan = plan_debias(comparisons, wrapper=wrapper, samples=4, max_new_tokens=1)
        events = list(run_debias(engine, plan))
        assert plan.num_prompts == sum(isinstance(event, PrefillDone) for event in events) == count
        assert sum(isinstance(event, DebiasResult) for event in events) == 3


@pytest.mark.parametrize(
    ("fields", "options", "sentence"),
    [
        ({}, {"wrapper": "magic"}, "unknown wrapper 'magic'; choose from: " + ", ".join(DEBIASERS)),
        ({"labels": []}, {"wrapper": "permutation_full"},
         "permutation_full needs the labels that the model may answer; give some, such as A and B"),
        ({"labels": []}, {"wrapper": "calibration_labels"},
         "calibration_labels needs the labels that the model may answer; give some, such as A and B"),
        ({"labels": ["A", "B"]}, {"wrapper": "pride"},
         "there are 2 labels for 3 documents; give one label per document"),
        ({}, {"wrapper": "pride", "majority": True},
         "pride takes no majority of answers; choose from: permutation_full, permutation_cyclic, "
         "permutation_sampled"),
        ({}, {"wrapper": "calibration_every", "majority": True},
         "calibration_every takes no majority of answers; choose from: permutation_full, "
         "permutation_cyclic, permutation_sampled"),
        ({"documents": ["x"] * 8, "labels": list("ABCDEFGH")}, {"wrapper": "permutation_full"},
         "all orders of 8 documents are 8! = 4.032e+4 runs, more than the limit of 720; run the 8 cyclic "
         "orders or sampled ones"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused_without_a_model(
    fields: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as raised:
        plan_debias([changed(**fields)], **options)
    assert str(raised.value) == sentence


def test_methods_and_labels_are_checked_too() -> None:
    with pytest.raises(InputError, match="^unknown method 'magic'; choose from: vanilla, "):
        plan_debias([COMPARISON], wrapper="pride", base="magic")
    with pytest.raises(InputError, match="^there is nothing to answer; give at least one comparison$"):
        plan_debias([], wrapper="pride")
    others = [COMPARISON, changed(labels=["1", "2", "3"])]
    with pytest.raises(InputError) as raised:
        plan_debias(others, wrapper="pride")
    assert str(raised.value) == (
        "pride learns about labels, which differ here; give the same labels throughout"
    )
    assert plan_debias(others, wrapper="permutation_cyclic").num_prompts == 6
    eight = changed(documents=["x"] * 8, labels=list("ABCDEFGH"))
    assert plan_debias([eight], wrapper="permutation_full", max_orders=40320).num_prompts == 40320


def test_a_prompt_that_does_not_fit_is_refused_before_another_is_read(engine: Engine) -> None:
    comparisons = [COMPARISON, changed(documents=["x" * 900, "y", "z"])]
    events = run_debias(engine, plan_debias(comparisons, wrapper="permutation_cyclic"))
    with pytest.raises(InputError, match="^the prompt has .* and the answer may take 0, but the model reads"):
        next(events)
    room = engine.max_context_length - COMPARISON.tokenize(engine).num_tokens
    options: dict[str, Any] = {"wrapper": "permutation_cyclic", "max_new_tokens": room + 1}
    assert len(answers(engine, **options)) == 1
    with pytest.raises(InputError, match=f"and the answer may take {room + 1}, but"):
        next(run_debias(engine, plan_debias([COMPARISON], majority=True, **options)))


# answers


@pytest.mark.parametrize("wrapper", ["permutation_full", "permutation_cyclic", "permutation_sampled"])
def test_permuted_answers_are_labels_as_the_documents_were_given(engine: Engine, wrapper: str) -> None:
    """Prompts are built anew for each order, with A always at the first place."""
    (answer,) = answers(engine, wrapper=wrapper, samples=4, seed=5, base="nia")

    def build(order: tuple[int, ...]) -> Any:
        return changed(documents=[COMPARISON.documents[index] for index in order]).prompt(engine)

    kind: Any = wrapper.removeprefix("permutation_")
    orders = document_orders(3, kind, samples=4, seed=5)
    *_, result = permute_options(engine, build, ["A", "B", "C"], orders=orders, base="nia")
    assert isinstance(result, OptionResult)
    assert list(answer.scores.values()) == list(result.probabilities)
    assert answer.answer == max(answer.scores, key=lambda label: answer.scores[label])
    favourites = [run.order[max(range(3), key=run.observed.__getitem__)] for run in result.runs]
    assert answer.base_answers == {
        label: favourites.count(index) for index, label in enumerate("ABC") if index in favourites
    }


def test_full_averaging_of_a_comparison_is_invariant(engine: Engine) -> None:
    (reference,) = answers(engine, wrapper="permutation_full")
    for order in itertools.permutations(range(3)):
        documents = [COMPARISON.documents[index] for index in order]
        (answer,) = answers(engine, changed(documents=documents), wrapper="permutation_full")
        assert list(answer.scores.values()) == [reference.scores["ABC"[index]] for index in order]


def test_pride_is_a_prior_over_all_comparisons(engine: Engine) -> None:
    """On the one that the prior is learnt from, the answer is the cyclic average."""
    comparisons = [changed(question=question) for question in ("Why?", "Who?", "How?")]
    plain = [answers(engine, one, wrapper="permutation_cyclic")[0] for one in comparisons]
    debiased = answers(engine, *comparisons, wrapper="pride", seed=1)
    (learnt_from,) = pride_samples(3, seed=1)
    for index, (one, cyclic) in enumerate(zip(debiased, plain, strict=True)):
        assert (one == cyclic) == (index == learnt_from)
        assert sum(one.base_answers.values()) == (3 if index == learnt_from else 1)
        assert math.fsum(one.scores.values()) == pytest.approx(1, abs=1e-6)


def test_a_majority_counts_generated_answers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def name(text: str, labels: list[str]) -> int | None:
        return [0, 1, 2, None][sum(map(ord, text)) % 4]

    monkeypatch.setattr("pine_engine.debias.run.named_label", name)
    (answer,) = answers(engine, wrapper="permutation_full", majority=True, max_new_tokens=3)

    def build(order: tuple[int, ...]) -> Any:
        return changed(documents=[COMPARISON.documents[index] for index in order]).prompt(engine)

    stream = permute_answers(
        engine, build, lambda text: name(text, []), orders=document_orders(3), max_new_tokens=3
    )
    *_, result = stream
    assert isinstance(result, VoteResult)
    assert list(answer.scores.values()) == list(result.votes)
    assert sum(answer.base_answers.values()) == 6
    assert answer.base_answers.get("", 0) == 6 - sum(result.votes)


@pytest.mark.parametrize(
    ("places", "answer", "base_answers"),
    [
        ([0, 0], "tie", {"A": 1, "B": 1}),
        ([0, 1], "A", {"A": 2}),
        ([None, 0], "B", {"": 1, "B": 1}),
        ([None, None], "", {"": 2}),
    ],
)
def test_ties_and_silence_have_names(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    places: list[int | None],
    answer: str,
    base_answers: dict[str, int],
) -> None:
    """Orders are (A, B) and (B, A), so that two first places are two opinions."""
    named = iter(places)
    monkeypatch.setattr("pine_engine.debias.run.named_label", lambda *_: next(named))
    two = changed(documents=["Moon.", "Tea."], labels=["A", "B"])
    (one,) = answers(engine, two, wrapper="permutation_full", majority=True, max_new_tokens=1)
    assert (one.answer, one.base_answers) == (answer, base_answers)


def test_calibration_compares_with_the_comparison_without_content(engine: Engine) -> None:
    """Against the scores of content-free prompts written out; the title stays in them."""
    fields: dict[str, Any] = {"labels": ["y", "n"], "task": "math_reasoning"}
    (answer,) = answers(engine, changed(**fields), wrapper="calibration_labels")

    def prompt(texts: list[str]) -> Prompt:
        documents = [texts[0], Document(text=texts[1], title="T"), texts[2]]
        return changed(documents=documents, **fields).prompt(engine)

    def q(given: Prompt) -> list[float]:
        return [
            math.exp(score.total) for score in engine.score(given, ["y", "n"], methods=["vanilla"])["vanilla"]
        ]

    # The task refuses an empty document, so that its empty content is written otherwise.
    free = [q(prompt(["N/A"] * 3)), q(prompt(["[MASK]"] * 3)), q(content_free_prompts(prompt, 3, [""])[0])]
    own = q(prompt(["Moon.", "Hot tea.", "Blue sky."]))
    p = [sum(row[index] for row in free) for index in range(2)]
    expected = [(own[index] / sum(own)) / (p[index] / sum(p)) for index in range(2)]
    assert list(answer.scores.values()) == pytest.approx(expected, rel=1e-4)
    assert answer.answer == "yn"[expected.index(max(expected))]
    assert answer.base_answers == {"yn"[own.index(max(own))]: 1}


def test_calibrated_text_needs_no_labels(engine: Engine) -> None:
    free = content_free_prompts(lambda texts: changed(documents=texts).prompt(engine), 3)
    prompt = COMPARISON.prompt(engine)
    texts = []
    for steps in ("first", "every"):
        options: dict[str, Any] = {"base": "pcw", "max_new_tokens": 4}
        (answer,) = answers(engine, changed(labels=[]), wrapper=f"calibration_{steps}", **options)
        *_, done = generate_calibrated(engine, prompt, content_free=free, steps=steps, **options)
        assert isinstance(done, RunFinished)
        assert answer == DebiasResult(done.result.answers["pcw"].text, {}, {})
        texts.append(answer.answer)
    assert texts[0] != texts[1] != ""


# labels in answers


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Both are fine, but [[B]].", 1), ("[[B]] or [[A]]", 0), ("A", 0), (" B.\nBecause", 1),
        ("B) it is", 1), ("**A**", None), ("A better answer is B", None), ("Neither", None), ("", None),
        ("(B)", 1),
    ],
)  # fmt: skip
def test_an_answer_names_a_label_in_brackets_or_by_opening_with_it(text: str, place: int | None) -> None:
    assert named_label(text, ["A", "B"]) == place


def test_the_report_is_plain_and_its_rows_are_for_people(engine: Engine) -> None:
    plan = plan_debias([COMPARISON] * 2, wrapper="permutation_cyclic", base="pine")
    results = [DebiasResult("A", {"A": 0.98765, "B": 0.01}, {"A": 2, "": 1}), DebiasResult("", {}, {})]
    report = debias_report(engine, plan, ["a.json", "b.json"], results)
    assert report == {
        "model": "model",
        "dtype": "float32",
        "wrapper": "permutation_cyclic",
        "base": "pine",
        "prompts": 6,
        "results": [
            {
                "file": "a.json",
                "answer": "A",
                "scores": {"A": 0.98765, "B": 0.01},
                "base_answers": {"A": 2, "": 1},
            },
            {"file": "b.json", "answer": "", "scores": {}, "base_answers": {}},
        ],
    }
    assert debias_rows(report) == [
        {"file": "a.json", "answer": "A", "scores": "A 0.988, B 0.01", "PINE alone": "A 2x, none 1x"},
        {"file": "b.json", "answer": "none", "scores": "", "PINE alone": ""},
    ]
