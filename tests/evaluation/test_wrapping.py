"""Wrapped methods measured on a tiny model: what their records say follows from those of the method alone."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.debias.calibration import content_free_prompts, generate_calibrated
from pine_engine.debias.measured import measured_method
from pine_engine.debias.orders import document_orders
from pine_engine.debias.plan import plan_debias
from pine_engine.debias.run import DebiasResult, run_debias
from pine_engine.debias.table import DEBIASERS
from pine_engine.engine import generation, passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import PrefillProgress, RunFinished
from pine_engine.errors import Cancelled, InputError
from pine_engine.evaluation import measure as measuring
from pine_engine.evaluation import prefilling
from pine_engine.evaluation import priors as learning
from pine_engine.evaluation.combining import MethodOutput, combine
from pine_engine.evaluation.document_orders import DocumentOrder, arrange
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.measure import Measurement, measure
from pine_engine.evaluation.priors import is_learnt_from, known_priors
from pine_engine.evaluation.records import Key, Record
from pine_engine.evaluation.settings import choose
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.request import LabeledRequest
from pine_engine.prompts.scoring import normalize_answer, parse_verdict
from pine_engine.prompts.tasks import TASKS
from tests.support import measured_rows
from tests.support.measured_rows import PAIR, TIMES
from tests.support.tokenizers import letter_tokenizer

ROUNDING = 1e-9
"""Float64 logarithms of means of up to 24 probabilities."""

QUESTION = measured_rows.QUESTION.model_copy(update={"documents": measured_rows.QUESTION.documents[:3]})
SWAPS = ["as-is", "swapped", "segments-swapped", "labels-swapped"]


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(max_context_length=900, head_dim=32), letter_tokenizer())


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads a verdict, or none, in whatever a random model writes, and few different answers to questions."""

    def read(text: str) -> str | None:
        return parse_verdict(text) or [None, "A", "B", "A", "B"][sum(map(ord, text)) % 5]

    def score(text: str, answers: Sequence[str]) -> float:
        return 0.5 if read(text) is None else float(read(text) in answers)

    def few(text: str) -> str:
        return "uvw"[sum(map(ord, normalize_answer(text))) % 3]

    monkeypatch.setitem(TASKS, "judge_pair", replace(TASKS["judge_pair"], parse=read, score=score))
    monkeypatch.setitem(TASKS, "retrieval_qa", replace(TASKS["retrieval_qa"], normalize=few))


def records(engine: Engine, examples: Sequence[Example], **options: Any) -> dict[Key, Record]:
    options = {"max_new_tokens": 6, **options}
    found = [item for item in measure(engine, examples, **options) if isinstance(item, Record)]
    assert len({record.key for record in found}) == len(found)
    assert [record.error for record in found if record.error] == []
    return {record.key: record for record in found}


def outcome(record: Record, *left_out: str) -> dict[str, Any]:
    """All of a record but the times and what else is named."""
    return record.model_dump(exclude={*TIMES, *left_out})


def pairs(count: int) -> list[Example]:
    """Pairs to judge, some of which are learnt from wherever they stand."""
    texts = ["Me.", "You, or he.", "Nobody at all.", "She.", "The moon?", "It is 3.", "Yes."]
    return [
        PAIR.model_copy(
            update={
                "id": f"p{number}",
                "question": f"Who is number {number}?",
                "documents": [
                    replace(PAIR.documents[0], text=texts[number % 7]),
                    replace(PAIR.documents[1], text=texts[(3 * number + 1) % 5] + "!"),
                ],
            }
        )
        for number in range(count)
    ]


@pytest.fixture
def prefills(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which method has read a prompt, in order; the prefix is read as a prompt of vanilla's."""
    made: list[str] = []
    prefill = passes.prefill

    def read(patched_models: Any, layout: Any, method: Any, **options: Any) -> Any:
        made.append(method.name)
        return prefill(patched_models, layout, method, **options)

    monkeypatch.setattr(passes, "prefill", read)
    return made


# permutation: the same as combining the records of the method alone


def likely(logprobs: Mapping[str, float] | None) -> list[float]:
    """Probabilities in sum 1, in the order of the choices."""
    assert logprobs is not None
    weights = np.exp(list(logprobs.values()))
    return [float(weight) for weight in weights / weights.sum()]


@pytest.mark.usefixtures("talkative")
@pytest.mark.parametrize("base", ["vanilla", "nia", "pcw", "pine"])
def test_a_permuted_judge_says_what_its_own_records_say_together(engine: Engine, base: str) -> None:
    """Eight pairs: unanimous, split and unreadable verdicts are all among them."""
    examples = pairs(8)
    alone = records(engine, examples, methods=[base], order_names=["all"])
    name = f"permutation_full:{base}"
    wrapped = records(engine, examples, methods=[name], order_names=SWAPS)
    kinds: Counter[Any] = Counter()
    for example in examples:
        runs = [alone[example.id, base, f"order:{order}"] for order in ("0-1", "1-0")]
        # Of each run: the stored answer that its verdict names, and how likely each stored answer is.
        named = [None if run.parsed is None else run.entered["AB".index(run.parsed)] for run in runs]
        chosen = [[likely(run.choice_logprobs)[run.entered.index(d)] for d in (0, 1)] for run in runs]
        votes = Counter(document for document in named if document is not None)
        for swap in SWAPS:
            record = wrapped[example.id, name, swap]
            letters = {document: "AB"[record.entered.index(document)] for document in (0, 1)}
            mean = {letters[d]: np.log((chosen[0][d] + chosen[1][d]) / 2) for d in (0, 1)}
            assert record.choice_logprobs == pytest.approx(
                {"[[A]]": mean["A"], "[[B]]": mean["B"]}, abs=ROUNDING
            )
            assert record.choice_score == float(mean[letters[1]] > mean[letters[0]])
            accepted = [run.answer_logprob for run in runs]
            assert record.answer_logprob == pytest.approx(
                np.log(np.mean(np.exp(np.array(accepted, dtype=float)))), abs=ROUNDING
            )
            assert record.answers == (letters[1],)
            assert record.text in [run.text for run in runs]
            top = [document for document, count in votes.items() if count == max(votes.values())]
            if len(top) == 1:
                assert (record.parsed, record.score) == (letters[top[0]], float(top[0] == 1))
                voters = [run for run, document in zip(runs, named, strict=True) if document == top[0]]
                assert record.text in [run.text for run in voters]
                if len(voters) == 2:  # one of them calls the winner as this order_name does
                    read = TASKS["judge_pair"].parse
                    assert read(record.text or "") == record.parsed
            else:
                assert (record.parsed, record.score) == ("tie" if top else None, 0.5)
            kinds["tie" if len(top) == 2 else len(votes)] += 1
            assert (record.prompts, record.prompt_tokens) == (2, sum(run.prompt_tokens for run in runs))
            assert record.answer_tokens == sum(run.answer_tokens or 0 for run in runs)
    assert kinds["tie"] and kinds[1]


@pytest.mark.usefixtures("talkative")
@pytest.mark.parametrize("base", ["vanilla", "pcw"])
@pytest.mark.parametrize("kind", ["full", "cyclic", "sampled"])
def test_permuted_answers_are_the_majority_and_log_probabilities_those_of_the_mean(
    engine: Engine, base: str, kind: Any
) -> None:
    alone = records(engine, [QUESTION], methods=[base], order_names=["all"])
    name = f"permutation_{kind}:{base}"
    order_names = ["as-is", "reversed", "order:1-2-0"]
    wrapped = records(engine, [QUESTION], methods=[name], order_names=order_names)
    same = TASKS["retrieval_qa"].normalize
    for order_name in order_names:
        given = arrange(QUESTION, order_name).slots
        orders = [tuple(given[place] for place in order) for order in document_orders(3, kind)]
        runs = [alone["q", base, "order:" + "-".join(map(str, order))] for order in orders]
        record = wrapped["q", name, order_name]
        votes = Counter(same(run.parsed) for run in runs if run.parsed is not None)
        winner = min(answer for answer, count in votes.items() if count == max(votes.values()))
        kept = min(
            (order, run) for order, run in zip(orders, runs, strict=True) if same(run.parsed or "") == winner
        )[1]
        assert (record.text, record.parsed, record.score) == (kept.text, kept.parsed, kept.score)
        total = sum(np.exp(run.answer_logprob or 0) for run in runs)
        assert record.answer_logprob == pytest.approx(np.log(total / len(runs)), abs=ROUNDING)
        assert (record.choice_logprobs, record.choice_score, record.prior) == (None, None, None)
        assert record.prompts == len(runs) == (3 if kind == "cyclic" else 6)
        assert record.gold_slot == given.index(1)


def said(text: str, letters: str = "AB") -> MethodOutput:
    """A run of a judge in which the stored answers bear these letters."""
    entered = tuple("AB".index(letter) for letter in letters)
    return MethodOutput(
        DocumentOrder("", entered, (0, 1)), tuple("B" if letters == "AB" else "A"), text, None, None
    )


@pytest.mark.parametrize(
    ("texts", "as_is", "swapped"),
    [
        # The better answer is the stored B, and bears A in the second run.
        (["[[B]] 1", "[[A]] 2"], ("[[B]] 1", "B", 1.0), ("[[A]] 2", "A", 1.0)),
        (["[[A]] 1", "[[B]] 2"], ("[[A]] 1", "A", 0.0), ("[[B]] 2", "B", 0.0)),
        (["[[A]] 1", "[[A]] 2"], ("[[A]] 1", "tie", 0.5), ("[[A]] 1", "tie", 0.5)),
        (["so?", "[[A]] 2"], ("[[A]] 2", "B", 1.0), ("[[A]] 2", "A", 1.0)),
        (["so?", "well"], ("so?", None, 0.5), ("so?", None, 0.5)),
    ],
)
def test_verdicts_are_counted_by_the_answer_that_they_mean(
    texts: list[str], as_is: tuple[object, ...], swapped: tuple[object, ...]
) -> None:
    runs = [said(texts[0]), said(texts[1], "BA")]
    for name, expected in (("as-is", as_is), ("swapped", swapped)):
        found = combine(measured_method("permutation_full"), PAIR, runs, arrange(PAIR, name))
        assert tuple(found[field] for field in ("text", "parsed", "score")) == expected


@pytest.mark.parametrize(
    ("task", "answers", "texts", "kept", "score"),
    [
        ("math_reasoning", ["72.5"], ["Answer: 7", "Answer: 72.50", "Answer: 72.5", "none"], 1, 1.0),
        ("math_reasoning", ["9"], ["Answer: 9", "Answer: 10"], 1, 0.0),  # "10" comes before "9"
        ("math_reasoning", ["9"], ["nine", "ten"], 0, 0.0),
        ("retrieval_qa", ["Rome"], ["In Oslo.", "The Rome!", "rome"], 1, 1.0),
        ("kv_retrieval", ["ab-1"], ['"zz"', '"AB-1",', "ab-1"], 1, 1.0),
        ("qm9", ["CCO"], ["CCO x", "C", "CCO"], 0, 1.0),
    ],
)
def test_votes_are_counted_as_the_task_counts_answers(
    task: str, answers: list[str], texts: list[str], kept: int, score: float
) -> None:
    example = Example(
        id="x",
        task=task,
        question="?",
        documents=[Document(text=text) for text in texts],
        answers=answers,
    )
    as_is = arrange(example, "as-is")
    runs = [MethodOutput(as_is, tuple(answers), text, None, None) for text in texts]
    found = combine(measured_method("permutation_cyclic:pine"), example, runs, as_is)
    parsed = TASKS[task].parse(texts[kept])
    assert (found["text"], found["parsed"], found["score"]) == (texts[kept], parsed, score)
    silent = [replace(run, answers=()) for run in runs]
    assert combine(measured_method("permutation_cyclic"), example, silent, as_is)["score"] is None


# what it promises


@pytest.mark.usefixtures("talkative")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("base", ["vanilla", "pine_input_order", "pcw"])
def test_full_permutation_says_the_same_in_every_arrangement(
    tiny_llama: Callable[..., LlamaForCausalLM], dtype: torch.dtype, base: str
) -> None:
    """To the last bit, and computed again for each order_name."""
    engine = Engine(tiny_llama(max_context_length=900, head_dim=32, dtype=dtype), letter_tokenizer())
    name = f"permutation_full:{base}"
    options: dict[str, Any] = {"methods": [name], "recompute": True}
    of_question = records(engine, [QUESTION], **options, order_names=["all"])
    assert all(record.computed for record in of_question.values()) and len(of_question) == 6
    assert len({(record.text, record.parsed, record.answer_logprob) for record in of_question.values()}) == 1
    of_pair = records(engine, [PAIR], **options, order_names=SWAPS)
    meant = set()
    for record in of_pair.values():
        by_document = {document: f"[[{'AB'[record.entered.index(document)]}]]" for document in (0, 1)}
        assert record.choice_logprobs is not None
        weighed = tuple(record.choice_logprobs[by_document[document]] for document in (0, 1))
        verdict = next((d for d in (0, 1) if by_document[d] == f"[[{record.parsed}]]"), record.parsed)
        meant.add((weighed, verdict, record.score, record.choice_score, record.answer_logprob))
    assert len(meant) == 1
    once = records(engine, [PAIR, QUESTION], methods=[name], order_names=["as-is", "reversed"])
    assert [record.computed for record in once.values()] == [True, False] * 2
    for key, record in once.items():
        if record.example == "p" and key[2] == "as-is":
            assert outcome(record) == outcome(of_pair[key])


def test_what_is_not_promised_is_seen_to_change(engine: Engine) -> None:
    """The controls; rotations of the same order visit the same orders, and need not be computed again."""
    order_names = ["order:0-1-2", "order:1-2-0", "order:2-1-0"]
    names = ["permutation_cyclic:nia", "permutation_sampled:nia", "calibration_every:nia"]
    found = records(engine, [QUESTION], methods=["nia", *names[:1]], order_names=order_names)
    values = [found["q", "permutation_cyclic:nia", name].answer_logprob for name in order_names]
    assert values[0] == values[1] != values[2]
    assert [found["q", "permutation_cyclic:nia", name].computed for name in order_names] == [
        True, False, True
    ]  # fmt: skip
    several = QUESTION.model_copy(update={"documents": [*QUESTION.documents, PAIR.documents[0]]})
    found = records(engine, [several], methods=names[1:], order_names=["as-is", "reversed"])
    by_name = {name: [found["q", name, order] for order in ("as-is", "reversed")] for name in names[1:]}
    sampled, calibrated = by_name.values()
    assert sampled[0].answer_logprob != sampled[1].answer_logprob
    assert sampled[0].prompts == sampled[1].prompts == 10
    assert calibrated[0].text != calibrated[1].text and calibrated[1].computed


def test_around_an_invariant_method_all_orders_are_one(engine: Engine, prefills: list[str]) -> None:
    """Its prompts are counted, and its times told, as if each order were read."""
    names = ["pine", "permutation_full:pine", "permutation_cyclic:pine", "calibration_every:pine"]
    found = records(engine, [QUESTION], methods=names, order_names=["as-is", "reversed"])
    assert prefills.count("pine") == 4
    alone = found["q", "pine", "as-is"]
    for name, prompts in (("permutation_full:pine", 6), ("permutation_cyclic:pine", 3)):
        record = found["q", name, "as-is"]
        assert (record.answer_logprob, record.text) == (alone.answer_logprob, alone.text)
        assert record.prompts == prompts
        assert record.prefill_s == pytest.approx(prompts * alone.prefill_s)
        assert record.decode_s == pytest.approx(prompts * alone.decode_s)
    assert not found["q", "calibration_every:pine", "reversed"].computed


# calibration


def layouts(engine: Engine, example: Example, name: str) -> list[TokenLayout]:
    """The prompt of an order_name, and the same without content."""
    order_name = arrange(example, name)
    comparison = order_name.comparison(example)

    def build(texts: Sequence[str]) -> Any:
        documents = [
            replace(given, text=text) for given, text in zip(comparison.documents, texts, strict=True)
        ]
        return comparison.model_copy(update={"documents": documents}).prompt(engine)

    prompts = [comparison.prompt(engine), *content_free_prompts(build, len(comparison.documents))]
    return [engine.tokenize(prompt).reorder(order_name.order) for prompt in prompts]


@pytest.mark.parametrize("example", [QUESTION, PAIR], ids=["question", "pair"])
def test_calibrated_answers_are_those_of_the_library(engine: Engine, example: Example) -> None:
    bases, order_names = ["vanilla", "pine", "nia"], ["as-is", "reversed"]
    names = [f"calibration_{steps}:{base}" for steps in ("first", "every") for base in bases]
    found = records(engine, [example], methods=[*bases, *names], order_names=order_names)
    task, texts = TASKS[example.task], set()
    for name, order_name in product(names, order_names):
        record = found[example.id, name, order_name]
        method = measured_method(name)
        assert method.wrapper is not None and method.wrapper.steps is not None
        base = method.base.name
        own, *free = layouts(engine, example, order_name)
        *_, done = generate_calibrated(
            engine, own, content_free=free, base=base, steps=method.wrapper.steps, max_new_tokens=6
        )
        assert isinstance(done, RunFinished)
        assert record.text == done.result.answers[base].text
        assert record.parsed == task.parse(record.text)
        assert record.score == task.score(record.text, record.answers)
        assert (record.prompts, record.answer_logprob, record.choice_logprobs) == (4, None, None)
        assert record.prompt_tokens == sum(layout.num_tokens for layout in (own, *free))
        texts |= {record.text, found[example.id, base, order_name].text}
    assert len(texts) > 6


@pytest.mark.parametrize("base", ["vanilla", "pine"])
def test_calibrated_choices_are_divided_by_those_without_content(engine: Engine, base: str) -> None:
    name = f"calibration_labels:{base}"
    found = records(engine, [PAIR], methods=[base, name], order_names=SWAPS)
    for order_name in SWAPS:
        scores = [
            [score.total for score in engine.score(layout, ["[[A]]", "[[B]]"], methods=[base])[base]]
            for layout in layouts(engine, PAIR, order_name)
        ]
        own, *free = np.exp(scores)
        mean = np.mean(free, axis=0)
        corrected = (own / own.sum()) / (mean / mean.sum())
        record = found["p", name, order_name]
        assert likely(record.choice_logprobs) == pytest.approx(corrected / corrected.sum(), rel=1e-4)
        assert sum(np.exp(list((record.choice_logprobs or {}).values()))) == pytest.approx(1)
        accepted = "AB".index(record.answers[0])
        assert record.choice_score == float(corrected[accepted] == corrected.max())
        assert (record.text, record.score, record.answer_logprob, record.prompts) == (None, None, None, 4)
    plain = found["p", base, "as-is"].choice_logprobs
    assert likely(plain) != pytest.approx(likely(found["p", name, "as-is"].choice_logprobs), abs=1e-3)


# PriDe


def test_a_prior_is_learnt_from_the_first_row_and_those_that_are_drawn(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Worked from the records of vanilla: rows 0, 3 and 4 are learnt from, all others divided."""
    monkeypatch.setattr(learning, "is_learnt_from", {"p3", "p4"}.__contains__)
    rows = pairs(7)
    alone = records(engine, rows, methods=["vanilla"], order_names=["as-is", "swapped"], generate=False)
    options: dict[str, Any] = {"methods": ["pride"], "order_names": ["as-is", "swapped"], "generate": False}
    found = records(engine, rows, **options)
    learnt: list[np.ndarray] = []
    for index, row in enumerate(rows):
        both = [
            np.array(likely(alone[row.id, "vanilla", name].choice_logprobs)) for name in ("as-is", "swapped")
        ]
        of_both = np.exp(np.mean(np.log(np.array(both) + 1e-10), axis=0))
        if index in (0, 3, 4):
            learnt.append(of_both / of_both.sum())
        for place, name in enumerate(("as-is", "swapped")):
            record = found[row.id, "pride:vanilla", name]
            assert record.prior is not None and list(record.prior) == ["[[A]]", "[[B]]"]
            if index in (0, 3, 4):
                # Place A has the stored answer 0 in one order and answer 1 in the other.
                expected = (both[place] + both[1 - place][::-1]) / 2
                assert list(record.prior.values()) == pytest.approx(learnt[-1], abs=ROUNDING)
            else:
                prior = np.mean(learnt, axis=0)
                divided = (both[place] + 1e-10) / (prior + 1e-10)
                expected = divided / divided.sum()
                assert list(record.prior.values()) == pytest.approx(prior, abs=ROUNDING)
            assert likely(record.choice_logprobs) == pytest.approx(expected, abs=ROUNDING)
            assert record.prompts == (2 if index in (0, 3, 4) else 1)
            assert (record.text, record.answer_logprob) == (None, None)
            assert record.computed == (index not in (0, 3, 4) or name == "as-is")


def test_about_a_twentieth_of_rows_are_learnt_from_by_their_ids_alone() -> None:
    chosen = [number for number in range(20_000) if is_learnt_from(f"row {number}")]
    assert 900 < len(chosen) < 1100
    assert len({number % 10 for number in chosen}) == 10


def test_a_prior_is_the_same_however_the_run_is_cut(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, prefills: list[str]
) -> None:
    """Grown by a larger limit, dealt out to three processes, and killed after any record."""
    monkeypatch.setattr(learning, "is_learnt_from", {"p2", "p5"}.__contains__)
    rows = pairs(7)
    settings = choose(rows, methods=["pride:pine"], order_names=["as-is", "swapped"], generate=False)

    def work(
        own: Sequence[Example], found: Sequence[Record] = (), of: Sequence[Example] = rows
    ) -> dict[Key, Record]:
        made: list[Record] = []
        done = {record.key for record in found}
        prefills.clear()
        Measurement(engine, own, settings, done, of, known_priors(found)).work(
            lambda item: made.append(item) if isinstance(item, Record) else None, threading.Event()
        )
        return {record.key: record for record in made}

    whole = work(rows)
    reading_all = len(prefills)
    expected = {key: outcome(record, "computed") for key, record in whole.items()}
    few = work(rows[:3], of=rows[:3])
    grown = few | work(rows, list(few.values()))
    assert len(prefills) == reading_all - 9  # of each row a prefix, and both orders
    shares = [work(rows[index::3]) for index in range(3)]
    dealt = {key: record for share in shares for key, record in share.items()}
    for made in (grown, dealt):
        assert {key: outcome(record, "computed") for key, record in made.items()} == expected
    for cut in range(len(whole)):
        found = list(whole.values())[:cut]
        rest = work(rows, found)
        assert rest.keys() == whole.keys() - {record.key for record in found}
        assert all(outcome(record, "computed") == expected[key] for key, record in rest.items())
    for cut in range(0, len(whole), 3):  # in another process nobody knows what the first one has learnt
        rest = work(rows[3:], list(whole.values())[cut:])
        assert all(outcome(record, "computed") == expected[key] for key, record in rest.items())


def test_nothing_is_learnt_from_a_row_that_cannot_be_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "is_learnt_from", {"p1", "p2"}.__contains__)
    rows = pairs(5)
    long = replace(PAIR.documents[0], text="You, or he. " * 60)
    for index in (0, 2):
        rows[index] = rows[index].model_copy(update={"documents": [rows[index].documents[0], long]})
    settings: dict[str, Any] = {"methods": ["pride"], "generate": False}
    found = {item.example: item for item in measure(engine, rows, **settings) if isinstance(item, Record)}
    assert [record.error is not None for record in found.values()] == [True, False, True, False, False]
    assert [record.prompts for record in found.values() if not record.error] == [2, 1, 1]
    assert found["p4"].prior == found["p1"].prior


# computed once


def test_orders_that_are_measured_anyway_are_lent(engine: Engine, prefills: list[str]) -> None:
    """So are prompts without content, which are the same in both orders, and are continued twice."""
    options: dict[str, Any] = {"order_names": ["as-is", "swapped"]}
    records(engine, [PAIR], methods=["vanilla"], **options)
    assert len(prefills) == 1 + 2
    prefills.clear()
    records(engine, [PAIR], methods=["vanilla", "permutation_full", "pride"], **options)
    assert len(prefills) == 1 + 2
    prefills.clear()
    records(engine, [PAIR], methods=["vanilla", *CALIBRATED], **options)
    assert len(prefills) == 1 + 2 + 3
    prefills.clear()
    records(engine, [PAIR], methods=["vanilla", *CALIBRATED], **options, recompute=True)
    assert len(prefills) == 1 + 2 + 6


CALIBRATED = ["calibration_labels", "calibration_first", "calibration_every"]

EVERYTHING = ["vanilla", "pine", *DEBIASERS, *(f"{name}:pine" for name in DEBIASERS), "permutation_full:pcw"]


@pytest.fixture(scope="module")
def everything(engine: Engine) -> dict[Key, Record]:
    return records(engine, pairs(2), methods=EVERYTHING, order_names=SWAPS)


def test_a_wrapped_record_does_not_depend_on_what_is_measured_beside_it(
    engine: Engine, everything: dict[Key, Record]
) -> None:
    for name in EVERYTHING[2:]:
        alone = records(engine, pairs(2), methods=[name], order_names=["swapped"])
        for key, record in alone.items():
            assert outcome(record, "computed") == outcome(everything[key], "computed")


def test_what_is_done_is_not_done_again(engine: Engine, everything: dict[Key, Record]) -> None:
    for modulo in (2, 3, 5):
        done = {key for index, key in enumerate(everything) if index % modulo}
        rest = records(engine, pairs(2), methods=EVERYTHING, order_names=SWAPS, done=done)
        assert rest.keys() == everything.keys() - done
        for key, record in rest.items():
            assert outcome(record, "computed") == outcome(everything[key], "computed")


def test_computing_again_changes_no_bit(engine: Engine, everything: dict[Key, Record]) -> None:
    again = records(engine, pairs(2), methods=EVERYTHING, order_names=SWAPS, recompute=True)
    assert all(record.computed for record in again.values())
    for key, record in again.items():
        assert outcome(record, "computed") == outcome(everything[key], "computed")


# time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is timed takes a second."""
    ticks = iter(range(10_000))
    for module in (prefilling, measuring, generation):
        monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(ticks)))


@pytest.mark.usefixtures("clock")
def test_seconds_add_up_and_prompts_are_told_as_if_nothing_were_lent(engine: Engine) -> None:
    found = records(
        engine, [PAIR], methods=["vanilla", "permutation_full", "calibration_labels"], generate=False
    )
    vanilla, permutation, calibration = found.values()
    # The prefix, five prompts (as-is, swapped and three without content), and the scoring of each.
    assert sum(record.seconds for record in found.values()) == pytest.approx(1 + 5 + 5)
    assert [record.prefill_s for record in found.values()] == [2, 4, 8]
    assert [record.prompts for record in found.values()] == [1, 2, 4]
    own = 1 / 5 + 1 + 1
    assert vanilla.seconds == pytest.approx(own / 3)
    assert permutation.seconds == pytest.approx(own / 3 + own)
    assert calibration.seconds == pytest.approx(own / 3 + 3 * own)


@pytest.mark.usefixtures("clock")
def test_the_seconds_of_writing_are_shared_by_rows(engine: Engine) -> None:
    """Six tokens take five steps. Vanilla's answer has a row, permutation adds one, and calibration four."""
    names = ["vanilla", "permutation_full", "calibration_every"]
    found = records(engine, [PAIR], methods=names, logprobs=False)
    vanilla, permutation, calibration = found.values()
    assert (vanilla.decode_s, permutation.decode_s) == pytest.approx((5 / 6, 10 / 6))
    assert calibration.decode_s == pytest.approx(20 / 6)
    assert sum(record.seconds for record in found.values()) == pytest.approx(1 + 5 + 5 + 5)


# what is said and refused


def test_measures_that_are_not_asked_for_are_none(engine: Engine) -> None:
    names = ["permutation_full", "calibration_first", "pride"]
    scored = records(engine, [PAIR], methods=[names[0], names[2]], generate=False)
    assert {record.text for record in scored.values()} == {None}
    assert all(record.choice_logprobs and record.answer_tokens is None for record in scored.values())
    written = records(engine, [PAIR], methods=names[:2], logprobs=False)
    assert {record.choice_logprobs for record in written.values()} == {None}
    assert all(record.text for record in written.values())
    undecided = PAIR.model_copy(update={"answers": []})
    (unscored,) = records(engine, [undecided], methods=names[:1]).values()
    assert (unscored.score, unscored.choice_score, unscored.answer_logprob) == (None, None, None)
    assert unscored.text and unscored.choice_logprobs


MANY = QUESTION.model_copy(update={"id": "many", "documents": QUESTION.documents * 3})


@pytest.mark.parametrize(
    ("examples", "options", "sentence"),
    [
        ([QUESTION], {"methods": ["pride"]},
         "pride:vanilla weighs the choices of a task, and retrieval_qa has none; leave it out, or take a "
         "permutation, calibration_first or calibration_every"),
        ([QUESTION], {"methods": ["calibration_labels:pine"]},
         "calibration_labels:pine weighs the choices of a task, and retrieval_qa has none; leave it out"),
        ([PAIR], {"methods": ["pride"], "logprobs": False},
         "pride:vanilla writes no answers; measure log-probabilities too, or leave it out"),
        ([PAIR], {"methods": ["vanilla", "calibration_every"], "generate": False},
         "calibration_every:vanilla is about written answers; measure these too, or leave it out"),
        ([MANY], {"methods": ["permutation_full"]},
         "all orders of 9 documents are 9! = 3.629e+5 runs, more than the limit of 720; run the 9 cyclic "
         "orders or sampled ones"),
        ([PAIR.model_copy(update={"documents": [PAIR.documents[0]] * 3})], {"methods": ["permutation_full"]},
         "permutation_full:vanilla needs a choice for each document, and p has 3 documents and 2 choices; "
         "leave it out, or this example"),
    ],
)  # fmt: skip
def test_what_a_wrapper_cannot_do_is_refused_without_a_model(
    examples: list[Example], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError) as raised:
        choose(examples, **options)
    assert str(raised.value).startswith(sentence)


def test_what_a_wrapper_cannot_do_with_one_example_is_a_record_with_an_error(engine: Engine) -> None:
    options: dict[str, Any] = {"methods": ["vanilla", "permutation_full"], "max_new_tokens": 2}
    items = measure(engine, [MANY, QUESTION], **options)
    found = {item.key: item for item in items if isinstance(item, Record)}
    errors = {key: record.error for key, record in found.items() if record.error}
    assert list(errors) == [("many", "permutation_full:vanilla", "as-is")]
    assert "all orders of 9 documents are 9! = 3.629e+5 runs" in str(*errors.values())


def test_one_prompt_that_does_not_fit_is_an_error_of_the_whole(engine: Engine) -> None:
    """Without content it would fit; so it is the wrapper alone that says something."""
    long = QUESTION.model_copy(update={"documents": [*QUESTION.documents, QUESTION.documents[0]] * 9})
    items = measure(engine, [long], methods=["vanilla", "permutation_cyclic", "calibration_every"])
    found = [item for item in items if isinstance(item, Record)]
    assert len(found) == 3
    assert all("but the model reads 900" in str(record.error) for record in found)
    assert [record.computed for record in found] == [False] * 3


@pytest.mark.parametrize("name", ["permutation_full", "pride", *CALIBRATED])
@pytest.mark.parametrize("layer", [1, 3, 6, 8])
def test_a_stop_is_noticed_in_the_next_layer(engine: Engine, name: str, layer: int) -> None:
    """The prefix and every prompt have two layers, and behind two prompts more is read, or written."""
    cancelled, seen = threading.Event(), []

    def emit(item: object) -> None:
        seen.append(item)
        if len(seen) == layer:
            cancelled.set()

    settings = choose([PAIR], methods=[name], max_new_tokens=20)
    with pytest.raises(Cancelled):
        Measurement(engine, [PAIR, PAIR], settings, frozenset()).work(emit, cancelled)
    assert len(seen) == layer


def test_reading_is_told_by_the_method_that_reads(engine: Engine) -> None:
    events: Iterator[Any] = measure(engine, [PAIR], methods=["permutation_full:sp"], generate=False)
    assert {event.method for event in events if isinstance(event, PrefillProgress)} == {"sp"}


def test_one_file_and_a_data_set_say_the_same(engine: Engine) -> None:
    """Labels of one token here and verdicts of five there, so that answers by majority are compared."""
    comparison = LabeledRequest(**PAIR.comparison().model_dump(), labels=["A", "B"])
    plan = plan_debias([comparison], wrapper="calibration_every", base="nia", max_new_tokens=6)
    (debiased,) = [event for event in run_debias(engine, plan) if isinstance(event, DebiasResult)]
    (record,) = records(engine, [PAIR], methods=["calibration_every:nia"]).values()
    assert record.text == debiased.answer
