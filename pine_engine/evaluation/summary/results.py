"""What a summary says of a method: what it scores in which order, in which slot, and what it costs."""

from pydantic import BaseModel, ConfigDict

from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.verdicts import Kind


class Frozen(BaseModel):
    """Numbers that nobody changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ArrangementValue(Frozen):
    """A method in one order_name.

    value: mean score, 0 to 1, or mean log-probability in nats. changed: share of examples with another answer
    than as stored, of those that stand otherwise here and where both can be read; None if none does,
    if the stored order was not measured, and for log-probabilities. unread: share of answers in which the
    task reads nothing. says_a, says_first: of a task with letters, the share of examples where the answer is
    the letter A, and where it is the document in the first slot, whatever its letter.
    """

    name: str
    value: Estimate
    changed: Estimate | None = None
    unparsed: Estimate | None = None
    says_a: Estimate | None = None
    says_first: Estimate | None = None


class SlotValue(Frozen):
    """A method over the examples of one size with the document that holds the answer in this slot, from 0.

    The same examples in each slot of a size, and the other documents in one order; see slots.py.
    """

    num_documents: int
    slot: int
    value: Estimate


class ShuffleValue(Frozen):
    """A method over the same examples, shuffled; of several shuffles the mean."""

    num_documents: int
    value: Estimate


class SubsetValue(Frozen):
    """A part of a judge's section, and how much it weighs there."""

    name: str
    weight: float
    value: Estimate


class SectionValue(Frozen):
    """A part of a judge's data set: the mean of its subsets by their weights."""

    name: str
    value: Estimate
    subsets: tuple[SubsetValue, ...]


class Scenario(Frozen):
    """A judge in one scenario of the paper's tables, see scenarios.py; all else as in Measure."""

    name: str
    value: Estimate
    sections: tuple[SectionValue, ...]
    total: Estimate | None
    sections_v0_1_1: tuple[SectionValue, ...]
    total_v0_1_1: Estimate | None


class Measure(Frozen):
    """A method by one kind of number: a share of 0 to 1, or nats for log-probabilities.

    mean: over the order_names of each example, each order of the same texts once; those drawn at random only
    if there are no others. worst, best: of those order_names, by name, where any answer can be read.
    worst_case, best_case: the mean of each example's own worst and best order_name. changed: share of
    examples whose answer is not the same in all order_names, of those with two answers or more that can be
    read, which alone are compared; None if there are none. unread: share of answers in which the task reads
    nothing, over the same order_names as mean; read: the mean of the others
    alone, None if there are none; both None for log-probabilities. total: the plain mean of the sections.
    sections_v0_1_1, total_v0_1_1: the same with the weights of RewardBench 0.1.1, which the paper used; empty
    and None if those are no others. scenarios: of a judge of pairs, those that were measured.
    """

    kind: Kind
    mean: Estimate
    order_names: tuple[ArrangementValue, ...]
    worst: str
    best: str
    worst_case: Estimate
    best_case: Estimate
    changed: Estimate | None
    unparsed: Estimate | None
    read: Estimate | None
    slots: tuple[SlotValue, ...]
    shuffles: tuple[ShuffleValue, ...]
    sections: tuple[SectionValue, ...]
    total: Estimate | None
    sections_v0_1_1: tuple[SectionValue, ...]
    total_v0_1_1: Estimate | None
    scenarios: tuple[Scenario, ...]

    @property
    def is_read(self) -> bool:
        """Whether any of its answers can be read; if none can, its score is what the task gives for that."""
        return self.mean.is_read

    @property
    def is_mostly_parsed(self) -> bool:
        """Whether most of them can."""
        return self.unparsed is None or self.unparsed.mean < 0.5


class Cost(Frozen):
    """What a method took, over the records that were computed and not taken from another order_name.

    seconds, prefill_s, decode_s: per record. ratio, prefill_ratio: of reading and writing, and of reading, as
    if nothing had been lent, to the baseline, in the order_names where both were computed; None for the
    baseline and without it, and of writing if only one of both writes answers. prompts, prompt_tokens,
    answer_tokens: per record.
    """

    computed: int
    seconds: Estimate | None
    prefill_s: Estimate | None
    decode_s: Estimate | None
    ratio: Estimate | None
    prefill_ratio: Estimate | None
    prompts: Estimate | None
    prompt_tokens: Estimate | None
    answer_tokens: Estimate | None


class MethodSummary(Frozen):
    """One method of a task."""

    method: str
    measures: tuple[Measure, ...]
    cost: Cost

    def measure(self, kind: Kind) -> Measure | None:
        """The measure of that kind, None if it was not measured."""
        return next((measure for measure in self.measures if measure.kind == kind), None)


class Difference(Frozen):
    """How much higher the mean of a method is than another's, example by example."""

    kind: Kind
    method: str
    than: str
    value: Estimate
