"""Contextual calibration: a prompt compared with the same prompt without content (specification 8.2).

The content of each document is replaced by a text that says nothing; titles, headers and labels stay.
Source: Zhao et al. 2021, tonyzhaozh/few-shot-learning; calibrating every token is this project's definition.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.debias.permutation import most_probable
from pine_engine.debias.table import CONTENT_FREE, Steps
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, RunFinished, RunResult
from pine_engine.engine.generation import ActiveGeneration, decode_answers
from pine_engine.engine.likelihood import (
    Label,
    label_ids,
    label_log_probabilities,
    log_probabilities,
    read_prompt,
)
from pine_engine.engine.model_worker import Emit, stream_from_worker
from pine_engine.errors import InputError
from pine_engine.methods.table import get_method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt, segment_text

CANDIDATES = 100
"""How many of the most likely first tokens are calibrated; the rest cannot be chosen."""

_SLOT = "\ue002"
"""A private-use character that stands for a document's content while a prompt is built."""

Weighting = Literal["diagonal", "identity"]
"""How label probabilities q are corrected: q / p with W = diag(p)^-1, or q - p with W = I and b = -p."""


@dataclass(frozen=True)
class CalibratedLabels:
    """Label probabilities, each tuple in the order of the labels.

    probabilities: under the prompt, in sum 1. content_free: the mean under the content-free prompts, in
    sum 1. scores: the first corrected by the second. answer: index of the highest score.
    """

    probabilities: tuple[float, ...]
    content_free: tuple[float, ...]
    scores: tuple[float, ...]

    @property
    def answer(self) -> int:
        """Index of the label with the highest score, the first of equals."""
        return most_probable(self.scores)


def content_free_prompts(
    build: Callable[[list[str]], Prompt], num_documents: int, contents: Sequence[str] = CONTENT_FREE
) -> list[Prompt]:
    """One prompt per content-free text, which stands in every document in place of its content.

    build: makes the prompt from the contents of the documents, with whatever stands around them.
    Raises InputError for a document whose content does not come through, or of which nothing else is left.
    """
    template = build([_SLOT] * num_documents)
    for index, segment in enumerate(template.documents):
        if _SLOT not in segment_text(segment):
            raise InputError(f"document {index + 1} of the prompt is without its content; build it in")
    prompts = []
    for content in contents:
        documents = tuple(
            tuple(replace(piece, text=piece.text.replace(_SLOT, content)) for piece in segment)
            for segment in template.documents
        )
        for index, segment in enumerate(documents):
            if not segment_text(segment):
                raise InputError(
                    f"nothing is left of document {index + 1} without its content; put a title or a header "
                    f"around it, or use other content-free texts than {content!r}"
                )
        prompts.append(replace(template, documents=documents))
    return prompts


def calibrate_labels(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    labels: Sequence[Label],
    *,
    content_free: Sequence[Prompt | TokenLayout],
    base: str = "vanilla",
    weighting: Weighting = "diagonal",
) -> Generator[Event | CalibratedLabels, None, None]:
    """Chooses a label by its probability compared with that under the content-free prompts.

    Yields the events of reading the prompt and then each content-free one, at last the CalibratedLabels.
    Raises InputError for labels that are not one token or prompts that do not fit.
    """
    method = get_method(base)
    ids = label_ids(engine, labels)
    layouts = _layouts(engine, prompt, content_free, 0)

    @torch.inference_mode()
    def work(emit: Callable[[Event | CalibratedLabels], None], cancelled: threading.Event) -> None:
        read = [
            read_prompt(engine, x, method, reserved_tokens=0, emit=emit, cancelled=cancelled)[1]
            for x in layouts
        ]
        logprobs = [label_log_probabilities(log_probabilities(logits[-1]), ids) for logits in read]
        emit(calibrate(torch.stack(logprobs), weighting))

    return stream_from_worker(work)


def calibrate(logprobs: Tensor, weighting: Weighting = "diagonal") -> CalibratedLabels:
    """Labels by their log-probabilities (1 + n, labels), float64: under the prompt, then under n without
    content. The labels need not be all that may follow."""
    own = logprobs[0].log_softmax(0)
    free = logprobs[1:].logsumexp(0).log_softmax(0)
    scores = {"diagonal": (own - free).exp(), "identity": own.exp() - free.exp()}[weighting]
    parts = (own.exp(), free.exp(), scores)
    return CalibratedLabels(*(tuple(part.tolist()) for part in parts))


def generate_calibrated(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    *,
    content_free: Sequence[Prompt | TokenLayout],
    base: str = "vanilla",
    steps: Steps = "every",
    max_new_tokens: int = 64,
) -> Generator[Event, None, None]:
    """Answers the prompt with the first or every token calibrated; yields a run's events, RunFinished last.

    PrefillDone comes for the prompt and then for each content-free one. Under `every` all prompts are
    continued with the same answer, one batch row each; under `first` the answer goes on greedily.
    The answer's log-probabilities are those under the prompt, before calibration.
    Raises InputError for an unknown method or prompts that do not fit.
    """
    method = get_method(base)
    layouts = _layouts(engine, prompt, content_free, max_new_tokens)

    def work(emit: Emit, cancelled: threading.Event) -> None:
        @torch.inference_mode()
        def read() -> Iterator[ActiveGeneration]:
            began = time.perf_counter()
            prompts = [
                read_prompt(
                    engine, layout, method, reserved_tokens=max_new_tokens, emit=emit, cancelled=cancelled
                )
                for layout in layouts
            ]
            yield calibrated_prompt(0, method.name, prompts, steps, time.perf_counter() - began)

        (written,) = decode_answers(
            engine,
            read(),
            max_new_tokens=max_new_tokens,
            batch_size=num_continued(len(layouts), steps),
            emit=emit,
            cancelled=cancelled,
        )
        if written.error:
            raise written.error
        emit(RunFinished(RunResult(layouts[0], {method.name: written.answer}, {})))

    return stream_from_worker(work)


def calibrated_prompt(
    index: int, method: str, prompts: Sequence[tuple[SequenceState, Tensor]], steps: Steps, seconds: float
) -> ActiveGeneration:
    """A prompt that wants a calibrated answer, to be written with others.

    prompts: row and logits (1, V) of the prompt, then of the content-free ones. seconds: that reading took.
    """
    rows = tuple(row for row, _ in prompts)
    return ActiveGeneration(
        index=index,
        method=method,
        rows=rows[: num_continued(len(rows), steps)],
        logits=torch.cat([logits for _, logits in prompts]),
        prefill_s=seconds,
        choose=lambda logits: _choose(log_probabilities(logits), steps),
    )


def num_continued(num_prompts: int, steps: Steps) -> int:
    """How many of the prompts are continued with the answer: all, or after the first token its own alone."""
    return num_prompts if steps == "every" else 1


def _layouts(
    engine: Engine,
    prompt: Prompt | TokenLayout,
    content_free: Sequence[Prompt | TokenLayout],
    max_new_tokens: int,
) -> list[TokenLayout]:
    """The tokens of the prompt, then of the content-free ones."""
    if not content_free:
        raise InputError("there is no content-free prompt to compare with; give at least one")
    layouts = [engine.tokenize(each) for each in (prompt, *content_free)]
    for layout in layouts:
        engine.check_length(layout, max_new_tokens)
    return layouts


def _choose(logprobs: Tensor, steps: Steps) -> tuple[int, float]:
    """The calibrated choice and its own log-probability, from logprobs (rows, V) with the prompt's row first.

    `first` subtracts probabilities among the candidates, `every` divides them over the vocabulary. A single
    row, which has nothing to be compared with, chooses its most likely token.
    """
    own, free = logprobs[0], logprobs[1:]
    if not len(free):
        token = int(own.argmax())
    elif steps == "every":
        # The mean's 1/rows is common to all tokens.
        token = int((own - free.logsumexp(0)).argmax())
    else:
        candidates = own.topk(min(CANDIDATES, len(own))).indices
        least = free[:, candidates].amin(0)
        token = int(candidates[(own[candidates].softmax(0) - least.softmax(0)).argmax()])
    return token, float(own[token])
