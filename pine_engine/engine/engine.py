"""The engine: one loaded model that answers prompts under several methods at once."""

import os
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from pine_engine.attention.state import input_device
from pine_engine.attention.trace import TraceRequest
from pine_engine.engine import passes
from pine_engine.engine.asking import DocumentsGiven, PromptGiven, asked_prompt
from pine_engine.engine.events import Event, RunResult
from pine_engine.engine.likelihood import Score, score_answers
from pine_engine.engine.model_thread import compute, compute_on
from pine_engine.engine.options import MAX_NEW_TOKENS, MethodsGiven, RunOptions
from pine_engine.engine.orders import OrderRow, OrderRuns, chosen_orders
from pine_engine.engine.prefix_cache import Memory
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.engine.run import Run
from pine_engine.engine.shuffle import ShuffleResult
from pine_engine.engine.streaming import in_thread, stop_if
from pine_engine.engine.tokenizing import Tokenizing
from pine_engine.errors import InputError
from pine_engine.given import in_words, one_or_more, sequence, whole_number
from pine_engine.methods.table import get_methods
from pine_engine.models.embedded import Progress
from pine_engine.models.load import check_model, load
from pine_engine.models.load import max_context as context_of
from pine_engine.models.load import stop_ids as stop_ids_of
from pine_engine.models.support import context_in_words, stated_context
from pine_engine.network.parallel import own_heads
from pine_engine.network.wiring import Wiring
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt
from pine_engine.prompts.tasks import USUAL_TASK


class Engine:
    """A model with our attention function; stateless between runs, so several threads may share it.

    model: the one that was given, which stays as it is; `wirings` over its weights are what runs.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Any = None,
        *,
        name: str = "model",
        revision: str | None = None,
        address: str | None = None,
        stop_ids: int | Iterable[int] | None = None,
        max_context: int | None = None,
        four_bit: bool = False,
    ) -> None:
        """Wraps a transformers model that is already loaded, after it has proved itself.

        tokenizer: needed for prompts of text; prompts of tokens do without. address: what `load` takes
        elsewhere for the same model; its name if None. stop_ids: the token ids that end an answer, in any
        collection or a single one; the end-of-sequence ids of model and tokenizer if None. max_context: in
        tokens, from the model's configuration if None. four_bit: answers are written with weights in 4 bits,
        see models/packed.py, for models in float32 on the CPU.
        Raises ModelError for what is no model that writes, or if its attention is not supported, and
        InputError for what is no tokenizer, id or length.
        """
        check_model(model)
        self._tokenizing = Tokenizing(tokenizer, model)
        heads = own_heads(model)
        self.four_bit = four_bit
        self._prepared = PreparedModel(model, name, four_bit=four_bit)
        config = model.config.get_text_config()
        self.model = model
        self.tokenizer = tokenizer
        self.model_name = name
        self.revision = revision
        self.address = address or name
        self.stop_ids = (
            stop_ids_of(model, tokenizer)
            if stop_ids is None
            else frozenset(one_or_more(stop_ids, int, "stop id", "give token ids", least=0))
        )
        self.max_context: int = (
            context_of(model)
            if max_context is None
            else whole_number(max_context, "longest context", least=1, unit=" tokens")
        )
        self.num_layers: int = config.num_hidden_layers
        self.num_heads = heads

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] | None = None,
        *,
        dtype: str | torch.dtype = "auto",
        device: str | torch.device = "cpu",
        progress: Progress | None = None,
    ) -> "Engine":
        """Loads a model and checks it.

        name: a hub id, a folder or a GGUF file; None for the embedded model. dtype: float32, bfloat16 or
        float16, by name or as torch has it; "4bit", which is float32 with 4-bit weights for decode; or
        "auto", the dtype of the stored weights if the processor has instructions for it, else float32, and
        bfloat16 on a GPU. `Engine.dtype` is the one that was used. device, progress: see models/load.py.
        Raises ModelError if it cannot be found, loaded or is not supported.
        """
        loaded = compute_on(device, lambda: load(name, dtype=dtype, device=device, progress=progress))
        return cls(
            loaded.model,
            loaded.tokenizer,
            name=loaded.source.name,
            revision=loaded.source.revision,
            address=loaded.source.address,
            stop_ids=loaded.stop_ids,
            max_context=loaded.max_context,
            four_bit=loaded.dtype == "4bit",
        )

    @property
    def wirings(self) -> tuple[Wiring, ...]:
        """The networks that run, updated first if the weights, modules or adapters of the model have changed.

        Raises ModelError if the changed model is not supported.
        """
        return self._prepared.wirings()

    @property
    def caveat(self) -> str | None:
        """Why equal bits are not promised of the model here, in a sentence; None if they are."""
        return self._prepared.caveat

    def __repr__(self) -> str:
        return f"Engine({self.model_name}, {self.dtype} on {self.device})"

    @property
    def dtype(self) -> str:
        """Name of the dtype of weights and activations, or 4bit."""
        return "4bit" if self.four_bit else str(self.model.dtype).removeprefix("torch.")

    @property
    def device(self) -> str:
        """Where the model computes."""
        return str(input_device(self.model))

    @property
    def vocabulary_size(self) -> int:
        """How many token ids the model has an embedding for."""
        return self._tokenizing.vocabulary_size

    def run(
        self,
        prompt: PromptGiven = None,
        *,
        question: str = "",
        documents: DocumentsGiven = None,
        task: str = USUAL_TASK,
        instruction: str = "",
        system: str = "",
        methods: MethodsGiven = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
        trace: bool | TraceRequest = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
        memory: Memory | None = None,
    ) -> RunResult:
        """Answers a question over documents, or a prompt, greedily under each method.

        prompt: text or tokens in segments; or in its place the parts that a task makes one of. question: what
        is asked. documents: texts, {"title": ..., "text": ...} or Document("text", "title"), several or one,
        or a table with a column text and optionally a column title.
        task: a name of TASKS. instruction: in place of the task's own. system: the system message.
        methods: names or rows of METHODS, several or a single one, "all", or the default ones for None; the
        prompt is read once for each, then all answers are written together, one batch row per method.
        max_new_tokens: of an answer. trace: record positions, importances, attention and alternatives, and
        with a request token-level weights too. keep_logits: keep the logits of the suffix and of every step.
        stop_at_end: False writes max_new_tokens whatever comes. memory: prompts read before, whose states are
        used where they are the same, and to which this one is added; without it only methods of this run
        share theirs.

        Computed in a thread that lives on, see model_thread.py; with how many of torch's own, see
        network/pace.py.
        Raises InputError for an unknown method or task, a prompt that does not fit the context, and both a
        prompt and its parts, or neither; ModelError for logits that are no numbers.
        """
        options = RunOptions(
            methods=methods,
            max_new_tokens=max_new_tokens,
            trace=trace,
            keep_logits=keep_logits,
            stop_at_end=stop_at_end,
            memory=memory,
        )
        layout = self._asked(prompt, question, documents, task, instruction, system)
        run = self._new_run(layout, options)
        return compute(lambda interrupted: run.finish(cancelled=interrupted))

    def generate(
        self,
        prompt: PromptGiven = None,
        *,
        question: str = "",
        documents: DocumentsGiven = None,
        task: str = USUAL_TASK,
        instruction: str = "",
        system: str = "",
        methods: MethodsGiven = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
        trace: bool | TraceRequest = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
        memory: Memory | None = None,
    ) -> Generator[Event, None, None]:
        """What run() does, told as it goes: yields events, the last one RunDone with the result.

        Same arguments and errors, which are raised at once. Closing the generator stops the model within one
        layer.
        """
        options = RunOptions(
            methods=methods,
            max_new_tokens=max_new_tokens,
            trace=trace,
            keep_logits=keep_logits,
            stop_at_end=stop_at_end,
            memory=memory,
        )
        layout = self._asked(prompt, question, documents, task, instruction, system)
        return in_thread(self._new_run(layout, options).work)

    def shuffle(
        self,
        prompt: PromptGiven = None,
        *,
        question: str = "",
        documents: DocumentsGiven = None,
        task: str = USUAL_TASK,
        instruction: str = "",
        system: str = "",
        orders: Iterable[Sequence[int]] | None = None,
        count: int | None = None,
        seed: int = 0,
        methods: MethodsGiven = None,
        max_new_tokens: int = MAX_NEW_TOKENS,
        trace: bool | TraceRequest = False,
        keep_logits: bool = False,
        stop_at_end: bool = True,
        progress: Progress | None = None,
    ) -> ShuffleResult:
        """Answers in several orders of the documents, each computed from scratch and compared with the first.

        orders: each the documents' places counted from 0, the first the one to compare with. count: in place
        of orders, how many are tried, the one as entered among them and the others drawn with the seed; for
        None all orders of up to four documents, and eleven of more. All else as in run().
        keep_logits: all orders' logits take a lot of memory; they are compared in any case.
        progress: called after each order with the part done, 0 to 1, and the same in words.
        Raises InputError as run() does, and for what are no orders.
        """
        options = RunOptions(
            methods=methods,
            max_new_tokens=max_new_tokens,
            trace=trace,
            keep_logits=True,
            stop_at_end=stop_at_end,
        )
        layout = self._asked(prompt, question, documents, task, instruction, system)
        tried = chosen_orders(layout, orders, count=count, seed=seed)

        rows: list[OrderRow] = []

        def take(event: Event | OrderRow) -> None:
            if isinstance(event, OrderRow):
                rows.append(event if keep_logits else event.without_logits())
                if progress:
                    progress(len(rows) / len(tried), f"order {len(rows)} of {len(tried)}")

        runs = self.run_orders(layout, options, tried)
        compute(lambda interrupted: runs.work(take, interrupted))
        return ShuffleResult(tuple(rows))

    def run_orders(
        self, layout: TokenLayout, options: RunOptions, orders: Sequence[tuple[int, ...]]
    ) -> OrderRuns:
        """The runs of a prompt in several orders, checked against the model; each has a memory of its own."""
        self._new_run(layout, options)
        return OrderRuns(
            lambda reordered: self._new_run(reordered, replace(options, memory=Memory())), layout, orders
        )

    def score(
        self,
        prompt: PromptGiven = None,
        continuations: str | Iterable[str] = (),
        *,
        question: str = "",
        documents: DocumentsGiven = None,
        task: str = USUAL_TASK,
        instruction: str = "",
        system: str = "",
        methods: MethodsGiven = None,
    ) -> dict[str, list[Score]]:
        """Log-probabilities of given answers under each method; the prompt is read once per method, and
        what methods read alike once for all.

        continuations: texts that follow the prompt, several or a single one, taken as data (nothing in them
        is a control token). All else as in run().
        Returns for each method one Score per continuation. Raises InputError as run() does, for an empty
        continuation, and for none.
        """
        rows = get_methods(methods)
        layout = self._asked(prompt, question, documents, task, instruction, system)
        texts = one_or_more(continuations, str, "continuation", "give at least one text to score")
        answers = [self.tokenize_answer(text) for text in texts]
        room = max(map(len, answers))
        self.check_length(layout, room)

        @torch.inference_mode()
        def work(interrupted: threading.Event) -> dict[str, list[Score]]:
            read, logits = passes.prefill_each(
                self.wirings,
                layout,
                rows,
                room=room,
                on_layer_of=lambda _: lambda _: stop_if(interrupted),
            )
            scored = [
                score_answers(read, logits, text, ids) for text, ids in zip(texts, answers, strict=True)
            ]
            return {method.name: [scores[place] for scores in scored] for place, method in enumerate(rows)}

        return compute(work)

    def _asked(self, prompt: PromptGiven, *parts: Any) -> TokenLayout:
        return self.tokenize(asked_prompt(self.tokenizer, prompt, *parts))

    def _new_run(self, layout: TokenLayout, options: RunOptions) -> Run:
        """A run that has been checked against the model."""
        self.check_length(layout, options.max_new_tokens)
        options.memory.belong_to(self.model)
        if options.trace:
            options.trace.check(self.num_layers, self.num_heads, layout.num_tokens + options.max_new_tokens)
        return Run(self.wirings, self.num_layers, self.stop_ids, self.decode_text, layout, options)

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

    def tokenize(self, prompt: Prompt | TokenLayout) -> TokenLayout:
        """The prompt's tokens.

        Raises InputError if a part is empty, for ids outside the vocabulary, for text where there is no
        tokenizer, and for what is no prompt.
        """
        return self._tokenizing.prompt(prompt)

    def tokenize_all(
        self, prompts: Prompt | TokenLayout | Iterable[Prompt | TokenLayout]
    ) -> list[TokenLayout]:
        """The tokens of several prompts, or of a single one. Raises InputError as tokenize does."""
        several = None if isinstance(prompts, Prompt | TokenLayout) else sequence(prompts)
        return [self.tokenize(prompt) for prompt in ((prompts,) if several is None else several)]

    def tokenize_answer(self, text: str) -> tuple[int, ...]:
        """The tokens of a given answer, taken as data.

        Raises InputError if there are none, for what is no text, and without a tokenizer.
        """
        return self._tokenizing.answer(text)

    def decode_text(self, ids: Sequence[int]) -> str:
        """The text of an answer; without a tokenizer, none."""
        return self._tokenizing.text(ids)

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        """The text of each token on its own. Raises InputError without a tokenizer."""
        return self._tokenizing.texts(ids)

    def allow_forks(self) -> None:
        """Lets forks of this process use the engine, from now on and on POSIX systems alone.

        Forking then waits until no thread tokenizes: a fork would inherit a lock that is never released, and
        a tokenizer with a setting that is never set back.
        """
        lock = self._tokenizing.lock
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


def check_engine(given: Any) -> None:
    """Raises InputError for what does not read prompts, such as a model that is not wrapped in an engine."""
    if not hasattr(given, "tokenize"):
        raise InputError(
            f"the engine is {in_words(given)}; give Engine(model, tokenizer) or Engine.load(name)"
        )
