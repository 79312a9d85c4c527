"""What is computed for an example, and which records each computation serves.

A record is made of one run of its base method or, with a wrapper around it, of several. The same tokens under
the same method are computed once, and a method that promises invariance once for all orders of the same
entered documents.
"""

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pine_engine.debias.calibration import num_continued
from pine_engine.debias.measured import MeasuredMethod
from pine_engine.debias.run import content_free
from pine_engine.debias.table import Steps
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.evaluation.document_orders import DocumentOrder, Places, arrange, expand, in_slots
from pine_engine.evaluation.examples import Example
from pine_engine.evaluation.records import Key, Record
from pine_engine.evaluation.rewardbench import find_subset
from pine_engine.evaluation.settings import Settings, visited_orders
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.tasks import get_task


@dataclass(frozen=True, eq=False)
class Prefill:
    """A prompt that is read by one method.

    version: those with the same one may lend each other what they have read.
    """

    method: Method
    layout: TokenLayout
    version: str


@dataclass(frozen=True, eq=False)
class Generation:
    """An answer that is written.

    prefills: its prompt, then those with which `steps` of its tokens are compared; None if there are none.
    """

    prefills: tuple[Prefill, ...]
    steps: Steps | None = None

    @property
    def num_rows(self) -> int:
        """How many prompts are continued with it."""
        return num_continued(len(self.prefills), self.steps) if self.steps else 1


@dataclass(frozen=True)
class BaseRun:
    """One run of a base method. generation: None if nothing is written."""

    order_name: DocumentOrder
    prefill: Prefill
    generation: Generation | None


@dataclass(frozen=True, eq=False)
class Result:
    """What a method says, made of its runs in an order that does not depend on the order_name.

    order_names: those it serves that have no record yet; in the first of them it is computed.
    """

    method: MeasuredMethod
    runs: tuple[BaseRun, ...]
    order_names: list[DocumentOrder]

    @property
    def prompt_tokens(self) -> int:
        """In all its prompts."""
        return sum(run.prefill.layout.num_tokens for run in self.runs)

    @property
    def prefills(self) -> dict[Prefill, None]:
        """What is read for it, each once."""
        return dict.fromkeys(run.prefill for run in self.runs)

    @property
    def generations(self) -> dict[Generation, None]:
        """What is written for it, each once."""
        return dict.fromkeys(run.generation for run in self.runs if run.generation)


@dataclass(frozen=True)
class ExamplePlan:
    """What an example needs. failed: records of what cannot be computed."""

    results: tuple[Result, ...]
    failed: tuple[Record, ...]

    @property
    def prefills(self) -> list[Prefill]:
        """What is read, each once."""
        return list(dict.fromkeys(prefill for result in self.results for prefill in result.prefills))

    @property
    def generations(self) -> list[Generation]:
        """What is written, each once."""
        return list(dict.fromkeys(generation for result in self.results for generation in result.generations))


def planned_keys(
    examples: Sequence[Example], methods: Sequence[MeasuredMethod], spec: Sequence[str]
) -> dict[Key, None]:
    """The keys of all records that a run makes, in its order."""
    return dict.fromkeys(
        (example.id, method.name, name)
        for example in examples
        for name in _names(example, spec)
        for method in methods
    )


def plan_example(
    engine: Engine,
    example: Example,
    settings: Settings,
    *,
    done: AbstractSet[Key] = frozenset(),
    learning: Container[str] = (),
) -> ExamplePlan:
    """The results of an example that are not there yet.

    done: records that are. learning: methods of which the prior is learnt from this example.
    """
    planner = _Planner(engine, example, settings, learning)
    results: dict[Hashable, Result] = {}
    failed: list[Record] = []
    for name in _names(example, settings.order_names):
        for method in settings.methods:
            is_missing = (example.id, method.name, name) not in done
            try:
                order_name = arrange(example, name)
                settings.check(method, example)
                runs = planner.runs(method, order_name)
            except InputError as error:
                failed += [_failure(example, method, name, error)] if is_missing else []
                continue
            # Results of the same runs are the same, in whatever order they are made.
            computed = Counter((run.prefill, planner.letters(run.order_name)) for run in runs)
            result = results.setdefault((method.name, frozenset(computed.items())), Result(method, runs, []))
            if is_missing:
                result.order_names.append(order_name)
    return ExamplePlan(
        results=tuple(result for result in results.values() if result.order_names),
        failed=tuple(failed),
    )


class _Planner:
    """The runs of an example's results; what is the same for several is there once."""

    def __init__(
        self, engine: Engine, example: Example, settings: Settings, learning: Container[str]
    ) -> None:
        self._engine, self._example, self._settings = engine, example, settings
        self._learning = learning
        self._task = get_task(example.task)
        self._layouts: dict[Hashable, list[TokenLayout]] = {}
        self._prefills: dict[Hashable, Prefill] = {}
        self._generations: dict[Hashable, Generation] = {}

    def letters(self, order_name: DocumentOrder) -> Places:
        """Which document bears which letter, where they bear any."""
        return order_name.entered if self._task.has_letters else ()

    def runs(self, method: MeasuredMethod, order_name: DocumentOrder) -> tuple[BaseRun, ...]:
        """The runs that a method's result is made of. Raises InputError for a prompt that cannot be made."""
        writes = method.writes and self._settings.generate
        wrapper = method.wrapper
        if wrapper and wrapper.orders:
            prefills = [(one, self._prefill(method.base, one)) for one in self._visited(method, order_name)]
            return tuple(
                BaseRun(one, prefill, self._generation((prefill,)) if writes else None)
                for one, prefill in prefills
            )
        own = self._prefill(method.base, order_name)
        if wrapper is None:
            return (BaseRun(order_name, own, self._generation((own,)) if writes else None),)
        free = self._free(method.base, order_name)
        generation = self._generation((own, *free), wrapper.steps) if writes else None
        return (
            BaseRun(order_name, own, generation),
            *(BaseRun(order_name, prefill, None) for prefill in free),
        )

    def _visited(self, method: MeasuredMethod, order_name: DocumentOrder) -> Iterator[DocumentOrder]:
        """The order_names that a permutation visits: what stands in the slots moves, and the labels stay."""
        orders = visited_orders(method, len(order_name.slots))
        if method.wrapper and method.wrapper.has_prior and method.name not in self._learning:
            orders = orders[:1]
        for slots in sorted(tuple(order_name.slots[place] for place in order) for order in orders):
            yield in_slots(self._example, order_name.name, slots)

    def _prefill(self, base: Method, order_name: DocumentOrder) -> Prefill:
        layout = self._layout(order_name)
        return self._read(base, layout, order_name)

    def _free(self, base: Method, order_name: DocumentOrder) -> tuple[Prefill, ...]:
        """The prompt without content, in which the documents stand in the same order."""
        key = ("free", order_name.entered)
        if key not in self._layouts:
            prompts = content_free(self._engine, order_name.comparison(self._example))
            self._layouts[key] = list(map(self._engine.tokenize, prompts))
        return tuple(
            self._read(base, layout.reorder(order_name.order), order_name) for layout in self._layouts[key]
        )

    def _layout(self, order_name: DocumentOrder) -> TokenLayout:
        key = ("own", order_name.entered)
        if key not in self._layouts:
            self._layouts[key] = [order_name.comparison(self._example).tokenize(self._engine)]
        return self._layouts[key][0].reorder(order_name.order)

    def _read(self, base: Method, layout: TokenLayout, order_name: DocumentOrder) -> Prefill:
        version = order_name.name if self._settings.recompute else ""
        stays = base.is_order_invariant and self._engine.invariance_warning is None
        documents = tuple(sorted(layout.documents)) if stays else layout.documents
        return self._prefills.setdefault((base.name, documents, version), Prefill(base, layout, version))

    def _generation(self, prefills: tuple[Prefill, ...], steps: Steps | None = None) -> Generation:
        return self._generations.setdefault((prefills, steps), Generation(prefills, steps))


def blank(example: Example, method: MeasuredMethod, order_name: DocumentOrder) -> Record:
    """The record of an order_name with nothing measured yet."""
    named = example.meta.get("subset")
    subset = find_subset(named) if isinstance(named, str) else None
    return Record(
        example=example.id,
        task=example.task,
        method=method.name,
        order_name=order_name.name,
        entered=order_name.entered,
        order=order_name.order,
        gold_slot=order_name.gold_slot(example),
        num_documents=len(example.documents),
        answers=order_name.answers(example),
        section=subset.section if subset else None,
        subset=subset.name if subset else named if isinstance(named, str) else None,
        weight=subset.weight if subset else None,
    )


def _failure(example: Example, method: MeasuredMethod, name: str, error: InputError) -> Record:
    """The record of an order_name in which a method can say nothing, with the documents as stored."""
    as_stored = tuple(range(len(example.documents)))
    record = blank(example, method, DocumentOrder(name, as_stored, as_stored))
    return record.model_copy(update={"error": str(error), "computed": False})


def _names(example: Example, spec: Sequence[str]) -> dict[str, None]:
    return dict.fromkeys(name for asked in spec for name in expand(asked, len(example.documents)))
