"""The engine: one loaded model that answers prompts under several methods at once."""

import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine import models
from pine_engine.errors import Cancelled, InputError
from pine_engine.events import (
    Answer,
    AnswerDone,
    Event,
    PrefillDone,
    PrefillProgress,
    RunDone,
    RunResult,
    TokenDecoded,
)
from pine_engine.forward import ContinuationPass, PrefillPass, Row, new_state
from pine_engine.kv_cache import KVCache
from pine_engine.layout import TokenLayout, tokenize, tokenize_text
from pine_engine.methods import Method, get_methods
from pine_engine.plan import build_plan
from pine_engine.probe import prove
from pine_engine.prompt import Prompt
from pine_engine.trace import TraceRecorder

Emit = Callable[[Event], None]


@dataclass(frozen=True)
class Score:
    """How likely one method finds a given answer.

    token_ids: the answer's tokens. logprobs: natural log-probability of each, in nats.
    """

    method: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]

    @property
    def total(self) -> float:
        """Log-probability of the whole answer, in nats."""
        return sum(self.logprobs)


@dataclass
class _Line:
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
        return self.row.state.plan.method.name


class Engine:
    """A model with our attention function; stateless between runs, so several threads may share it."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        *,
        name: str = "model",
        revision: str | None = None,
        stop_ids: frozenset[int] = frozenset(),
        max_context: int | None = None,
    ) -> None:
        """Wraps a transformers model that is already loaded, after it has proved itself.

        tokenizer: needed for prompts of text; prompts of tokens do without. max_context: in tokens, from
        the model's configuration if None. Raises ModelError if the model's attention is not supported.
        """
        config = model.config.get_text_config()
        self.model = model
        self.tokenizer = tokenizer
        self.model_name = name
        self.revision = revision
        self.stop_ids = stop_ids
        self.max_context: int = max_context or config.max_position_embeddings
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.rope = prove(model)
        # Encoding text as data flips a setting of the tokenizer for the time of the call.
        self._tokenizer_lock = threading.Lock()

    @classmethod
    def load(cls, name: str | None = None, *, dtype: str = "float32", device: str = "cpu") -> "Engine":
        """Loads a model and checks it.

        name: a hub id, a folder or a GGUF file; None for the embedded model. dtype: float32, bfloat16 or
        float16. Raises ModelError if it cannot be found, loaded or is not supported.
        """
        loaded = models.load(name, dtype=dtype, device=device)
        return cls(
            loaded.model,
            loaded.tokenizer,
            name=loaded.source.name,
            revision=loaded.source.revision,
            stop_ids=loaded.stop_ids,
            max_context=loaded.max_context,
        )

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(self.model.device)

    def tokenize(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """The prompt's tokens. Raises InputError if a part is empty."""
        if isinstance(prompt, TokenLayout):
            return prompt
        with self._tokenizer_lock:
            return tokenize(prompt, self.tokenizer)

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each token on its own."""
        return [self.tokenizer.decode([token]) for token in ids]

    def generate(
        self,
        prompt: Prompt | TokenLayout,
        *,
        methods: Sequence[str] | None = None,
        max_new_tokens: int = 64,
        trace: bool = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
    ) -> Generator[Event, None, None]:
        """Answers the prompt greedily under each method; yields events, the last one RunDone.

        methods: names, all for None; the prompt is read once for each, then all answers are written
        together, one batch row per method. trace: record positions and importances. keep_logits: keep the
        logits of the suffix and of every step. stop_at_end: False writes max_new_tokens whatever comes.
        The model runs in a thread of its own; closing the generator stops it within one layer.
        Raises InputError for an unknown method or a prompt that does not fit the context.
        """
        rows = get_methods(methods)
        layout = self.tokenize(prompt)
        self._check_length(layout, max_new_tokens)
        job = _Job(self, layout, rows, max_new_tokens, trace, keep_logits, stop_at_end)
        return _in_thread(job.run)

    def run(self, prompt: Prompt | TokenLayout, **options: Any) -> RunResult:
        """The result of generate(), waited for; same options, same errors."""
        for event in self.generate(prompt, **options):
            if isinstance(event, RunDone):
                return event.result
        raise AssertionError("a run that was not stopped ends with RunDone")

    @torch.inference_mode()
    def score(
        self,
        prompt: Prompt | TokenLayout,
        continuations: Sequence[str],
        *,
        methods: Sequence[str] | None = None,
    ) -> dict[str, list[Score]]:
        """Log-probabilities of given answers under each method; the prompt is read once per method.

        continuations: texts that follow the prompt, taken as data (nothing in them is a control token).
        Returns for each method one Score per continuation. Raises InputError for an empty one.
        """
        layout = self.tokenize(prompt)
        with self._tokenizer_lock:
            answers = [tokenize_text(text, self.tokenizer) for text in continuations]
        for text, ids in zip(continuations, answers, strict=True):
            if not ids:
                raise InputError(f"the answer {text!r} has no tokens; give some text")
        room = max(map(len, answers), default=0)
        self._check_length(layout, room)
        scores: dict[str, list[Score]] = {}
        for method in get_methods(methods):
            row, logits = self.prefill(layout, method, room=room, rows_kept=1)
            length = row.cache.length
            scores[method.name] = []
            for text, ids in zip(continuations, answers, strict=True):
                later = self.extend([row], [ids[:-1]], layout.num_tokens)[0] if len(ids) > 1 else logits[:0]
                row.cache.truncate(length)
                logprobs = torch.cat((logits, later)).float().log_softmax(-1)
                chosen = logprobs.gather(1, torch.tensor(ids, device=logprobs.device)[:, None])[:, 0]
                scores[method.name].append(Score(method.name, text, ids, tuple(chosen.tolist())))
        return scores

    def prefill(
        self,
        layout: TokenLayout,
        method: Method,
        *,
        room: int,
        rows_kept: int,
        recorder: TraceRecorder | None = None,
        on_layer: Callable[[int], None] = lambda _: None,
    ) -> tuple[Row, Tensor]:
        """Reads a prompt under one method: its row, and the logits (rows_kept, V) of its last tokens.

        room: how many tokens may follow. rows_kept: 0 for all. on_layer: called at the start of each
        layer; what it raises ends the pass. To be called under torch.inference_mode.
        """
        state = new_state(
            build_plan(method, layout), rope=self.rope, model=self.model, room=room, recorder=recorder
        )
        row = Row(state, KVCache([]))
        logits: Tensor = self.model(
            input_ids=torch.tensor(layout.ids, device=self.model.device)[None],
            position_ids=state.position_ids(0, layout.num_tokens),
            use_cache=False,
            logits_to_keep=rows_kept,
            pine_pass=PrefillPass(row, room, on_layer),
        ).logits[0]
        return row, logits

    def extend(
        self,
        rows: Sequence[Row | None],
        ids: Sequence[Sequence[int]],
        first: int,
        on_layer: Callable[[int], None] = lambda _: None,
    ) -> Tensor:
        """Feeds the same number of tokens to each row: logits (rows, tokens, V).

        rows: None for one that has ended; it keeps its place in the batch, because the shape of a
        matrix product can change the last bit of its rows. first: index of the first token fed.
        """
        tokens = torch.tensor(ids, device=self.model.device)
        count = tokens.shape[1]
        position_ids = [
            torch.zeros_like(tokens[:1]) if row is None else row.state.position_ids(first, count)
            for row in rows
        ]
        logits: Tensor = self.model(
            input_ids=tokens,
            position_ids=torch.cat(position_ids),
            use_cache=False,
            pine_pass=ContinuationPass(rows, first, on_layer),
        ).logits
        return logits

    def _check_length(self, layout: TokenLayout, max_new_tokens: int) -> None:
        if max_new_tokens < 0:
            raise InputError(f"the answer length is {max_new_tokens}; give 0 or more tokens")
        needed = layout.num_tokens + max_new_tokens
        if needed > self.max_context:
            raise InputError(
                f"the prompt has {layout.num_tokens} tokens and the answer may take {max_new_tokens}, but "
                f"the model reads {self.max_context} in all; shorten or remove documents, or ask for a "
                "shorter answer"
            )


@dataclass(frozen=True)
class _Job:
    """One run: prefill of every method, then one decoding batch."""

    engine: Engine
    layout: TokenLayout
    methods: tuple[Method, ...]
    max_new_tokens: int
    trace: bool
    keep_logits: bool
    stop_at_end: bool

    @torch.inference_mode()
    def run(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emits the run's events, the last one RunDone; raises Cancelled once the flag is set."""
        lines = [self._prefill(method, emit, cancelled) for method in self.methods]
        self._write(lines, emit, cancelled)
        emit(RunDone(self._result(lines)))

    def _prefill(self, method: Method, emit: Emit, cancelled: threading.Event) -> _Line:
        def on_layer(layer: int) -> None:
            _stop_if(cancelled)
            emit(PrefillProgress(method.name, layer, self.engine.num_layers))

        recorder = TraceRecorder() if self.trace else None
        began = time.perf_counter()
        row, logits = self.engine.prefill(
            self.layout,
            method,
            room=self.max_new_tokens,
            rows_kept=self.layout.suffix_length if self.keep_logits else 1,
            recorder=recorder,
            on_layer=on_layer,
        )
        seconds = time.perf_counter() - began
        emit(PrefillDone(method.name, seconds))
        kept = [logits.float().cpu()] if self.keep_logits else []
        return _Line(row, recorder, seconds, logits[-1], kept)

    def _write(self, lines: list[_Line], emit: Emit, cancelled: threading.Event) -> None:
        began = time.perf_counter()
        for step in range(self.max_new_tokens):
            if step:
                self._step(lines, step, cancelled)
            seconds = (time.perf_counter() - began) / max(step, 1)
            for line in lines:
                if not line.finish_reason:
                    self._take_token(line, step, seconds if step else 0.0, emit)
            if all(line.finish_reason for line in lines):
                return
        if not self.max_new_tokens:
            for line in lines:
                line.finish_reason = "length"
                emit(AnswerDone(self._answer(line, 0.0)))

    def _step(self, lines: list[_Line], step: int, cancelled: threading.Event) -> None:
        rows = [None if line.finish_reason else line.row for line in lines]
        logits = self.engine.extend(
            rows,
            [line.ids[-1:] or [0] for line in lines],
            self.layout.num_tokens + step - 1,
            on_layer=lambda _: _stop_if(cancelled),
        )
        for line, row_logits in zip(lines, logits, strict=True):
            if not line.finish_reason:
                line.next_logits = row_logits[-1]
                if self.keep_logits:
                    line.kept_logits.append(row_logits.float().cpu())
                line.fed += 1

    def _take_token(self, line: _Line, step: int, seconds: float, emit: Emit) -> None:
        """Takes the most likely token, or ends the answer; seconds: per decoding step so far."""
        logprobs = line.next_logits.float().log_softmax(-1)
        token = int(logprobs.argmax())
        if self.stop_at_end and token in self.engine.stop_ids:
            line.finish_reason = "stop"
        else:
            line.ids.append(token)
            line.logprobs.append(float(logprobs[token]))
            emit(TokenDecoded(line.method, step, token, self._text(line.ids)))
            if len(line.ids) == self.max_new_tokens:
                line.finish_reason = "length"
        if line.finish_reason:
            emit(AnswerDone(self._answer(line, seconds)))

    def _answer(self, line: _Line, seconds: float) -> Answer:
        line.decode_s = seconds
        return Answer(
            method=line.method,
            text=self._text(line.ids),
            token_ids=tuple(line.ids),
            logprobs=tuple(line.logprobs),
            prefill_s=line.prefill_s,
            decode_s_per_token=seconds,
            finish_reason=line.finish_reason,
        )

    def _text(self, ids: list[int]) -> str:
        if self.engine.tokenizer is None:
            return ""
        text: str = self.engine.tokenizer.decode(ids, skip_special_tokens=True)
        # A character whose bytes are not all there yet decodes to the replacement character.
        return text.rstrip("\ufffd")

    def _result(self, lines: list[_Line]) -> RunResult:
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


def _stop_if(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Cancelled("the run was stopped")


def _in_thread(work: Callable[[Emit, threading.Event], None]) -> Generator[Event, None, None]:
    """Yields what work emits in a thread of its own; closing the generator sets the flag and waits."""
    cancelled = threading.Event()
    channel: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()

    def target() -> None:
        try:
            work(channel.put, cancelled)
        except BaseException as error:  # handed to the consumer, who raises it
            channel.put(error)
        finally:
            channel.put(None)

    thread = threading.Thread(target=target, name="pine-engine-run", daemon=True)
    thread.start()
    try:
        while (item := channel.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        cancelled.set()
        thread.join()
