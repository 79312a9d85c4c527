"""Multiple choice: numbers of wrappers and recalls equal independent computations in float64."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pine_engine import Document, Engine
from pine_engine.lab.debias.plan import is_learned_example
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.task_estimates import method_rows
from pine_engine.prompts.examples import Example
from tests.support.measured_rows import PAIR, evaluate_records
from tests.support.tokenizers import letter_tokenizer

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

ROUNDING = 1e-4
"""Float32 log-probabilities of at most 20 nats, against float64."""

WORDS = ["red", "blue", "green", "black", "white", "brown"]
INSTRUCTION = (
    "The following are multiple choice questions. You should directly answer the question by choosing the "
    "correct option."
)


def question(number: int, size: int = 4) -> Example:
    """Return a question; the right option has another letter in the next one."""
    documents = [Document(text=f"{WORDS[(number + place) % 6]} {place}") for place in range(size)]
    gold = number % size
    return Example(id=f"o{number}", task="options", question=f"What {number}?", documents=documents,
                   answers=["ABCDEF"[gold]], gold_index=gold)  # fmt: skip


def asked(question: str, options: str) -> str:
    """Return the prompt of a question, with a line for each option."""
    body = f"{INSTRUCTION}\n\nQuestion: {question}\nOptions:\n{options}Answer:"
    return f"<|im_start|>user\n{body}<|im_end|>\n<|im_start|>assistant\n"


def lettered(texts: Sequence[str]) -> str:
    """Return a line for each text, with its letter."""
    return "".join(f"{letter}. {text}\n" for letter, text in zip("ABCDEF", texts, strict=False))


class Reference:
    """Probabilities of letters by the stock model in float64, and the formulas of PriDe and permutation."""

    def __init__(self, model: "LlamaForCausalLM") -> None:
        self.model, self.tokenizer = model.double(), letter_tokenizer()

    def text(self, text: str, after: str) -> float:
        """Return the probability of a text after a prompt."""
        prompt, ids = self.ids(after), self.ids(text)
        logprobs = self.logprobs(prompt + ids)[len(prompt) - 1 : -1]
        return math.exp(sum(float(row[token]) for row, token in zip(logprobs, ids, strict=True)))

    def ids(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def logprobs(self, ids: list[int]) -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = self.model(torch.tensor([ids])).logits[0]
        return logits.log_softmax(-1)

    @cache  # noqa: B019 - one reference for all tests
    def letters(self, question: str, texts: tuple[str, ...]) -> Any:
        """Return the probability of each letter of an option, in sum 1."""
        found = self.of_letters(asked(question, lettered(texts)), len(texts))
        return found / found.sum()

    def of_letters(self, text: str, count: int) -> Any:
        """Return the probability of each letter after a text, with or without a blank before it."""
        prompt = self.ids(text)
        (blank,), letters = self.ids(" "), self.ids("ABCDEF"[:count])
        plain, spaced = self.logprobs([*prompt, blank])[-2:].exp()
        return (plain[letters] + plain[blank] * spaced[letters]).numpy()

    def observed(self, example: Example, order: Sequence[int]) -> Any:
        return self.letters(example.question, tuple(example.documents[option].text for option in order))

    def by_option(self, example: Example, orders: Sequence[Sequence[int]]) -> Any:
        """Return the mean probability of each option over orders."""
        total = np.zeros(len(example.documents))
        for order in orders:
            total[list(order)] += self.observed(example, order)
        return total / len(orders)

    def prior(self, example: Example) -> Any:
        logs = np.mean([np.log(self.observed(example, order) + 1e-10) for order in cyclic(example)], axis=0)
        return np.exp(logs) / np.exp(logs).sum()


def cyclic(example: Example) -> list[list[int]]:
    size = len(example.documents)
    return [[(start + place) % size for place in range(size)] for start in range(size)]


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=900), letter_tokenizer())


@pytest.fixture(scope="module")
def reference(tiny_llama: Callable[..., Any]) -> Reference:
    return Reference(tiny_llama(max_context_length=900))


def probabilities(record: Record) -> Any:
    assert record.choice_logprobs and list(record.choice_logprobs) == list("ABCDEF")[: record.num_documents]
    found = np.exp(np.array(list(record.choice_logprobs.values())))
    return found / found.sum()


def test_wrappers_equal_float64_formulas(engine: Engine, reference: Reference) -> None:
    examples = [question(number, size) for number, size in enumerate([4, 3, 4, 3])]
    names = ["vanilla", "permutation_full", "permutation_cyclic", "pride"]
    orders = ["as-is", "reversed"]
    found = evaluate_records(engine, examples, methods=names, order_names=orders, generate=False)
    learned: dict[int, list[Any]] = {}
    for example in examples:
        size = len(example.documents)
        priors = learned.setdefault(size, [])
        is_learned = not priors or is_learned_example(example.id, 0.05)
        for name in ("as-is", "reversed"):
            order = list(range(size))[:: 1 if name == "as-is" else -1]
            observed = reference.observed(example, order)
            corrected = np.log(observed + 1e-10) - np.log(np.mean(priors, axis=0) + 1e-10) if priors else 0
            rotations = [[order[place] for place in one] for one in cyclic(example)]
            by_rotation = reference.by_option(example, rotations)[order]
            every = list(permutations(range(size)))
            expected: Mapping[str, Any] = {
                "vanilla": observed,
                "permutation_full:vanilla": reference.by_option(example, every)[order],
                "permutation_cyclic:vanilla": by_rotation,
                "pride:vanilla": by_rotation if is_learned else np.exp(corrected) / np.exp(corrected).sum(),
            }
            for method, numbers in expected.items():
                record = found[key := (example.id, method, name)]
                assert probabilities(record) == pytest.approx(numbers, abs=ROUNDING), key
                assert record.answers == ("ABCD"[order.index(example.gold_index or 0)],)
                likeliest = "ABCD"[int(np.argmax(numbers))]
                assert record.choice_score == float(likeliest in record.answers)
        if is_learned:
            priors.append(reference.prior(example))
    assert len(found) == 4 * 4 * 2


def test_option_texts_have_the_probability_of_the_whole_text(engine: Engine, reference: Reference) -> None:
    example = question(1).model_copy(update={"task": "option_texts"})
    orders = {"as-is": (0, 1, 2, 3), "order:2-0-3-1": (2, 0, 3, 1)}
    found = evaluate_records(engine, [example], methods=["vanilla", "pine"], order_names=list(orders))
    for name, order in orders.items():
        lines = "".join(f"{example.documents[option].text}\n" for option in order)
        prompt = asked(example.question, lines)
        texts = [document.text for document in example.documents]
        logs = [math.log(reference.text(one, prompt) + reference.text(f" {one}", prompt)) for one in texts]
        record = found[example.id, "vanilla", name]
        assert record.choice_logprobs == pytest.approx(dict(zip("ABCD", logs, strict=True)), abs=ROUNDING)
        assert record.answer_logprob == pytest.approx(logs[1], abs=ROUNDING)
        assert (record.answers, record.choice_score) == (("B",), float(int(np.argmax(logs)) == 1))
    as_is, moved = (found[example.id, "pine", name] for name in orders)
    assert as_is.choice_logprobs == moved.choice_logprobs and not moved.was_computed


def test_recalls_are_shares_by_letter_and_their_deviation(engine: Engine) -> None:
    examples = [question(number, 4 if number < 12 else 3) for number in range(18)]
    orders = ["as-is", "reversed"]
    records = list(evaluate_records(engine, examples, methods=["vanilla"], order_names=orders).values())
    (grid,) = estimate_tasks(records)
    chosen = next(row for row in method_rows(grid) if row.metric == "chosen")
    for size in (4, 3):
        means = []
        for letter in "ABCD"[:size]:
            by_example: dict[str, list[float]] = {}
            for record in records:
                if record.num_documents == size and record.answers == (letter,):
                    by_example.setdefault(record.example, []).append(float(record.choice_score or 0))
            means.append(np.mean([np.mean(scores) for scores in by_example.values()]))
            assert chosen.letter_sizes[size][letter].mean == pytest.approx(means[-1])
        spread = chosen.get("recall spread", str(size))
        assert spread and spread.mean == pytest.approx(np.std(means))
        low, high = spread.interval or (spread.mean, spread.mean)
        assert 0 <= low <= spread.mean <= high and (spread.interval is None) == (size == 3)
    assert [one["num_documents"] for one in chosen.json()["letters"]] == [3, 4]


def test_judges_have_no_recall_of_letters(engine: Engine) -> None:
    records = list(evaluate_records(engine, [PAIR], methods=["vanilla"]).values())
    (grid,) = estimate_tasks(records)
    assert not any(row.letter_sizes for row in method_rows(grid))
