"""One run: its arguments, the prefill of the prompt under every method, then all answers in one batch."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Any, TypedDict, Unpack

import torch
from transformers import GenerationConfig

from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import SequenceState
from pine_engine.attention.trace import TraceConfig
from pine_engine.engine.events import RunResult
from pine_engine.engine.generation import (
    ActiveGeneration,
    Choose,
    continue_answers,
    decode_in_steps,
    most_likely,
    pending_prefill,
    prefill_answers,
    take_token,
)
from pine_engine.engine.passes import PassOptions
from pine_engine.engine.prefix_cache import PrefixCache
from pine_engine.engine.prepared_model import PreparedModel
from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_int, describe
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import Method
from pine_engine.network.thread_tuner import attention_threads, torch_num_threads
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.messages import MessageLike
from pine_engine.prompts.prompt import Prompt
from pine_engine.prompts.tasks import TASKS, USUAL_TASK
from pine_engine.rows.documents import Document, DocumentLike, as_documents
from pine_engine.scheduling.scheduler import Coroutine
from pine_engine.scheduling.worker import RunControl

PromptLike = Prompt | TokenLayout | None
"""A prompt. None if question and documents are passed instead."""

DocumentsLike = DocumentLike | Iterable[DocumentLike] | None
"""One or more documents. None if a prompt is passed instead."""

MethodsLike = str | Method | Iterable[str | Method] | None  # methods, see get_methods

MAX_NEW_TOKENS = 64  # default limit of tokens per answer


class RequestParts(TypedDict, total=False):
    """Keyword arguments that replace the prompt of `Engine.run`."""

    question: str
    documents: DocumentsLike
    task: str
    instruction: str
    system: str
    messages: Sequence[MessageLike] | None
    chat_template_kwargs: Mapping[str, Any] | None


class RunOptions(RequestParts, total=False):
    """Keyword arguments of `Engine.run`, which documents them."""

    methods: MethodsLike
    max_new_tokens: int
    trace: bool | TraceConfig
    return_logits: bool
    stop_at_eos: bool
    prefix_cache: PrefixCache | None


@dataclass(frozen=True)
class PreparedRun:
    """One prompt and the validated options of Engine.run."""

    model: PreparedModel
    layout: TokenLayout
    methods: tuple[Method, ...]
    max_new_tokens: int
    trace: TraceConfig | None
    return_logits: bool
    stop_at_eos: bool
    prefix_cache: PrefixCache | None
    documents: tuple[Document, ...] = ()  # of the request, none for a prompt

    def reorder(self, order: Sequence[int]) -> "PreparedRun":
        """Return the run over documents in another order, with a prefill of its own."""
        documents = tuple(self.documents[index] for index in order) if self.documents else ()
        return replace(self, layout=self.layout.reorder(order), documents=documents, prefix_cache=None)

    @torch.inference_mode()
    def compute(self, control: RunControl) -> Coroutine[RunResult]:
        """Return the result, and emit all events except RunFinished. Raises Cancelled if the flag is set."""
        answers = yield from self.prefill(control)
        yield from self.decode(answers, control)
        return self.result(answers)

    @torch.inference_mode()
    def prefill(self, control: RunControl, choose: Choose = most_likely) -> Coroutine[list[ActiveGeneration]]:
        """Prefill the prompt under every method; each first token is reported before the next prefill."""
        answers: dict[Method, ActiveGeneration] = {}
        recorders = {method: self.recorder() for method in self.methods}
        for method in self.methods:
            if method in answers:
                continue
            yield pending_prefill(self.model, self.layout.num_tokens)
            missing = {other: recorders[other] for other in self.methods if other not in answers}
            for other, answer in self._continue_cached(missing, control).items():
                answers[other] = self._begin(answer, choose, control)
            if method not in answers:
                answer = self._prefill_alone(method, recorders[method], self._cached(answers), control)
                answers[method] = self._begin(answer, choose, control)
        return [answers[method] for method in self.methods]

    def _continue_cached(
        self, recorders: Mapping[Method, TraceRecorder | None], control: RunControl
    ) -> dict[Method, ActiveGeneration]:
        """Prefill, in one batch, the suffix under those methods whose documents are in the prefix cache."""
        if not self.prefix_cache:
            return {}
        options = replace(self.options(), cached_sequences=self.prefix_cache.rows_for(self._cache_key))
        return continue_answers(
            self.model, self.layout, recorders, options, return_logits=self.return_logits, control=control
        )

    def _prefill_alone(
        self,
        method: Method,
        recorder: TraceRecorder | None,
        cached: Sequence[SequenceState],
        control: RunControl,
    ) -> ActiveGeneration:
        """Prefill the prompt under one method, after a prefix or documents of cached states."""
        options = replace(self.options(), recorder=recorder, cached_sequences=cached)
        (answer,) = prefill_answers(
            self.model, [self.layout], method, [options], return_logits=self.return_logits, control=control
        )
        return answer

    def _cached(self, answers: Mapping[Method, ActiveGeneration]) -> tuple[SequenceState, ...]:
        """Return the states whose prefixes and documents the next prefill reuses.

        They are those of all prompts in the cache. Without a cache, and in one of active runs, they are those
        of this run only, by the order of its methods, because the reused prefix decides the last bits.
        """
        if self.prefix_cache and not self.prefix_cache.only_active:
            return self.prefix_cache.rows
        before = takewhile(answers.__contains__, self.methods)
        return tuple(chain.from_iterable(answers[method].rows[0].sequences for method in before))

    @property
    def _cache_key(self) -> Hashable:
        return self.methods, self.layout.documents

    def _begin(self, answer: ActiveGeneration, choose: Choose, control: RunControl) -> ActiveGeneration:
        """Choose the first token of a prefilled prompt, and add its states to the prefix cache."""
        if self.prefix_cache:
            self.prefix_cache.add(answer.rows[0].sequences, self._cache_key)
        answer.choose = choose
        take_token(answer, self.model, self.max_new_tokens, self.stop_at_eos, control)
        return answer

    def recorder(self) -> TraceRecorder | None:
        """Return a recorder of the trace of one answer, if one was requested."""
        return TraceRecorder(self.trace) if self.trace else None

    def options(self) -> PassOptions:
        """Return options of a prefill, without recorder and reused states."""
        return PassOptions(self.model.patched_models, reserved_tokens=self.max_new_tokens)

    def decode(
        self,
        answers: Sequence[ActiveGeneration],
        control: RunControl,
        *,
        batch_size: int = 0,
        num_requests: int = 1,
    ) -> Coroutine[None]:
        """Decode answers of this run, or of several runs with its options; see decode_in_steps."""
        for item in decode_in_steps(
            self.model,
            iter(answers),
            max_new_tokens=self.max_new_tokens,
            batch_size=max(batch_size, len(answers)),
            stop_at_eos=self.stop_at_eos,
            control=control,
            num_requests=num_requests,
        ):
            if not isinstance(item, ActiveGeneration):
                yield item
            elif item.error:
                raise ModelError(item.error)

    def result(self, answers: Sequence[ActiveGeneration]) -> RunResult:
        """Return the result of finished answers."""
        with torch_num_threads(attention_threads(self.layout.num_tokens)):
            traces = {
                answer.method: answer.recorder.finish(
                    answer.rows[0].state.plan, answer.num_steps
                ).in_order_of(self.layout)
                for answer in answers
                if answer.recorder
            }
        logits = {answer.method: torch.cat(answer.kept_logits) for answer in answers if answer.kept_logits}
        texts = {answer.method: answer.answer for answer in answers}
        return RunResult(self.layout, texts, traces, logits, self.documents)


@torch.inference_mode()
def prefill_runs(
    runs: Mapping[int, PreparedRun],
    methods: Sequence[Method],
    answers: Mapping[int, dict[Method, ActiveGeneration]],
    control: RunControl,
) -> Coroutine[list[ActiveGeneration]]:
    """Prefill a prompt in several orders, in one batch under each method; return and add missing answers.

    Each order has a prefill of its own, which reuses only its own prefix. Keys of `runs` and `answers` are
    indices of orders.
    """
    new: list[ActiveGeneration] = []
    for method in methods:
        missing = {order: run for order, run in runs.items() if method not in answers[order]}
        if not missing:
            continue
        run = next(iter(missing.values()))
        yield pending_prefill(run.model, len(missing) * run.layout.num_tokens)
        before = run.methods[: run.methods.index(method)]
        options = []
        for order in missing:
            known = [answers[order][other] for other in before if other in answers[order]]
            cached = [row for answer in known for row in answer.rows[0].sequences]
            options.append(replace(run.options(), recorder=run.recorder(), cached_sequences=cached))
        found = prefill_answers(
            run.model,
            [each.layout for each in missing.values()],
            method,
            options,
            return_logits=run.return_logits,
            control=control,
            orders=list(missing),
        )
        for order, answer in zip(missing, found, strict=True):
            answers[order][method] = answer
            take_token(answer, run.model, run.max_new_tokens, run.stop_at_eos, control)
        new += found
    return new


def prepare_run(
    model: PreparedModel, prompt: PromptLike, *positional: object, **options: Unpack[RunOptions]
) -> PreparedRun:
    """Return a run of validated options. Raises InputError as Engine.run."""
    if positional:
        got = f"got {len(positional)} more positional argument{'s' if len(positional) > 1 else ''}"
        advice = 'Pass question="..." and documents=["...", "..."], or a prompt alone.'
        raise InputError(f"only the prompt is positional: {got}. {advice}", field="prompt")
    trace, prefix_cache = options.pop("trace", False), options.pop("prefix_cache", None)
    if not isinstance(trace, bool | TraceConfig | None):
        raise InputError(f"invalid trace: got {describe(trace)}, expected a TraceConfig", field="trace")
    if not isinstance(prefix_cache, PrefixCache | None):
        message = f"invalid prefix_cache: got {describe(prefix_cache)}, expected a PrefixCache"
        raise InputError(message, field="prefix_cache")
    selected = model.select_methods(options.pop("methods", None))
    max_new_tokens = as_int(
        options.pop("max_new_tokens", MAX_NEW_TOKENS), "answer length", least=0, unit=" tokens"
    )
    return_logits, stop_at_eos = options.pop("return_logits", False), options.pop("stop_at_eos", True)
    parts: RequestParts = options
    if parts.get("documents") is not None:
        parts["documents"] = as_documents(parts["documents"])
    layout = tokenize_request(model, prompt, **parts)
    model.check_length(layout, max_new_tokens)
    check_scores(layout, selected)
    if prefix_cache:
        prefix_cache.belong_to(model.model)
    config = TraceConfig() if trace is True else trace or None
    if config:
        config.check(model.num_layers, model.num_heads, layout.num_tokens + max_new_tokens)
        _check_token_ranges(config, model, selected)
    return PreparedRun(
        model,
        layout,
        selected,
        max_new_tokens,
        config,
        return_logits,
        stop_at_eos,
        prefix_cache,
        tuple(parts.get("documents") or ()),
    )


def _check_token_ranges(config: TraceConfig, model: PreparedModel, methods: Sequence[Method]) -> None:
    """Raise InputError for tokens of a prompt that no single pass reads in its order."""
    if config.token_ranges and model.placement_problem:
        message = f"attention cannot be traced: {model.placement_problem}. Leave out token_ranges."
        raise InputError(message, field="trace")
    moving = [method.name for method in methods if not method.has_plan or method.merge]
    if config.token_ranges and moving:
        places = "which do not read the prompt once, in its order"
        message = f"token ranges cannot be traced under {', '.join(moving)}, {places}"
        raise InputError(message, field="trace")


def tokenize_request(model: PreparedModel, prompt: PromptLike, **parts: Unpack[RequestParts]) -> TokenLayout:
    """Return the token ids of the prompt, or of the one that the task builds from its parts.

    Raises:
        InputError: For an unknown option, a prompt together with parts of one, and for neither.
    """
    for name in [name for name in parts if name not in RequestParts.__annotations__]:
        advice = "See help(Engine.run) for all options."
        if hasattr(GenerationConfig(), name):
            advice = "Answers are greedy; pass options of transformers to `generate` inside patch_generate."
        raise InputError(f"unknown option: got {name}. {advice}", field=name)
    task, documents = parts.pop("task", USUAL_TASK), parts.pop("documents", None)
    others: dict[str, Any] = dict(parts)
    has_parts = documents is not None or any(others.values()) or task != USUAL_TASK
    if prompt is not None and has_parts:
        message = "a prompt and parts of one were passed. Pass the prompt or its parts."
        raise InputError(message, field="prompt")
    if prompt is not None:
        return model.tokenize(prompt)
    if documents is None:
        field = "documents" if has_parts else "prompt"
        raise InputError('there are no documents. Pass documents=["...", "..."], or a prompt.', field=field)
    return model.tokenize(TASKS[task].prompt(model.tokenizer, documents=documents, **others))
