"""Evaluation of examples: every example under every method in every document order, record by record."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pine_engine.attention.state import SequenceState
from pine_engine.debias.debias import calibrated_prompt, mean_prior
from pine_engine.debias.plan import is_prior_example
from pine_engine.debias.table import MeasuredMethod
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, PrefillProgress
from pine_engine.engine.generation import BATCH_ROWS, ActiveGeneration, decode_answers
from pine_engine.engine.likelihood import score_answers
from pine_engine.engine.model_worker import raise_if_cancelled, stream_from_worker
from pine_engine.errors import InputError, ModelError
from pine_engine.evaluation.combine import MethodOutput, Prior, combine
from pine_engine.evaluation.document_orders import AS_IS, DocumentOrder
from pine_engine.evaluation.example_runs import BaseRun, Generation, PlannedResult, Prefill, plan_example
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.records import Record, blank_record
from pine_engine.evaluation.settings import Key, Settings, choose
from pine_engine.evaluation.shared_prefill import SharedPrefill
from pine_engine.methods.table import Method
from pine_engine.prompts.tasks import get_task

Emit = Callable[[Event | Record], None]

BATCH_SIZE = 2 * BATCH_ROWS
"""Batch size of decoding. Fixed, because a GEMM of another size may round differently, and the answers "
"of other
methods must not change a record."""


def measure(
    engine: Engine, examples: Sequence[Example], *, found: Iterable[Record] = (), **options: Any
) -> Generator[Event | Record, None, None]:
    """Evaluate examples; yield each record when it is complete, and PrefillProgress between records.

    A prompt that is too long, a document order that an example does not have, and logits that are not finite
    become records with an error. Closing the generator stops the model within one layer.

    Args:
        engine: Engine with a tokenizer.
        examples: Examples.
        found: Existing records, which are not computed again.
        options: Options of choose(). Raises InputError as choose() does.
    """
    return stream_from_worker(Measurement(engine, examples, choose(examples, **options), found=found).work)


@dataclass(frozen=True)
class Measurement:
    """A checked evaluation, to run in a thread of the caller.

    Attributes:
        examples: Examples to evaluate.
        found: Existing records.
        dataset: Examples of the whole run, of which `examples` may be a shard. None if they are the same.
    """

    engine: Engine
    examples: Sequence[Example]
    settings: Settings
    found: Iterable[Record] = ()
    dataset: Sequence[Example] | None = None

    @torch.inference_mode()
    def work(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emit the events and records of measure(). Raises Cancelled when the flag is set."""
        records = list(self.found)
        done = {record.key for record in records}
        priors = _Priors(self, emit, cancelled)
        for record in records:
            priors.add(record)

        def emit_and_learn(item: Event | Record) -> None:
            if isinstance(item, Record):
                priors.add(item)
            emit(item)

        for example in self.examples:
            raise_if_cancelled(cancelled)
            used = {
                method.name: priors.before(example, method)
                for method in self.settings.measured
                if method.wrapper
                and method.wrapper.has_prior
                and not self.settings.keys([example], [method]).keys() <= done
            }
            _ExampleRun(self.engine, example, self.settings, done, used, emit_and_learn, cancelled).run()


class _Priors:
    """Priors of PriDe, independent of shards, of a limit of the examples, and of interruptions.

    A prior is learned from the first example that can be measured, and from a share of the others,
    selected by
    their ids. All other examples are divided by the mean prior of those before them.
    """

    def __init__(self, measurement: Measurement, emit: Emit, cancelled: threading.Event) -> None:
        self._measurement, self._emit, self._cancelled = measurement, emit, cancelled
        self._known: dict[tuple[str, str], Prior | None] = {}

    def add(self, record: Record) -> None:
        """Keep the prior of a record."""
        if record.prior:
            self._known[record.method, record.example] = tuple(record.prior.values())

    def before(self, example: Example, method: MeasuredMethod) -> Prior | None:
        """Return the prior that an example is divided by, None if it is learned from this example."""
        learned: list[Prior] = []
        for row in self._measurement.dataset or self._measurement.examples:
            is_learned = not learned or is_prior_example(row.id)
            if row.id == example.id:
                return None if is_learned else mean_prior(learned)
            if is_learned:
                if (method.name, row.id) not in self._known:
                    self._known[method.name, row.id] = self._learn(row, method)
                if prior := self._known[method.name, row.id]:
                    learned.append(prior)
        raise AssertionError(f"{example.id} is not an example of the run")

    def _learn(self, example: Example, method: MeasuredMethod) -> Prior | None:
        """Measure the prior of an example of another shard; its records are not emitted."""
        changes = {"methods": (method.name,), "order_names": (AS_IS,), "generate": False}
        settings = self._measurement.settings.model_copy(update=changes)
        found: list[Prior] = []

        def keep(item: Event | Record) -> None:
            if not isinstance(item, Record):
                self._emit(item)
            elif item.prior:
                found.append(tuple(item.prior.values()))

        engine = self._measurement.engine
        _ExampleRun(engine, example, settings, set(), {method.name: None}, keep, self._cancelled).run()
        return found[0] if found else None


class _ExampleRun:
    """Evaluation of one example: its prompts are prefilled one by one, and its answers decoded together."""

    def __init__(
        self,
        engine: Engine,
        example: Example,
        settings: Settings,
        done: set[Key],
        priors: dict[str, Prior | None],
        emit: Emit,
        cancelled: threading.Event,
    ) -> None:
        self._engine, self._example, self._settings = engine, example, settings
        self._priors, self._emit, self._cancelled = priors, emit, cancelled
        self._task = get_task(example.task)
        self._max_new_tokens = settings.max_new_tokens or self._task.max_new_tokens
        learning = {name for name, prior in priors.items() if prior is None}
        self._plan = plan_example(engine, example, settings, done=done, learning=learning)
        self._texts: dict[Prefill, dict[str, None]] = {prefill: {} for prefill in self._plan.prefills}
        for result in self._plan.results:
            for run in result.runs:
                self._texts[run.prefill] |= dict.fromkeys(self._scored_texts(result.method, run))
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._logprobs: dict[Prefill, dict[str, float]] = {}
        self._scoring_s: dict[Prefill, float] = {}
        self._written: dict[Generation, ActiveGeneration] = {}
        self._failed: dict[Prefill | Generation, str] = {}

    def run(self) -> None:
        """Emit the records of the example."""
        as_stored = tuple(range(len(self._example.documents)))
        for (method, name), error in self._plan.errors.items():
            order = DocumentOrder(name, as_stored, as_stored)
            self._emit_record(method, order, was_computed=False, error=error)
        waiting = list(filter(self._fits, self._plan.results))
        prefills = dict.fromkeys(prefill for result in waiting for prefill in result.prefills)
        reserved_tokens = max(map(self._reserved_tokens, waiting), default=0)
        shared = SharedPrefill(
            self._engine, prefills, reserved_tokens=reserved_tokens, on_layer=self._on_layer
        )
        uses: Counter[Prefill | Generation] = Counter()
        for result in waiting:
            uses.update((*result.prefills, *result.generations))
        try:
            for _ in self._compute(waiting, shared):
                for result in filter(self._is_complete, list(waiting)):
                    waiting.remove(result)
                    needed = (*result.prefills, *result.generations)
                    if errors := [self._failed[item] for item in needed if item in self._failed]:
                        self._fail(result, errors[0])
                    else:
                        self._emit_records(result, shared, uses)
        except torch.OutOfMemoryError:
            for result in waiting:
                self._fail(result, "the device ran out of memory; measure with shorter prompts or answers")

    def _scored_texts(self, method: MeasuredMethod, run: BaseRun) -> tuple[str, ...]:
        """Return the texts whose log-probability a method needs: an accepted answer, and the choices."""
        if not self._settings.logprobs:
            return ()
        answers = run.order.answers(self._example)[:1] if method.scores_answers else ()
        return (*answers, *(self._task.choices if method.scores_choices else ()))

    def _fits(self, result: PlannedResult) -> bool:
        """Check the context length of a result's prompts, and emit an error otherwise."""
        try:
            for prefill in result.prefills:
                self._engine.check_length(prefill.layout, self._reserved_tokens(result))
        except InputError as error:
            self._fail(result, str(error))
            return False
        return True

    def _reserved_tokens(self, result: PlannedResult) -> int:
        """Return the number of tokens that may follow a result's prompts."""
        lengths = [self._max_new_tokens if result.generations else 0]
        for run in result.runs:
            for text in self._scored_texts(result.method, run):
                if text not in self._tokens:
                    self._tokens[text] = self._engine.tokenize_answer(text)
                lengths.append(len(self._tokens[text]))
        return max(lengths)

    def _compute(self, results: Sequence[PlannedResult], shared: SharedPrefill) -> Iterator[None]:
        """Compute everything that the results need, and yield after each part."""
        generations = list(dict.fromkeys(item for result in results for item in result.generations))
        continued = Counter(prefill for generation in generations for prefill in generation.prefills)
        held: dict[Prefill, tuple[SequenceState, torch.Tensor]] = {}

        def take(prefill: Prefill) -> tuple[SequenceState, torch.Tensor]:
            """Return a copy of the state for each answer; the last answer takes the original."""
            if prefill not in held:
                held[prefill] = self._prefill(shared, prefill)
            continued[prefill] -= 1
            if not continued[prefill]:
                return held.pop(prefill)
            row, logits = held[prefill]
            return SequenceState(row.state, row.cache.copy()), logits

        def prompts() -> Iterator[ActiveGeneration]:
            for index, generation in enumerate(generations):
                taken = list(map(take, generation.prefills))
                seconds = sum(shared.standalone_s[prefill] for prefill in generation.prefills)
                method = generation.prefills[0].method.name
                if generation.steps:
                    yield calibrated_prompt(index, method, taken, generation.steps, seconds)
                else:
                    ((row, logits),) = taken
                    yield ActiveGeneration(method, (row,), logits, seconds, index)

        for prefill in dict.fromkeys(item for result in results for item in result.prefills):
            if prefill not in continued:
                self._prefill(shared, prefill)
                yield
        for written in decode_answers(
            self._engine,
            prompts(),
            max_new_tokens=self._max_new_tokens,
            batch_size=BATCH_SIZE,
            cancelled=self._cancelled,
        ):
            if written.error:
                self._failed[generations[written.index]] = str(written.error)
            else:
                self._written[generations[written.index]] = written
            yield

    def _prefill(self, shared: SharedPrefill, prefill: Prefill) -> tuple[SequenceState, torch.Tensor]:
        """Prefill a prompt, and score its texts; the state stays as it was."""
        row, logits = shared.run(prefill)
        began = time.perf_counter()
        logprobs = self._logprobs[prefill] = {}
        try:
            for text in self._texts[prefill]:
                (score,) = score_answers(
                    [row],
                    [logits],
                    text,
                    self._tokens[text],
                    on_layer=lambda _: raise_if_cancelled(self._cancelled),
                )
                logprobs[text] = score.total
        except ModelError as error:
            self._failed[prefill] = str(error)
        self._scoring_s[prefill] = time.perf_counter() - began
        return row, logits

    def _is_complete(self, result: PlannedResult) -> bool:
        """Check that everything is computed, or failed, that a result needs."""
        generations = self._written.keys() | self._failed.keys()
        return result.prefills.keys() <= self._logprobs.keys() and result.generations.keys() <= generations

    def _emit_records(
        self, result: PlannedResult, shared: SharedPrefill, uses: Counter[Prefill | Generation]
    ) -> None:
        """Emit the records of a result, the first of them as computed."""
        written = [self._written[run.generation] for run in result.runs if run.generation]
        seconds = [
            (shared.attributed_s[prefill] + self._scoring_s[prefill]) / uses[prefill]
            for prefill in result.prefills
        ]
        seconds += [self._written[item].seconds / uses[item] for item in result.generations]
        times = {
            "prefill_s": sum(shared.standalone_s[run.prefill] for run in result.runs),
            "decode_s": sum(one.seconds for one in written),
            "seconds": sum(seconds),
        }
        runs = [self._outcome(result.method, run) for run in result.runs]
        prior = self._priors.get(result.method.name)
        for index, order in enumerate(result.orders):
            self._emit_record(
                result.method,
                order,
                prompts=len(result.runs),
                prompt_tokens=_num_prompt_tokens(result),
                answer_tokens=sum(len(one.answer.token_ids) for one in written) if written else None,
                was_computed=index == 0,
                **combine(result.method, self._example, runs, order, prior),
                **(times if index == 0 else {}),
            )

    def _outcome(self, method: MeasuredMethod, run: BaseRun) -> MethodOutput:
        """Return the outcome of one run, as far as a method needs it."""
        logprobs = self._logprobs[run.prefill]
        texts = self._scored_texts(method, run)
        answers = run.order.answers(self._example)
        choices = self._task.choices if method.scores_choices and self._settings.logprobs else ()
        return MethodOutput(
            order=run.order,
            answers=answers,
            text=self._written[run.generation].answer.text if run.generation else None,
            answer_logprob=logprobs[texts[0]] if method.scores_answers and answers and texts else None,
            choice_logprobs={text: logprobs[text] for text in choices} or None,
        )

    def _fail(self, result: PlannedResult, error: str) -> None:
        """Emit the records of a result that cannot be computed."""
        for order in result.orders:
            self._emit_record(
                result.method,
                order,
                prompt_tokens=_num_prompt_tokens(result),
                was_computed=False,
                error=error,
            )

    def _emit_record(self, method: MeasuredMethod, order: DocumentOrder, **fields: Any) -> None:
        record = blank_record(self._example, method.name, order)
        self._emit(record.model_copy(update=fields))

    def _on_layer(self, method: Method, layer: int) -> None:
        raise_if_cancelled(self._cancelled)
        self._emit(PrefillProgress(method.name, layer, self._engine.num_layers))


def _num_prompt_tokens(result: PlannedResult) -> int:
    return sum(run.prefill.layout.num_tokens for run in result.runs)
