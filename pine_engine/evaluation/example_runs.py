"""Prompts and answers that the records of one example need, each computed once.

A record needs one run of its base method, or several if a wrapper is around it. The same tokens under the
same method are computed once, and an order-invariant method once for all orders of the same input documents.
"""

from collections import Counter
from collections.abc import Container, Hashable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pine_engine.debias.debias import num_continued
from pine_engine.debias.plan import content_free_prompts, document_orders
from pine_engine.debias.table import MeasuredMethod, Steps
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.evaluation.document_orders import DocumentOrder, arrange, in_slots, names_of
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.settings import Key, Settings
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.tasks import get_task


@dataclass(frozen=True, eq=False)
class Prefill:
    """A prompt under one method. Prefills of the same version may share parts of their computation."""

    method: Method
    layout: TokenLayout
    version: str


@dataclass(frozen=True)
class Generation:
    """An answer to the first of the prefills; `steps` of its tokens are calibrated with the others."""

    prefills: tuple[Prefill, ...]
    steps: Steps | None = None

    @property
    def num_rows(self) -> int:
        """Number of rows in a batch of answers."""
        return num_continued(len(self.prefills), self.steps)


@dataclass(frozen=True)
class BaseRun:
    """One run of a base method; `generation` is None if no answer is generated."""

    order: DocumentOrder
    prefill: Prefill
    generation: Generation | None = None


@dataclass(frozen=True, eq=False)
class PlannedResult:
    """Outcome of a method, the same for several document orders.

    Attributes:
        runs: Sorted independently of the document orders of the records.
        orders: Document orders without a record. The first is the one that is computed.
    """

    method: MeasuredMethod
    runs: tuple[BaseRun, ...]
    orders: list[DocumentOrder] = field(default_factory=list)

    @property
    def prefills(self) -> dict[Prefill, None]:
        """Distinct prefills."""
        return dict.fromkeys(run.prefill for run in self.runs)

    @property
    def generations(self) -> dict[Generation, None]:
        """Distinct answers."""
        return dict.fromkeys(run.generation for run in self.runs if run.generation)


@dataclass(frozen=True)
class ExamplePlan:
    """Results of an example, and the errors of those that cannot be computed, by method and order."""

    results: tuple[PlannedResult, ...]
    errors: dict[tuple[MeasuredMethod, str], str]

    @property
    def prefills(self) -> list[Prefill]:
        """Distinct prefills."""
        return list(dict.fromkeys(prefill for result in self.results for prefill in result.prefills))

    @property
    def generations(self) -> list[Generation]:
        """Distinct answers."""
        return list(dict.fromkeys(generation for result in self.results for generation in result.generations))


def plan_example(
    engine: Engine,
    example: Example,
    settings: Settings,
    *,
    done: AbstractSet[Key] = frozenset(),
    learning: Container[str] = (),
) -> ExamplePlan:
    """Plan the results of an example that have no record.

    Args:
        engine: Engine with a tokenizer.
        example: Example.
        settings: Settings of the evaluation.
        done: Keys of existing records.
        learning: Names of the methods that learn their prior from this example.
    """
    planner = _Planner(engine, example, settings, learning)
    results: dict[Hashable, PlannedResult] = {}
    errors: dict[tuple[MeasuredMethod, str], str] = {}
    for name in names_of(settings.order_names, len(example.documents)):
        for method in settings.measured:
            is_missing = (example.id, method.name, name) not in done
            try:
                order = arrange(example, name)
                settings.check(method, example)
                runs = planner.runs(method, order)
            except InputError as error:
                if is_missing:
                    errors[method, name] = str(error)
                continue
            # Two orders with the same runs have the same result.
            key = method.name, frozenset(Counter(map(planner.key, runs)).items())
            result = results.setdefault(key, PlannedResult(method, runs))
            if is_missing:
                result.orders.append(order)
    return ExamplePlan(tuple(result for result in results.values() if result.orders), errors)


class _Planner:
    """Runs of one example, with the layouts and prefills that several runs have in common."""

    def __init__(
        self, engine: Engine, example: Example, settings: Settings, learning: Container[str]
    ) -> None:
        self._engine, self._example, self._settings = engine, example, settings
        self._learning = learning
        self._has_letters = get_task(example.task).has_letters
        self._layouts: dict[Hashable, list[TokenLayout]] = {}
        self._prefills: dict[Hashable, Prefill] = {}

    def key(self, run: BaseRun) -> Hashable:
        """Return the prefill of a run, and the documents of its letters."""
        return run.prefill, run.order.input_order if self._has_letters else ()

    def runs(self, method: MeasuredMethod, order: DocumentOrder) -> tuple[BaseRun, ...]:
        """Return the runs of a method. Raises InputError if there is no prompt."""
        wrapper = method.wrapper
        generates = method.generates and self._settings.generate
        if wrapper and wrapper.orders:  # documents change their slots, and labels stay
            is_permuted = not wrapper.has_prior or method.name in self._learning
            orders = document_orders(len(order.slots), wrapper.orders if is_permuted else None)
            visited = sorted(tuple(order.slots[place] for place in one) for one in orders)
            runs = []
            for one in (in_slots(self._example, order.name, slots) for slots in visited):
                prefills = self._prefill(method.base, one)
                runs.append(BaseRun(one, prefills[0], Generation(prefills) if generates else None))
            return tuple(runs)
        prefills = self._prefill(method.base, order)
        if wrapper:
            prefills += self._prefill(method.base, order, is_content_free=True)
        generation = Generation(prefills, wrapper.steps if wrapper else None) if generates else None
        own, *free = (BaseRun(order, prefill) for prefill in prefills)
        return (BaseRun(order, own.prefill, generation), *free)

    def _prefill(
        self, base: Method, order: DocumentOrder, *, is_content_free: bool = False
    ) -> tuple[Prefill, ...]:
        """Return the prefill of a document order, or its content-free prefills."""
        key = order.input_order, is_content_free
        if key not in self._layouts:
            request = order.request(self._example)
            prompts = (
                content_free_prompts(self._engine, request)
                if is_content_free
                else [request.prompt(self._engine)]
            )
            self._layouts[key] = list(map(self._engine.tokenize, prompts))
        version = order.name if self._settings.recompute else ""
        is_invariant = base.is_order_invariant and self._engine.invariance_warning is None
        found = []
        for layout in self._layouts[key]:
            moved = layout.reorder(order.permutation)
            documents = tuple(sorted(moved.documents)) if is_invariant else moved.documents
            prefill = Prefill(base, moved, version)
            found.append(self._prefills.setdefault((base.name, documents, version), prefill))
        return tuple(found)
