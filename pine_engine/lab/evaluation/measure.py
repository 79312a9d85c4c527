"""Evaluation of examples: every example under every method in every document order, record by record."""

import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from statistics import fmean
from typing import Any

import torch

from pine_engine.attention.state import SequenceState
from pine_engine.endpoint.client import Endpoint
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event
from pine_engine.engine.generation import BATCH_ROWS, ActiveGeneration, decode_in_steps, pending_prefill
from pine_engine.engine.likelihood import score_answers
from pine_engine.errors import InputError, ModelError
from pine_engine.lab.debias.calibrated_tokens import calibrated_prompt
from pine_engine.lab.debias.combining import combine_labels, log_mean, most_voted, route, with_tie
from pine_engine.lab.debias.estimators import Correction, Estimator, softmax
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.debias.plan import is_learned_example
from pine_engine.lab.evaluation.document_orders import AS_IS, DocumentOrder
from pine_engine.lab.evaluation.example_runs import (
    BaseRun,
    ExamplePlan,
    PlannedResult,
    Prefill,
    SharedPrefill,
    distinct_parts,
)
from pine_engine.lab.evaluation.record import Key, Record, blank_record
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.examples import Example
from pine_engine.prompts.scoring import TIE, Verdict
from pine_engine.prompts.tasks import TASKS, Task
from pine_engine.scheduling.scheduler import Coroutine, PendingPrefill
from pine_engine.scheduling.worker import RunControl

BATCH_SIZE = 2 * BATCH_ROWS
"""Batch size of decoding. Fixed, because a GEMM of another size may round differently, and the answers of
other methods must not change a record."""


Learned = Correction | None  # None for an example from which a wrapper learns


@torch.inference_mode()
def run_evaluation(
    engine: Engine,
    examples: Sequence[Example],
    settings: Settings,
    control: RunControl,
    *,
    found: Iterable[Record] = (),
    dataset: Sequence[Example] | None = None,
) -> Coroutine[None]:
    """Report each record when it is complete, and the events of its runs. Raises Cancelled after a stop.

    A prompt that is too long, a document order that an example does not have, a method that does not fit the
    model, and logits that are not finite become records with an error.
    found: existing records, which are not computed again.
    dataset: examples of the whole run, of which `examples` may be a shard; None if they are the same.
    """
    found = list(found)
    done = {record.key for record in found}
    known: dict[tuple[str, str], tuple[float, ...] | None] = {}  # numbers learned from each example

    def learn(item: Event | Record, *, is_planned: bool = False) -> None:
        if isinstance(item, Record) and item.prior:
            known[item.method, item.example] = tuple(item.prior.values())
        if is_planned or not isinstance(item, Record):
            control.report(item)

    def learn_before(
        example: Example, method: MeasuredMethod, estimator: Estimator, share: float
    ) -> Coroutine[Learned]:
        """Return the correction of a wrapper for an example, None if the wrapper learns from this example.

        A wrapper learns from the first example that can be measured, and from a share of the others,
        selected by their ids. The correction of all other examples is learned from those before them, so
        it is independent of shards, of a limit of the examples, and of interruptions.
        """
        learned: list[tuple[float, ...]] = []
        for row in dataset or examples:
            is_learned = not learned or is_learned_example(row.id, share)
            if row.id == example.id:
                return None if is_learned else estimator.fit(learned)
            if is_learned and (method.name, row.id) not in known:  # an example of another shard
                known[method.name, row.id] = None
                changes = {"methods": (method.name,), "order_names": (AS_IS,), "generate": False}
                alone = settings.model_copy(update=changes)
                no_records = RunControl(learn, control.cancelled)
                yield from _ComputedRun(engine, row, alone, set(), {method.name: None}, no_records).run()
            if is_learned and (numbers := known[method.name, row.id]):
                learned.append(numbers)
        raise AssertionError(f"{example.id} is not an example of the run")

    for record in found:
        learn(record)
    for example in examples:
        control.check()
        corrections: dict[str, Learned] = {}
        for method in settings.measured:
            wrapper = method.wrapper
            if not wrapper or not wrapper.estimator or settings.keys([example], [method]).keys() <= done:
                continue
            learning = learn_before(example, method, wrapper.estimator, wrapper.learned_share)
            corrections[method.name] = yield from learning
        all_events = RunControl(partial(learn, is_planned=True), control.cancelled)
        yield from _ComputedRun(engine, example, settings, done, corrections, all_events).run()


class ExampleRun:
    """Evaluation of one example: what has to be computed, and its records."""

    def __init__(
        self,
        engine: Engine | Endpoint,
        example: Example,
        settings: Settings,
        done: set[Key],
        corrections: dict[str, Learned],
        control: RunControl,
    ) -> None:
        self._engine, self._example, self._control = engine, example, control
        self._corrections = corrections
        self._is_greedy = not isinstance(engine, Endpoint) or engine.is_greedy
        self._verdict = settings.verdict
        self._max_new_tokens = settings.max_new_tokens or TASKS[example.task].max_new_tokens
        learning = {name for name, correction in corrections.items() if correction is None}
        self._plan = ExamplePlan(engine, example, settings, done=done, learning=learning)
        self._tokens = cache(engine.tokenize_answer)

    def start(self) -> tuple[PlannedResult, ...]:
        """Emit the records of what cannot be computed, and return the other results."""
        as_stored = tuple(range(len(self._example.documents)))
        for (method, name), error in self._plan.errors.items():
            order = DocumentOrder(name, as_stored, as_stored)
            self._emit_record(method, order, was_computed=False, error=error)
        waiting: list[PlannedResult] = []
        for result in self._plan.results:
            try:
                for run in result.runs:
                    self._engine.check_method(run.prefill.method)
                    self._engine.check_length(run.prefill.layout, self._reserved_tokens(result))
                waiting.append(result)
            except (InputError, ModelError) as error:
                self._fail(result, str(error))
        self._num_results = Counter(part for result in waiting for part in result.parts)
        for result in waiting:
            for run in result.runs:
                run.prefill.texts |= dict.fromkeys(run.accepted + run.choices)
        self._waiting = waiting
        return tuple(waiting)

    def emit_finished(self) -> None:
        """Emit the records of the results whose parts are done."""
        for result in [one for one in self._waiting if all(part.is_done for part in one.parts)]:
            self._waiting.remove(result)
            if errors := [part.error for part in result.parts if part.error]:
                self._fail(result, errors[0])
            else:
                self._emit_records(result)

    def _reserved_tokens(self, result: PlannedResult) -> int:
        """Return the number of tokens that may follow a result's prompts."""
        texts = {text for run in result.runs for text in run.accepted + run.choices}
        generates = any(run.generation for run in result.runs)
        return max(self._max_new_tokens * generates, *(len(self._tokens(text)) for text in texts), 0)

    def _emit_records(self, result: PlannedResult) -> None:
        """Emit the records of a result, the first of them as computed."""
        answers = [run.generation.answer for run in result.runs if run.generation and run.generation.answer]
        times = {
            "prefill_s": sum(run.prefill.standalone_s for run in result.runs),
            "decode_s": sum(answer.seconds for answer in answers),
            "seconds": sum(part.seconds / self._num_results[part] for part in result.parts),
        }
        correction = self._corrections.get(result.method.name)
        for index, order in enumerate(result.orders):
            self._emit_record(
                result.method,
                order,
                prompts=len(result.runs),
                prompt_tokens=_num_prompt_tokens(result),
                answer_tokens=sum(answer.num_tokens for answer in answers) if answers else None,
                was_computed=index == 0,
                is_repeatable=result.is_repeatable if index == 0 else None,
                **combine(result.method, self._example, result.runs, order, correction, self._verdict),
                **(times if index == 0 else {}),
            )

    def _fail(self, result: PlannedResult, error: str) -> None:
        """Emit the records of a result that cannot be computed."""
        num_tokens = _num_prompt_tokens(result)
        for order in result.orders:
            self._emit_record(result.method, order, prompt_tokens=num_tokens, was_computed=False, error=error)

    def _emit_record(self, method: MeasuredMethod, order: DocumentOrder, **fields: Any) -> None:
        record = blank_record(self._example, method.name, order)
        self._control.report(record.model_copy(update={"is_greedy": self._is_greedy, **fields}))


class _ComputedRun(ExampleRun):
    """Run whose prompts are prefilled one by one, and whose answers are decoded together."""

    _engine: Engine

    def run(self) -> Coroutine[None]:
        results = self.start()
        try:
            yield from self._compute(results)
        except torch.OutOfMemoryError:
            for result in self._waiting:
                self._fail(result, "the device ran out of memory; measure with shorter prompts or answers")

    def _compute(self, results: Sequence[PlannedResult]) -> Coroutine[None]:
        """Compute everything that the results need, and emit the finished ones after each part."""
        prefills, generations = distinct_parts(results)
        reserved_tokens = max(map(self._reserved_tokens, results), default=0)
        shared = SharedPrefill(self._engine, prefills, reserved_tokens=reserved_tokens, control=self._control)
        continued = Counter(prefill for generation in generations for prefill in generation.prefills)
        held: dict[Prefill, tuple[SequenceState, torch.Tensor]] = {}

        def take(prefill: Prefill) -> tuple[SequenceState, torch.Tensor]:
            """Return a copy of the state for each answer; the last answer takes the original."""
            continued[prefill] -= 1
            if not continued[prefill]:
                return held.pop(prefill)
            row, logits = held[prefill]
            return replace(row, cache=row.cache.copy()), logits

        def prompts() -> Iterator[ActiveGeneration | PendingPrefill]:
            for index, generation in enumerate(generations):
                for prefill in generation.prefills:
                    if prefill not in held:
                        yield pending_prefill(self._engine, prefill.layout.num_tokens)
                        held[prefill] = self._prefill(shared, prefill)
                taken = list(map(take, generation.prefills))
                seconds = sum(prefill.standalone_s for prefill in generation.prefills)
                method = generation.prefills[0].method.name
                if generation.steps:
                    yield calibrated_prompt(index, method, taken, generation.steps, seconds)
                else:
                    ((row, logits),) = taken
                    yield ActiveGeneration(method, (row,), logits, seconds, index)

        for prefill in prefills:
            if prefill not in continued:
                yield pending_prefill(self._engine, prefill.layout.num_tokens)
                self._prefill(shared, prefill)
                self.emit_finished()
        for item in decode_in_steps(
            self._engine,
            prompts(),
            max_new_tokens=self._max_new_tokens,
            batch_size=BATCH_SIZE,
            control=self._control,
        ):
            if isinstance(item, ActiveGeneration):
                item.free()
                generations[item.index].answer = item
                self.emit_finished()
            else:
                yield item

    def _prefill(self, shared: SharedPrefill, prefill: Prefill) -> tuple[SequenceState, torch.Tensor]:
        """Prefill a prompt, and score its texts; the state stays as it was."""
        row, logits = shared.run(prefill)
        began = time.perf_counter()
        try:
            for text in prefill.texts:
                ids = self._tokens(text)
                (score,) = score_answers([row], [logits], text, ids, on_layer=self._control.check)
                prefill.logprobs[text] = score.total
        except ModelError as error:
            prefill.error = str(error)
        prefill.seconds += time.perf_counter() - began
        prefill.is_done = True
        return row, logits


def _num_prompt_tokens(result: PlannedResult) -> int:
    return sum(run.prefill.num_tokens for run in result.runs)


# Outcomes of base runs


def combine(
    method: MeasuredMethod,
    example: Example,
    runs: Sequence[BaseRun],
    order: DocumentOrder,
    correction: Correction | None = None,
    verdict: Verdict = "last",
) -> dict[str, Any]:
    """Return the fields of a record that hold its outcome (specification 8.3), in the letters of its order.

    With calibration, the first run has the content of the documents.
    correction: None if the wrapper learns from the example, or from none.
    verdict: the one that counts in a text with several.
    """
    task, wrapper = example.sized_task(verdict), method.wrapper
    outcome: dict[str, Any] = {}
    margin = wrapper.margin if wrapper else None
    written = runs[0] if margin is None else runs[route([run.confidence for run in runs], margin)]
    if written.text is not None:
        if wrapper and wrapper.votes:
            outcome = _vote(task, example, runs, order, must_agree=wrapper.must_agree)
        else:
            outcome = _scored(task, example, written, written.text)
    logprobs = [run.answer_logprob for run in runs if run.answer_logprob is not None]
    if logprobs and len(logprobs) == sum(bool(run.accepted) for run in runs):
        outcome["answer_logprob"] = log_mean(logprobs)
    choices = runs[0].choice_logprobs
    if choices is None or any(run.choice_logprobs is None for run in runs):
        return outcome
    if margin is not None:
        confidences = [max(softmax(list((run.choice_logprobs or {}).values()))) for run in runs]
        runs = [runs[route(confidences, margin)]]
    if wrapper:
        # A choice that is a letter names the document that has the letter.
        in_place = tuple(range(len(choices)))
        named = [
            with_tie(run.order.input_order, len(choices)) if task.has_letters else in_place for run in runs
        ]
        observed = [list((run.choice_logprobs or {}).values()) for run in runs]
        mean = combine_labels(wrapper, observed, named, correction)
        if wrapper.calibrated == "labels":
            mean = tuple(score / math.fsum(mean) for score in mean)
        elif task.has_letters:
            mean = tuple(mean[document] for document in with_tie(order.input_order, len(choices)))
        logs = (math.log(value) if value else -math.inf for value in mean)
        choices = dict(zip(choices, logs, strict=True))
        if estimator := wrapper.estimator:
            numbers = correction.prior if correction else estimator.learn(list(map(softmax, observed)))
            outcome["prior"] = dict(zip(choices, numbers, strict=True))
    answers, largest = order.answers(example), max(choices.values())
    likely = [choice for choice, logprob in choices.items() if logprob == largest]
    if task.has_tie and len(likely) > 1:
        likely = [task.choices[-1]]
    scores = [score for choice in likely if (score := example.score(choice, answers)) is not None]
    score = fmean(scores) if scores else None
    return outcome | {"choice_logprobs": choices, "choice_score": score}


def _scored(task: Task, example: Example, run: BaseRun, text: str) -> dict[str, Any]:
    """Return the text of a run, and the parsed answer and the score of `text`."""
    score, found = example.score(text, run.order.answers(example), task), run.found
    outcome: dict[str, Any] = {"text": run.text, "parsed": task.parse(text), "score": score}
    if found is None:
        return outcome
    lacks_verdict = task.has_letters and run.is_cut and task.parse(found.text) is None
    is_finished = found.is_finished and not lacks_verdict
    return outcome | {"thinking": found.thinking, "is_finished": is_finished}


def _vote(
    task: Task, example: Example, runs: Sequence[BaseRun], order: DocumentOrder, *, must_agree: bool
) -> dict[str, Any]:
    """Return the most frequent answer, with a generated text that has it.

    A tie of documents, and runs that must agree and do not, are scored as the verdict of a tie if the task
    offers it. Otherwise, and if no run can be parsed, they are scored as an empty text. Of other answers with
    the same number of votes, the first in alphabetical order wins.
    """
    votes = [_answer_of(task, run) for run in runs]
    winners = most_voted(votes)
    is_tie = task.has_letters and (len(winners) > 1 or winners == [TIE])
    is_tie = is_tie or (must_agree and len(set(votes)) > 1)
    if is_tie or not winners:
        verdict = task.choices[-1] if task.has_tie and winners else ""
        return _scored(task, example, runs[0], verdict) | {"parsed": TIE if winners else None}
    voters = [run for run, vote in zip(runs, votes, strict=True) if vote == winners[0]]
    letter = order.letters.get(winners[0])
    # Letters change with the order: prefer a text with the letter that the document has here.
    matching = (run for run in voters if run.order.letters.get(winners[0]) == letter)
    run = next(matching, voters[0])
    outcome = _scored(task, example, run, run.text or "")
    return outcome | {"parsed": letter} if task.has_letters else outcome


def _answer_of(task: Task, run: BaseRun) -> str | None:
    """Return an answer in a form that is equal in all orders: for a document, its letter as stored."""
    parsed = task.parse(run.text or "")
    if parsed is None or (parsed == TIE and task.has_letters):
        return parsed
    if not task.has_letters:
        return task.normalize(parsed)
    return next((stored for stored, now in run.order.letters.items() if now == parsed), None)
