"""Plan of an example: the prefills and answers that its records need, each once.

A method without position bias has one result for all orders of the documents. Several methods and orders can
need the same prefill.
"""

import math
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from pine_engine.backend import Backend
from pine_engine.endpoint.replies import Reply
from pine_engine.engine.generation import ActiveGeneration
from pine_engine.errors import InputError
from pine_engine.lab.debias.calibrated_tokens import num_continued
from pine_engine.lab.debias.combining import log_mean, mean_probability
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.debias.plan import content_free_prompts
from pine_engine.lab.debias.wrappers import DEFAULT_BASE, Steps
from pine_engine.lab.evaluation.document_orders import AGAIN, DocumentOrder, arrange, in_slots, names_of
from pine_engine.lab.evaluation.record import Key
from pine_engine.lab.evaluation.settings import Settings
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.examples import Example
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.orders import document_orders
from pine_engine.prompts.tasks import TASKS
from pine_engine.prompts.thinking import SplitAnswer


@dataclass(eq=False)
class Prefill:
    """A prompt under one method. Prefills of the same version may share parts of their computation."""

    method: Method
    layout: TokenLayout
    version: str
    texts: dict[str, None] = field(default_factory=dict, init=False)  # to score after the prompt
    logprobs: dict[str, float] = field(default_factory=dict, init=False)  # of the texts
    standalone_s: float = field(default=0.0, init=False)  # seconds that the prefill takes without reuse
    seconds: float = field(default=0.0, init=False)  # time spent, with the share of reused parts
    is_done: bool = field(default=False, init=False)
    error: str | None = field(default=None, init=False)
    num_tokens: int = field(init=False)  # of the prompt
    is_repeatable: bool | None = field(default=None, init=False)  # of an endpoint, see Reply
    state: NDArray[np.float64] | None = field(default=None, init=False)  # hidden, of the last token

    def __post_init__(self) -> None:
        self.num_tokens = self.layout.num_tokens


@dataclass(eq=False)
class Generation:
    """An answer to the first of the prefills; `steps` of its tokens are calibrated with the others."""

    prefills: tuple[Prefill, ...]
    steps: Steps | None = None
    answer: ActiveGeneration | Reply | None = None

    @property
    def is_done(self) -> bool:
        """True if the answer is finished or has an error."""
        return self.answer is not None

    @property
    def num_rows(self) -> int:
        """Number of rows in a batch of answers."""
        return num_continued(len(self.prefills), self.steps)

    @property
    def seconds(self) -> float:
        """Share of the decoding steps' time."""
        return self.answer.seconds if self.answer else 0.0

    @property
    def error(self) -> str | None:
        """Reason why there is no answer."""
        return self.answer.error or None if self.answer else None


@dataclass(frozen=True)
class BaseRun:
    """One run of a base method."""

    order: DocumentOrder
    prefill: Prefill
    generation: Generation | None  # None if no answer is generated
    accepted: tuple[str, ...] = ()  # first accepted answer in its order, if its log-probability is measured
    # Choices of the task whose log-probabilities are measured, with the texts that give each.
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def found(self) -> SplitAnswer | None:
        """Generated text, None if no answer is generated."""
        return self.generation.answer.found if self.generation and self.generation.answer else None

    @property
    def text(self) -> str | None:
        """Generated answer."""
        return self.found.text if self.found else None

    @property
    def is_cut(self) -> bool:
        """True if the generated answer ends at the limit of tokens."""
        answer = self.generation.answer if self.generation else None
        return answer is not None and answer.finish_reason == "length"

    @property
    def confidence(self) -> float:
        """Mean probability of the generated tokens; 0 without an answer."""
        answer = self.generation.answer if self.generation else None
        return mean_probability(answer.logprobs if answer else [])

    @property
    def scored_texts(self) -> tuple[str, ...]:
        """Texts whose log-probabilities after the prompt are needed."""
        return (*self._accepted_texts, *chain.from_iterable(self.choices.values()))

    @property
    def answer_logprob(self) -> float | None:
        """Log-probability of the accepted answer, None if it is not measured."""
        return self._logprob(self._accepted_texts)

    @property
    def choice_logprobs(self) -> dict[str, float] | None:
        """Log-probabilities of the choices, None if they are not measured."""
        found = {choice: self._logprob(texts) for choice, texts in self.choices.items()}
        measured = {choice: one for choice, one in found.items() if one is not None}
        return measured if measured and len(measured) == len(found) else None

    @property
    def _accepted_texts(self) -> tuple[str, ...]:
        """Texts that give the accepted answer: those of its choice, or the answer itself."""
        return self.choices.get(self.accepted[0], self.accepted) if self.accepted else ()

    def _logprob(self, texts: Sequence[str]) -> float | None:
        """Return the logarithm of the sum of the probabilities of texts, None if none was measured."""
        logs = [self.prefill.logprobs[text] for text in texts if text in self.prefill.logprobs]
        return log_mean(logs) + math.log(len(logs)) if logs else None


@dataclass(frozen=True, eq=False)
class PlannedResult:
    """Outcome of a method, the same for several document orders."""

    method: MeasuredMethod
    runs: tuple[BaseRun, ...]  # sorted independently of the document orders of the records
    orders: list[DocumentOrder] = field(default_factory=list)  # without a record; the first is computed

    @property
    def parts(self) -> list[Prefill | Generation]:
        """Distinct prefills and answers that the result needs."""
        answers = (run.generation for run in self.runs if run.generation)
        return list(dict.fromkeys([*(run.prefill for run in self.runs), *answers]))

    @property
    def num_prompt_tokens(self) -> int:
        """Number of tokens of all prompts."""
        return sum(run.prefill.num_tokens for run in self.runs)

    @property
    def is_repeatable(self) -> bool | None:
        """True if a repeated request had the same answer, None if none was repeated."""
        repeats = (run.prefill.is_repeatable for run in self.runs)
        return next((one for one in repeats if one is not None), None)


def distinct_parts(results: Iterable[PlannedResult]) -> tuple[list[Prefill], list[Generation]]:
    """Return the prefills and answers that several results need, each once."""
    parts = dict.fromkeys(part for result in results for part in result.parts)
    prefills = [part for part in parts if isinstance(part, Prefill)]
    return prefills, [part for part in parts if isinstance(part, Generation)]


class ExamplePlan:
    """Results of an example without a record, and errors of those that cannot be computed."""

    def __init__(
        self,
        backend: Backend,
        example: Example,
        settings: Settings,
        *,
        done: AbstractSet[Key] = frozenset(),
        learning: Container[str] = (),
    ) -> None:
        """Plan the results. done: keys of existing records. learning: methods that learn their prior here."""
        self._backend, self._example, self._settings, self._learning = backend, example, settings, learning
        self._task = TASKS[example.task]
        self._layouts: dict[Hashable, list[TokenLayout]] = {}
        self._prefills: dict[Hashable, Prefill] = {}
        self._generations: dict[Hashable, Generation] = {}
        self.errors: dict[tuple[MeasuredMethod, str], str] = {}
        results: dict[Hashable, PlannedResult] = {}
        for name in names_of(settings.order_names, len(example.documents)):
            for method in settings.measured:
                is_missing = (example.id, method.name, name) not in done
                try:
                    order = arrange(example, name)
                    settings.check(method, example)
                    runs = self._runs(method, order)
                except InputError as error:
                    if is_missing:
                        self.errors[method, name] = str(error)
                    continue
                # Two orders with the same runs, and the same documents of the letters, have the same result.
                letters = [run.order.input_order if self._task.has_letters else () for run in runs]
                keys = Counter(zip((run.prefill for run in runs), letters, strict=True))
                result = results.setdefault(
                    (method.name, frozenset(keys.items())), PlannedResult(method, runs)
                )
                if is_missing:
                    result.orders.append(order)
        self.results = [result for result in results.values() if result.orders]

    def _runs(self, method: MeasuredMethod, order: DocumentOrder) -> tuple[BaseRun, ...]:
        """Return the runs of a method. Raises InputError if there is no prompt."""
        wrapper, settings = method.wrapper, self._settings
        orders = [order]
        if wrapper and wrapper.orders:  # documents change their slots, and labels stay
            is_permuted = not wrapper.learns or method.name in self._learning
            permutations = document_orders(len(order.slots), wrapper.orders if is_permuted else None)
            visited = sorted(tuple(order.slots[place] for place in one) for one in permutations)
            orders = [in_slots(self._example, order.name, slots) for slots in visited]
        has_choices = settings.logprobs and method.scores_choices
        runs = []
        bases = [method.base]
        if wrapper and wrapper.margin is not None:
            bases = list(dict.fromkeys((METHODS[DEFAULT_BASE], method.base)))
        for one, base in product(orders, bases):
            prefills = self._prompts(base, one)
            if wrapper and wrapper.calibrated != "nothing":
                prefills += self._prompts(base, one, is_content_free=True)
            generation = None
            if method.generates and settings.generate:
                steps = wrapper.steps if wrapper else None
                generation = self._generations.setdefault((prefills, steps), Generation(prefills, steps))
            choices = one.choice_texts(self._example) if has_choices else {}
            accepted = one.answers(self._example)[: settings.logprobs and method.scores_answers]
            runs += [
                BaseRun(one, prefill, None if index else generation, accepted, choices)
                for index, prefill in enumerate(prefills)
            ]
        return tuple(runs)

    def _prompts(
        self, base: Method, order: DocumentOrder, *, is_content_free: bool = False
    ) -> tuple[Prefill, ...]:
        """Return the prefill of a document order, or its content-free prefills."""
        key = order.input_order, is_content_free
        if key not in self._layouts:
            request = order.request(self._example).with_kwargs(self._settings.chat_template_kwargs)
            prompts = [request.prompt(self._backend)]
            if is_content_free:
                prompts = content_free_prompts(self._backend, request)
            self._layouts[key] = list(map(self._backend.tokenize, prompts))
        version = order.name if self._settings.recompute or order.name == AGAIN else ""
        is_invariant = base.is_order_invariant and self._backend.invariance_warning is None
        found = []
        for layout in self._layouts[key]:
            moved = layout.reorder(order.permutation)
            documents = tuple(sorted(moved.documents)) if is_invariant else moved.documents
            prefill = Prefill(base, moved, version)
            found.append(self._prefills.setdefault((base.name, documents, version), prefill))
        return tuple(found)
