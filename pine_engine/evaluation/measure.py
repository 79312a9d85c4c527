"""Measuring: every example under every method in every arrangement, record by record."""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import torch

from pine_engine.batch import ReadPrompt, write_answers
from pine_engine.certificate import platform_of
from pine_engine.engine import BATCH_ROWS, Engine
from pine_engine.errors import InputError
from pine_engine.evaluation.arrangements import AS_IS, check_arrangements
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.jobs import Job, blank, plan_example
from pine_engine.evaluation.reading import Reader, Reading
from pine_engine.evaluation.records import Key, Record, RunInfo
from pine_engine.events import Event, PrefillProgress
from pine_engine.methods import Method, get_methods
from pine_engine.streaming import in_thread, stop_if
from pine_engine.tasks import get_task

Emit = Callable[[Event | Record], None]


@dataclass(frozen=True)
class Settings:
    """What is measured of each example.

    arrangements: names, see ORDERS in arrangements.py. generate: an answer is written and scored. logprobs:
    the first accepted answer and the task's choices are scored by their log-probability. max_new_tokens: of
    an answer, None for the task's own. recompute: what cannot differ is computed all the same.
    """

    methods: tuple[Method, ...]
    arrangements: tuple[str, ...]
    generate: bool
    logprobs: bool
    max_new_tokens: int | None
    recompute: bool

    def run_info(
        self, engine: Engine, *, task: str, data: str, data_sha256: str, sample: int | None = None
    ) -> RunInfo:
        """What a run that starts now measures, and with what; data, data_sha256, sample: as in RunInfo."""
        return RunInfo(
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            data=data,
            data_sha256=data_sha256,
            sample=sample,
            task=task,
            methods=tuple(method.name for method in self.methods),
            arrangements=self.arrangements,
            generate=self.generate,
            logprobs=self.logprobs,
            max_new_tokens=self.max_new_tokens,
            recompute=self.recompute,
            address=engine.address,
            platform=platform_of(engine),
        )


def choose(
    examples: Sequence[Example],
    *,
    methods: Sequence[str] | None = None,
    arrangements: Sequence[str] = (AS_IS,),
    generate: bool = True,
    logprobs: bool = True,
    max_new_tokens: int | None = None,
    recompute: bool = False,
) -> Settings:
    """The settings, checked. methods: names, the default ones for None.

    Raises InputError for an unknown method, an arrangement that is unknown or that none of the examples can
    be brought into, an answer length below 1, and if nothing is to be measured.
    """
    if not generate and not logprobs:
        raise InputError("nothing is to be measured; ask for generated answers, log-probabilities, or both")
    if max_new_tokens is not None and max_new_tokens < 1:
        raise InputError(f"the answer length is {max_new_tokens}; give 1 or more tokens")
    check_arrangements(arrangements, examples)
    chosen = get_methods(methods)
    return Settings(chosen, tuple(arrangements), generate, logprobs, max_new_tokens, recompute)


def measure(
    engine: Engine, examples: Sequence[Example], *, done: AbstractSet[Key] = frozenset(), **options: Any
) -> Generator[Event | Record, None, None]:
    """Measures examples; yields each Record as soon as it is there, and PrefillProgress between them.

    options, and what is raised for them: as for choose(). done: records that are there already.
    A prompt is read once for its answer and its log-probabilities; what cannot be read or arranged becomes a
    record with an error. The model runs in a thread of its own; closing the generator stops it within one
    layer.
    """
    return in_thread(Measurement(engine, examples, choose(examples, **options), done).work)


@dataclass(frozen=True)
class Measurement:
    """A measurement that has been checked, for callers with a thread of their own; done: see measure()."""

    engine: Engine
    examples: Sequence[Example]
    settings: Settings
    done: AbstractSet[Key]

    @torch.inference_mode()
    def work(self, emit: Emit, cancelled: threading.Event) -> None:
        """Emits what measure() yields, in the caller's thread; raises Cancelled once the flag is set."""
        for example in self.examples:
            stop_if(cancelled)
            _ExampleWork(self, example, emit, cancelled).run()


@dataclass
class _Outcome:
    """What one job comes to, the same for all its records but for how answers are accepted."""

    prefill_s: float
    seconds: float
    answer_logprob: float | None
    choice_logprobs: dict[str, float] | None
    text: str | None = None
    answer_tokens: int | None = None
    decode_s: float = 0.0


class _ExampleWork:
    """One example: its jobs are read one by one, and their answers written together."""

    def __init__(
        self, measurement: Measurement, example: Example, emit: Emit, cancelled: threading.Event
    ) -> None:
        self._engine, self._settings = measurement.engine, measurement.settings
        self._example, self._task = example, get_task(example.task)
        self._emit, self._cancelled = emit, cancelled
        self._max_new_tokens = self._settings.max_new_tokens or self._task.max_new_tokens
        self._tokens_of: dict[str, tuple[int, ...]] = {}
        self._plan = plan_example(
            self._engine,
            example,
            methods=self._settings.methods,
            spec=self._settings.arrangements,
            recompute=self._settings.recompute,
            done=measurement.done,
        )

    def run(self) -> None:
        """Emits the example's records."""
        for record in self._plan.failed:
            self._emit(record)
        jobs = list(filter(self._can_be_read, self._plan.jobs))
        waiting = dict(enumerate(jobs))
        try:
            for index, outcome in self._outcomes(jobs):
                self._record(waiting.pop(index), outcome)
        except torch.OutOfMemoryError:
            for job in waiting.values():
                self._fail(job, "the device ran out of memory; measure with shorter prompts or answers")

    def _can_be_read(self, job: Job) -> bool:
        try:
            self._engine.check_length(job.layout, self._room(job))
        except InputError as error:
            self._fail(job, str(error))
            return False
        return True

    def _room(self, job: Job) -> int:
        """How many tokens may follow the prompt."""
        given = [len(self._tokens(text)) for text in self._given(job)]
        return max([*given, self._max_new_tokens if self._settings.generate else 0])

    def _tokens(self, text: str) -> tuple[int, ...]:
        if text not in self._tokens_of:
            self._tokens_of[text] = self._engine.tokenize_answer(text)
        return self._tokens_of[text]

    def _given(self, job: Job) -> list[str]:
        """The texts of which the log-probability is asked: an answer if one is accepted, and the choices."""
        return [*job.answers[:1], *self._task.choices] if self._settings.logprobs else []

    def _outcomes(self, jobs: Sequence[Job]) -> Iterator[tuple[int, _Outcome]]:
        """Index and outcome of each job, as soon as it is there."""
        room = max(map(self._room, jobs), default=0)
        reader = Reader(self._engine, jobs, room=room, on_layer=self._on_layer)
        if not self._settings.generate:
            for index, job in enumerate(jobs):
                yield index, self._score(job, reader.read(job))
            return
        outcomes: list[_Outcome] = []

        def read() -> Iterator[ReadPrompt]:
            for index, job in enumerate(jobs):
                reading = reader.read(job)
                outcomes.append(self._score(job, reading))
                yield ReadPrompt(index, job.method.name, (reading.row,), reading.logits, reading.alone_s)

        for written in write_answers(
            self._engine,
            read(),
            max_new_tokens=self._max_new_tokens,
            batch_size=batch_width(self._plan.num_jobs),
            on_layer=lambda _: stop_if(self._cancelled),
        ):
            outcome = outcomes[written.index]
            outcome.text = written.answer.text
            outcome.answer_tokens = len(written.answer.token_ids)
            outcome.decode_s = written.seconds
            outcome.seconds += written.seconds
            yield written.index, outcome

    def _score(self, job: Job, reading: Reading) -> _Outcome:
        """The log-probabilities that are asked for; the row is left as it was."""
        began = time.perf_counter()
        totals = [
            self._engine.score_answer(
                reading.row,
                reading.logits,
                text,
                self._tokens(text),
                on_layer=lambda _: stop_if(self._cancelled),
            ).total
            for text in self._given(job)
        ]
        answer, choices = (totals[:1], totals[1:]) if job.answers else ([], totals)
        return _Outcome(
            prefill_s=reading.alone_s,
            seconds=reading.spent_s + time.perf_counter() - began,
            answer_logprob=answer[0] if answer else None,
            choice_logprobs=dict(zip(self._task.choices, choices, strict=True)) if choices else None,
        )

    def _record(self, job: Job, outcome: _Outcome) -> None:
        """Emits the records of a job, the first of them as computed."""
        for index, arrangement in enumerate(job.arrangements):
            measured = {
                "prompt_tokens": job.layout.num_tokens,
                "text": outcome.text,
                "answer_tokens": outcome.answer_tokens,
                "answer_logprob": outcome.answer_logprob,
                "choice_logprobs": outcome.choice_logprobs,
                "choice_score": self._choice_score(outcome.choice_logprobs, job.answers),
                "computed": index == 0,
            }
            if outcome.text is not None:
                measured["parsed"] = self._task.parse(outcome.text)
                measured["score"] = self._task.score(outcome.text, job.answers) if job.answers else None
            if index == 0:
                measured |= {
                    "prefill_s": outcome.prefill_s,
                    "decode_s": outcome.decode_s,
                    "seconds": outcome.seconds,
                }
            self._emit(blank(self._example, job.method, arrangement).model_copy(update=measured))

    def _choice_score(self, logprobs: dict[str, float] | None, answers: Sequence[str]) -> float | None:
        """The score of the most likely choice; on a tie the mean of theirs."""
        if not logprobs or not answers:
            return None
        largest = max(logprobs.values())
        return fmean(
            self._task.score(choice, answers) for choice, value in logprobs.items() if value == largest
        )

    def _fail(self, job: Job, error: str) -> None:
        """Emits the records of a job that cannot be done."""
        for arrangement in job.arrangements:
            record = blank(self._example, job.method, arrangement)
            self._emit(
                record.model_copy(
                    update={"prompt_tokens": job.layout.num_tokens, "computed": False, "error": error}
                )
            )

    def _on_layer(self, method: Method, layer: int) -> None:
        stop_if(self._cancelled)
        self._emit(PrefillProgress(method.name, layer, self._engine.num_layers))


def batch_width(num_jobs: int) -> int:
    """How many answers are written together: no more than there are, and as many as keep their bits.

    In batches of 2 to 17 rows each row has the same bits, see batch.py; jobs that are done already count too,
    so that a run that goes on has the batches that it had.
    """
    return BATCH_ROWS if num_jobs <= BATCH_ROWS else 2 * BATCH_ROWS
