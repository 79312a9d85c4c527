"""Permutation and PriDe: orders, numbers worked by hand, and a mean that does not know who came first."""

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from pine_engine.debias.orders import Order, document_orders, pride_samples
from pine_engine.debias.permutation import (
    AnswerRun,
    OptionResult,
    OptionRun,
    PrideResult,
    VoteResult,
    average,
    divide_by_prior,
    log_mean,
    mean_prior,
    most_voted,
    permute_answers,
    permute_options,
    pride,
    pride_prior,
    softmax,
)
from pine_engine.debias.table import DEBIASERS, get_wrapper
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Answer, PrefillDone, PrefillProgress, RunFinished, RunResult
from pine_engine.engine.likelihood import Label, label_ids
from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Piece, Prompt
from tests.support.tokenizers import letter_tokenizer, sentencepiece_tokenizer

PREFIX = tuple(range(60, 73))
DOCUMENTS = ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35), (41,))
LAYOUT = TokenLayout(PREFIX, DOCUMENTS[:3], (51, 52, 53))

FLOAT32_KERNELS = 1e-5
"""Probabilities from the stock model's float32 logits of up to 10, whose sums run in another order."""


@pytest.fixture(scope="module")
def model(tiny_llama: Callable[..., LlamaForCausalLM]) -> LlamaForCausalLM:
    return tiny_llama(head_dim=32)


@pytest.fixture(scope="module")
def engine(model: LlamaForCausalLM) -> Engine:
    return Engine(model, letter_tokenizer())


def final(events: Iterator[Any]) -> Any:
    """The last event, which is the result."""
    return list(events)[-1]


def options(engine: Engine, prompt: Any = LAYOUT, kind: Any = "full", **changed: Any) -> OptionResult:
    orders = document_orders(3, kind)
    result = final(permute_options(engine, prompt, ["A", "B", "C"], orders=orders, **changed))
    assert isinstance(result, OptionResult)
    return result


# orders


def test_full_orders_are_lexicographic_and_cyclic_ones_rotate() -> None:
    assert document_orders(3, "full") == [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert document_orders(4, "cyclic") == [(0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2)]


@given(count=st.integers(1, 6), samples=st.integers(1, 30), seed=st.integers(0, 4))
def test_sampled_orders_are_distinct_as_many_as_asked_for_and_drawn_by_the_seed(
    count: int, samples: int, seed: int
) -> None:
    orders = document_orders(count, "sampled", samples=samples, seed=seed)
    assert len(orders) == len(set(orders)) == min(samples, math.factorial(count))
    assert all(sorted(order) == list(range(count)) for order in orders)
    assert orders == document_orders(count, "sampled", samples=samples, seed=seed)


def test_another_seed_draws_others_and_a_sample_need_not_hold_the_given_order() -> None:
    drawn = [document_orders(8, "sampled", seed=seed) for seed in range(3)]
    assert drawn[0] != drawn[1] != drawn[2] != drawn[0]
    assert all(tuple(range(8)) not in orders for orders in drawn)


@given(count=st.integers(1, 6))
def test_every_document_stands_at_every_place_equally_often(count: int) -> None:
    for orders in (document_orders(count, "full"), document_orders(count, "cyclic")):
        for place in zip(*orders, strict=True):
            assert [place.count(document) for document in range(count)] == [len(orders) // count] * count


def test_too_many_orders_are_refused_by_number_unless_the_limit_is_raised() -> None:
    assert len(document_orders(6, "full")) == 720
    with pytest.raises(InputError) as raised:
        document_orders(7, "full")
    assert str(raised.value) == (
        "all orders of 7 documents are 7! = 5040 runs, more than the limit of 720; run the 7 cyclic orders "
        "or sampled ones"
    )
    with pytest.raises(InputError, match=r"20! = 2\.433e\+18 runs"):
        document_orders(20, "full")
    assert len(document_orders(7, "full", max_orders=5040)) == 5040
    with pytest.raises(InputError, match="^the number of sampled orders is 0; give 1 or more$"):
        document_orders(3, "sampled", samples=0)


# averages of options


def test_averaging_by_hand() -> None:
    """Document 1 stands behind the second label first (0.3), then behind the first one (0.6)."""
    runs = [OptionRun((0, 1), (0.7, 0.3)), OptionRun((1, 0), (0.6, 0.4))]
    assert average(runs) == pytest.approx(((0.7 + 0.4) / 2, (0.3 + 0.6) / 2))
    result = OptionResult(tuple(runs), average(runs))
    assert result.answer == 0
    assert OptionResult((), (0.2, 0.4, 0.4)).answer == 1


@given(st.lists(st.floats(-60, 0), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_mean_of_probabilities_does_not_depend_on_their_order(logs: list[float], random: Any) -> None:
    mean = log_mean(logs)
    assert mean == pytest.approx(np.log(np.mean(np.exp(logs))), abs=1e-9)
    assert log_mean(logs[:1] * 5) == logs[0]
    random.shuffle(logs)
    assert log_mean(logs) == mean


def test_what_is_less_likely_than_any_number_tells_has_a_mean() -> None:
    assert log_mean([-np.inf, -np.inf]) == -np.inf
    assert log_mean([-np.inf, -3.0]) == pytest.approx(-3 - np.log(2))
    assert log_mean([-800.0, -801.0]) == pytest.approx(-800 + np.log((1 + np.exp(-1)) / 2))


def test_probabilities_of_several_tokens_are_told_apart() -> None:
    """Both are far below what the released code adds to their sum, which would call them equally unlikely."""
    assert softmax([-40.0, -41.0]) == pytest.approx((1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))))
    assert softmax([-900.0, 0.0]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("votes", "winners"),
    [
        (["b", "a", "b"], ["b"]),
        (["b", "a"], ["a", "b"]),
        ([None, "b", None], ["b"]),
        ([None, None], []),
        ([], []),
        ([2, 0, 2, 0, 1], [0, 2]),
    ],
)
def test_the_most_votes_win_and_ties_are_in_ascending_order(votes: list[Any], winners: list[Any]) -> None:
    for one in itertools.permutations(votes):
        assert most_voted(one) == winners


def test_observations_are_the_stock_models_probabilities_over_the_labels(
    tiny_llama: Callable[..., LlamaForCausalLM], engine: Engine
) -> None:
    stock = tiny_llama(head_dim=32)
    letters = letter_tokenizer().convert_tokens_to_ids(["A", "B", "C"])
    expected = np.zeros(3)
    result = options(engine)
    for run, order in zip(result.runs, itertools.permutations(range(3)), strict=True):
        with torch.no_grad():
            logits = stock(torch.tensor([LAYOUT.reorder(order).ids])).logits[0, -1].double()
        among = np.exp(logits.numpy() - logits.max().item())[letters]
        among /= among.sum()
        assert run.order == order
        np.testing.assert_allclose(run.observed, among, rtol=0, atol=FLOAT32_KERNELS)
        expected[list(order)] += among / 6
    np.testing.assert_allclose(result.probabilities, expected, rtol=0, atol=FLOAT32_KERNELS)
    assert result.answer == expected.argmax()


@pytest.mark.parametrize("base", ["vanilla", "nia"])
def test_full_averaging_is_invariant_to_the_last_bit(engine: Engine, base: str) -> None:
    reference = options(engine, base=base)
    for order in document_orders(3, "full"):
        shuffled = options(engine, LAYOUT.reorder(order), base=base)
        assert [reference.probabilities[document] for document in order] == list(shuffled.probabilities)
        assert order[shuffled.answer] == reference.answer


def test_one_order_and_other_rotations_are_seen_to_change(engine: Engine) -> None:
    """The controls: each document's own probability under another order of the given documents."""
    swapped = LAYOUT.reorder((1, 0, 2))
    alone = [
        final(permute_options(engine, layout, ["A", "B", "C"], orders=[(0, 1, 2)])).probabilities
        for layout in (LAYOUT, swapped)
    ]
    assert max(abs(alone[0][document] - alone[1][place]) for place, document in enumerate((1, 0, 2))) > 1e-3
    cyclic = [options(engine, layout, "cyclic").probabilities for layout in (LAYOUT, swapped)]
    assert max(abs(cyclic[0][d] - cyclic[1][place]) for place, d in enumerate((1, 0, 2))) > 1e-3
    rotated = options(engine, LAYOUT.reorder((1, 2, 0)), "cyclic").probabilities
    assert [cyclic[0][document] for document in (1, 2, 0)] == list(rotated)
    sampled = [
        final(
            permute_options(engine, layout, ["A", "B", "C"], orders=document_orders(3, "sampled", samples=2))
        ).probabilities
        for layout in (LAYOUT, swapped)
    ]
    assert max(abs(sampled[0][d] - sampled[1][place]) for place, d in enumerate((1, 0, 2))) > 1e-3


def test_an_invariant_base_still_prefers_places_and_the_average_does_not(engine: Engine) -> None:
    """PINE says the same of a place whatever stands there, so that documents that bear no label are equal."""
    result = options(engine, base="pine")
    assert len({run.observed for run in result.runs}) == 1
    assert len(set(result.runs[0].observed)) == 3
    assert result.probabilities == pytest.approx([1 / 3] * 3, abs=1e-7)


def test_a_prompt_built_for_each_order_keeps_its_labels_at_their_places(engine: Engine) -> None:
    texts = ["moon", "sun", "tide"]

    def build(order: Order) -> Prompt:
        documents = [f"{'ABC'[place]}. {texts[document]}\n" for place, document in enumerate(order)]
        return Prompt((Piece("Which? "),), tuple((Piece(text),) for text in documents), (Piece("Answer:"),))

    result = options(engine, build)
    for run in result.runs:
        layout = engine.tokenize(build(run.order))
        (alone,) = final(permute_options(engine, layout, ["A", "B", "C"], orders=[(0, 1, 2)])).runs
        assert run.observed == alone.observed
    moved = engine.tokenize(build((0, 1, 2)))
    assert options(engine, moved).probabilities != result.probabilities


def test_every_prompt_read_is_told_and_closing_stops(engine: Engine) -> None:
    orders = document_orders(3, "cyclic")
    events = list(permute_options(engine, LAYOUT, ["A", "B", "C"], orders=orders))
    kinds = [type(event) for event in events]
    assert kinds == [PrefillProgress, PrefillProgress, PrefillDone, OptionRun] * 3 + [OptionResult]
    assert [event.order for event in events if isinstance(event, OptionRun)] == orders

    layers: list[None] = []
    hook = (
        engine.patched_models[0].network.model.layers[0].register_forward_hook(lambda *_: layers.append(None))
    )
    stream = permute_options(engine, LAYOUT, ["A", "B", "C"], orders=document_orders(3, "full") * 50)
    next(event for event in stream if isinstance(event, OptionRun))
    stream.close()
    hook.remove()
    assert 0 < len(layers) < 300


# labels


def test_a_label_stands_for_itself_with_and_without_a_blank(engine: Engine) -> None:
    a, b, blank = map(letter_tokenizer().convert_tokens_to_ids, ("A", "B", " "))
    assert label_ids(engine, ["A", ["B", " "]]) == ((a,), (b, blank))
    tokenizer = sentencepiece_tokenizer("prepend")
    with_blank = label_ids(Engine(engine.model, tokenizer), ["a", "b"])
    assert [tokenizer.convert_ids_to_tokens(list(ids)) for ids in with_blank] == [["a", "▁a"], ["b"]]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["A", "Bo"], "the label 'Bo' has 2 tokens; give labels of one token, such as A and B"),
        (["A", ["B", " B"]], "the label ' B' has 2 tokens; give labels of one token, such as A and B"),
        (["A", ""], "a label is empty; give labels of one token, such as A and B"),
        (["A", ["B", "A"]], "the labels 'A' and 'B' are the same token; give labels that differ"),
    ],
)
def test_labels_that_cannot_be_told_apart_by_one_token_are_refused(
    engine: Engine, labels: list[Label], sentence: str
) -> None:
    with pytest.raises(InputError) as raised:
        permute_options(engine, LAYOUT, labels, orders=[(0, 1)])
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("orders", "sentence"),
    [
        ([], "no order was chosen; give at least one order of the documents"),
        ([(0, 1, 2)], "the order [0, 1, 2] is not one of 2 documents; give each number from 0 to 1 once, "
         "and one label per document"),
        ([(0, 1)], "order [0, 1] is not a permutation of 3 documents"),
    ],
)  # fmt: skip
def test_orders_that_do_not_fit_are_refused(engine: Engine, orders: list[Order], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        list(permute_options(engine, LAYOUT, ["A", "B"], orders=orders))
    assert str(raised.value) == sentence


# PriDe


def test_prior_by_hand() -> None:
    """Two labels, two orders: the logs' means are ln 0.4 and ln 0.2 = ln(2/3) and ln(1/3) but for a sum."""
    assert pride_prior([(0.8, 0.2), (0.2, 0.2)]) == pytest.approx((2 / 3, 1 / 3), abs=1e-8)
    assert mean_prior([(0.75, 0.25), (0.25, 0.75), (0.5, 0.5), (0.1, 0.9)]) == pytest.approx((0.4, 0.6))
    # 0.5 / 0.8 against 0.5 / 0.2 is one against four.
    assert divide_by_prior((0.5, 0.5), (0.8, 0.2)) == pytest.approx((0.2, 0.8), abs=1e-8)
    assert divide_by_prior((1.0, 0.0), (0.5, 0.5)) == pytest.approx((1.0, 0.0), abs=1e-8)


@given(count=st.integers(1, 300), seed=st.integers(0, 3))
def test_a_twentieth_of_the_samples_is_learnt_from_and_at_least_one(count: int, seed: int) -> None:
    chosen = pride_samples(count, seed=seed)
    assert len(chosen) == len(set(chosen)) == max(1, count * 5 // 100)
    assert set(chosen) <= set(range(count))
    assert chosen == pride_samples(count, seed=seed)


def test_samples_to_learn_from_are_refused_where_there_are_none() -> None:
    assert pride_samples(300, seed=0) != pride_samples(300, seed=1)
    with pytest.raises(InputError, match="^there are no samples; give at least one prompt$"):
        pride_samples(0)
    with pytest.raises(InputError, match=r"^the fraction of the samples to learn from is 1\.5; give 0 to 1$"):
        pride_samples(4, 1.5)


def test_pride_learns_on_some_samples_and_divides_on_the_others(engine: Engine) -> None:
    layouts = [
        TokenLayout(PREFIX, documents, (51, 52, 53))
        for documents in itertools.permutations(DOCUMENTS, 3)
        if documents[0] < documents[1]
    ]
    orders = document_orders(3, "cyclic")
    events = list(pride(engine, layouts, ["A", "B", "C"], orders=orders, fraction=0.25, seed=3))
    result = events[-1]
    assert isinstance(result, PrideResult)
    assert result.learnt_from == pride_samples(12, 0.25, 3) and len(result.learnt_from) == 3
    assert sum(isinstance(event, PrefillDone) for event in events) == 3 * 3 + 9

    observed = {
        index: np.array([run.observed for run in options(engine, layouts[index], "cyclic").runs])
        for index in range(12)
    }
    logs = [np.log(observed[index] + 1e-10).mean(0) for index in result.learnt_from]
    prior = np.mean([np.exp(row) / np.exp(row).sum() for row in logs], axis=0)
    np.testing.assert_allclose(result.prior, prior, rtol=1e-12)
    for index, (layout, one) in enumerate(zip(layouts, result.results, strict=True)):
        if index in result.learnt_from:
            assert one.probabilities == options(engine, layout, "cyclic").probabilities
            continue
        scores = np.log(observed[index][0] + 1e-10) - np.log(prior + 1e-10)
        assert one.answer == scores.argmax()
        np.testing.assert_allclose(one.probabilities, np.exp(scores) / np.exp(scores).sum(), rtol=1e-12)


# votes


class Scripted:
    """An engine whose answer is looked up by the documents in their order."""

    def __init__(self, answers: dict[tuple[int, ...], str]) -> None:
        self.answers = answers

    def tokenize(self, layout: TokenLayout) -> TokenLayout:
        return layout

    def generate(
        self, layout: TokenLayout, *, methods: Sequence[str], max_new_tokens: int
    ) -> Generator[RunFinished, None, None]:
        text = self.answers[tuple(ids[0] for ids in layout.documents)]
        answer = Answer(methods[0], text, (), (), 0.0, 0.0, "length")
        yield RunFinished(RunResult(layout, {methods[0]: answer}, {}))


def vote(answers: dict[tuple[int, ...], str]) -> VoteResult:
    engine: Any = Scripted(answers)
    documents = len(next(iter(answers)))
    layout = TokenLayout((1,), tuple((10 + index,) for index in range(documents)), (2,))
    orders = [tuple(first - 10 for first in order) for order in answers]
    result = final(permute_answers(engine, layout, {"A": 0, "B": 1, "Z": 25, "?": -1}.get, orders=orders))
    assert isinstance(result, VoteResult)
    return result


def test_answers_vote_for_what_stood_at_the_place_they_name() -> None:
    """B means document 1, then document 2, then document 2 again; Z and -1 name no place, x nothing."""
    result = vote(
        {(10, 11, 12): "B", (11, 12, 10): "B", (12, 11, 10): "A", (10, 12, 11): "x", (11, 10, 12): "Z",
         (12, 10, 11): "?"}
    )  # fmt: skip
    assert [run.document for run in result.runs] == [1, 2, 2, None, None, None]
    assert (result.votes, result.winners) == ((0, 1, 2), (2,))


def test_two_documents_and_two_opinions_are_a_tie_and_no_vote_is_none() -> None:
    assert vote({(10, 11): "A", (11, 10): "A"}).winners == (0, 1)
    assert vote({(10, 11): "A", (11, 10): "B"}).winners == (0,)
    assert vote({(10, 11): "x", (11, 10): "x"}).winners == ()


def test_generated_answers_vote_the_same_in_every_given_order(engine: Engine) -> None:
    def parse(text: str) -> int:
        return len(text.replace("a", "")) % 3 + sum(map(ord, text)) % 2 - 1

    orders = document_orders(3, "full")
    results = [
        final(permute_answers(engine, LAYOUT.reorder(order), parse, orders=orders, max_new_tokens=3))
        for order in orders
    ]
    assert sum(results[0].votes) > 0
    for order, result in zip(orders, results, strict=True):
        assert [results[0].votes[document] for document in order] == list(result.votes)
    texts = {run.order: run.answer.text for run in results[0].runs}
    alone = engine.run(LAYOUT.reorder((1, 0, 2)), methods=["vanilla"], max_new_tokens=3)
    assert texts[1, 0, 2] == alone.answers["vanilla"].text
    assert len(set(texts.values())) > 1


def test_a_vote_needs_an_order_and_a_method(engine: Engine) -> None:
    with pytest.raises(InputError, match="^no order was chosen"):
        list(permute_answers(engine, LAYOUT, int, orders=[]))
    with pytest.raises(InputError, match="^unknown method 'magic'"):
        list(permute_answers(engine, LAYOUT, int, orders=[(0, 1, 2)], base="magic"))
    runs = [
        event
        for event in permute_answers(engine, LAYOUT, lambda _: 0, orders=[(2, 0, 1)], max_new_tokens=1)
        if isinstance(event, AnswerRun)
    ]
    assert [(run.order, run.document) for run in runs] == [((2, 0, 1), 2)]


# the table


def test_an_unknown_wrapper_is_refused() -> None:
    assert get_wrapper("pride") is DEBIASERS["pride"]
    with pytest.raises(InputError) as raised:
        get_wrapper("magic")
    assert str(raised.value) == (
        "unknown wrapper 'magic'; choose from: permutation_full, permutation_cyclic, permutation_sampled, "
        "pride, calibration_labels, calibration_first, calibration_every"
    )


@pytest.mark.parametrize("wrapper", DEBIASERS.values(), ids=lambda wrapper: wrapper.name)
def test_every_row_says_what_it_does_promises_costs_and_where_it_comes_from(wrapper: Any) -> None:
    assert wrapper.description.endswith(".") and wrapper.description[0].isupper()
    assert wrapper.invariance.startswith(("yes", "no", "only"))
    assert "base method" in wrapper.cost
    assert len(wrapper.source) > 10
    # Either the order of the documents changes or their content does.
    assert (wrapper.orders is None) == (wrapper.calibrated != "nothing")
