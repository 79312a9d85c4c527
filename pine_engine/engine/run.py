"""One run: the prompt read under every method, then all answers written together, one batch row each."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pine_engine.attention.decode import put_together
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import Row
from pine_engine.engine import passes
from pine_engine.engine.events import Answer, AnswerDone, PrefillDone, RunDone, RunResult, TokenDecoded
from pine_engine.engine.finite import check_finite, check_logprob
from pine_engine.engine.options import RunOptions
from pine_engine.engine.streaming import Emit, layer_reports, stop_if
from pine_engine.methods.table import Method
from pine_engine.network.wiring import Wiring
from pine_engine.prompts.layout import TokenLayout

NEVER = threading.Event()
"""The flag of a run that nobody cancels."""


@dataclass
class AnswerInProgress:
    """One method's answer while it is written; fed: how many of its tokens the model has read."""

    row: Row
    recorder: TraceRecorder | None
    prefill_s: float
    next_logits: Tensor
    kept_logits: list[Tensor]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str = ""
    fed: int = 0
    decode_s: float = 0.0

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.row.state.plan.method.name

    def num_bytes(self, max_new_tokens: int) -> int:
        """Memory that it takes when it has so many tokens."""
        rows_kept = sum(len(logits) for logits in self.kept_logits) + max_new_tokens
        kept = rows_kept * self.next_logits.numel() * 4 if self.kept_logits else 0
        return kept + self.row.cache.num_bytes


@dataclass(frozen=True)
class Run:
    """One prompt under the methods of its options.

    wirings: what reads it. stop_ids: the tokens that end an answer. decode_text: the text of an answer.
    """

    wirings: Sequence[Wiring]
    num_layers: int
    stop_ids: frozenset[int]
    decode_text: Callable[[Sequence[int]], str]
    layout: TokenLayout
    options: RunOptions

    def work(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emits the run's events, the last one RunDone, and raises as finish does."""
        emit(RunDone(self.finish(emit, cancelled)))

    @torch.inference_mode()
    def finish(self, emit: Emit = lambda _: None, cancelled: threading.Event = NEVER) -> RunResult:
        """What the run leaves behind; emits its events on the way. Raises Cancelled once the flag is set, and
        ModelError for logits that no token can be chosen from."""
        answers = self.read(emit, cancelled)
        for _ in self.write([answers], emit, cancelled):
            pass
        return self.result(answers)

    def read(self, emit: Emit, cancelled: threading.Event) -> list[AnswerInProgress]:
        """Reads the prompt under every method. This, write and result: to be called under
        torch.inference_mode."""
        return [self._prefill(method, emit, cancelled) for method in self.options.methods]

    def write(
        self,
        runs: Sequence[list[AnswerInProgress]],
        emit: Emit,
        cancelled: threading.Event,
        *,
        places: int = 0,
    ) -> Iterator[int]:
        """Writes the answers of one or more runs with these options together, one batch row each; yields the
        index of each run once all its answers are done.

        places: of the batch, if more than there are answers; see ContinuationPass. Each run is given its
        share of the seconds.
        """
        answers = [answer for run in runs for answer in run]
        if self.options.max_new_tokens > 1:  # else nothing is read after the prompt
            put_together([answer.row for answer in answers])
        going, spent = dict(enumerate(runs)), 0.0
        for step in itertools.count():
            began = time.perf_counter()
            if step:
                self._step(answers, cancelled, places)
                wait_for(answers[0].next_logits)
            seconds = (spent + time.perf_counter() - began) / max(step, 1) / len(runs)
            for answer in answers:
                if not answer.finish_reason:
                    self._take_token(answer, step, seconds if step else 0.0, emit)
            spent += time.perf_counter() - began
            for number in [number for number, run in going.items() if all(one.finish_reason for one in run)]:
                del going[number]
                yield number
            if not going:
                return

    def _prefill(self, method: Method, emit: Emit, cancelled: threading.Event) -> AnswerInProgress:
        options = self.options
        recorder = TraceRecorder(options.trace) if options.trace else None
        began = time.perf_counter()
        row, logits = passes.prefill(
            self.wirings,
            self.layout,
            method,
            room=options.max_new_tokens,
            rows_kept=self.layout.suffix_length if options.keep_logits else 1,
            recorder=recorder,
            on_layer=layer_reports(method.name, self.num_layers, emit, cancelled),
            donors=options.memory.rows,
        )
        options.memory.rows.append(row)
        wait_for(logits)
        seconds = time.perf_counter() - began
        emit(PrefillDone(method.name, seconds))
        kept = [logits.float().cpu()] if options.keep_logits else []
        return AnswerInProgress(row, recorder, seconds, logits[-1], kept)

    def _step(self, answers: list[AnswerInProgress], cancelled: threading.Event, places: int) -> None:
        free = max(0, places - len(answers))
        logits = passes.extend(
            [*(None if answer.finish_reason else answer.row for answer in answers), *[None] * free],
            [*(answer.ids[-1:] or [0] for answer in answers), *[[0]] * free],
            on_layer=lambda _: stop_if(cancelled),
            is_step=True,
        )
        for answer, row_logits in zip(answers, logits, strict=False):
            if not answer.finish_reason:
                answer.next_logits = row_logits[-1]
                if self.options.keep_logits:
                    answer.kept_logits.append(row_logits.float().cpu())
                answer.fed += 1

    def _take_token(self, answer: AnswerInProgress, step: int, seconds: float, emit: Emit) -> None:
        """Takes the most likely token, or ends the answer; seconds: per decoding step so far.

        Raises ModelError if the logits are not finite.
        """
        if not self.options.max_new_tokens:
            check_finite(answer.next_logits, answer.method, step)
            answer.finish_reason = "length"
            emit(AnswerDone(self._finished(answer, seconds)))
            return
        logprobs = answer.next_logits.float().log_softmax(-1)
        token = int(logprobs.argmax())
        logprob = float(logprobs[token])
        check_logprob(logprob, answer.next_logits, answer.method, step)
        if self.options.stop_at_end and token in self.stop_ids:
            answer.finish_reason = "stop"
        else:
            answer.ids.append(token)
            answer.logprobs.append(logprob)
            if answer.recorder:
                answer.recorder.record_alternatives(logprobs)
            emit(TokenDecoded(answer.method, step, token, self.decode_text(answer.ids)))
            if len(answer.ids) == self.options.max_new_tokens:
                answer.finish_reason = "length"
        if answer.finish_reason:
            emit(AnswerDone(self._finished(answer, seconds)))

    def _finished(self, answer: AnswerInProgress, seconds: float) -> Answer:
        answer.decode_s = seconds
        return Answer(
            method=answer.method,
            text=self.decode_text(answer.ids),
            token_ids=tuple(answer.ids),
            logprobs=tuple(answer.logprobs),
            prefill_s=answer.prefill_s,
            decode_s_per_token=seconds,
            finish_reason=answer.finish_reason,
        )

    def result(self, answers: list[AnswerInProgress]) -> RunResult:
        """What the run leaves, once its answers are done."""
        return RunResult(
            layout=self.layout,
            answers={answer.method: self._finished(answer, answer.decode_s) for answer in answers},
            traces={
                answer.method: answer.recorder.finish(answer.row.state.plan, answer.fed)
                for answer in answers
                if answer.recorder
            },
            logits={answer.method: torch.cat(answer.kept_logits) for answer in answers if answer.kept_logits},
        )


def wait_for(logits: Tensor) -> None:
    """Waits until a GPU has computed them, since it works on while Python does; seconds are read then."""
    if logits.is_cuda:
        torch.cuda.synchronize(logits.device)
