"""Prefill and the decode loop: answers of several prompts in one batch, whose size stays fixed.

The loop is a coroutine that yields its decode steps, so that several runs can share one (`scheduling`).

On a CPU in float32, bfloat16 and float16, a row of a batch of 2 or more is bitwise identical for every batch
size and neighbor (`is_batch_invariant`). A batch of one may use another GEMM kernel.
"""

import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pine_engine.attention.forward import batch_caches
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.state import SequenceState, input_device
from pine_engine.engine import passes
from pine_engine.engine.events import Answer, GenerationFinished, PrefillDone, PrefillProgress, TokenGenerated
from pine_engine.engine.prepared_model import PreparedModel, check_engine
from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_int, as_tuple_of, sequence
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import Method, get_method
from pine_engine.network.batch_invariant_ops import is_batch_invariant
from pine_engine.network.parallel import has_hooks
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.prompt import PROMPT_HINT, Prompt
from pine_engine.prompts.thinking import NOTHING_GENERATED, SplitAnswer
from pine_engine.scheduling.scheduler import PendingPrefill, compute_between_layers
from pine_engine.scheduling.worker import NO_CONTROL, RunControl, iterate_in_worker

BATCH_ROWS = 8  # default number of answers that are decoded together

LARGER_DTYPES = {torch.float16: "bfloat16 or float32", torch.bfloat16: "float32"}
"""Dtypes with a larger range, or more precision."""

Choose = Callable[[Tensor], tuple[int, float]]
"""Choice of the next token: takes logits (n, V) and returns a token and its log-probability in nats."""


def most_likely(logits: Tensor) -> tuple[int, float]:
    """Return the token with the highest probability after the first prompt."""
    logprobs = logits[0].float().log_softmax(-1)
    token = int(logprobs.argmax())
    return token, float(logprobs[token])


def pending_prefill(model: PreparedModel, num_tokens: int) -> PendingPrefill:
    """Return the prefill of a prompt of this length; no layers of other runs come between hooks.

    Nor do they in a model that runs as it is, whose code may keep something between its layers.
    """
    return PendingPrefill(num_tokens, not has_hooks(model.model) and model.placement_problem is None)


def prefill_progress(
    control: RunControl, method: str, num_layers: int, order: int = 0
) -> Callable[[float], None]:
    """Return a function of the layer that emits the progress of a prefill, or raises Cancelled."""
    num_passes = 0

    def begin_layer(layer: float) -> None:
        nonlocal num_passes
        control.check()
        num_passes += layer == 0
        control.report(PrefillProgress(method, int(layer), num_layers, layer % 1, num_passes, order))
        compute_between_layers(1 - layer / num_layers)

    return begin_layer


@dataclass(eq=False)
class DecodeStep:
    """Decode step that is computed before the coroutine which yields it is resumed."""

    rows: Sequence[SequenceState | None]  # None: a free slot, which stays in the batch
    tokens: Sequence[Sequence[int]]  # last token of each row
    on_layer: Callable[[float], None]
    logits: Tensor = field(init=False)  # (rows, 1, V)
    seconds: float = 0.0

    @torch.inference_mode()
    def compute(self, others: Sequence["DecodeStep"] = ()) -> None:
        """Compute this step, and others of the same `sharing_key`, in one batch."""
        began = time.perf_counter()
        steps = [self, *others]
        on_layer = self.on_layer if not others else lambda _: None
        rows = [row for step in steps for row in step.rows]
        tokens = [token for step in steps for token in step.tokens]
        logits = passes.extend(rows, tokens, on_layer, is_step=True)
        synchronize(logits)
        seconds = time.perf_counter() - began
        num_rows = len(list(filter(None, rows)))
        for step, part in zip(steps, logits.split([len(step.rows) for step in steps]), strict=True):
            step.logits = part
            step.seconds = seconds * len(list(filter(None, step.rows))) / num_rows

    @property
    def sharing_key(self) -> Hashable:
        """Key of steps that can be computed together; None if another batch size can change a logit."""
        rows = [row for row in self.rows if row]
        networks = frozenset(row.state.patched_model for row in rows)
        is_shareable = len(self.rows) > 1 and all(row.sequences == (row,) for row in rows)
        is_shareable &= all(
            is_batch_invariant(one.network.dtype, input_device(one.network)) for one in networks
        )
        return networks if is_shareable else None

    @property
    def can_repeat(self) -> bool:
        """True if the step can be repeated after an error: it has no trace, which would record it twice."""
        return not any(row.state.recorder for row in self.rows if row)

    def lengths(self) -> list[int]:
        """Return the numbers of tokens in the caches of the rows."""
        return [row.cache.length for row in self.rows if row]

    def truncate(self, lengths: Sequence[int]) -> None:
        """Remove the tokens that a failed step has appended to the caches of its rows."""
        for row, length in zip(filter(None, self.rows), lengths, strict=True):
            row.cache.truncate(length)


@dataclass(eq=False)
class ActiveGeneration:
    """Answer to one prompt under one method, from the end of its prefill."""

    method: str
    rows: tuple[SequenceState, ...]  # of the prompt, then of prompts continued with the same answer
    logits: Tensor  # of the next token, (n, V); after prefill, n may be larger than the number of rows
    prefill_s: float
    index: int = 0  # of the prompt, or of its document order
    choose: Choose = most_likely
    recorder: TraceRecorder | None = None
    kept_logits: list[Tensor] = field(default_factory=list)  # of suffix and steps, float32; may be empty
    slots: list[int] = field(default_factory=list)  # of the rows in the batch
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    found: SplitAnswer = NOTHING_GENERATED  # thinking part and answer, once it is finished
    finish_reason: str = ""
    error: str = ""  # why there is no answer; an exception would keep the caches of its frames
    num_steps: int = 0
    decode_s: float = 0.0
    seconds: float = 0.0  # share of the steps' time, which several answers use together

    @property
    def answer(self) -> Answer:
        """The finished answer."""
        seconds = self.decode_s / max(self.num_steps, 1)
        ids, logprobs = tuple(self.ids), tuple(self.logprobs)
        return Answer(
            self.method,
            self.found.text,
            ids,
            logprobs,
            self.prefill_s,
            seconds,
            self.finish_reason,
            self.found.thinking,
            self.found.is_finished,
            decode_s=self.seconds,
        )

    @property
    def suffix(self) -> tuple[int, ...]:
        """Token ids of the prompt after the documents."""
        return self.rows[0].state.plan.layout.suffix

    @property
    def has_token(self) -> bool:
        """True if the token that follows from the logits is chosen, or there is none."""
        return len(self.ids) > self.num_steps or bool(self.finish_reason or self.error)

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the answer, without the end-of-sequence token."""
        return len(self.ids)

    def free(self) -> None:
        """Free caches and logits, once the answer is finished."""
        self.rows, self.logits, self.kept_logits = (), self.logits.new_empty(0), []

    def num_bytes(self, max_new_tokens: int) -> int:
        """Return the memory of cache and kept logits at the longest answer."""
        num_kept = sum(map(len, self.kept_logits)) + max_new_tokens
        kept = num_kept * self.logits.shape[-1] * 4 if self.kept_logits else 0
        return kept + sum(row.cache.num_bytes for row in self.rows)


def prefill_answer(
    model: PreparedModel,
    layout: TokenLayout,
    method: Method,
    options: passes.PassOptions,
    *,
    index: int = 0,
    control: RunControl = NO_CONTROL,
) -> ActiveGeneration:
    """Prefill a prompt, under torch.inference_mode."""
    (answer,) = prefill_answers(model, [layout], method, [options], return_logits=False, control=control)
    answer.index = index
    return answer


def prefill_answers(
    model: PreparedModel,
    layouts: Sequence[TokenLayout],
    method: Method,
    options: Sequence[passes.PassOptions],
    *,
    return_logits: bool,
    control: RunControl,
    orders: Sequence[int] = (0,),
) -> list[ActiveGeneration]:
    """Prefill orders of a prompt, under torch.inference_mode; `return_logits` keeps those of the suffix."""
    began = time.perf_counter()
    kept = layouts[0].suffix_length if return_logits else 1
    # Each has its own progress, which counts its passes.
    progress = (prefill_progress(control, method.name, model.num_layers, order) for order in orders)
    pairs = zip(options, progress, strict=True)
    options = [replace(each, logits_to_keep=kept, on_layer=on_layer) for each, on_layer in pairs]
    results = passes.prefill_orders(layouts, method, options)
    started = [
        (method, row, logits, each.recorder) for (row, logits), each in zip(results, options, strict=True)
    ]
    return _begin_answers(started, began, orders, return_logits=return_logits, control=control)


def continue_answers(
    model: PreparedModel,
    layout: TokenLayout,
    recorders: Mapping[Method, TraceRecorder | None],
    options: passes.PassOptions,
    *,
    return_logits: bool,
    control: RunControl,
) -> dict[Method, ActiveGeneration]:
    """Prefill, in one batch, the suffix under those methods whose documents are in `cached_sequences`."""
    began = time.perf_counter()
    rows = passes.fork_documents(layout, recorders, options)
    if not rows:
        return {}
    kept = layout.suffix_length if return_logits else 1
    on_layer = prefill_progress(control, next(iter(rows)).name, model.num_layers)
    options = replace(options, logits_to_keep=kept, on_layer=on_layer)
    logits = passes.prefill_suffix(list(rows.values()), options)
    started = [
        (method, row, of_row, recorders[method])
        for (method, row), of_row in zip(rows.items(), logits, strict=True)
    ]
    orders = [0] * len(started)
    answers = _begin_answers(started, began, orders, return_logits=return_logits, control=control)
    return dict(zip(rows, answers, strict=True))


def _begin_answers(
    prefilled: Sequence[tuple[Method, SequenceState, Tensor, TraceRecorder | None]],
    began: float,
    orders: Sequence[int],
    *,
    return_logits: bool,
    control: RunControl,
) -> list[ActiveGeneration]:
    """Return answers from their states and logits (n, V), which were computed together since `began`."""
    synchronize(prefilled[0][2])
    seconds = (time.perf_counter() - began) / len(prefilled)
    answers = []
    for (method, row, logits, recorder), order in zip(prefilled, orders, strict=True):
        control.report(PrefillDone(method.name, seconds, order))
        answer = ActiveGeneration(method.name, (row,), logits[-1:], seconds, order, recorder=recorder)
        answer.kept_logits += [logits.float().cpu()] * return_logits
        answers.append(answer)
    return answers


@torch.inference_mode()
def decode_in_steps(
    model: PreparedModel,
    prompts: Iterator[ActiveGeneration | PendingPrefill],
    *,
    max_new_tokens: int,
    batch_size: int,
    stop_at_eos: bool = True,
    control: RunControl = NO_CONTROL,
    num_requests: int = 1,
) -> Generator[ActiveGeneration | PendingPrefill | DecodeStep, None, None]:
    """Yield the decode steps of prompts in one batch, and each answer that is finished or has an error.

    A prompt is taken while the batch of `batch_size` rows has free slots for its rows; prefills that
    `prompts` waits for are yielded. `num_requests` share the time per token.
    """
    active: list[ActiveGeneration] = []
    following: ActiveGeneration | PendingPrefill | None = None

    def take_tokens(answers: Sequence[ActiveGeneration]) -> Iterator[ActiveGeneration]:
        for answer in answers:
            if not answer.has_token:  # the first may be chosen after the prefill
                take_token(answer, model, max_new_tokens, stop_at_eos, control)
            if answer.finish_reason or answer.error:
                active.remove(answer)
                yield answer

    while True:
        is_joined = False
        while free := sorted(set(range(batch_size)).difference(*(answer.slots for answer in active))):
            following = following or next(prompts, None)
            if isinstance(following, PendingPrefill):
                yield following
                following = None
                continue
            if following is None or len(following.rows) > len(free):
                break
            following.slots = free[: len(following.rows)]
            active.append(following)
            following, is_joined = None, True
            yield from take_tokens(active[-1:])
        if not active:
            return
        if is_joined:
            _batch_rows(active)
        yield from _decode_step(active, batch_size, control, num_requests)
        yield from take_tokens(list(active))


def _decode_step(
    active: Sequence[ActiveGeneration], batch_size: int, control: RunControl, num_requests: int
) -> Iterator[DecodeStep]:
    """Yield the next step, and take its logits. Its rows are not kept until the next one."""
    step = _next_step(active, batch_size, control)
    yield step
    control.check()
    _take_logits(active, step, num_requests)


def _batch_rows(active: Sequence[ActiveGeneration]) -> None:
    """Batch the caches of all rows, which are not kept until the next call."""
    rows = [row for answer in active for row in answer.rows]
    batch_caches([row for row in rows if row.sequences == (row,)])
    for row in rows:
        if row.sequences != (row,):
            batch_caches(row.sequences)


def generate_batch(
    engine: PreparedModel,
    prompts: Prompt | TokenLayout | Iterable[Prompt | TokenLayout],
    *,
    method: str | Method | Sequence[str | Method] = "pine",
    max_new_tokens: int = 64,
    batch_size: int = BATCH_ROWS,
) -> Generator[tuple[int, Answer], None, None]:
    """Answer prompts greedily and yield (index of the prompt, answer), each as soon as it is finished.

    A finished answer frees its slot for the next prompt, so that memory does not grow with the number of
    prompts. The model computes only while an answer is awaited; closing the generator stops it.
    `dict(generate_batch(...))` waits for all answers.

    On a CPU in float32, bfloat16 and float16, an answer is bitwise independent of its neighbors and, from 2
    on, of the batch size. In float64, on a GPU and without oneDNN, another batch size may change it by
    rounding. So may a batch of one, as in `Engine.run` with one method, except in a half precision in which
    the processor multiplies.

    Args:
        engine: Engine that answers.
        prompts: One or more prompts of any number of documents and any length. There is no padding.
        method: One method for all prompts, or one for each.
        max_new_tokens: Limit per answer.
        batch_size: Number of answers that are decoded together.

    Raises:
        InputError: At the call, for an unknown method, a number of methods other than that of the prompts, a
            prompt that exceeds the context, and a limit or batch size below 1.
        ModelError: At the call, for a method that does not fit the model. After all other answers, if logits
            are not finite; it names the prompts without an answer.
    """
    check_engine(engine)
    several = as_tuple_of(prompts, (Prompt, TokenLayout), "prompt", PROMPT_HINT, least=0)
    layouts = [engine.tokenize(prompt) for prompt in several]
    names: Sequence[Any] = sequence(method) or [method] * len(layouts)
    methods = [get_method(name) for name in names]
    if len(methods) != len(layouts):
        message = f"methods do not match the prompts: got {len(methods)}, expected 1 or {len(layouts)}"
        raise InputError(message, field="method")
    max_new_tokens = as_int(max_new_tokens, "answer length", least=1)
    batch_size = as_int(batch_size, "batch size", least=1)
    for layout, one in zip(layouts, methods, strict=True):
        engine.check_method(one)
        engine.check_length(layout, max_new_tokens)
        check_scores(layout, [one])

    @torch.inference_mode()
    def prefill() -> Iterator[ActiveGeneration]:
        for index, (layout, method) in enumerate(zip(layouts, methods, strict=True)):
            options = passes.PassOptions(engine.patched_models, reserved_tokens=max_new_tokens)
            yield prefill_answer(engine, layout, method, options, index=index)

    def answer() -> Generator[tuple[int, Answer], None, None]:
        errors: dict[int, str] = {}
        items = decode_in_steps(engine, prefill(), max_new_tokens=max_new_tokens, batch_size=batch_size)
        for item in items:
            if not isinstance(item, ActiveGeneration):
                item.compute()
            elif item.error:
                errors[item.index] = item.error
            else:
                yield item.index, item.answer
        if errors:
            indices = ", ".join(map(str, errors))
            raise ModelError(f"prompts without an answer, by index: {indices}; {next(iter(errors.values()))}")

    return iterate_in_worker(answer())


# Small operations gain nothing from more threads, and wait for the slowest if another process uses a core.
@torch_num_threads(1)
def take_token(
    answer: ActiveGeneration, model: PreparedModel, max_tokens: int, stop_at_eos: bool, control: RunControl
) -> None:
    """Append the next token, or finish the answer."""
    try:
        check_finite(answer.logits, answer.method, len(answer.ids))
    except ModelError as error:
        answer.error = str(error)
        return
    if max_tokens:
        token, logprob = answer.choose(answer.logits)
        if stop_at_eos and token in model.stop_token_ids:
            answer.finish_reason = "stop"
        else:
            answer.ids.append(token)
            answer.logprobs.append(logprob)
            if answer.recorder:
                answer.recorder.record_alternatives(answer.logits[0].float().log_softmax(-1))
            if control.emit:
                found = model.decode_answer(answer.ids, answer.suffix)
                step, texts = len(answer.ids) - 1, (found.text, found.thinking)
                control.emit(TokenGenerated(answer.method, step, token, *texts, order=answer.index))
    if not answer.finish_reason and len(answer.ids) == max_tokens:
        answer.finish_reason = "length"
    if answer.finish_reason:
        answer.found = model.decode_answer(answer.ids, answer.suffix)
        control.report(GenerationFinished(answer.answer, answer.index))


def _next_step(active: Sequence[ActiveGeneration], batch_size: int, control: RunControl) -> DecodeStep:
    """Return the next step of all answers. Free slots stay in the batch, which keeps its shape."""
    rows: list[SequenceState | None] = [None] * batch_size
    tokens = [[0]] * batch_size
    for answer in active:
        for slot, row in zip(answer.slots, answer.rows, strict=True):
            rows[slot], tokens[slot] = row, answer.ids[-1:]
    return DecodeStep(rows, tokens, control.check)


@torch_num_threads(1)
def _take_logits(active: Sequence[ActiveGeneration], step: DecodeStep, num_requests: int) -> None:
    num_rows = sum(len(answer.rows) for answer in active)
    for answer in active:
        answer.logits = step.logits[answer.slots, -1]
        if answer.kept_logits:
            answer.kept_logits.append(answer.logits.float().cpu())
        answer.num_steps += 1
        answer.decode_s += step.seconds / num_requests
        answer.seconds += step.seconds * len(answer.rows) / num_rows


def synchronize(logits: Tensor) -> None:
    """Wait for the GPU that computes the logits, so that a later clock reading includes their time."""
    if logits.is_cuda:
        torch.cuda.synchronize(logits.device)


def check_finite(logits: Tensor, method: str, step: int, sequence: int | None = None) -> None:
    """Raise ModelError if logits (..., V) are NaN or infinite; single tokens may have -inf."""
    if torch.isfinite(logits.amax(-1)).all():
        return
    where = "" if sequence is None else f" of sequence {sequence}"
    dtype = str(logits.dtype).removeprefix("torch.")
    larger = LARGER_DTYPES.get(logits.dtype)
    advice = f"Load it in {larger}." if larger else "Its weights may be damaged: try another model or dtype."
    when = f"after {step} tokens of the answer" if step else "for the first token of the answer"
    raise ModelError(f"under {method} the logits{where} {when} are not finite, in {dtype}. {advice}")
