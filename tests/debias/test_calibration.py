"""Contextual calibration: rules on numbers worked by hand, and whole answers against the definition."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.attention.state import SequenceState
from pine_engine.debias.calibration import (
    CalibratedLabels,
    calibrate_labels,
    calibrated_prompt,
    content_free_prompts,
    generate_calibrated,
)
from pine_engine.debias.table import CONTENT_FREE, Steps
from pine_engine.engine import generation, passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import (
    Answer,
    GenerationFinished,
    PrefillDone,
    PrefillProgress,
    RunFinished,
    TokenGenerated,
)
from pine_engine.engine.generation import ActiveGeneration, decode_answers
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Document, Piece, Prompt, segment_text
from pine_engine.prompts.tasks import TASKS
from tests.support.reference import exact_llama, reference_logits
from tests.support.tokenizers import letter_tokenizer

TITLES = ["Sea", "", "Sky"]
TEXTS = ["Moon.", "Hot tea.", "Blue."]

ROUNDING = 1e-10
"""Float64: sums of some hundred terms in another order."""


@pytest.fixture(scope="module")
def stock(tiny_llama: Callable[..., LlamaForCausalLM]) -> LlamaForCausalLM:
    return exact_llama(tiny_llama)


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(exact_llama(tiny_llama), letter_tokenizer())


def build(texts: Sequence[str]) -> Prompt:
    documents = [Document(text, title) for text, title in zip(texts, TITLES, strict=True)]
    return TASKS["math_reasoning"].prompt(
        letter_tokenizer(chat_template=None), question="Why?", documents=documents, instruction="Say."
    )


def layouts_of(engine: Engine) -> list[TokenLayout]:
    """The prompt and its content-free ones."""
    return [engine.tokenize(each) for each in (build(TEXTS), *content_free_prompts(build, 3))]


# content-free prompts


def test_content_goes_and_scaffolding_stays() -> None:
    prompts = content_free_prompts(build, 3)
    written = [[segment_text(document) for document in prompt.documents] for prompt in prompts]
    assert written == [
        ["Sea N/A ", "N/A ", "Sky N/A "],
        ["Sea  ", " ", "Sky  "],
        ["Sea [MASK] ", "[MASK] ", "Sky [MASK] "],
    ]
    assert CONTENT_FREE == ("N/A", "", "[MASK]")
    whole = build(TEXTS)
    assert {(prompt.prefix, prompt.suffix) for prompt in prompts} == {(whole.prefix, whole.suffix)}


def test_content_is_data_wherever_it_stands() -> None:
    """A document of several pieces keeps which of them are markup."""

    def pieces(texts: Sequence[str]) -> Prompt:
        document = (Piece("<|im_start|>", is_markup=True), Piece(texts[0]), Piece("<|im_end|>", True))
        return Prompt((), (document,), (Piece("?"),))

    (prompt,) = content_free_prompts(pieces, 1, [""])
    assert [piece.text for piece in prompt.documents[0]] == ["<|im_start|>", "", "<|im_end|>"]
    assert [piece.is_markup for piece in prompt.documents[0]] == [True, False, True]


def test_a_document_of_which_nothing_is_left_is_refused() -> None:
    def bare(texts: Sequence[str]) -> Prompt:
        return Prompt((), tuple((Piece(text),) for text in texts), (Piece("?"),))

    assert len(content_free_prompts(bare, 2, ["N/A"])) == 1
    with pytest.raises(InputError) as raised:
        content_free_prompts(bare, 2)
    assert str(raised.value) == (
        "nothing is left of document 1 without its content; put a title or a header around it, or use other "
        "content-free texts than ''"
    )
    with pytest.raises(InputError) as raised:
        content_free_prompts(lambda _: bare(["one", "two"]), 2)
    assert str(raised.value) == "document 1 of the prompt is without its content; build it in"


# the rules, on numbers made by hand


class Scripted:
    """An engine that looks up the next token's probabilities by the first document and the answer so far."""

    num_layers = 0
    patched_models = ()

    def __init__(
        self, tables: dict[tuple[int, ...], list[float]], stop_token_ids: Sequence[int] = ()
    ) -> None:
        self.tables = tables
        self.stop_token_ids = frozenset(stop_token_ids)
        self.fed: list[int] = []

    def tokenize(self, prompt: Any) -> TokenLayout:
        """Labels are texts that spell their token id."""
        if isinstance(prompt, TokenLayout):
            return prompt
        ids = [tuple(int(piece.text) for piece in document) for document in prompt.documents]
        return TokenLayout((), tuple(ids), (0,))

    def check_length(self, layout: TokenLayout, reserved_tokens: int) -> None:
        """Everything fits."""

    def prefill(self, _: Any, layout: TokenLayout, *__: Any, **___: Any) -> tuple[list[int], torch.Tensor]:
        row = [layout.documents[0][0]]
        return row, self._logits(row)

    def extend(
        self, rows: list[list[int]], ids: list[list[int]], on_layer: Any, *, is_step: bool
    ) -> torch.Tensor:
        assert is_step
        self.fed.append(len(rows))
        for row, fed in zip(rows, ids, strict=True):
            row += fed
        return torch.stack([self._logits(row) for row in rows])

    def _logits(self, row: list[int]) -> torch.Tensor:
        return torch.tensor([self.tables[tuple(row)]], dtype=torch.float64).log() + 3.0

    def decode_text(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes a Scripted whose passes are the only ones there are."""

    def make(*script: Any, **options: Any) -> Scripted:
        engine = Scripted(*script, **options)
        monkeypatch.setattr(passes, "prefill", engine.prefill)
        monkeypatch.setattr(passes, "extend", engine.extend)
        monkeypatch.setattr(generation, "batch_caches", lambda rows: None)
        return engine

    return make


def prompts(count: int) -> list[TokenLayout]:
    return [TokenLayout((), ((10 + index,),), (0,)) for index in range(count)]


def generated(engine: Any, layouts: list[TokenLayout], **options: Any) -> Answer:
    events = list(generate_calibrated(engine, layouts[0], content_free=layouts[1:], **options))
    assert isinstance(events[-1], RunFinished)
    answer: Answer = events[-1].result.answers["vanilla"]
    return answer


@pytest.mark.parametrize(
    ("weighting", "scores"), [("diagonal", (0.6 / 0.75, 0.4 / 0.25)), ("identity", (-0.15, 0.15))]
)
def test_labels_by_hand(scripted: Callable[..., Any], weighting: Any, scores: tuple[float, float]) -> None:
    """Tokens 1 and 3 spell the second label. Without content it has (0.02 + 0.18) / 2, the first one 0.3."""
    engine = scripted(
        {(10,): [0.3, 0.15, 0.5, 0.05], (11,): [0.2, 0.01, 0.78, 0.01], (12,): [0.4, 0.08, 0.42, 0.1]}
    )
    one, *free = prompts(3)
    events = calibrate_labels(engine, one, [["0"], ["1", "3"]], content_free=free, weighting=weighting)
    result = list(events)[-1]
    assert isinstance(result, CalibratedLabels)
    assert result.probabilities == pytest.approx((0.6, 0.4))
    assert result.content_free == pytest.approx((0.75, 0.25))
    assert result.scores == pytest.approx(scores)
    assert result.answer == 1


TABLES = {
    (10,): [0.5, 0.3, 0.2],
    (11,): [0.8, 0.1, 0.1],
    (12,): [0.1, 0.1, 0.8],
}


def test_the_first_token_is_calibrated_by_the_least_of_the_content_free_probabilities(
    scripted: Callable[..., Any],
) -> None:
    """The least are 0.1 each, so that 0.5 wins; means of 0.45, 0.1 and 0.45 would make it token 1."""
    engine = scripted(TABLES)
    assert generated(engine, prompts(3), steps="first", max_new_tokens=1).token_ids == (0,)
    # With one content-free prompt: 0.5 - 0.8, 0.3 - 0.1, 0.2 - 0.1.
    answer = generated(engine, prompts(2), steps="first", max_new_tokens=1)
    assert answer.token_ids == (1,)
    assert answer.logprobs == pytest.approx([np.log(0.3)])


def test_only_candidates_are_chosen_and_probabilities_are_taken_among_them(
    scripted: Callable[..., Any],
) -> None:
    """100 tokens share 0.99 evenly, so that each has 0.01 among the candidates; so they have without content,
    but for token 7. The other 50 tokens have 0.0002, and nothing without content."""
    own = [0.0099] * 100 + [0.0002] * 50
    free = [0.01] * 7 + [0.0099] + [0.01] * 92 + [1e-12] * 50
    engine = scripted({(10,): own, (11,): free})
    assert generated(engine, prompts(2), steps="first", max_new_tokens=1).token_ids == (7,)


def test_every_token_is_calibrated_by_the_mean_and_the_answer_so_far(scripted: Callable[..., Any]) -> None:
    """First 0.5/0.45, 0.3/0.1, 0.2/0.45; then, after token 1, 0.9/0.8 and 0.1/0.15 among others."""
    tables = TABLES | {
        (10, 1): [0.8, 0.18, 0.02],
        (11, 1): [0.9, 0.05, 0.05],
        (12, 1): [0.7, 0.09, 0.21],
    }
    engine = scripted(tables)
    answer = generated(engine, prompts(3), steps="every", max_new_tokens=2)
    assert answer.token_ids == (1, 1)  # 0.18 / 0.07 beats 0.8 / 0.8
    assert answer.logprobs == pytest.approx(np.log([0.3, 0.18]))
    assert (answer.finish_reason, answer.text) == ("length", "1 1")
    assert engine.fed == [3]


def test_after_a_calibrated_first_token_the_answer_is_greedy_and_content_free_prompts_are_left_alone(
    scripted: Callable[..., Any],
) -> None:
    tables = TABLES | {(10, 1): [0.8, 0.18, 0.02], (10, 1, 0): [0.1, 0.2, 0.7]}
    engine = scripted(tables, stop_token_ids=[2])
    answer = generated(engine, prompts(2), steps="first", max_new_tokens=5)
    assert (answer.token_ids, answer.finish_reason) == ((1, 0), "stop")
    assert engine.fed == [1, 1]


def test_no_token_is_an_answer_of_no_token(scripted: Callable[..., Any]) -> None:
    engine = scripted(TABLES, stop_token_ids=[1])
    assert generated(engine, prompts(3), max_new_tokens=0).token_ids == ()
    stopped = generated(engine, prompts(3), max_new_tokens=3)
    assert (stopped.token_ids, stopped.finish_reason) == ((), "stop")


# a real model, against the definition


@pytest.mark.parametrize("base", ["vanilla", "pine"])
def test_label_scores_are_those_of_the_definition(engine: Engine, stock: LlamaForCausalLM, base: str) -> None:
    own, *free = layouts_of(engine)
    with torch.inference_mode():
        logits = [reference_logits(stock, layout, base)[-1].numpy() for layout in (own, *free)]
    probabilities = np.array([np.exp(row) / np.exp(row).sum() for row in logits])
    ids: Any = letter_tokenizer().convert_tokens_to_ids(list("yYn"))
    labels = np.stack([probabilities[:, ids[:2]].sum(1), probabilities[:, ids[2]]], axis=1)
    q = labels[0] / labels[0].sum()
    p = labels[1:].mean(0)
    p = p / p.sum()
    result = list(calibrate_labels(engine, own, [["y", "Y"], "n"], content_free=free, base=base))[-1]
    assert isinstance(result, CalibratedLabels)
    np.testing.assert_allclose(result.probabilities, q, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(result.content_free, p, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(result.scores, np.linalg.inv(np.diag(p)) @ q, rtol=1e-8)


@pytest.mark.parametrize("base", ["vanilla", "pine"])
@pytest.mark.parametrize("steps", ["first", "every"])
def test_answers_are_those_of_reading_everything_again(
    engine: Engine, stock: LlamaForCausalLM, base: str, steps: Any
) -> None:
    layouts = layouts_of(engine)
    ids: list[int] = []
    with torch.inference_mode():
        for step in range(3):
            logits = [reference_logits(stock, layout.extend(ids), base)[-1] for layout in layouts]
            p, *free = (row.softmax(0).numpy() for row in logits)
            if steps == "every":
                scores = np.log(p) - np.log(np.mean(free, axis=0))
            elif step == 0:  # the vocabulary has fewer tokens than there are candidates
                least = np.min(free, axis=0)
                scores = p - least / least.sum()
            else:
                scores = p
            ids.append(int(scores.argmax()))
    events = generate_calibrated(
        engine, layouts[0], content_free=layouts[1:], base=base, steps=steps, max_new_tokens=3
    )
    done = list(events)[-1]
    assert isinstance(done, RunFinished)
    assert done.result.answers[base].token_ids == tuple(ids)
    plain = engine.run(layouts[0], methods=[base], max_new_tokens=3, stop_at_eos=False).answers[base]
    assert plain.token_ids != tuple(ids)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_answer_is_the_same_whatever_is_written_beside_it(
    tiny_llama: Callable[..., LlamaForCausalLM], dtype: torch.dtype
) -> None:
    """Five lines of one, one, four, four and one rows, for which a batch of eight has no room at once."""
    engine = Engine(tiny_llama(dtype=dtype, head_dim=32), letter_tokenizer())
    layouts = layouts_of(engine)
    kinds: list[Steps | None] = [None, "first", "every", "every", None]

    def asked(index: int, order: tuple[int, ...], steps: Steps | None) -> ActiveGeneration:
        with torch.inference_mode():
            read = [
                passes.prefill(
                    engine.patched_models,
                    layout.reorder(order),
                    METHODS["nia"],
                    reserved_tokens=9,
                    logits_to_keep=1,
                )
                for layout in layouts
            ]
        if steps is None:
            return ActiveGeneration("nia", (read[0][0],), read[0][1], 1.0, index)
        return calibrated_prompt(index, "nia", read, steps, 1.0)

    def write(*numbers: int) -> dict[int, ActiveGeneration]:
        orders = list(itertools.permutations(range(3)))
        prompts = (asked(number, orders[number], kinds[number]) for number in numbers)
        answers = decode_answers(engine, prompts, max_new_tokens=9, batch_size=8)
        return {one.index: one for one in answers}

    together, backwards = write(0, 1, 2, 3, 4), write(4, 3, 2, 1, 0)
    assert together.keys() == {0, 1, 2, 3, 4}
    for number in together:
        (alone,) = write(number).values()
        for other in (together[number], backwards[number]):
            assert (other.answer.token_ids, other.answer.logprobs) == (
                alone.answer.token_ids, alone.answer.logprobs
            )  # fmt: skip
    assert len({one.answer.token_ids for one in together.values()}) == 5


def test_the_time_of_a_step_is_shared_by_rows(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """One answer has four rows and the other one; the first token of each comes without a step."""
    clock = iter(range(1000))
    monkeypatch.setattr("pine_engine.engine.generation.time.perf_counter", lambda: float(next(clock)))
    with torch.inference_mode():
        read = [
            passes.prefill(
                engine.patched_models, layout, METHODS["vanilla"], reserved_tokens=3, logits_to_keep=1
            )
            for layout in layouts_of(engine)
        ]
        plain = passes.prefill(
            engine.patched_models,
            layouts_of(engine)[0],
            METHODS["vanilla"],
            reserved_tokens=3,
            logits_to_keep=1,
        )
    prompts = [
        calibrated_prompt(0, "vanilla", read, "every", 4.0),
        ActiveGeneration("vanilla", (plain[0],), plain[1], 1.0, 1),
    ]
    answers = decode_answers(engine, iter(prompts), max_new_tokens=3, batch_size=8)
    written = {one.index: one for one in answers}
    assert [written[index].seconds for index in (0, 1)] == pytest.approx([2 * 4 / 5, 2 * 1 / 5])
    assert [written[index].answer.prefill_s for index in (0, 1)] == [4.0, 1.0]


def test_a_copied_cache_is_continued_on_its_own(engine: Engine) -> None:
    layout = layouts_of(engine)[0]
    for base in ("vanilla", "pine", "pcw"):
        with torch.inference_mode():
            row, _ = passes.prefill(
                engine.patched_models, layout, METHODS[base], reserved_tokens=3, logits_to_keep=1
            )
            other = SequenceState(row.state, row.cache.copy())
            first = passes.extend([row], [[7, 8]])
            assert (row.num_cached_tokens(), other.num_cached_tokens()) == (
                layout.num_tokens + 2,
                layout.num_tokens,
            )
            passes.extend([other], [[9, 9, 9]])
            again = SequenceState(row.state, row.cache.copy())
            again.cache.truncate(row.cache.length - 2)
            assert torch.equal(passes.extend([again], [[7, 8]]), first)


def test_scores_move_with_the_documents_unless_the_base_is_invariant(engine: Engine) -> None:
    own, *free = layouts_of(engine)
    moved = {}
    for base in ("vanilla", "pine"):
        scores = [
            event.scores
            for layout in (own, own.reorder((1, 0, 2)))
            for event in calibrate_labels(engine, layout, ["y", "n"], content_free=free, base=base)
            if isinstance(event, CalibratedLabels)
        ]
        moved[base] = abs(scores[0][0] - scores[1][0])
    assert moved["vanilla"] > 1e-3
    assert moved["pine"] < ROUNDING


def test_events_are_those_of_a_run_and_closing_stops(engine: Engine) -> None:
    own, *free = layouts_of(engine)
    events = list(generate_calibrated(engine, own, content_free=free, max_new_tokens=2))
    kinds = [type(event) for event in events]
    assert kinds == [PrefillProgress, PrefillProgress, PrefillDone] * 4 + [
        TokenGenerated, TokenGenerated, GenerationFinished, RunFinished
    ]  # fmt: skip
    texts = [event.text for event in events if isinstance(event, TokenGenerated)]
    assert isinstance(events[-1], RunFinished)
    assert texts[-1] == events[-1].result.answers["vanilla"].text

    layers: list[None] = []
    hook = (
        engine.patched_models[0].network.model.layers[0].register_forward_hook(lambda *_: layers.append(None))
    )
    stream = generate_calibrated(engine, own, content_free=free * 40, max_new_tokens=2)
    next(event for event in stream if isinstance(event, PrefillDone))
    stream.close()
    hook.remove()
    assert 0 < len(layers) < 120


def test_prompts_that_do_not_fit_are_refused(engine: Engine) -> None:
    own, *free = layouts_of(engine)
    with pytest.raises(InputError) as raised:
        generate_calibrated(engine, own, content_free=[])
    assert str(raised.value) == "there is no content-free prompt to compare with; give at least one"
    with pytest.raises(InputError, match="^the prompt has .* but the model reads 512 in all"):
        generate_calibrated(engine, own, content_free=free, max_new_tokens=500)
    long = TokenLayout((1,), (tuple(range(5, 90)) * 7,), (2,))
    with pytest.raises(InputError, match="^the prompt has 597 tokens"):
        calibrate_labels(engine, own, ["y", "n"], content_free=[long])
