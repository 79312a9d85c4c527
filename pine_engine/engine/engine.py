"""The engine: one loaded model that answers prompts under several methods."""

import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import Never, Unpack

import torch

from pine_engine.engine.events import Event, RunFinished, RunResult
from pine_engine.engine.leave_one_out import LeaveOneOut, score_without_documents
from pine_engine.engine.likelihood import Score, score_methods
from pine_engine.engine.order_results import OrderResult, ShuffleResult
from pine_engine.engine.orders import choose_orders, compare_orders, run_orders
from pine_engine.engine.prefix_cache import PrefixCache
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.engine.run import (
    MethodsLike,
    PromptLike,
    RequestParts,
    RunOptions,
    prepare_run,
    tokenize_request,
)
from pine_engine.errors import InputError
from pine_engine.input_validation import as_tuple_of
from pine_engine.models.embedded import Progress
from pine_engine.models.load import load
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import Prompt
from pine_engine.scheduling.scheduler import Coroutine, run_shared, stream_shared
from pine_engine.scheduling.worker import RunControl, compute_on


class Engine(PreparedModel):
    """A model that answers prompts under several methods.

    It has no state between runs, so that several threads may share it: their runs share
    decode steps where no logit depends on the batch size (docs/exactness.md). `Engine(model, tokenizer)`
    validates a loaded transformers model, see `Engine.__init__`.
    """

    @property
    def active_prefixes(self) -> PrefixCache | None:
        """Prefix cache that runs at the same time can share, or None if that could change a bit.

        Pass it to `run` or `generate` as `prefix_cache`. It has the prompts of active runs only.
        """
        return self._prefixes if self.shares_steps else None

    @cached_property
    def _prefixes(self) -> PrefixCache:
        return PrefixCache(only_active=True)

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] | None = None,
        *,
        dtype: str | torch.dtype = "auto",
        device: str | torch.device = "cpu",
        progress: Progress | None = None,
    ) -> "Engine":
        """Load and validate a model.

        Args:
            name: Hub id, folder of a model or of a LoRA adapter, or GGUF file. Default: the embedded model.
            dtype: float32, bfloat16 or float16, by name or as a torch dtype; "4bit": float32, with 4-bit
                weights for decoding; or "auto": the dtype of the stored weights if the processor has
                instructions for it, otherwise float32, and bfloat16 on a GPU.
            device: Device of weights and activations.
            progress: Called with the finished fraction, from 0 to 1, and a status.

        Raises:
            ModelError: If the model cannot be found or loaded, or is not supported.
        """
        loaded = compute_on(device, lambda: load(name, dtype=dtype, device=device, progress=progress))
        return cls(
            loaded.model,
            loaded.tokenizer,
            name=loaded.source.name,
            revision=loaded.source.revision,
            model_ref=loaded.source.address,
            stop_token_ids=loaded.stop_token_ids,
            max_context_length=loaded.max_context_length,
            decode_in_4bit=loaded.dtype == "4bit",
        )

    def run(self, prompt: PromptLike = None, *positional: Never, **options: Unpack[RunOptions]) -> RunResult:
        """Answer a question over documents, or a prompt, greedily under each method.

        All answers are decoded in one batch, with one row per method.

        Args:
            prompt: Prompt of text or token ids. Alternatively, pass its parts, from which a task builds it.
            *positional: No other positional argument: pass question=... and documents=[...].
            **options: Keyword arguments of RunOptions. There are no others, such as temperature: use
                patch_generate for those of transformers.

                - `question`: Question about the documents.
                - `documents`: One or more texts, {"title": ..., "text": ...} or Document("text", "title"),
                  or a table with a column text and optionally a column title.
                - `task`: Name in TASKS.
                - `instruction`: Replaces the instruction of the task.
                - `system`: System message.
                - `messages`: Chat in place of question and system: {"role": ..., "content": ...} as in the
                  OpenAI API. The last user message is the question; earlier turns are part of the prefix.
                - `chat_template_kwargs`: Arguments of the chat template, such as {"enable_thinking": False}.
                - `methods`: One or more names or entries of METHODS, or "all". Default: the default methods.
                - `max_new_tokens`: Limit per answer. 0 computes the prefill only.
                - `trace`: Record positions, importances, attention and alternatives; with a TraceConfig,
                  also weights of single tokens.
                - `return_logits`: Return the logits of the suffix and of each decoding step.
                - `stop_at_eos`: False to continue after the end-of-sequence token.
                - `prefix_cache`: Earlier prompts. Prefixes and documents in it are reused, and this prompt
                  is added. Without it, only the methods of this run share them.

        Raises:
            InputError: For an unknown option, method or task, a prompt that exceeds the context, and for both
                a prompt and its parts, or neither.
            ModelError: For logits that are not finite.
        """
        run = prepare_run(self, prompt, *positional, **options)
        return run_shared(run.compute)

    def generate(
        self, prompt: PromptLike = None, *positional: Never, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]:
        """Answer as `run` does, and yield events; the last one is RunFinished with the result.

        Closing the generator stops the model within one layer.

        Args:
            prompt: See run.
            *positional: See run.
            **options: Keyword arguments of run.

        Raises:
            InputError: At the call, as run, and for an unknown option.
            ModelError: As run.
        """
        run = prepare_run(self, prompt, *positional, **options)

        def work(control: RunControl) -> Coroutine[None]:
            control.report(RunFinished((yield from run.compute(control))))

        return stream_shared(work)

    def compare_orders(
        self,
        prompt: Prompt | TokenLayout,
        *,
        orders: Iterable[Sequence[int]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Generator[Event | OrderResult, None, None]:
        """Answer in each document order and yield events, see `pine_engine.compare_orders`.

        Args:
            prompt: Prompt in its first document order.
            orders: Document orders. Default: those of sample_orders.
            **options: Keyword arguments of run.

        Raises:
            InputError: For invalid orders, and as run.
        """
        return compare_orders(self, prompt, orders=orders, **options)

    def run_each(
        self,
        prompts: Sequence[Prompt | TokenLayout],
        *,
        orders: Sequence[Sequence[Sequence[int]]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Generator[tuple[int, Event | OrderResult], None, None]:
        """Answer several prompts, one after the other, and yield (index of the prompt, event).

        Args:
            prompts: Prompts with their documents.
            orders: Document orders of each prompt, which are compared. Default: answers as of `generate`.
            **options: Keyword arguments of run.

        Raises:
            InputError: As run.
        """
        for index, prompt in enumerate(prompts):
            events: Generator[Event | OrderResult, None, None]
            if orders is None:
                events = self.generate(prompt, **options)
            else:
                events = self.compare_orders(prompt, orders=orders[index], **options)
            with closing(events):
                for event in events:
                    yield index, event

    def shuffle(
        self,
        prompt: PromptLike = None,
        *positional: Never,
        orders: Iterable[Sequence[int]] | None = None,
        count: int | None = None,
        seed: int = 0,
        progress: Progress | None = None,
        **options: Unpack[RunOptions],
    ) -> ShuffleResult:
        """Answer in several document orders, each with its own prefill, and compare them with the first.

        Args:
            prompt: See run.
            *positional: See run.
            orders: Permutations of the slots, counted from 0. The first is the reference.
            count: Number of orders, if orders is None. The first is the order of the prompt, the others are
                sampled. Default: all orders of up to four documents, eleven orders of more.
            seed: Seed of the sampled orders.
            progress: Called after each order with the finished fraction, from 0 to 1, and a status.
            **options: Keyword arguments of run, without prefix_cache. With return_logits, the result contains
                the logits of all orders, which need much memory; they are compared in any case.

        Raises:
            InputError: As run, and for invalid orders.
            ModelError: As run.
        """
        if "prefix_cache" in options:
            raise InputError("shuffle has no prefix_cache: orders share no prefill", field="prefix_cache")
        return_logits = options.get("return_logits", False)
        options["return_logits"] = True  # for the comparison
        run = prepare_run(self, prompt, *positional, **options)
        chosen = choose_orders(run.layout, orders, count=count, seed=seed)
        results: list[OrderResult] = []
        for event in run_orders(run, chosen):
            if isinstance(event, OrderResult):
                # Logits need most of the memory.
                result = event.result if return_logits else replace(event.result, logits={})
                results.append(replace(event, result=result))
                if progress:
                    progress(len(results) / len(chosen), f"order {len(results)} of {len(chosen)}")
        return ShuffleResult(tuple(results), run.methods)

    def score(
        self,
        prompt: PromptLike = None,
        continuations: str | Iterable[str] = (),
        *,
        methods: MethodsLike = None,
        **request: Unpack[RequestParts],
    ) -> dict[str, list[Score]]:
        """Return the log-probabilities of answers under each method.

        There is one prefill per method, and only one for methods with equal prefill.

        Args:
            prompt: See run.
            continuations: One or more texts that follow the prompt. Control tokens are encoded as plain text.
            methods: See run.
            **request: Parts of the prompt, see run.

        Returns:
            For each method, one Score per continuation.

        Raises:
            InputError: As run, for no continuation, and for an empty one.
        """
        selected = self.select_methods(methods)
        layout = tokenize_request(self, prompt, **request)
        texts = as_tuple_of(continuations, str, "continuation", "give at least one text to score")
        answers = [(text, self.tokenize_answer(text)) for text in texts]
        self.check_length(layout, max(len(ids) for _, ids in answers))

        return run_shared(lambda control: score_methods(self, layout, selected, answers, control=control))

    def leave_one_out(
        self, result: RunResult, *, methods: MethodsLike = None, progress: Progress | None = None
    ) -> dict[str, LeaveOneOut]:
        """Return how much the log-probability of each answer falls without each document.

        There are D + 1 prefills per method for D documents. The order of the remaining documents stays.

        Args:
            result: Run of this engine, with at least two documents.
            methods: Methods of the run. Default: all that have an answer.
            progress: Called after each prompt with the finished fraction, from 0 to 1, and a status.

        Returns:
            For each method, a LeaveOneOut; its `differences` has one value in nats for each document.

        Raises:
            InputError: For a single document, a method that is not in the run, or an empty answer.
            ModelError: For logits that are not finite.
        """
        events = score_without_documents(self, result, methods=methods)
        results: dict[str, LeaveOneOut] = {}
        chosen = result.answered if methods is None else self.select_methods(methods)
        num_done, count = 0, len(chosen) * (result.layout.num_documents + 1)
        for event in events:
            if isinstance(event, LeaveOneOut):
                results[event.score.method] = event
                num_done += 1
                if progress:
                    progress(num_done / count, f"prompt {num_done} of {count}")
        return results
