"""Grid of the records of one task, examples x document orders, and the estimates computed from it.

An example is used if it has a record of each order under each method. What an interrupted run lacks, and what
could not be measured, is left out for all methods.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import fmean
from typing import Literal, get_args

import numpy as np

from pine_engine.endpoint.repeats import Repeats
from pine_engine.lab.debias.measured import method_rank
from pine_engine.lab.evaluation import bootstrap, intervals
from pine_engine.lab.evaluation.document_orders import is_random_order
from pine_engine.lab.evaluation.intervals import Estimate, Flags, Floats
from pine_engine.lab.evaluation.record import Record, count_repeats
from pine_engine.lab.evaluation.rewardbench import WEIGHTS, WEIGHTS_V0_1_1, Weights
from pine_engine.prompts.ranking import first_name, format_ranking, ranking_scores
from pine_engine.prompts.scoring import TIE
from pine_engine.prompts.tasks import TASKS, document_letter

Metric = Literal["generated", "chosen", "logprob"]
"""Source of a score: the generated answer, the most likely choice of the task, or the log-probability of the
first accepted answer."""

METRICS: tuple[Metric, ...] = get_args(Metric)

Column = dict[str, Record]  # records of one example under one method, by order
Groups = Sequence[Sequence[Record]]  # records of each example, from which one number per example is computed

Values = tuple[Floats, Flags | None]
"""One number per example, NaN for none; and True for each if an answer behind the number can be parsed, None
for numbers that are no scores."""

Labeled = tuple[str, tuple[str, ...], Estimate | None]
"""Group, parts of the name, and the estimate, None if nothing was measured."""

BETWEEN = " > "  # text between the parts of the name of an estimate


@dataclass(frozen=True)
class Grid:
    """Examples of one task that can be compared, and their estimates."""

    task: str
    examples: tuple[str, ...]
    methods: tuple[str, ...]
    orders: tuple[str, ...]  # names as measured; examples of few documents may lack some of them
    left_out: int  # number of incomplete examples
    failed: int  # number of records with an error
    columns: dict[str, tuple[Column, ...]]  # records of each example, by method
    estimates: tuple[Estimate, ...] = ()

    @cached_property
    def by_labels(self) -> dict[tuple[str, str, str, str], Estimate]:
        """Estimates by method, metric, group and name."""
        return {(one.method, one.metric, one.group, one.name): one for one in self.estimates}

    def get(self, method: str, metric: str, group: str, *name: str) -> Estimate | None:
        """Return an estimate, None if it was not measured. name: parts of the name."""
        return self.by_labels.get((method, metric, group, BETWEEN.join(name)))

    @cached_property
    def resamples(self) -> bootstrap.Resamples:
        """Resampled examples, the same for all estimates of the task."""
        return bootstrap.draw(len(self.examples))

    @cached_property
    def distinct(self) -> list[list[str]]:
        """Order names of each example, each order of the same texts once; other names go before shuffles."""
        found = []
        for column in self.columns[self.methods[0]]:
            first: dict[object, str] = {}
            for name in sorted(filter(column.__contains__, self.orders), key=is_random_order):
                first.setdefault((column[name].input_order, column[name].permutation), name)
            found.append(list(first.values()))
        return found

    @cached_property
    def averaged(self) -> list[list[str]]:
        """Orders over which each example is averaged: shuffles only if there are no others."""
        return [[name for name in names if not is_random_order(name)] or names for names in self.distinct]

    @cached_property
    def averaged_orders(self) -> list[str]:
        """Names of the orders over which any example is averaged."""
        names = {name for of_example in self.averaged for name in of_example}
        return [name for name in self.orders if name in names]

    @cached_property
    def some_records(self) -> list[Record]:
        """One record of each example, for values that depend on neither method nor order."""
        return [next(iter(column.values())) for column in self.columns[self.methods[0]]]

    @property
    def num_documents(self) -> list[int]:
        """Numbers of documents of the examples, ascending."""
        return sorted({record.num_documents for record in self.some_records})

    @property
    def num_quoted_verdicts(self) -> int:
        """Number of examples in which a judged answer contains a verdict."""
        return sum(record.has_quoted_verdict for record in self.some_records)

    def quoted_verdict_notes(self) -> list[str]:
        """Return the sentence about verdicts within judged answers, none if there are none."""
        count, total = self.num_quoted_verdicts, len(self.examples)
        sentence = f"examples in which a judged answer contains a verdict such as [[A]]: {count} of {total}"
        effect = "this can steer the judge, and a judge that quotes it can be parsed wrongly"
        return [f"{sentence}; {effect}"] if count else []

    @property
    def repeats(self) -> Repeats:
        """Examples of which an endpoint received a request twice."""
        columns = (column for columns in self.columns.values() for column in columns)
        return count_repeats(record for column in columns for record in column.values())

    @cached_property
    def weights(self) -> dict[str, Weights]:
        """Weights of the measured subsets; as " v0.1.1" those of RewardBench 0.1.1 if they differ.

        They are in the order of RewardBench, then of the records. The weight of a subset without one is its
        number of examples.
        """
        weights: Weights = {}
        for record in self.some_records:
            if record.section is not None:
                names = record.section, record.subset or ""
                weights[names] = weights.get(names, 0) + 1 if record.weight is None else record.weight
        rank = {names: place for place, names in enumerate(WEIGHTS)}
        weights = dict(sorted(weights.items(), key=lambda item: rank.get(item[0], len(rank))))
        old = weights | {names: weight for names, weight in WEIGHTS_V0_1_1.items() if names in weights}
        return {"": weights} if old == weights else {"": weights, " v0.1.1": old}

    def num_computed(self, method: str) -> int:
        """Return the number of records that were computed, not taken from another order."""
        return sum(record.was_computed for column in self.columns[method] for record in column.values())


@dataclass(frozen=True)
class Scores:
    """Scores of one method by one metric in a grid."""

    grid: Grid
    method: str
    metric: Metric

    @property
    def columns(self) -> tuple[Column, ...]:
        """Records of each example, by order."""
        return self.grid.columns[self.method]

    @cached_property
    def averaged(self) -> Groups:
        """Records in the orders over which an example is averaged."""
        pairs = zip(self.columns, self.grid.averaged, strict=True)
        return [[column[name] for name in names] for column, names in pairs]

    @cached_property
    def over_orders(self) -> Values:
        """Mean of each example over its orders."""
        return self.of(self.averaged)

    def in_order(self, name: str) -> Groups:
        """Return the record of each example in one order."""
        return [[column[name]] if name in column else [] for column in self.columns]

    def score(self, record: Record) -> float | None:
        """Return the score of a record, None if it was not measured."""
        return score_of(record, self.metric)

    def is_parsed(self, record: Record) -> bool:
        """Return True if there is a score, and it is of an answer that can be parsed."""
        return self.score(record) is not None and is_parsed(record, self.metric)

    def of(self, groups: Groups, combine: Callable[[Sequence[float]], float] = fmean) -> Values:
        """Combine the scores of each example."""
        parsed = np.array([any(map(self.is_parsed, records)) for records in groups])
        return combined(groups, self.score, combine), parsed

    def mean(self, values: Values, weights: Floats | None = None) -> Estimate | None:
        """Return the mean over examples, None for no value. weights: (examples,)."""
        numbers, parsed = values
        if self.metric == "logprob":
            return bootstrap.mean(numbers, self.grid.resamples, weights)
        estimate = intervals.share(numbers, weights)
        if estimate is None or parsed is None or (parsed & np.isfinite(numbers)).any():
            return estimate
        return estimate._replace(is_parsed=False)

    def share(self, groups: Groups, value: Callable[[Record], float | None]) -> Estimate | None:
        """Return the mean of a value that is no score."""
        return self.mean((combined(groups, value), None))

    def minus(self, other: "Scores") -> Estimate | None:
        """Return the difference of the means over orders, over the examples that both have."""
        difference = self.over_orders[0] - other.over_orders[0]
        if self.metric == "logprob":
            return bootstrap.mean(difference, self.grid.resamples)
        return intervals.share(difference, minimum=-1.0)


def score_of(record: Record, metric: Metric) -> float | None:
    """Return the score, 0 to 1, or the log-probability in nats; None if it was not measured."""
    by_metric = {"generated": record.score, "chosen": record.choice_score, "logprob": record.answer_logprob}
    return by_metric[metric]


def parsed_answer(record: Record, metric: Metric) -> str | None:
    """Return the answer that the task parses, TIE if choices are equally likely, None if there is none."""
    if metric == "generated":
        return record.parsed
    if metric == "chosen" and record.choice_logprobs:
        largest = max(record.choice_logprobs.values())
        likely = [choice for choice, logprob in record.choice_logprobs.items() if logprob == largest]
        if TASKS[record.task].ranks:
            return format_ranking(record.choice_logprobs)
        task = TASKS[record.task].sized(record.num_documents)
        return task.parse(likely[0]) if len(likely) == 1 else TIE
    return None


def is_parsed(record: Record, metric: Metric) -> bool:
    """Return False if the score is the default of an answer that cannot be parsed."""
    return metric == "logprob" or parsed_answer(record, metric) is not None


def named_document(record: Record, metric: Metric) -> int | None:
    """Return the stored document whose letter is the answer; None if there is none."""
    if not TASKS[record.task].has_letters:
        return None
    letters = map(document_letter, range(len(record.input_order)))
    by_letter: dict[str | None, int] = dict(zip(letters, record.input_order, strict=True))
    return by_letter.get(first_name(parsed_answer(record, metric)))


def rank_scores(record: Record, metric: Metric) -> list[float] | None:
    """Return a score of each stored document, the larger the better its rank; None without a ranking."""
    answer, letters = parsed_answer(record, metric), list(map(document_letter, range(record.num_documents)))
    if answer is None or not TASKS[record.task].ranks:
        return None
    by_letter = zip(record.input_order, ranking_scores(answer, letters), strict=True)
    return [score for _, score in sorted(by_letter)]


def answers_differ(records: Sequence[Record], metric: Metric) -> bool | None:
    """Check whether the parsed answers, or the documents that they name, differ; None for fewer than two."""
    answers = stated_answers(records, metric)
    return len(set(answers)) > 1 if len(answers) > 1 else None


def flip_rate(records: Sequence[Record], metric: Metric) -> float | None:
    """Return the share of pairs of orders whose parsed answers differ; None for fewer than two answers."""
    pairs = [one != other for one, other in combinations(stated_answers(records, metric), 2)]
    return fmean(pairs) if pairs else None


def stated_answers(records: Sequence[Record], metric: Metric) -> list[int | str | None]:
    """Return the document that each parsed answer names, the documents that it ranks, or the answer."""
    if records and TASKS[records[0].task].ranks:
        found = (rank_scores(record, metric) for record in records)
        return [
            format_ranking({str(document): score for document, score in enumerate(scores)})
            for scores in found
            if scores
        ]
    return [
        named if (named := named_document(record, metric)) is not None else parsed_answer(record, metric)
        for record in records
        if is_parsed(record, metric)
    ]


def combined(
    groups: Groups,
    value: Callable[[Record], float | None],
    combine: Callable[[Sequence[float]], float] = fmean,
) -> Floats:
    """Return the mean value of the records of each example, (examples,); NaN without a value."""
    found = [
        [float(number) for record in records if (number := value(record)) is not None] for records in groups
    ]
    return np.array([combine(numbers) if numbers else np.nan for numbers in found])


def make_grid(records: Sequence[Record]) -> Grid:
    """Return the grid of the records of one task. Of two records with one key the first counts."""
    (task,) = {record.task for record in records}
    methods = sorted({record.method for record in records}, key=lambda name: (method_rank(name), name))
    found: dict[str, dict[str, Column]] = {}
    expected: dict[tuple[int, bool], set[str]] = {}
    for record in records:
        if record.error is None:
            expected.setdefault(_size(record), set()).add(record.order_name)
            column = found.setdefault(record.example, {}).setdefault(record.method, {})
            column.setdefault(record.order_name, record)

    def is_complete(by_method: dict[str, Column]) -> bool:
        (size,) = {_size(record) for column in by_method.values() for record in column.values()}
        return all(by_method.get(method, {}).keys() >= expected[size] for method in methods)

    complete = [example for example, by_method in found.items() if is_complete(by_method)]
    return Grid(
        task=task,
        examples=tuple(complete),
        methods=tuple(methods),
        orders=tuple(dict.fromkeys(record.order_name for record in records)),
        left_out=len({record.example for record in records}) - len(complete),
        failed=sum(record.error is not None for record in records),
        columns={method: tuple(found[example][method] for example in complete) for method in methods},
    )


def _size(record: Record) -> tuple[int, bool]:
    """Return the facts on which the orders of an example depend: its size, and if it has a gold document."""
    return record.num_documents, record.gold_slot is not None
