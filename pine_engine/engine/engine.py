"""The engine: one loaded model that answers prompts under several methods at once."""

import os
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.attention.decode import ContinuationPass
from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.prefill import PrefillPass
from pine_engine.attention.probe import prove
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import Row, input_device, new_state
from pine_engine.attention.trace import TraceRequest
from pine_engine.engine.events import Event, RunDone, RunResult
from pine_engine.engine.finite import check_logprob
from pine_engine.engine.prefix_cache import Memory, find_documents, find_prefix, fork
from pine_engine.engine.promise import changes_by_order
from pine_engine.engine.run import Run
from pine_engine.engine.streaming import in_thread
from pine_engine.errors import InputError
from pine_engine.given import in_words, one_or_more, sequence, whole_number, whole_numbers
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import Method, get_methods
from pine_engine.models.embedded import Progress
from pine_engine.models.load import check_model, load
from pine_engine.models.load import max_context as context_of
from pine_engine.models.support import context_in_words, stated_context
from pine_engine.network.registration import run_pass
from pine_engine.network.rowwise import knows_no_number
from pine_engine.network.wiring import Wiring
from pine_engine.prompts.layout import TOKEN_IDS, TokenLayout, check_vocabulary, tokenize, tokenize_text
from pine_engine.prompts.prompt import HOW_TO_PROMPT, Prompt


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
    """A model with our attention function; stateless between runs, so several threads may share it.

    model: the one that was given, which stays as it is; `wirings` over its weights are what runs. caveat: why
    equal bits are not promised of it here, in a sentence; None if they are.
    """

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
        check_model(model)
        if tokenizer is not None and not hasattr(tokenizer, "get_added_vocab"):
            raise InputError(
                f"the tokenizer is {in_words(tokenizer)}; give one that transformers has loaded, as by "
                "AutoTokenizer.from_pretrained(name)"
            )
        self.wirings = prove(model)
        config = model.config.get_text_config()
        self.model = model
        self.tokenizer = tokenizer
        self.model_name = name
        self.revision = revision
        self.address = address or name
        self.stop_ids = frozenset(one_or_more(stop_ids, int, "stop id", "give token ids", least=0))
        self.max_context: int = (
            context_of(model)
            if max_context is None
            else whole_number(max_context, "longest context", least=1, unit=" tokens")
        )
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.caveat = self._find_caveat(config.vocab_size)
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
        float16, by name or as torch has it. progress: see models/load.py. Raises ModelError if it cannot be
        found, loaded or is not supported.
        """
        loaded = load(name, dtype=dtype, device=device, progress=progress)
        return cls(
            loaded.model,
            loaded.tokenizer,
            name=loaded.source.name,
            revision=loaded.source.revision,
            address=loaded.source.address,
            stop_ids=loaded.stop_ids,
            max_context=loaded.max_context,
        )

    def _find_caveat(self, vocabulary: int) -> str | None:
        """What cannot be promised of this model here, in a sentence; None if nothing was found."""

        def prefill(layout: TokenLayout, method: Method) -> Tensor:
            return self.prefill(layout, method, room=0, rows_kept=layout.suffix_length)[1]

        changes = changes_by_order(prefill, vocabulary)
        if not changes:
            return None
        found = " and ".join(f"{label} (up to {change:.1e})" for label, change in changes.items())
        return (
            f"Equal bits are not promised of {self.model_name} here ({self.dtype}, {self.device}, "
            f"{torch.get_num_threads()} threads): shuffling the documents of a short prompt changed logits "
            f"of {found}. Answers can then differ between orders where two tokens are nearly as likely."
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
        try:
            weight = cast(Tensor, self.model.get_input_embeddings().weight)
        except (
            AttributeError,
            NotImplementedError,
        ):  # an embedding of somebody's own has no one weight, or is not told
            return int(self.model.config.get_text_config().vocab_size)
        return weight.shape[0]

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
        wiring = self.wiring_for(layout)
        state = new_state(build_plan(method, layout), wiring=wiring, room=room, recorder=recorder)
        # A trace tells how documents were read, and where single tokens are asked for, prefixes too.
        donors = [] if recorder and recorder.request.token_ranges else list(donors)
        if recorder is None and (donor := find_documents(donors, state)):
            row = fork(donor, state, room)
            return row, self.extend([row], [layout.suffix], on_layer)[0, -rows_kept:]
        prefix_of = find_prefix(donors, state)
        first = layout.prefix_length if prefix_of else 0
        ids = torch.tensor([layout.ids[first:]], device=input_device(wiring.network))
        row = Row(state, KVCache([]))
        logits = run_pass(
            wiring.network,
            PrefillPass(row, room, on_layer, prefix_of),
            ids,
            state.position_ids(first, ids.shape[1]),
            logits_to_keep=rows_kept,
        )
        return row, logits[0]

    def extend(
        self,
        rows: Sequence[Row | None],
        ids: Sequence[Sequence[int]],
        on_layer: Callable[[int], None] = lambda _: None,
    ) -> Tensor:
        """Feeds the same number of tokens to each row: logits (rows, tokens, V).

        rows: of any prompts and methods, None for one that has ended; it keeps its place in the batch where
        the shape of a matrix product can change the last bit of its rows, and is left out where it cannot.
        """
        wirings = list({id(row.state.wiring): row.state.wiring for row in rows if row}.values())
        parts = [self._extend_under(wiring, rows, ids, on_layer) for wiring in wirings]
        if len(parts) == 1:
            return parts[0]
        own = torch.tensor([wirings.index(row.state.wiring) if row else 0 for row in rows])
        return torch.stack(parts)[own, torch.arange(len(rows))]

    def _extend_under(
        self,
        wiring: Wiring,
        rows: Sequence[Row | None],
        ids: Sequence[Sequence[int]],
        on_layer: Callable[[int], None],
    ) -> Tensor:
        """extend for those of the rows that this network has read; the logits of all others are zero."""
        network = wiring.network
        places = [index for index, row in enumerate(rows) if row and row.state.wiring is wiring]
        if not knows_no_number(network.dtype, input_device(network)):
            places = list(range(len(rows)))
        elif len(places) == 1 < len(rows):
            places = sorted((places[0], 0 if places[0] else 1))
        fed = [row if (row := rows[place]) and row.state.wiring is wiring else None for place in places]
        tokens = torch.tensor([ids[place] for place in places], device=input_device(network))
        zeros = torch.zeros_like(tokens[:1])
        position_ids = torch.cat(
            [zeros if row is None else row.state.position_ids(row.num_read(), tokens.shape[1]) for row in fed]
        )
        logits = run_pass(network, ContinuationPass(fed, on_layer), tokens, position_ids)
        if len(places) == len(rows):
            return logits
        whole = logits.new_zeros(len(rows), *logits.shape[1:])
        whole[torch.tensor(places, device=logits.device)] = logits
        return whole

    def wiring_for(self, layout: TokenLayout) -> Wiring:
        """The network that reads a prompt of this length; what it answers is read by the same."""
        ranges = (
            wiring for wiring in self.wirings if wiring.longest is None or layout.num_tokens <= wiring.longest
        )
        return next(ranges)

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
