"""One run: the prompt read under every method, then all answers written together, one batch row each."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import Row
from pine_engine.attention.trace import TraceRequest
from pine_engine.engine.events import (
    Answer,
    AnswerDone,
    PrefillDone,
    PrefillProgress,
    RunDone,
    RunResult,
    TokenDecoded,
)
from pine_engine.engine.finite import check_finite, check_logprob
from pine_engine.engine.prefix_cache import Memory
from pine_engine.engine.streaming import Emit, stop_if
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout


class Reader(Protocol):
    """What a run needs of the engine; see there."""

    num_layers: int
    stop_ids: frozenset[int]

    def prefill(
        self,
        layout: TokenLayout,
        method: Method,
        *,
        room: int,
        rows_kept: int,
        recorder: TraceRecorder | None = None,
        on_layer: Callable[[int], None] = ...,
        donors: Iterable[Row] = (),
    ) -> tuple[Row, Tensor]:
        """Reads a prompt under one method."""

    def extend(
        self,
        rows: Sequence[Row | None],
        ids: Sequence[Sequence[int]],
        on_layer: Callable[[int], None] = ...,
    ) -> Tensor:
        """Feeds the same number of tokens to each row."""

    def decode_text(self, ids: Sequence[int]) -> str:
        """The text of an answer."""


@dataclass
class Line:
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


@dataclass(frozen=True)
class Run:
    """One run: prefill of every method, then one decoding batch."""

    reader: Reader
    layout: TokenLayout
    methods: tuple[Method, ...]
    max_new_tokens: int
    trace: TraceRequest | None
    keep_logits: bool
    stop_at_end: bool
    memory: Memory

    @torch.inference_mode()
    def work(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emits the run's events, the last one RunDone; raises Cancelled once the flag is set, and ModelError
        for logits that no token can be chosen from."""
        lines = [self._prefill(method, emit, cancelled) for method in self.methods]
        self._write(lines, emit, cancelled)
        emit(RunDone(self._result(lines)))

    def _prefill(self, method: Method, emit: Emit, cancelled: threading.Event) -> Line:
        def on_layer(layer: int) -> None:
            stop_if(cancelled)
            emit(PrefillProgress(method.name, layer, self.reader.num_layers))

        recorder = TraceRecorder(self.trace) if self.trace else None
        began = time.perf_counter()
        row, logits = self.reader.prefill(
            self.layout,
            method,
            room=self.max_new_tokens,
            rows_kept=self.layout.suffix_length if self.keep_logits else 1,
            recorder=recorder,
            on_layer=on_layer,
            donors=self.memory.rows,
        )
        self.memory.rows.append(row)
        wait_for(logits)
        seconds = time.perf_counter() - began
        emit(PrefillDone(method.name, seconds))
        kept = [logits.float().cpu()] if self.keep_logits else []
        return Line(row, recorder, seconds, logits[-1], kept)

    def _write(self, lines: list[Line], emit: Emit, cancelled: threading.Event) -> None:
        began = time.perf_counter()
        for step in range(self.max_new_tokens):
            if step:
                self._step(lines, cancelled)
                wait_for(lines[0].next_logits)
            seconds = (time.perf_counter() - began) / max(step, 1)
            for line in lines:
                if not line.finish_reason:
                    self._take_token(line, step, seconds if step else 0.0, emit)
            if all(line.finish_reason for line in lines):
                return
        if not self.max_new_tokens:
            for line in lines:
                check_finite(line.next_logits, line.method, step=0)
                line.finish_reason = "length"
                emit(AnswerDone(self._answer(line, 0.0)))

    def _step(self, lines: list[Line], cancelled: threading.Event) -> None:
        rows = [None if line.finish_reason else line.row for line in lines]
        logits = self.reader.extend(
            rows,
            [line.ids[-1:] or [0] for line in lines],
            on_layer=lambda _: stop_if(cancelled),
        )
        for line, row_logits in zip(lines, logits, strict=True):
            if not line.finish_reason:
                line.next_logits = row_logits[-1]
                if self.keep_logits:
                    line.kept_logits.append(row_logits.float().cpu())
                line.fed += 1

    def _take_token(self, line: Line, step: int, seconds: float, emit: Emit) -> None:
        """Takes the most likely token, or ends the answer; seconds: per decoding step so far.

        Raises ModelError if the logits are not finite.
        """
        logprobs = line.next_logits.float().log_softmax(-1)
        token = int(logprobs.argmax())
        logprob = float(logprobs[token])
        check_logprob(logprob, line.next_logits, line.method, step)
        if self.stop_at_end and token in self.reader.stop_ids:
            line.finish_reason = "stop"
        else:
            line.ids.append(token)
            line.logprobs.append(logprob)
            if line.recorder:
                line.recorder.record_alternatives(logprobs)
            emit(TokenDecoded(line.method, step, token, self.reader.decode_text(line.ids)))
            if len(line.ids) == self.max_new_tokens:
                line.finish_reason = "length"
        if line.finish_reason:
            emit(AnswerDone(self._answer(line, seconds)))

    def _answer(self, line: Line, seconds: float) -> Answer:
        line.decode_s = seconds
        return Answer(
            method=line.method,
            text=self.reader.decode_text(line.ids),
            token_ids=tuple(line.ids),
            logprobs=tuple(line.logprobs),
            prefill_s=line.prefill_s,
            decode_s_per_token=seconds,
            finish_reason=line.finish_reason,
        )

    def _result(self, lines: list[Line]) -> RunResult:
        return RunResult(
            layout=self.layout,
            answers={line.method: self._answer(line, line.decode_s) for line in lines},
            traces={
                line.method: line.recorder.finish(line.row.state.plan, line.fed)
                for line in lines
                if line.recorder
            },
            logits={line.method: torch.cat(line.kept_logits) for line in lines if line.kept_logits},
        )


def wait_for(logits: Tensor) -> None:
    """Waits until a GPU has computed them, since it works on while Python does; seconds are read then."""
    if logits.is_cuda:
        torch.cuda.synchronize(logits.device)
