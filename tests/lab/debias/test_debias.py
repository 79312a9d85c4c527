"""Wrappers: arithmetic by hand, run_debias against its definition, plans, and names of methods."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from pine_engine import DEBIASERS, METHODS, Document, Engine, InputError, LabeledRequest, get_methods
from pine_engine.engine.events import GenerationFinished, PrefillDone, RunFinished, TokenGenerated
from pine_engine.lab.debias.calibrated_tokens import CANDIDATES, calibrated_prompt
from pine_engine.lab.debias.combining import (
    DebiasResult,
    average_labels,
    combine_labels,
    count_votes,
    log_mean,
    mean_probability,
    most_voted,
    named_label,
    route,
)
from pine_engine.lab.debias.debias import run_debias
from pine_engine.lab.debias.estimators import CalibrationCurve, MeanPrior, softmax
from pine_engine.lab.debias.measured import (
    NUM_MEASURED,
    find_measured,
    measured_method,
    measured_methods,
    method_label,
    method_mark,
    method_rank,
)
from pine_engine.lab.debias.plan import content_free_prompts, is_learned_example, learned_samples, plan_debias
from pine_engine.lab.debias.wrappers import Steps
from pine_engine.lab.evaluation.grid import make_grid
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.orders import document_orders, num_orders
from pine_engine.prompts.prompt import Prompt, segment_text
from tests.support.errors import has_field
from tests.support.forward import count_tokens
from tests.support.records import swept
from tests.support.tokenizers import letter_tokenizer

REQUEST = LabeledRequest(
    question="Why?", documents=[Document("Moon."), Document("Hot tea.", "T"), Document("Blue sky.")],
    labels=["A", "B", "C"], instruction="Say.", system="Be kind.", task="judge",
)  # fmt: skip
"""The task writes the letter of each document's place into the prompt."""

ROUNDING = 3e-6
"""Probabilities from float32 logits of a decoding step, which has another shape than a prefill."""


def changed(**fields: Any) -> LabeledRequest:
    return LabeledRequest.model_validate({**dict(REQUEST), **fields})


def fitting(wrapper: str) -> LabeledRequest:
    count = DEBIASERS[wrapper].num_labels or 3
    return changed(documents=REQUEST.documents[:count], labels=REQUEST.labels[:count])


def in_order(order: tuple[int, ...], **fields: Any) -> LabeledRequest:
    return changed(documents=[REQUEST.documents[index] for index in order], **fields)


def run(engine: Engine, *requests: LabeledRequest, **options: Any) -> list[DebiasResult]:
    plan = plan_debias(requests or [REQUEST], **options)
    return [event for event in run_debias(engine, plan) if isinstance(event, DebiasResult)]


@given(st.lists(st.floats(-60, 0), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_log_mean_is_independent_of_order(logs: list[float], random: Any) -> None:
    mean = log_mean(logs)
    assert mean == pytest.approx(np.log(np.mean(np.exp(logs))), abs=1e-9)
    random.shuffle(logs)
    assert log_mean(logs) == mean
    assert log_mean([-np.inf, -np.inf]) == -np.inf and softmax([-900.0, 0.0]) == (0.0, 1.0)
    assert log_mean([-800.0, -801.0]) == pytest.approx(-800 + np.log((1 + np.exp(-1)) / 2))


@pytest.mark.parametrize(
    ("votes", "winners"),
    [(["b", "a", "b"], ["b"]), (["b", "a", None], ["a", "b"]), ([None] * 2, []), ([2, 0, 2, 0, 1], [0, 2])],
)
def test_most_voted_lists_ties_in_ascending_order(votes: list[Any], winners: list[Any]) -> None:
    for one in itertools.permutations(votes):
        assert most_voted(one) == winners


def test_combined_labels_by_hand() -> None:
    """Average: document 1 has the second label first (0.4), then the first one (0.5)."""
    logs = np.log([(0.6, 0.4), (0.5, 0.5)]).tolist()
    mean = combine_labels(DEBIASERS["permutation_full"], logs, [(0, 1), (1, 0)])
    assert mean == pytest.approx(((0.6 + 0.5) / 2, (0.4 + 0.5) / 2))
    # Both runs name document 0: the mean. Both name the first label: a tie.
    agreed, tied = (np.log(runs).tolist() for runs in ([(0.6, 0.4), (0.3, 0.7)], [(0.6, 0.4), (0.7, 0.3)]))
    reconciled = [
        combine_labels(DEBIASERS["swap_reconcile"], runs, [(0, 1), (1, 0)]) for runs in (agreed, tied)
    ]
    assert reconciled == [pytest.approx((0.65, 0.35)), (0.5, 0.5)]
    prior = MeanPrior((0.8, 0.2))
    divided = combine_labels(DEBIASERS["pride"], np.log([(0.5, 0.5)]).tolist(), [(0, 1)], prior)
    assert divided == pytest.approx((0.2, 0.8), abs=1e-8)
    # Calibration: the labels have 0.6 and 0.4, and without content 0.75 and 0.25 in the mean.
    logprobs = np.log([[0.3, 0.2], [0.2, 0.02], [0.4, 0.18]])
    calibrated = combine_labels(DEBIASERS["calibration_labels"], logprobs.tolist(), [(0, 1)])
    assert calibrated == pytest.approx((0.6 / 0.75, 0.4 / 0.25))


def choose(steps: Steps, *probabilities: list[float]) -> tuple[int, float]:
    logits = torch.tensor(probabilities).double().log() + 3.0
    state: Any = SimpleNamespace()
    prompt = calibrated_prompt(0, "vanilla", [(state, row[None]) for row in logits], steps, 0.0)
    assert len(prompt.rows) == (len(logits) if steps == "every" else 1)
    assert torch.equal(prompt.logits, logits)
    return prompt.choose(logits)


def test_chosen_token_by_hand() -> None:
    own, free = [0.5, 0.3, 0.2], [[0.8, 0.1, 0.1], [0.1, 0.1, 0.8]]
    # First: the least are 0.1 each. With one content-free prompt: 0.5 - 0.8, 0.3 - 0.1, 0.2 - 0.1.
    assert choose("first", own, *free)[0] == 0
    token, logprob = choose("first", own, free[0])
    assert token == 1 and logprob == pytest.approx(math.log(0.3))
    assert choose("first", own)[0] == 0  # later tokens are greedy
    # Every: 0.5/0.45, 0.3/0.1 and 0.2/0.45.
    assert choose("every", own, *free)[0] == 1
    # 100 tokens have 0.01 among the candidates, token 7 less without content; 50 have almost nothing.
    own = [0.0099] * CANDIDATES + [0.0002] * 50
    assert choose("first", own, [0.01] * 7 + [0.0099] + [0.01] * 92 + [1e-12] * 50)[0] == 7


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Both are fine, but\n[[B]].", 1), ("[[B]] or [[A]]", 0), ("A", 0), (" B.\nBecause", 1),
        ("B) it is", 1), ("**A**", None), ("A better answer is B", None), ("", None), ("(B)", 1),
    ],
)  # fmt: skip
def test_named_label_is_in_brackets_or_first(text: str, place: int | None) -> None:
    assert named_label(text, ["A", "B"]) == place


@pytest.mark.parametrize("wrapper", DEBIASERS)
def test_run_debias_reports_each_prefill_and_each_result(engine: Engine, wrapper: str) -> None:
    plan = plan_debias([fitting(wrapper)] * 3, wrapper=wrapper, samples=4, max_new_tokens=1)
    kinds = Counter(type(event) for event in run_debias(engine, plan))
    assert (kinds[PrefillDone], kinds[DebiasResult], kinds[RunFinished]) == (plan.num_prompts, 3, 0)


def probabilities(engine: Engine, layout: TokenLayout, base: str) -> np.ndarray:
    result = engine.run(layout, methods=[base], max_new_tokens=1, return_logits=True)
    assert result.logits is not None
    softmax: np.ndarray = result.logits[base][-1].double().softmax(-1).numpy()
    return softmax


def label_probabilities(engine: Engine, prompt: Prompt, base: str) -> np.ndarray:
    ids = letter_tokenizer().convert_tokens_to_ids(["A", "B", "C"])
    labels = probabilities(engine, engine.tokenize(prompt), base)[ids]
    normalized: np.ndarray = labels / labels.sum()
    return normalized


@pytest.mark.parametrize(("kind", "base"), [("cyclic", "pine"), ("sampled", "vanilla")])
def test_permutation_averages_the_probabilities_of_the_labels(engine: Engine, kind: Any, base: str) -> None:
    options = {"samples": 4, "seed": 5}
    (result,) = run(engine, wrapper=f"permutation_{kind}", base=base, **options)
    expected, favorites = np.zeros(3), []
    orders = document_orders(3, kind, **options)
    for order in orders:
        observed = label_probabilities(engine, in_order(order).prompt(engine), base)
        expected[list(order)] += observed / len(orders)
        favorites.append("ABC"[order[int(observed.argmax())]])
    np.testing.assert_allclose(list(result.scores.values()), expected, rtol=0, atol=ROUNDING)
    assert result.answer == "ABC"[int(expected.argmax())]
    assert result.base_answers == Counter(favorites)


@pytest.mark.parametrize("documents", [["Moon.", "Tea."], ["Tea.", "Tea."], ["Sun.", "Blue sky."]])
def test_swap_reconcile_is_a_tie_unless_both_orders_agree(engine: Engine, documents: list[str]) -> None:
    two = changed(documents=documents, labels=["A", "B"])
    (result,) = run(engine, two, wrapper="swap_reconcile")
    alone = [run(engine, changed(documents=order, labels=["A", "B"]), wrapper="calibration_labels")
             for order in (documents, documents[::-1])]  # fmt: skip
    places = ["AB".index(next(iter(answer.base_answers))) for (answer,) in alone]
    expected = "tie" if places[0] == places[1] else "AB"[places[0]]
    assert result.answer == expected
    assert sum(result.scores.values()) == pytest.approx(1)


def test_pride_divides_by_the_prior_of_the_samples(engine: Engine) -> None:
    requests = [changed(question=question) for question in ("Why?", "Who?", "How?")]
    results = run(engine, *requests, wrapper="pride", seed=1)
    (learned,) = learned_samples(3, 0.05, seed=1)
    assert results[learned] == run(engine, requests[learned], wrapper="permutation_cyclic")[0]
    moved = [in_order(one, question=requests[learned].question) for one in document_orders(3, "cyclic")]
    observed = [label_probabilities(engine, request.prompt(engine), "vanilla") for request in moved]
    prior = np.exp(np.mean(np.log(observed), axis=0))
    for index in {0, 1, 2} - {learned}:
        scores = label_probabilities(engine, requests[index].prompt(engine), "vanilla") / prior
        np.testing.assert_allclose(list(results[index].scores.values()), scores / scores.sum(), rtol=1e-4)
        assert sum(results[index].base_answers.values()) == 1


def test_calibraeval_learns_a_curve_from_both_orders(engine: Engine) -> None:
    pair = fitting("calibraeval")
    requests = [pair.model_copy(update={"question": question}) for question in ("Why?", "Who?", "How?")]
    results = run(engine, *requests, wrapper="calibraeval", seed=1)
    (index,) = learned_samples(3, 0.25, seed=1)
    learned = requests[index]
    assert results[index] == run(engine, learned, wrapper="permutation_full")[0]

    def observed(request: LabeledRequest) -> list[float]:
        of_a, of_b, _ = label_probabilities(engine, request.prompt(engine), "vanilla").tolist()
        return [of_a / (of_a + of_b), of_b / (of_a + of_b)]

    swapped = learned.model_copy(update={"documents": learned.documents[::-1]})
    curve = CalibrationCurve.fit([[observed(one)[0] for one in (learned, swapped)]])
    for other in {0, 1, 2} - {index}:
        scores = list(results[other].scores.values())
        assert scores == pytest.approx(curve.correct(observed(requests[other])), rel=1e-4)
        assert scores != pytest.approx(observed(requests[other]), abs=0.01)


@pytest.mark.parametrize("base", ["vanilla", "pine"])
@pytest.mark.parametrize("steps", ["first", "every"])
def test_calibrated_answer_is_that_of_separate_steps(engine: Engine, base: str, steps: str) -> None:
    prompts = REQUEST.prompt(engine), *content_free_prompts(engine, REQUEST)
    layouts = list(map(engine.tokenize, prompts))
    ids: list[int] = []
    for step in range(2):
        own, *free = (probabilities(engine, layout.extend(ids), base) for layout in layouts)
        if steps == "every":
            scores = np.log(own) - np.log(np.mean(free, axis=0))
        else:  # the vocabulary has fewer tokens than there are candidates
            least = np.min(free, axis=0)
            scores = own - least / least.sum() if step == 0 else own
        ids.append(int(scores.argmax()))
    plan = plan_debias([changed(labels=[])], wrapper=f"calibration_{steps}", base=base, max_new_tokens=2)
    events = list(run_debias(engine, plan))
    (answer,) = (event.answer for event in events if isinstance(event, GenerationFinished))
    texts = [event.text for event in events if isinstance(event, TokenGenerated)]
    assert (answer.token_ids, len(texts), events[-1]) == (tuple(ids), 2, DebiasResult(texts[-1], {}, {}))


def test_routing_takes_the_confident_answer(engine: Engine) -> None:
    assert [route(pair, 0.2) for pair in ((0.5, 0.6), (0.5, 0.75), (0.5, 0.7), (0.9,))] == [0, 1, 1, 0]
    assert mean_probability([math.log(0.5), 0.0]) == 0.75 and mean_probability([]) == 0
    layout = REQUEST.tokenize(engine)
    names = ("vanilla", "rotor")
    scores = engine.score(layout, REQUEST.labels, methods=names)
    of_labels = [softmax([score.total for score in scores[name]]) for name in names]
    text = changed(labels=[])
    answers = engine.run(text.tokenize(engine), methods=names, max_new_tokens=4).answers
    confidences = [float(np.mean(np.exp(answers[name].logprobs))) for name in names]
    for margin in (0.2, -1.0):  # vanilla, and always the other method
        wrapper = replace(DEBIASERS["routing"], margin=margin)
        results = []
        for request in (REQUEST, text):
            plan = plan_debias([request], wrapper="routing", base="rotor", max_new_tokens=4)
            events = run_debias(engine, replace(plan, wrapper=wrapper))
            results += [event for event in events if isinstance(event, DebiasResult)]
        chosen = of_labels[route(list(map(max, of_labels)), margin)]
        assert tuple(results[0].scores.values()) == pytest.approx(chosen, abs=ROUNDING)
        assert results[0].answer == "ABC"[int(np.argmax(chosen))]
        assert results[1].answer == answers[names[route(confidences, margin)]].text
        assert (results[1].scores, sum(results[0].base_answers.values())) == ({}, 2)


@pytest.mark.parametrize(
    ("places", "answer", "scores", "base_answers"),
    [
        ([0, 0], "tie", (1, 1), {"A": 1, "B": 1}),
        ([0, 1], "A", (2, 0), {"A": 2}),
        ([None, 0], "B", (0, 1), {"": 1, "B": 1}),
        ([None, None], "", (0, 0), {"": 2}),
    ],
)
def test_majority_counts_the_documents_that_answers_name(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, places: list[int | None], answer: str,
    scores: tuple[float, float], base_answers: dict[str, int],
) -> None:  # fmt: skip
    """The orders are (A, B) and (B, A), so that the first place twice means both documents."""
    named, texts = iter(places), []

    def name(text: str, _: list[str]) -> int | None:
        texts.append(text)
        return next(named)

    monkeypatch.setattr("pine_engine.lab.debias.combining.named_label", name)
    two = changed(documents=["Moon.", "Tea."], labels=["A", "B"])
    (result,) = run(engine, two, wrapper="permutation_full", majority=True, max_new_tokens=2)
    assert result == DebiasResult(answer, dict(zip("AB", map(float, scores), strict=True)), base_answers)
    swapped = changed(documents=["Tea.", "Moon."], labels=["A", "B"]).tokenize(engine)
    assert texts[1] == engine.run(swapped, methods="vanilla", max_new_tokens=2).answers["vanilla"].text


@pytest.mark.parametrize(
    ("task", "texts", "answer", "base_answers"),
    [
        ("judge", ["[[C]]", "[[C]]"], "tie", {"tie": 2}), ("judge_tie", ["[[C]]", "C."], "tie", {"tie": 2}),
        ("judge", ["[[A]]", "[[A]]"], "tie", {"A": 1, "B": 1}),
        ("judge_tie", ["[[C]]", "[[B]]"], "tie", {"tie": 1, "A": 1}),
        ("judge_tie", ["［［A］］", "[[B]]"], "A", {"A": 2}), ("judge", ["?", "?"], "", {"": 2}),
    ],
)  # fmt: skip
def test_votes_for_a_tie_count(
    task: str, texts: list[str], answer: str, base_answers: dict[str, int]
) -> None:
    row = changed(task=task, documents=["Moon.", "Tea."], labels=[])
    plan = plan_debias([row], wrapper="swap_reconcile", majority=True)
    assert plan.requests[0].labels == list("ABC" if task == "judge_tie" else "AB")
    found = count_votes(plan.wrapper, plan.requests[0], plan.orders[0], texts)
    assert (found.answer, found.base_answers) == (answer, base_answers)


def test_probability_of_a_tie_stays_a_tie(engine: Engine) -> None:
    row = changed(task="judge_tie", documents=["Moon.", "Tea."], labels=list("ABC"))
    names = ("permutation_full", "swap_reconcile", "calibration_labels", "routing")
    for name in names:
        (result,) = run(engine, row, wrapper=name)
        assert len(result.scores) == 3 and result.answer in ("A", "B", "tie")
        assert "C" not in result.base_answers
    for tie, answer in ((-1.0, "tie"), (-9.0, "A")):
        runs = [[-2.0, -3.0, tie], [-3.0, -2.0, tie]]
        found = average_labels(DEBIASERS["swap_reconcile"], row, runs, [(0, 1), (1, 0)])
        assert (found.answer, found.base_answers) == (answer, {answer: 2})
    for name, labels in (("pride", "ABC"), ("permutation_full", "AB"), ("calibraeval", "ABC")):
        with pytest.raises(InputError, check=has_field("labels")):
            plan_debias([changed(**{**dict(row), "labels": list(labels)})], wrapper=name)


def test_long_prompt_is_refused_before_the_first_prefill(engine: Engine) -> None:
    requests = [REQUEST, changed(documents=["x" * 900, "y", "z"])]
    with pytest.raises(InputError):
        next(run_debias(engine, plan_debias(requests, wrapper="permutation_cyclic")))
    rest = engine.max_context_length - REQUEST.tokenize(engine).num_tokens
    options: dict[str, Any] = {"wrapper": "permutation_cyclic", "max_new_tokens": rest + 1}
    assert len(run(engine, **options)) == 1
    with pytest.raises(InputError):
        next(run_debias(engine, plan_debias([REQUEST], majority=True, **options)))
    with pytest.raises(InputError):
        run(engine, changed(labels=["A", "B", "Con"]), wrapper="permutation_full")


def made_request(num_documents: int = 3, **fields: Any) -> LabeledRequest:
    labels = list("ABCDEFGH"[:num_documents])
    values = {"question": "Why?", "documents": ["x"] * num_documents, "labels": labels}
    return LabeledRequest.model_validate(values | fields)


def test_full_orders_are_lexicographic_and_cyclic_orders_rotate() -> None:
    assert document_orders(3, "full") == list(itertools.permutations(range(3)))
    assert document_orders(4, "cyclic") == [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)]
    assert document_orders(3, None) == [(0, 1, 2)]
    assert [num_orders(4, kind) for kind in ("full", "cyclic", None)] == [24, 4, 1]
    assert document_orders(4, "full_or_sampled") == document_orders(4, "full")
    assert document_orders(5, "full_or_sampled", seed=3) == document_orders(5, "sampled", seed=3)
    assert num_orders(7, max_orders=5040) == len(document_orders(7, max_orders=5040)) == 5040


@given(count=st.integers(1, 6), samples=st.integers(1, 30), seed=st.integers(0, 4))
def test_sampled_orders_are_distinct_and_seeded(count: int, samples: int, seed: int) -> None:
    orders = document_orders(count, "sampled", samples=samples, seed=seed)
    assert len(orders) == len(set(orders)) == min(samples, math.factorial(count))
    assert len(orders) == num_orders(count, "sampled", samples=samples)
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert orders == document_orders(count, "sampled", samples=samples, seed=seed)
    assert document_orders(8, "sampled", seed=seed) != document_orders(8, "sampled", seed=9)


@given(count=st.integers(1, 300), seed=st.integers(0, 3))
def test_learned_samples_are_a_seeded_share(count: int, seed: int) -> None:
    samples = learned_samples(count, 0.05, seed)
    assert len(samples) == max(1, count * 5 // 100)
    assert samples <= set(range(count)) and samples == learned_samples(count, 0.05, seed)


def test_learned_examples_are_selected_by_their_ids() -> None:
    selected = [number for number in range(5_000) if is_learned_example(f"row {number}", 0.05)]
    assert len(selected) == 227 and selected[:5] == [72, 164, 165, 180, 207]


def test_content_free_prompts_keep_titles_and_everything_else() -> None:
    engine = SimpleNamespace(tokenizer=letter_tokenizer(chat_template=None))
    documents = [Document("Moon.", "Sea"), Document("Hot tea."), Document("Blue.", "Sky")]
    titled = made_request(documents=documents, task="math_reasoning")
    prompts = content_free_prompts(engine, titled)
    assert [[segment_text(document) for document in prompt.documents] for prompt in prompts] == [
        ["Sea N/A ", "N/A ", "Sky N/A "],
        ["Sea  ", " ", "Sky  "],
        ["Sea [MASK] ", "[MASK] ", "Sky [MASK] "],
    ]
    whole = titled.prompt(engine)
    assert {(prompt.prefix, prompt.suffix) for prompt in prompts} == {(whole.prefix, whole.suffix)}


@pytest.mark.parametrize(
    ("field", "requests", "options"),
    [
        ("wrapper", [made_request()], {"wrapper": "magic"}),
        ("method", [made_request()], {"wrapper": "pride", "base": "magic"}),
        ("labels", [made_request(labels=[])], {"wrapper": "permutation_full"}),
        ("labels", [made_request(labels=[])], {"wrapper": "calibration_labels"}),
        ("labels", [made_request(labels=["A", "B"])], {"wrapper": "pride"}),
        ("labels", [made_request(), made_request(labels=["1", "2", "3"])], {"wrapper": "pride"}),
        ("labels", [made_request()], {"wrapper": "calibraeval"}),
        ("majority", [made_request()], {"wrapper": "pride", "majority": True}),
        ("majority", [made_request()], {"wrapper": "calibration_every", "majority": True}),
        ("max_orders", [made_request(8)], {"wrapper": "permutation_full"}),
        ("max_orders", [made_request(4)], {"wrapper": "permutation_full", "max_orders": 23}),
        ("samples", [made_request()], {"wrapper": "permutation_sampled", "samples": 0}),
        ("requests", [], {"wrapper": "pride"}),
    ],
)
def test_plan_invalid_argument_raises_with_field(
    field: str, requests: list[LabeledRequest], options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, check=has_field(field)):
        plan_debias(requests, **options)


@pytest.mark.parametrize("wrapper", DEBIASERS)
def test_plan_counts_prompts_and_limits_generated_answers(wrapper: str) -> None:
    request = fitting(wrapper)
    plan = plan_debias([request] * 3, wrapper=wrapper, samples=4, max_new_tokens=7)
    all_orders = ("permutation_full", "permutation_borda", "permutation_kemeny", "swap_reconcile")
    counts = dict.fromkeys((*all_orders, "representative"), 18)
    counts |= {"permutation_cyclic": 9, "pride": 3 + 2, "calibraeval": 2 + 2, "routing": 3}
    assert plan.num_prompts == counts.get(wrapper, 12)
    is_text = wrapper in ("calibration_first", "calibration_every", "representative")
    assert plan.max_new_tokens == (7 if is_text else 0)
    other_base = plan_debias([request] * 3, wrapper=wrapper, samples=4, base="pine")
    assert other_base.num_prompts == (6 if wrapper == "routing" else plan.num_prompts)
    if DEBIASERS[wrapper].votes:
        assert plan_debias([request], wrapper=wrapper, majority=True).max_new_tokens == 64


@pytest.mark.parametrize("num_answers", [2, 4])
def test_judge_has_the_letters_of_its_answers_as_labels(num_answers: int) -> None:
    judged = made_request(num_answers, labels=[], task="judge")
    for wrapper, needs_labels in (("swap_reconcile", True), ("calibration_labels", True), ("routing", False)):
        (request,) = plan_debias([judged], wrapper=wrapper).requests
        assert request.labels == (list("ABCD"[:num_answers]) if needs_labels else [])
    assert plan_debias([made_request(labels=["yes", "no"], num_documents=2, task="judge")],
                             wrapper="pride").requests[0].labels == ["yes", "no"]  # fmt: skip


ALL_NAMES = [*METHODS, *(f"{wrapper}:{base}" for wrapper, base in product(DEBIASERS, METHODS))]


def test_measured_methods_are_all_methods_alone_and_wrapped() -> None:
    found = measured_methods(ALL_NAMES)
    assert [one.name for one in found] == ALL_NAMES
    assert [method_rank(name) for name in ALL_NAMES] == list(range(NUM_MEASURED))
    for names in (one.label for one in found), map(method_mark, ALL_NAMES):
        assert len(set(names)) == NUM_MEASURED
    assert list(map(method_mark, METHODS)) == list(range(len(METHODS)))
    assert [one.base for one in measured_methods()] == list(get_methods())
    unscored = [name for name, row in METHODS.items() if not row.needs_scores]
    assert [one.name for one in measured_methods(["All"])] == unscored
    assert measured_method("Permutation_full:PINE").name == "permutation_full:pine"
    alone = measured_method("permutation_full")
    assert (alone.name, alone.label) == ("permutation_full:vanilla", "Permutation, full (Vanilla)")


def test_invariance_depends_on_wrapper_and_base() -> None:
    always = {"permutation_full"}
    of_base = {"capcal", "calibration_labels", "calibration_first", "calibration_every"}
    for one in measured_methods(ALL_NAMES):
        name = one.wrapper.name if one.wrapper else ""
        is_invariant = name in always or ((not name or name in of_base) and one.base.is_order_invariant)
        assert one.is_order_invariant == is_invariant


@pytest.mark.parametrize(
    "names",
    [
        [], ["magic"], ["magic:pine"], ["pine:vanilla"], ["pride:magic"], ["pride:"],
        ["pride:permutation_full"], ["pride:permutation_full:vanilla"], ["pine", "pine"],
        ["pride", "pride:vanilla"], ["all", "pride"],
    ],
)  # fmt: skip
def test_measured_methods_invalid_name_raises(names: Sequence[str]) -> None:
    with pytest.raises(InputError):
        measured_methods(names)


def test_records_of_unknown_methods_come_last() -> None:
    names = ["pine", "lost", "permutation_full:pine", "calibration_every:vanilla", "vanilla"]
    names += ["permutation_full:vanilla", "lost_too"]
    grid = make_grid([swept("q", name, slot, score=1.0) for slot in (0, 1, 2) for name in names])
    assert grid.methods == (
        "vanilla", "pine", "permutation_full:vanilla", "permutation_full:pine", "calibration_every:vanilla",
        "lost", "lost_too",
    )  # fmt: skip
    assert method_label("lost") == "lost" and find_measured("lost") is None
    assert method_mark("lost") == NUM_MEASURED > max(map(method_mark, ALL_NAMES))


@pytest.mark.parametrize("wrapper", ["permutation_full", "calibration_every"])
def test_closed_stream_stops_the_model(engine: Engine, wrapper: str) -> None:
    with count_tokens(engine.patched_models[0].network.model.layers[0]) as calls:
        stream = run_debias(engine, plan_debias([REQUEST] * 50, wrapper=wrapper))
        next(event for event in stream if isinstance(event, PrefillDone))
        stream.close()
    assert 0 < len(calls) < 50


@pytest.mark.parametrize("name", DEBIASERS)
def test_columns_of_each_wrapper_agree(name: str) -> None:
    wrapper = DEBIASERS[name]
    words = {"always": "yes", "of base": "no, unless the base method is"}
    assert wrapper.invariance.startswith(words.get(wrapper.invariance_kind, ("no:", "only if")))
    # The order of the documents changes, their content does, or another method runs too.
    assert [wrapper.orders is None, wrapper.calibrated == "nothing", wrapper.margin is None].count(False) == 1
    is_generated = name in ("calibration_first", "calibration_every")
    assert (
        measured_method(name).generates
        == (wrapper.votes or is_generated or name in ("routing", "representative"))
        == (name not in ("pride", "calibraeval", "calibration_labels", "capcal"))
    )
    assert measured_method(name).scores_choices == (not is_generated)
    assert measured_method(name).scores_answers == wrapper.votes
