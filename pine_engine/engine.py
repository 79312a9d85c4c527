"""The engine: one loaded model that answers prompts under several methods at once."""

import math
import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pine_engine import models
from pine_engine.architecture import context_in_words, stated_context
from pine_engine.continuation import ContinuationPass
from pine_engine.embedded import Progress
from pine_engine.errors import InputError
from pine_engine.events import Event, RunDone, RunResult
from pine_engine.finite import check_logprob
from pine_engine.given import in_words, one_or_more, sequence, whole_number, whole_numbers
from pine_engine.kv_cache import KVCache
from pine_engine.layout import TOKEN_IDS, TokenLayout, check_vocabulary, tokenize, tokenize_text
from pine_engine.methods import Method, get_methods
from pine_engine.plan import build_plan
from pine_engine.prefill import PrefillPass
from pine_engine.probe import prove
from pine_engine.prompt import HOW_TO_PROMPT, Prompt
from pine_engine.reuse import Memory, find_documents, find_prefix, fork
from pine_engine.run import Run
from pine_engine.state import Row, input_device, new_state
from pine_engine.streaming import in_thread
from pine_engine.trace import TraceRecorder, TraceRequest

ALIKE_ROWS = 12
"""Rows from which on a float32 matrix product gives each row the same bits wherever it stands; shorter
prompts are padded to it (docs/exactness.md)."""

ELEMENTS_PER_THREAD = 32_768
"""Fewest elements for which torch's elementwise operations on the CPU use one more thread."""

ELEMENTS_AT_ONCE = 32
"""Elements that one step of these operations computes with AVX-512; narrower ones divide it."""

BATCH_ROWS = 8
"""float32 decoding batches are padded to a multiple of it: products of 8 rows are faster than of 2 to 4,
and their rows are alike."""


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


class Engine:
    """A model with our attention function; stateless between runs, so several threads may share it."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        *,
        name: str = "model",
        revision: str | None = None,
        address: str | None = None,
        stop_ids: int | Iterable[int] = frozenset(),
        max_context: int | None = None,
    ) -> None:
        """Wraps a transformers model that is already loaded, after it has proved itself.

        tokenizer: needed for prompts of text; prompts of tokens do without. address: what `load` takes
        elsewhere for the same model; its name if None. stop_ids: the token ids that end an answer, in any
        collection or a single one. max_context: in tokens, from the model's configuration if None.
        Raises ModelError for what is no model that writes, or if its attention is not supported, and
        InputError for what is no tokenizer, id or length.
        """
        models.check_model(model)
        if tokenizer is not None and not hasattr(tokenizer, "get_added_vocab"):
            raise InputError(
                f"the tokenizer is {in_words(tokenizer)}; give one that transformers has loaded, as by "
                "AutoTokenizer.from_pretrained(name)"
            )
        config = model.config.get_text_config()
        self.model = model
        self.tokenizer = tokenizer
        self.model_name = name
        self.revision = revision
        self.address = address or name
        self.stop_ids = frozenset(one_or_more(stop_ids, int, "stop id", "give token ids", least=0))
        self.max_context: int = (
            models.max_context(model)
            if max_context is None
            else whole_number(max_context, "longest context", least=1, unit=" tokens")
        )
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.rope = prove(model)
        # Encoding text as data flips a setting of the tokenizer for the time of the call.
        self._tokenizer_lock = threading.Lock()

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] | None = None,
        *,
        dtype: str | torch.dtype = "float32",
        device: str | torch.device = "cpu",
        progress: Progress | None = None,
    ) -> "Engine":
        """Loads a model and checks it.

        name: a hub id, a folder or a GGUF file; None for the embedded model. dtype: float32, bfloat16 or
        float16, by name or as torch has it. progress: see models.load. Raises ModelError if it cannot be
        found, loaded or is not supported.
        """
        loaded = models.load(name, dtype=dtype, device=device, progress=progress)
        return cls(
            loaded.model,
            loaded.tokenizer,
            name=loaded.source.name,
            revision=loaded.source.revision,
            address=loaded.source.address,
            stop_ids=loaded.stop_ids,
            max_context=loaded.max_context,
        )

    def allow_forks(self) -> None:
        """Lets forks of this process use the engine, from now on and on POSIX systems alone.

        Forking then waits until no thread tokenizes: a fork would inherit a lock that is never released, and
        a tokenizer with a setting that is never set back.
        """
        lock = self._tokenizer_lock
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(input_device(self.model))

    def tokenize(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """The prompt's tokens.

        Raises InputError if a part is empty, for ids outside the vocabulary, for text where there is no
        tokenizer, and for what is no prompt.
        """
        if isinstance(prompt, TokenLayout):
            prompt.check_vocabulary(self.vocabulary_size)
            return prompt
        if not isinstance(prompt, Prompt):
            raise InputError(f"the prompt is {in_words(prompt)}; {HOW_TO_PROMPT}")
        tokenizer = self._needed_tokenizer("read a prompt of text")
        with self._tokenizer_lock:
            return tokenize(prompt, tokenizer)

    def tokenize_all(
        self, prompts: Prompt | TokenLayout | Iterable[Prompt | TokenLayout]
    ) -> list[TokenLayout]:
        """The tokens of several prompts, or of a single one. Raises InputError as tokenize does."""
        several = None if isinstance(prompts, Prompt | TokenLayout) else sequence(prompts)
        return [self.tokenize(prompt) for prompt in ((prompts,) if several is None else several)]

    def _needed_tokenizer(self, why: str) -> Any:
        if self.tokenizer is None:
            raise InputError(
                f"this engine has no tokenizer to {why}; make it with Engine(model, tokenizer), or give "
                "TokenLayout(prefix, documents, suffix) of token ids"
            )
        return self.tokenizer

    @property
    def vocabulary_size(self) -> int:
        """How many token ids the model has an embedding for."""
        return self.model.get_input_embeddings().get_parameter("weight").shape[0]

    def _known_ids(self, ids: Any) -> tuple[int, ...]:
        """Token ids given in any sequence, or a single one. Raises InputError for those that are none."""
        given = (ids,) if sequence(ids) is None else ids
        known = whole_numbers(given, "what is decoded", TOKEN_IDS)
        check_vocabulary("what is decoded", known, self.vocabulary_size)
        return known

    def decode_text(self, ids: Sequence[int]) -> str:
        """The text of an answer; without a tokenizer, none."""
        if self.tokenizer is None:
            return ""
        text: str = self.tokenizer.decode(self._known_ids(ids), skip_special_tokens=True)
        # A character whose bytes are not all there yet decodes to the replacement character.
        return text.rstrip("\ufffd")

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each token on its own. Raises InputError without a tokenizer."""
        tokenizer = self._needed_tokenizer("tell the text of tokens")
        return [tokenizer.decode([token]) for token in self._known_ids(ids)]

    def generate(
        self,
        prompt: Prompt | TokenLayout,
        *,
        methods: str | Method | Iterable[str | Method] | None = None,
        max_new_tokens: int = 64,
        trace: bool | TraceRequest = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
        memory: Memory | None = None,
    ) -> Generator[Event, None, None]:
        """Answers the prompt greedily under each method; yields events, the last one RunDone.

        methods: names or rows of METHODS, several or a single one, "all", or the default ones for None; the
        prompt is read once for each, then all answers are written together, one batch row per method. trace:
        record positions, importances, attention and alternatives, and with a request token-level weights too.
        keep_logits: keep the logits of the suffix and of every step. stop_at_end: False writes max_new_tokens
        whatever comes.
        memory: prompts read before, whose states are used where they are the same, and to which this one
        is added; without it only methods of this run share theirs.
        The model runs in a thread of its own; closing the generator stops it within one layer.
        Raises InputError for an unknown method or a prompt that does not fit the context.
        """
        run = self._new_run(
            prompt,
            methods=methods,
            max_new_tokens=max_new_tokens,
            trace=trace,
            keep_logits=keep_logits,
            stop_at_end=stop_at_end,
            memory=memory,
        )
        return in_thread(run.work)

    def run(self, prompt: Prompt | TokenLayout, **options: Any) -> RunResult:
        """The result of generate(), waited for; same options, same errors.

        Computed in the caller's thread: where two threads have used torch, its workers sleep between
        small operations and must be woken, which slows decoding by a tenth.
        """
        results: list[RunResult] = []

        def keep_result(event: Event) -> None:
            if isinstance(event, RunDone):
                results.append(event.result)

        self._new_run(prompt, **options).work(keep_result, threading.Event())
        return results[0]

    def _new_run(
        self,
        prompt: Prompt | TokenLayout,
        *,
        methods: str | Method | Iterable[str | Method] | None = None,
        max_new_tokens: int = 64,
        trace: bool | TraceRequest = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
        memory: Memory | None = None,
    ) -> Run:
        """A run that has been checked; see generate()."""
        rows = get_methods(methods)
        layout = self.tokenize(prompt)
        self.check_length(layout, max_new_tokens)
        if trace is not None and not isinstance(trace, bool | TraceRequest):
            raise InputError(f"the trace is {in_words(trace)}; give True, False or a TraceRequest(...)")
        request = TraceRequest() if trace is True else trace or None
        memory = Memory() if memory is None else memory
        if not isinstance(memory, Memory):
            raise InputError(f"the memory is {in_words(memory)}; give a Memory(), or leave it out")
        memory.belong_to(self.model)
        if request:
            request.check(self.num_layers, self.num_heads, layout.num_tokens + max_new_tokens)
        return Run(self, layout, rows, max_new_tokens, request, keep_logits, stop_at_end, memory)

    @torch.inference_mode()
    def score(
        self,
        prompt: Prompt | TokenLayout,
        continuations: str | Iterable[str],
        *,
        methods: str | Method | Iterable[str | Method] | None = None,
    ) -> dict[str, list[Score]]:
        """Log-probabilities of given answers under each method; the prompt is read once per method, and
        what methods read alike once for all.

        continuations: texts that follow the prompt, several or a single one, taken as data (nothing in them
        is a control token). methods: as in generate.
        Returns for each method one Score per continuation. Raises InputError for an empty one, and for none.
        """
        rows = get_methods(methods)
        layout = self.tokenize(prompt)
        texts = one_or_more(continuations, str, "continuation", "give at least one text to score")
        answers = [self.tokenize_answer(text) for text in texts]
        room = max(map(len, answers))
        self.check_length(layout, room)
        scores: dict[str, list[Score]] = {}
        read: list[Row] = []
        for method in rows:
            row, logits = self.prefill(layout, method, room=room, rows_kept=1, donors=read)
            read.append(row)
            scores[method.name] = [
                self.score_answer(row, logits, text, ids) for text, ids in zip(texts, answers, strict=True)
            ]
        return scores

    def tokenize_answer(self, text: str) -> tuple[int, ...]:
        """The tokens of a given answer, taken as data.

        Raises InputError if there are none, for what is no text, and without a tokenizer.
        """
        tokenizer = self._needed_tokenizer("score text")
        if not isinstance(text, str):
            raise InputError(f"the answer is {in_words(text)}; give text")
        with self._tokenizer_lock:
            ids = tokenize_text(text, tokenizer)
        if not ids:
            raise InputError(f"the answer {text!r} has no tokens; give some text")
        return ids

    def score_answer(
        self,
        row: Row,
        logits: Tensor,
        text: str,
        ids: tuple[int, ...],
        on_layer: Callable[[int], None] = lambda _: None,
    ) -> Score:
        """How likely a given answer follows a prompt that has been read; the row is left as it was.

        logits: (1, V) of the prompt's last token. ids: the answer's tokens, for which the row must have
        room. on_layer: as in prefill. To be called under torch.inference_mode.
        Raises ModelError if the logits are not finite.
        """
        method = row.state.plan.method.name
        length = row.cache.length
        later = self.extend([row], [ids[:-1]], on_layer)[0] if len(ids) > 1 else logits[:0]
        row.cache.truncate(length)
        logprobs = torch.cat((logits, later)).float().log_softmax(-1)
        chosen = logprobs.gather(1, torch.tensor(ids, device=logprobs.device)[:, None])[:, 0]
        values = tuple(chosen.tolist())
        for step, value in enumerate(values):
            check_logprob(value, logits, method, step)
        return Score(method, text, ids, values)

    def prefill(
        self,
        layout: TokenLayout,
        method: Method,
        *,
        room: int,
        rows_kept: int,
        recorder: TraceRecorder | None = None,
        on_layer: Callable[[int], None] = lambda _: None,
        donors: Iterable[Row] = (),
    ) -> tuple[Row, Tensor]:
        """Reads a prompt under one method: its row, and the logits (rows_kept, V) of its last tokens.

        room: how many tokens may follow. rows_kept: 0 for all. on_layer: called at the start of each
        layer; what it raises ends the pass. donors: rows of this engine whose prefix, or prefix and
        documents, need not be read again where they are the same. To be called under
        torch.inference_mode.
        """
        state = new_state(
            build_plan(method, layout), rope=self.rope, model=self.model, room=room, recorder=recorder
        )
        # A trace tells how documents were read, and where single tokens are asked for, prefixes too.
        donors = [] if recorder and recorder.request.token_ranges else list(donors)
        if recorder is None and (donor := find_documents(donors, state)):
            row = fork(donor, state, room)
            return row, self.extend([row], [layout.suffix], on_layer)[0, -rows_kept:]
        prefix_of = find_prefix(donors, state)
        first = layout.prefix_length if prefix_of else 0
        count = layout.num_tokens - first
        padding = self.rows_alike(count) - count
        ids = torch.tensor([*layout.ids[first:], *[0] * padding], device=input_device(self.model))
        position_ids = nn.functional.pad(state.position_ids(first, count), (0, padding))
        kept = torch.arange(count - rows_kept if rows_kept else 0, count, device=ids.device)
        row = Row(state, KVCache([]))
        logits: Tensor = self.model(
            input_ids=ids[None],
            position_ids=position_ids,
            use_cache=False,
            logits_to_keep=kept if padding else rows_kept,
            pine_pass=PrefillPass(row, room, on_layer, prefix_of),
        ).logits[0]
        return row, logits

    def extend(
        self,
        rows: Sequence[Row | None],
        ids: Sequence[Sequence[int]],
        on_layer: Callable[[int], None] = lambda _: None,
    ) -> Tensor:
        """Feeds the same number of tokens to each row: logits (rows, tokens, V).

        rows: of any prompts and methods, None for one that has ended; it keeps its place in the batch,
        because the shape of a matrix product can change the last bit of its rows.
        """
        tokens = torch.tensor(ids, device=input_device(self.model))
        count = tokens.shape[1]
        position_ids = torch.cat(
            [
                torch.zeros_like(tokens[:1]) if row is None else row.state.position_ids(row.num_read(), count)
                for row in rows
            ]
        )
        padding = -len(rows) % BATCH_ROWS if len(rows) > 1 and self.model.dtype == torch.float32 else 0
        logits: Tensor = self.model(
            input_ids=nn.functional.pad(tokens, (0, 0, 0, padding)),
            position_ids=nn.functional.pad(position_ids, (0, 0, 0, padding)),
            use_cache=False,
            pine_pass=ContinuationPass(rows, on_layer),
        ).logits
        return logits[: len(rows)]

    def rows_alike(self, count: int) -> int:
        """To how many rows a prompt is filled up, so that no token's bits depend on where it stands.

        On the CPU torch gives each thread a part of an activation's elements and computes the last few
        of a part with other instructions: every part must end where a token ends.
        """
        if self.model.dtype != torch.float32 or self.device != "cpu":
            return count
        rows = max(count, ALIKE_ROWS)
        stated = getattr(self.model.config.get_text_config(), "intermediate_size", None)
        width = stated if isinstance(stated, int) else 1
        while True:
            parts = min(torch.get_num_threads(), math.ceil(rows * width / ELEMENTS_PER_THREAD))
            if rows % parts == 0 and rows // parts * width % ELEMENTS_AT_ONCE == 0:
                return rows
            rows += 1

    def check_length(self, layout: TokenLayout, max_new_tokens: int) -> None:
        """Raises InputError if prompt and answer do not fit the model's context."""
        whole_number(max_new_tokens, "answer length", least=0, unit=" tokens")
        needed = layout.num_tokens + max_new_tokens
        if needed > self.max_context:
            limit = f"the model reads {self.max_context} in all"
            if self.max_context == stated_context(self.model.config):
                limit = context_in_words(self.model.config)
            raise InputError(
                f"the prompt has {layout.num_tokens} tokens and the answer may take {max_new_tokens}, but "
                f"{limit}; shorten or remove documents, or ask for a shorter answer"
            )


def check_engine(given: Any) -> None:
    """Raises InputError for what does not read prompts, such as a model that is not wrapped in an engine."""
    if not hasattr(given, "tokenize"):
        raise InputError(
            f"the engine is {in_words(given)}; give Engine(model, tokenizer) or Engine.load(name)"
        )
