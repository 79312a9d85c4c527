"""Run of one example: what has to be computed, and its records."""

from collections import Counter
from functools import cache
from typing import Any, Generic, TypeVar

from pine_engine.backend import Backend
from pine_engine.errors import PineError
from pine_engine.lab.debias.estimators import Correction
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.evaluation.document_orders import DocumentOrder
from pine_engine.lab.evaluation.example_plan import ExamplePlan, PlannedResult
from pine_engine.lab.evaluation.outcome import combine
from pine_engine.lab.evaluation.record import Key, blank_record
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.prompts.examples import Example
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.worker import RunControl

Model = TypeVar("Model", bound=Backend)
Learned = Correction | None  # None for an example from which a wrapper learns


class ExampleRun(Generic[Model]):
    """Evaluation of one example: what has to be computed, and its records."""

    def __init__(
        self,
        backend: Model,
        example: Example,
        settings: Settings,
        done: set[Key],
        corrections: dict[str, Learned],
        control: RunControl,
    ) -> None:
        self._backend, self._example, self._control = backend, example, control
        self._corrections = corrections
        self._is_greedy = backend.answer_warning is None
        self._verdict = settings.verdict
        self._max_new_tokens = settings.max_new_tokens or TASKS[example.task].max_new_tokens
        learning = {name for name, correction in corrections.items() if correction is None}
        self._plan = ExamplePlan(backend, example, settings, done=done, learning=learning)
        self._tokens = cache(backend.tokenize_answer)

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
                    self._backend.select_methods([run.prefill.method])
                    self._backend.check_length(run.prefill.layout, self._reserved_tokens(result))
                waiting.append(result)
            except PineError as error:
                self._fail(result, str(error))
        self._num_results = Counter(part for result in waiting for part in result.parts)
        for result in waiting:
            for run in result.runs:
                run.prefill.texts |= dict.fromkeys(run.scored_texts)
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
        texts = {text for run in result.runs for text in run.scored_texts}
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
                prompt_tokens=result.num_prompt_tokens,
                answer_tokens=sum(answer.num_tokens for answer in answers) if answers else None,
                was_computed=index == 0,
                is_repeatable=result.is_repeatable if index == 0 else None,
                **combine(result.method, self._example, result.runs, order, correction, self._verdict),
                **(times if index == 0 else {}),
            )

    def _fail(self, result: PlannedResult, error: str) -> None:
        """Emit the records of a result that cannot be computed."""
        num_tokens = result.num_prompt_tokens
        for order in result.orders:
            self._emit_record(result.method, order, prompt_tokens=num_tokens, was_computed=False, error=error)

    def _emit_record(self, method: MeasuredMethod, order: DocumentOrder, **fields: Any) -> None:
        record = blank_record(self._example, method.name, order)
        self._control.report(record.model_copy(update={"is_greedy": self._is_greedy, **fields}))
