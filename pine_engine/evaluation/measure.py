"""Measuring: every example under every method in every order_name, record by record."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pine_engine.attention.state import SequenceState
from pine_engine.debias.calibration import calibrated_prompt
from pine_engine.debias.measured import MeasuredMethod
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, PrefillProgress
from pine_engine.engine.generation import BATCH_ROWS, ActiveGeneration, decode_answers
from pine_engine.engine.likelihood import score_answer
from pine_engine.engine.model_worker import raise_if_cancelled, stream_from_worker
from pine_engine.errors import InputError, ModelError
from pine_engine.evaluation.combining import MethodOutput, Prior, combine
from pine_engine.evaluation.example_plan import (
    BaseRun,
    Generation,
    Prefill,
    Result,
    blank,
    plan_example,
    planned_keys,
)
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.order_names import AS_IS
from pine_engine.evaluation.prefilling import Prefilled, Prefiller
from pine_engine.evaluation.priors import Priors
from pine_engine.evaluation.records import Key, Record
from pine_engine.evaluation.settings import Settings, choose
from pine_engine.methods.table import Method
from pine_engine.prompts.tasks import get_task

Emit = Callable[[Event | Record], None]

BATCH_WIDTH = 2 * BATCH_ROWS
"""Answers that are written together, with free places if there are fewer: a product of another number of rows
may have other bits, and what is measured beside an answer must not change it."""


def measure(
    engine: Engine, examples: Sequence[Example], *, done: AbstractSet[Key] = frozenset(), **options: Any
) -> Generator[Event | Record, None, None]:
    """Measures examples; yields each Record as soon as it is there, and PrefillProgress between them.

    options, and what is raised for them: as for choose(). done: records that are there already.
    A prompt is read once for its answer and its log-probabilities; what cannot be read or arranged, or has
    logits that are not finite, becomes a record with an error. Closing the generator stops
    the model within one layer.
    """
    return stream_from_worker(Measurement(engine, examples, choose(examples, **options), done).work)


@dataclass(frozen=True)
class Measurement:
    """A measurement that has been checked, for callers with a thread of their own; done: see measure().

    rows: those of the whole run, in its order, where others measure some of them; None if these are all.
    known: priors that are there already, see known_priors.
    """

    engine: Engine
    examples: Sequence[Example]
    settings: Settings
    done: AbstractSet[Key]
    rows: Sequence[Example] | None = None
    known: Mapping[tuple[str, str], Prior] = field(default_factory=dict)

    @torch.inference_mode()
    def work(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emits what measure() yields, in the caller's thread; raises Cancelled once the flag is set."""

        def learn(row: Example, method: MeasuredMethod) -> Prior | None:
            return self._learn(row, method, emit, cancelled)

        def tell(item: Event | Record) -> None:
            if isinstance(item, Record):
                priors.see(item)
            emit(item)

        priors = Priors(self.examples if self.rows is None else self.rows, self.known, learn)
        for example in self.examples:
            raise_if_cancelled(cancelled)
            divided = {
                method.name: priors.before(example, method)
                for method in self.settings.methods
                if method.wrapper and method.wrapper.has_prior and self._is_missing(example, method)
            }
            _ExampleWork(self, example, divided, tell, cancelled).run()

    def _is_missing(self, example: Example, method: MeasuredMethod) -> bool:
        planned = planned_keys([example], [method], self.settings.order_names)
        return not planned.keys() <= self.done

    def _learn(
        self, row: Example, method: MeasuredMethod, emit: Emit, cancelled: threading.Event
    ) -> Prior | None:
        """The prior of a row that somebody else measures, or nobody yet; its records are not told of."""
        settings = replace(self.settings, methods=(method,), order_names=(AS_IS,), generate=False)
        found: list[Prior] = []

        def keep(item: Event | Record) -> None:
            if not isinstance(item, Record):
                emit(item)
            elif item.prior:
                found.append(tuple(item.prior.values()))

        alone = replace(self, settings=settings, done=frozenset())
        _ExampleWork(alone, row, {method.name: None}, keep, cancelled).run()
        return found[0] if found else None


@dataclass
class _Read:
    """A prompt that was read. standalone_s, attributed_s: as in Prefilled, with scoring. logprobs: of "
    "given texts."""

    standalone_s: float
    attributed_s: float
    logprobs: dict[str, float]


class _ExampleWork:
    """One example: its prompts are read one by one, and its answers written together.

    divided: the prior of each method that divides by one, None for those that learn it from this example.
    """

    def __init__(
        self,
        measurement: Measurement,
        example: Example,
        divided: Mapping[str, Prior | None],
        emit: Emit,
        cancelled: threading.Event,
    ) -> None:
        self._engine, self._settings = measurement.engine, measurement.settings
        self._example, self._task = example, get_task(example.task)
        self._divided = divided
        self._emit, self._cancelled = emit, cancelled
        self._max_new_tokens = self._settings.max_new_tokens or self._task.max_new_tokens
        self._tokens_of: dict[str, tuple[int, ...]] = {}
        self._plan = plan_example(
            self._engine,
            example,
            self._settings,
            done=measurement.done,
            learning={name for name, prior in divided.items() if prior is None},
        )
        self._given = self._texts_to_score()
        self._read: dict[Prefill, _Read] = {}
        self._written: dict[Generation, ActiveGeneration] = {}
        self._failed: dict[Prefill | Generation, str] = {}

    def run(self) -> None:
        """Emits the example's records."""
        for record in self._plan.failed:
            self._emit(record)
        waiting = dict.fromkeys(filter(self._can_be_read, self._plan.results))
        results = tuple(waiting)
        shared: Counter[Prefill | Generation] = Counter()
        for result in results:
            shared.update([*result.prefills, *result.generations])
        try:
            for _ in self._compute(results):
                for result in [one for one in waiting if self._is_there(one)]:
                    del waiting[result]
                    if error := self._error_of(result):
                        self._fail(result, error)
                    else:
                        self._record(result, shared)
        except torch.OutOfMemoryError:
            for result in waiting:
                self._fail(result, "the device ran out of memory; measure with shorter prompts or answers")

    def _texts_to_score(self) -> dict[Prefill, dict[str, None]]:
        """The texts of which each prompt's log-probability is asked: an accepted answer, and the choices."""
        given: dict[Prefill, dict[str, None]] = {prefill: {} for prefill in self._plan.prefills}
        for result in self._plan.results:
            for run in result.runs:
                given[run.prefill] |= dict.fromkeys(self._weighed(result.method, run))
        return given

    def _weighed(self, method: MeasuredMethod, run: BaseRun) -> tuple[str, ...]:
        """The texts of which one run is asked the log-probability for a method."""
        if not self._settings.logprobs:
            return ()
        answers = run.order_name.answers(self._example)[:1] if method.weighs_answers else ()
        return (*answers, *(self._task.choices if method.weighs_choices else ()))

    def _can_be_read(self, result: Result) -> bool:
        try:
            for prefill in result.prefills:
                self._engine.check_length(prefill.layout, self._room(result))
        except InputError as error:
            self._fail(result, str(error))
            return False
        return True

    def _room(self, result: Result) -> int:
        """How many tokens may follow a result's prompts."""
        weighed = (text for run in result.runs for text in self._weighed(result.method, run))
        given = [len(self._tokens(text)) for text in weighed]
        return max([*given, self._max_new_tokens if result.generations else 0])

    def _tokens(self, text: str) -> tuple[int, ...]:
        if text not in self._tokens_of:
            self._tokens_of[text] = self._engine.tokenize_answer(text)
        return self._tokens_of[text]

    def _compute(self, results: Sequence[Result]) -> Iterator[None]:
        """Reads and writes what the results need, and yields whenever there is more."""
        prefills = list(dict.fromkeys(one for result in results for one in result.prefills))
        generations = list(
            dict.fromkeys(generation for result in results for generation in result.generations)
        )
        reserved_tokens = max(map(self._room, results), default=0)
        reader = Prefiller(self._engine, prefills, reserved_tokens=reserved_tokens, on_layer=self._on_layer)
        reusing_methods = Counter(prefill for generation in generations for prefill in generation.prefills)
        held: dict[Prefill, Prefilled] = {}

        def row_of(prefill: Prefill) -> tuple[SequenceState, torch.Tensor]:
            """A row of its own for each answer that goes on from the prompt; the last one takes the first."""
            if prefill not in held:
                held[prefill] = self._read_prompt(reader, prefill)
            reusing_methods[prefill] -= 1
            prefilled = held[prefill] if reusing_methods[prefill] else held.pop(prefill)
            row = prefilled.row
            return (
                SequenceState(row.state, row.cache.copy()) if reusing_methods[prefill] else row
            ), prefilled.logits

        def prompts() -> Iterator[ActiveGeneration]:
            for index, generation in enumerate(generations):
                read = [row_of(prefill) for prefill in generation.prefills]
                seconds = sum(self._read[prefill].standalone_s for prefill in generation.prefills)
                name = generation.prefills[0].method.name
                if generation.steps:
                    yield calibrated_prompt(index, name, read, generation.steps, seconds)
                else:
                    ((row, logits),) = read
                    yield ActiveGeneration(name, (row,), logits, seconds, index)

        for prefill in prefills:
            if prefill not in reusing_methods:
                self._read_prompt(reader, prefill)
                yield
        for written in decode_answers(
            self._engine,
            prompts(),
            max_new_tokens=self._max_new_tokens,
            batch_size=BATCH_WIDTH,
            cancelled=self._cancelled,
        ):
            if written.error:
                self._failed[generations[written.index]] = str(written.error)
            else:
                self._written[generations[written.index]] = written
            yield

    def _read_prompt(self, reader: Prefiller, prefill: Prefill) -> Prefilled:
        """Reads a prompt and takes the log-probabilities that are asked for; the row is left as it was."""
        prefilled = reader.read(prefill)
        began = time.perf_counter()
        logprobs: dict[str, float] = {}
        try:
            for text in self._given[prefill]:
                logprobs[text] = score_answer(
                    prefilled.row,
                    prefilled.logits,
                    text,
                    self._tokens(text),
                    on_layer=lambda _: raise_if_cancelled(self._cancelled),
                ).total
        except ModelError as error:
            self._failed[prefill] = str(error)
        self._read[prefill] = _Read(
            prefilled.standalone_s, prefilled.attributed_s + time.perf_counter() - began, logprobs
        )
        return prefilled

    def _is_there(self, result: Result) -> bool:
        """Whether all that the result needs was computed, or failed."""
        written = self._written.keys() | self._failed.keys()
        return result.prefills.keys() <= self._read.keys() and result.generations.keys() <= written

    def _error_of(self, result: Result) -> str | None:
        """Why a result cannot be, if something that it needs has failed."""
        needed = (*result.prefills, *result.generations)
        return next((self._failed[one] for one in needed if one in self._failed), None)

    def _record(self, result: Result, shared: Mapping[Prefill | Generation, int]) -> None:
        """Emits the records of a result, the first of them as computed. shared: by how many results."""
        runs = [self._said(result.method, run) for run in result.runs]
        written = [self._written[run.generation] for run in result.runs if run.generation]
        spent = [self._read[prefill].attributed_s / shared[prefill] for prefill in result.prefills]
        spent += [self._written[generation].seconds / shared[generation] for generation in result.generations]
        measured = {
            "prompts": len(result.runs),
            "prompt_tokens": result.prompt_tokens,
            "answer_tokens": sum(len(one.answer.token_ids) for one in written) if written else None,
        }
        times = {
            "prefill_s": sum(self._read[run.prefill].standalone_s for run in result.runs),
            "decode_s": sum(one.seconds for one in written),
            "seconds": sum(spent),
        }
        prior = self._divided.get(result.method.name)
        for index, order_name in enumerate(result.order_names):
            said = combine(result.method, self._example, runs, order_name, prior)
            record = blank(self._example, result.method, order_name)
            update = measured | said | {"computed": index == 0} | (times if index == 0 else {})
            self._emit(record.model_copy(update=update))

    def _said(self, method: MeasuredMethod, run: BaseRun) -> MethodOutput:
        """What one run says of what is asked of the method."""
        logprobs = self._read[run.prefill].logprobs
        answers = run.order_name.answers(self._example)
        choices = self._task.choices if method.weighs_choices else ()
        weighed = answers[:1] if method.weighs_answers else ()
        return MethodOutput(
            order_name=run.order_name,
            answers=answers,
            text=self._written[run.generation].answer.text if run.generation else None,
            answer_logprob=next((logprobs[text] for text in weighed if text in logprobs), None),
            choice_logprobs={text: logprobs[text] for text in choices if text in logprobs} or None,
        )

    def _fail(self, result: Result, error: str) -> None:
        """Emits the records of a result that cannot be computed."""
        failed = {"prompt_tokens": result.prompt_tokens, "computed": False, "error": error}
        for order_name in result.order_names:
            self._emit(blank(self._example, result.method, order_name).model_copy(update=failed))

    def _on_layer(self, method: Method, layer: int) -> None:
        raise_if_cancelled(self._cancelled)
        self._emit(PrefillProgress(method.name, layer, self._engine.num_layers))
