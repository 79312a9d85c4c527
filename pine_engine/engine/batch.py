"""Answers to many prompts: each is read alone, and up to batch_size of them are written together.

A prompt whose answer is done makes room for the next one, so that the batch stays full and memory does not
grow with the number of prompts.

Every prompt gets the tokens it gets alone, near-ties aside. Attention is computed head by head, so only
matrix products can tell the rows of a batch apart, and only by their number. Measured on x86, see
docs/exactness.md:
- a batch of any 2 or more rows gives each row the same bits, whatever stands beside it and wherever, in
  float32, and in bfloat16 and float16 where they are computed as float32; elsewhere a batch keeps the number
  of its rows until it is done; in float64 products are MKL's, which differ by 4e-15;
- a batch of 1 row is another kernel: its logits differ by up to 2e-6 of the largest logit in float32. In
  bfloat16 most are equal, and where one rounding falls otherwise they differ by up to 2 %.
So from batch_size 2 on an answer does not depend on its neighbours by a single bit, and differs by rounding
from that of Engine.run with one method, which is a batch of 1 row.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pine_engine.attention.decode import put_together
from pine_engine.attention.state import Row
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine, check_engine
from pine_engine.engine.events import Answer
from pine_engine.engine.finite import check_finite, check_logprob
from pine_engine.engine.model_thread import computed
from pine_engine.engine.run import wait_for
from pine_engine.errors import InputError, ModelError
from pine_engine.given import sequence, whole_number
from pine_engine.methods.table import Method, get_method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt

BATCH_ROWS = 8
"""Answers that are written together if nobody says otherwise."""

Choose = Callable[[Tensor], tuple[int, float]]
"""The next token of an answer and its log-probability, in nats, from logits (n, V): those of its own prompt
first, then of others to compare with."""


def most_likely(logits: Tensor) -> tuple[int, float]:
    """The token that the prompt makes most likely, whatever the others say."""
    logprobs = logits[0].float().log_softmax(-1)
    token = int(logprobs.argmax())
    return token, float(logprobs[token])


@dataclass(frozen=True)
class ReadPrompt:
    """A prompt that has been read under one method, and now wants an answer.

    rows: its own, then those of other prompts, which are continued with the same answer. logits: (n, V), of
    the last tokens of n prompts, which may be more than have rows. seconds: that reading took.
    """

    index: int
    method: str
    rows: tuple[Row, ...]
    logits: Tensor
    seconds: float
    choose: Choose = most_likely


@dataclass(frozen=True)
class Written:
    """The answer to the prompt of that index; seconds: its share of the steps' time, which several share."""

    index: int
    answer: Answer
    seconds: float


@dataclass(frozen=True)
class Failed:
    """The prompt of that index has no answer, because its logits are not finite; the others go on."""

    index: int
    error: ModelError


def answer_batch(
    engine: Engine,
    prompts: Prompt | TokenLayout | Iterable[Prompt | TokenLayout],
    *,
    method: str | Method | Sequence[str | Method] = "pine",
    max_new_tokens: int = 64,
    batch_size: int = BATCH_ROWS,
) -> Generator[tuple[int, Answer], None, None]:
    """Answers prompts greedily; yields (index of the prompt, its answer) as soon as one is done.

    prompts: several or a single one, which may differ in the number of documents and in all lengths; nothing
    is padded. method: one for all, or one for each. `dict(answer_batch(...))` waits for all. The model works
    between two answers, while one is waited for; closing the generator ends it.
    Where logits are not finite, all other prompts are answered first; the ModelError that then ends the
    generator names those without an answer.
    Raises InputError, before anything is read, for an unknown method, a number of methods that is not that
    of the prompts, a prompt that does not fit the context, and an answer length or batch size below 1.
    """
    check_engine(engine)
    layouts = engine.tokenize_all(prompts)
    given: Sequence[Any] = sequence(method) or [method] * len(layouts)
    methods = [get_method(each) for each in given]
    if len(methods) != len(layouts):
        raise InputError(
            f"{len(methods)} methods were given for {len(layouts)} prompts; give one name, or one for each"
        )
    max_new_tokens = whole_number(max_new_tokens, "answer length", least=1)
    batch_size = whole_number(batch_size, "batch size", least=1)
    for layout in layouts:
        engine.check_length(layout, max_new_tokens)
    return computed(_answer(engine, layouts, methods, max_new_tokens, batch_size))


@torch.inference_mode()
def write_answers(
    engine: Engine,
    prompts: Iterator[ReadPrompt],
    *,
    max_new_tokens: int,
    batch_size: int = BATCH_ROWS,
    on_layer: Callable[[int], None] = lambda _: None,
    on_token: Callable[[list[int]], None] = lambda _: None,
) -> Generator[Written | Failed, None, None]:
    """Answers prompts that somebody else reads; yields each answer, or why there is none, once it is known.

    prompts: taken one by one, when there is room in the batch, which is as wide as batch_size all the time;
    none may have more rows. on_layer: as in passes.prefill. on_token: called with an answer's tokens so far.
    """
    answers: list[_AnswerInBatch] = []
    next_one: ReadPrompt | None = None
    while True:
        while free := sorted(set(range(batch_size)).difference(*(answer.places for answer in answers))):
            next_one = next_one or next(prompts, None)
            if next_one is None or len(next_one.rows) > len(free):
                break
            answers.append(_AnswerInBatch(next_one, free[: len(next_one.rows)], next_one.logits))
            next_one = None
            if done := answers[-1].take_token(engine, max_new_tokens, on_token):
                answers.pop()
                yield done
        if not answers:
            return
        put_together([row for answer in answers for row in answer.prompt.rows])
        _step(engine, answers, batch_size, on_layer)
        for answer in list(answers):
            if done := answer.take_token(engine, max_new_tokens, on_token):
                answers.remove(answer)
                yield done


def _answer(
    engine: Engine,
    layouts: Sequence[TokenLayout],
    methods: Sequence[Method],
    max_new_tokens: int,
    batch_size: int,
) -> Generator[tuple[int, Answer], None, None]:
    def read() -> Iterator[ReadPrompt]:
        for index, (layout, method) in enumerate(zip(layouts, methods, strict=True)):
            began = time.perf_counter()
            row, logits = passes.prefill(engine.wirings, layout, method, room=max_new_tokens, rows_kept=1)
            wait_for(logits)
            yield ReadPrompt(index, method.name, (row,), logits, time.perf_counter() - began)

    failed: list[Failed] = []
    for done in write_answers(engine, read(), max_new_tokens=max_new_tokens, batch_size=batch_size):
        if isinstance(done, Failed):
            failed.append(done)
        else:
            yield done.index, done.answer
    if failed:
        indices = ", ".join(str(each.index) for each in failed)
        raise ModelError(f"prompts without an answer, by index: {indices}; {failed[0].error}")


@dataclass(eq=False)
class _AnswerInBatch:
    """One answer on its way.

    places: of its rows in the batch. logits: (n, V), of what follows the tokens so far.
    """

    prompt: ReadPrompt
    places: list[int]
    logits: Tensor
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    share_s: float = 0.0

    def take_token(
        self, engine: Engine, max_new_tokens: int, on_token: Callable[[list[int]], None]
    ) -> Written | Failed | None:
        """Takes one more token; the answer if it ends here, or why there is none."""
        if len(self.ids) < max_new_tokens:
            token, logprob = self.prompt.choose(self.logits)
            try:
                if len(self.logits) > 1:  # where prompts are compared, any of them may be the wrong one
                    check_finite(self.logits, self.prompt.method, len(self.ids))
                check_logprob(logprob, self.logits, self.prompt.method, len(self.ids))
            except ModelError as error:
                return Failed(self.prompt.index, error)
            if token in engine.stop_ids:
                return self._written(engine, "stop")
            self.ids.append(token)
            self.logprobs.append(logprob)
            on_token(self.ids)
        return self._written(engine, "length") if len(self.ids) == max_new_tokens else None

    def _written(self, engine: Engine, finish_reason: str) -> Written:
        answer = Answer(
            method=self.prompt.method,
            text=engine.decode_text(self.ids),
            token_ids=tuple(self.ids),
            logprobs=tuple(self.logprobs),
            prefill_s=self.prompt.seconds,
            decode_s_per_token=sum(self.step_s) / max(len(self.step_s), 1),
            finish_reason=finish_reason,
        )
        return Written(self.prompt.index, answer, self.share_s)


def _step(
    engine: Engine, answers: Sequence[_AnswerInBatch], batch_size: int, on_layer: Callable[[int], None]
) -> None:
    """One more token for every answer. Free places stay in the batch, so that its shape never changes."""
    began = time.perf_counter()
    rows: list[Row | None] = [None] * batch_size
    last = [[0]] * batch_size
    for answer in answers:
        for place, row in zip(answer.places, answer.prompt.rows, strict=True):
            rows[place], last[place] = row, answer.ids[-1:]
    logits = passes.extend(rows, last, on_layer, is_step=True)
    wait_for(logits)
    seconds = time.perf_counter() - began
    writing = sum(row is not None for row in rows)
    for answer in answers:
        answer.logits = logits[answer.places, -1]
        answer.step_s.append(seconds)
        answer.share_s += seconds * len(answer.places) / writing
