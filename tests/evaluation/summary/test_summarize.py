"""Summaries of records: means worked by hand, what cannot be read, and what a swap changes."""

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pine_engine.errors import InputError
from pine_engine.evaluation.records import Record
from pine_engine.evaluation.report.published import ANY, published
from pine_engine.evaluation.rewardbench import find_subset
from pine_engine.evaluation.summary.intervals import Estimate
from pine_engine.evaluation.summary.results import (
    ArrangementValue,
    Measure,
    MethodSummary,
    Scenario,
    SlotValue,
)
from pine_engine.evaluation.summary.scenarios import BOTH, CHANGED, FIRST, SECOND, SHUFFLED
from pine_engine.evaluation.summary.summarize import Summary, TaskSummary, summarize
from pine_engine.evaluation.summary.verdicts import Kind
from tests.support.records import SWAPS, judged, sweep, swept

FEW = 200
"""Resamples where the interval itself is not asked about."""


def task_of(records: list[Record], **options: int) -> TaskSummary:
    (task,) = summarize(records, **{"resamples": FEW, **options}).tasks
    return task


def method_of(task: TaskSummary, name: str) -> MethodSummary:
    (method,) = [method for method in task.methods if method.method == name]
    return method


def measure_of(task: TaskSummary, method: str, kind: Kind = "generated") -> Measure:
    measure = method_of(task, method).measure(kind)
    assert measure is not None
    return measure


def arrangement_of(measure: Measure, name: str) -> ArrangementValue:
    (found,) = [one for one in measure.order_names if one.name == name]
    return found


def mean(estimate: Estimate | None) -> float:
    assert estimate is not None
    if estimate.interval is not None:
        low, high = estimate.interval
        assert low <= estimate.mean <= high
    return estimate.mean


# order_names


def test_every_method_is_reported_in_each_order_and_as_their_mean() -> None:
    """Four pairs, the first answer better. Vanilla says A in three of four, whoever bears the letter."""
    says = {
        "vanilla": {"as-is": "AAAB", "swapped": "AAAB"},
        "pine": {"as-is": "AABB", "swapped": "BBAA"},
    }
    records = [
        judged(f"p-{index}", method, name, verdict)
        for method, by_order in says.items()
        for name, verdicts in by_order.items()
        for index, verdict in enumerate(verdicts)
    ]
    task = task_of(records)
    vanilla, pine = measure_of(task, "vanilla"), measure_of(task, "pine")
    assert [(one.name, mean(one.value)) for one in vanilla.order_names] == [
        ("as-is", 0.75),
        ("swapped", 0.25),
    ]
    assert (vanilla.worst, vanilla.best) == ("swapped", "as-is")
    assert mean(vanilla.mean) == 0.5
    assert (mean(vanilla.worst_case), mean(vanilla.best_case)) == (0, 1)
    assert mean(vanilla.changed) == 1 and mean(pine.changed) == 0
    assert [mean(one.value) for one in pine.order_names] == [0.5, 0.5] and mean(pine.mean) == 0.5
    assert task.examples == 4 and vanilla.mean.n == 4 and task.averaged == ("as-is", "swapped")
    assert [(one.slot, mean(one.value)) for one in vanilla.slots] == [(0, 0.75), (1, 0.25)]


def test_a_single_shuffle_is_no_part_of_the_mean_over_orders() -> None:
    swept_slots = [swept("q", "vanilla", slot, logprob=-1.0 - slot) for slot in range(3)]
    shuffled = swept("q", "vanilla", 2, logprob=-9.0, order_name="shuffled:7").model_copy(
        update={"order": (2, 1, 0)}
    )
    task = task_of([*swept_slots, shuffled])
    assert mean(measure_of(task, "vanilla", "logprob").mean) == -2
    assert task.averaged == ("gold-at:0", "gold-at:1", "gold-at:2")
    measure = measure_of(task, "vanilla", "logprob")
    assert (measure.worst, measure.best) == ("gold-at:2", "gold-at:0"), "nor of what it is over"
    assert (mean(measure.worst_case), mean(measure.best_case)) == (-3, -1)
    alone = task_of([shuffled])
    assert mean(measure_of(alone, "vanilla", "logprob").mean) == -9


def test_two_names_for_one_order_count_once() -> None:
    """As stored the gold is first, so gold-at:0 is the same order again."""
    records = [
        swept("q", "vanilla", 0, k=2, logprob=-1.0, score=1.0, order_name="as-is"),
        swept("q", "vanilla", 0, k=2, logprob=-1.0, score=1.0),
        swept("q", "vanilla", 1, k=2, logprob=-4.0, score=0.0),
    ]
    measure = measure_of(task_of(records), "vanilla", "logprob")
    assert mean(measure.mean) == -2.5
    assert [(one.slot, one.value.mean, one.value.n) for one in measure.slots] == [(0, -1, 1), (1, -4, 1)]


def test_slots_of_prompts_of_two_sizes_are_kept_apart() -> None:
    records = [*sweep(2, ["nia"], lambda _, __, slot: -float(slot), k=2)]
    records += [record.model_copy(update={"example": f"{record.example}-3"})
                for record in sweep(2, ["nia"], lambda _, __, slot: -10.0 - slot, k=3)]  # fmt: skip
    task = task_of(records)
    slots = measure_of(task, "nia", "logprob").slots
    found = [(one.num_documents, one.slot, one.value.mean, one.value.n) for one in slots]
    assert found == [(2, 0, 0, 2), (2, 1, -1, 2), (3, 0, -10, 2), (3, 1, -11, 2), (3, 2, -12, 2)]
    assert task.num_documents == (2, 3) and task.examples == 4


def test_a_question_without_letters_changes_its_answer_when_its_words_do() -> None:
    texts = {
        "q-0": ("Paris", "Paris"),
        "q-1": ("Paris", "Rome"),
        "q-2": ("Rome", "Rome"),
        "q-3": ("Lyon", "Rome"),
    }
    records = [
        swept(example, "vanilla", slot, k=2, score=float(text == "Paris"), text=text)
        for example, pair in texts.items()
        for slot, text in enumerate(pair)
    ]
    measure = measure_of(task_of(records), "vanilla")
    assert mean(measure.changed) == 0.5
    assert mean(arrangement_of(measure, "gold-at:1").changed) == 0.5
    assert arrangement_of(measure, "gold-at:0").changed is None
    assert (mean(measure.worst_case), mean(measure.best_case)) == (0.25, 0.5)


# verdicts


def test_letters_and_places_are_told_apart() -> None:
    """One judge likes the letter A, one the first place, and one knows the better answer."""
    likes = {
        "vanilla": lambda name: "A",
        "nia": lambda name: "AB"[SWAPS[name][1][0]],
        "pine": lambda name: "AB"[SWAPS[name][0].index(1)],
    }
    records = [
        judged(f"p-{index}", method, name, like(name), better=index % 2)
        for (method, like), name, index in product(likes.items(), SWAPS, range(4))
    ]
    task = task_of(records)
    letter, place, sure = (measure_of(task, name) for name in ("vanilla", "nia", "pine"))
    changed = {
        name: [arrangement_of(measure, name).changed for measure in (letter, place, sure)]
        for name in ("segments-swapped", "labels-swapped", "swapped")
    }
    assert [mean(one) for one in changed["segments-swapped"]] == [0, 1, 0]
    assert [mean(one) for one in changed["labels-swapped"]] == [1, 0, 0]
    assert [mean(one) for one in changed["swapped"]] == [1, 1, 0]
    assert [mean(one.says_a) for one in letter.order_names] == [1, 1, 1, 1]
    assert [mean(one.says_first) for one in place.order_names] == [1, 1, 1, 1]
    assert [mean(one.says_first) for one in letter.order_names] == [1, 0, 0, 1]
    assert [mean(one.says_a) for one in place.order_names] == [1, 0, 0, 1]
    assert [mean(one.changed) for one in (letter, place, sure)] == [1, 1, 0]


def test_a_swap_is_compared_with_the_stored_order_whatever_that_is_called() -> None:
    """This judge says A. Gold first is how the first pair is stored, and the second one swapped."""
    records = [
        judged(f"p-{better}", "vanilla", swap, "A", better=better).model_copy(update={"order_name": name})
        for better, swaps in ((0, ("as-is", "swapped")), (1, ("swapped", "as-is")))
        for swap, name in zip(
            (*swaps, "segments-swapped"), ("gold-first", "gold-last", "places"), strict=True
        )
    ]
    measure = measure_of(task_of(records), "vanilla")
    changed = {one.name: one.changed for one in measure.order_names}
    assert {name: (one.mean, one.n) for name, one in changed.items() if one is not None} == {
        "gold-first": (1, 1),
        "gold-last": (1, 1),
        "places": (0, 2),
    }
    alone = measure_of(task_of([record for record in records if record.order_name == "places"]), "vanilla")
    assert alone.order_names[0].changed is None, "the stored order was not measured"


def test_a_verdict_that_cannot_be_read_counts_half_and_is_no_other_verdict() -> None:
    verdicts = {"p-0": (None, None), "p-1": (None, "A"), "p-2": ("B", "A")}
    records = [
        judged(example, "vanilla", name, verdict)
        for example, pair in verdicts.items()
        for name, verdict in zip(("as-is", "swapped"), pair, strict=True)
    ]
    measure = measure_of(task_of(records), "vanilla")
    scenario = measure.scenarios[-1]
    for changed in (measure.changed, arrangement_of(measure, "swapped").changed, scenario.value):
        assert changed is not None and (changed.mean, changed.n) == (0, 1), "one pair has two verdicts"
    assert scenario.name == CHANGED
    assert measure.read is not None
    assert (mean(measure.unparsed), mean(measure.read), measure.read.n) == (1 / 2, 0, 2)
    assert [mean(one.unparsed) for one in measure.order_names] == pytest.approx([2 / 3, 1 / 3])
    assert [mean(one.value) for one in measure.order_names] == pytest.approx([1 / 3, 1 / 6])
    assert [mean(one.says_a) for one in measure.order_names] == pytest.approx([0, 2 / 3])


def test_where_nothing_can_be_read_there_is_no_best_and_no_worst() -> None:
    """A judge that answers one order alone, and questions of which one slot is answered with nothing."""
    pairs = [
        judged(f"p-{index}", "vanilla", name, "A" if name == "as-is" else None, section="Chat", subset="easy")
        for index in range(4)
        for name in ("as-is", "swapped")
    ]
    measure = measure_of(task_of(pairs), "vanilla")
    assert (measure.worst, measure.best) == ("as-is", "as-is") and measure.changed is None
    named: list[ArrangementValue | Scenario] = [*measure.order_names, *measure.scenarios]
    found = {one.name: one.value.is_read for one in named}
    assert found == {"as-is": True, "swapped": False, FIRST: True, SECOND: False, BOTH: True}
    (section,) = measure.scenarios[1].sections
    assert not section.value.is_read and not section.subsets[0].value.is_read
    assert measure.sections[0].value.is_read and measure.sections[0].subsets[0].value.is_read
    asked = [
        one.model_copy(update={"parsed": "" if one.gold_slot else None})
        for one in sweep(3, ["nia"], lambda *_: -1.0)
    ]
    asked += [one.model_copy(update={"order_name": "shuffled:1", "order": (2, 0, 1)})
              for one in asked if one.gold_slot == 0]  # fmt: skip
    generated, nats = (measure_of(task_of(asked), "nia", kind) for kind in ("generated", "logprob"))
    assert [one.value.is_read for one in generated.slots] == [False, True, True]
    assert [one.value.is_read for one in generated.shuffles] == [False]
    unparsed: list[SlotValue | ArrangementValue] = [*nats.slots, *nats.order_names]
    assert all(one.value.is_read for one in unparsed), "these need no reading"


def test_where_nothing_can_be_read_nothing_changes_and_nothing_is_right() -> None:
    records = [judged(f"p-{index}", "vanilla", name, None) for index in range(4) for name in SWAPS]
    measure = measure_of(task_of(records), "vanilla")
    assert measure.changed is None and measure.read is None
    assert not [one.changed for one in measure.order_names if one.changed is not None]
    assert mean(measure.unparsed) == 1 and mean(measure.mean) == 0.5
    assert not measure.is_read and not measure.is_mostly_parsed
    chosen = [judged("p", "vanilla", name, None, logprobs=(-1.0, -2.0)) for name in SWAPS]
    assert measure_of(task_of(chosen), "vanilla", "chosen").is_mostly_parsed


def test_the_most_likely_choice_is_a_verdict_too() -> None:
    logprobs = {"as-is": (-1.0, -2.0), "swapped": (-1.0, -3.0)}
    records = [judged("p", "pine", name, None, logprobs=pair, better=1) for name, pair in logprobs.items()]
    chosen = measure_of(task_of(records), "pine", "chosen")
    assert [mean(one.value) for one in chosen.order_names] == [0, 1]
    assert mean(chosen.changed) == 1
    assert [mean(one.says_a) for one in chosen.order_names] == [1, 1]


def test_choices_that_are_equally_likely_are_the_same_verdict_in_each_order() -> None:
    """Neither answer, whatever stands first; and another one than a verdict for an answer."""
    equal = {"as-is": (-1.0, -1.0), "swapped": (-1.0, -1.0), "segments-swapped": (-2.0, -2.0)}
    ties = [judged("p", "pine", name, None, logprobs=pair) for name, pair in equal.items()]
    chosen = measure_of(task_of(ties), "pine", "chosen")
    assert mean(chosen.changed) == 0 and mean(chosen.unparsed) == 0
    assert {mean(one.says_a) for one in chosen.order_names} == {0}
    assert {mean(one.says_first) for one in chosen.order_names} == {0}
    told = [*ties[:1], judged("p", "pine", "swapped", None, logprobs=(-1.0, -1.5))]
    assert mean(measure_of(task_of(told), "pine", "chosen").changed) == 1


def test_sections_weigh_their_subsets_and_the_total_weighs_sections_alike() -> None:
    """Reasoning: (1 x 984 + 0 x 328) / 1312 = 0.75. Chat: one subset, 0.5. Total: their plain mean."""
    parts = [
        ("Reasoning", "math-prm", 984.0, "AA"),
        ("Reasoning", "hep-go", 328.0, "BBBB"),
        ("Chat", "alpacaeval-easy", 100.0, "AB"),
    ]
    records = [
        judged(
            f"{subset}-{index}", "vanilla", "as-is", verdict, section=section, subset=subset, weight=weight
        )
        for section, subset, weight, verdicts in parts
        for index, verdict in enumerate(verdicts)
    ]
    measure = measure_of(task_of(records), "vanilla")
    assert [(one.name, mean(one.value), one.value.n) for one in measure.sections] == [
        ("Chat", 0.5, 2),
        ("Reasoning", 0.75, 6),
    ]
    assert mean(measure.total) == 0.625
    assert mean(measure.mean) == pytest.approx(3 / 8)
    reasoning = measure.sections[1]
    low, high = reasoning.value.interval or (0, 1)
    # As sure as of 3.0 examples: the first two have three quarters of the weight.
    assert (low, high) == pytest.approx((0.310, 0.953), abs=1e-3)
    assert [(one.name, one.weight, one.value.mean) for one in reasoning.subsets] == [
        ("math-prm", 984, 1),
        ("hep-go", 328, 0),
    ]


def test_a_subset_without_a_weight_weighs_as_much_as_it_has_examples() -> None:
    records = [
        judged(f"{subset}-{index}", "vanilla", "as-is", verdict, section="Chat", subset=subset)
        for subset, verdicts in (("easy", "AAA"), ("hard", "B"))
        for index, verdict in enumerate(verdicts)
    ]
    measure = measure_of(task_of(records), "vanilla")
    assert mean(measure.sections[0].value) == 0.75
    assert measure.total is None, "one section is no total"


def test_published_subsets_make_published_sections() -> None:
    """Two tables of the paper, which weighed by version 0.1.1: Table 8 by subset, Table 5 by section."""
    model = "Meta-Llama-3-70B-Instruct"
    records = [
        judged(
            name, row.method, "as-is", "A", section=subset.section, subset=name, weight=subset.weight
        ).model_copy(update={"score": score / 100})
        for row in published().subset_scores
        if row.model == model
        for name, score in row.by_subset.items()
        if (subset := find_subset(name)) is not None
    ]
    assert len(records) == 2 * 23
    task = task_of(records)
    for method, setting in (("vanilla", SHUFFLED), ("pine", ANY)):
        measure = measure_of(task, method)
        (row,) = [
            row
            for row in published().judge_scores
            if (row.model, row.method, row.setting) == (model, method, setting)
        ]
        found = {one.name: 100 * one.value.mean for one in measure.sections_v0_1_1}
        # Both tables are rounded to a tenth.
        assert found == pytest.approx(row.by_section, abs=0.1)
        assert 100 * mean(measure.total_v0_1_1) == pytest.approx(row.average, abs=0.1)
    later = {one.name: 100 * one.value.mean for one in measure_of(task, "vanilla").sections}
    assert later["Safety"] == pytest.approx(73.2, abs=0.1), (
        "the control: the weights after 0.1.1 give another"
    )


# pairing


def test_what_is_not_finished_or_failed_is_left_out_for_all_methods() -> None:
    whole = [*sweep(3, ["vanilla", "pine"], lambda index, _, __: -float(index))]
    killed = [record for record in whole if record.key != ("q-1", "pine", "gold-at:2")]
    failed = [
        swept("q-2", "vanilla", 0, error="too long")
        if record.key == ("q-2", "vanilla", "gold-at:0")
        else record
        for record in killed
    ]
    task = task_of(failed)
    assert (task.examples, task.left_out, task.failed) == (1, 2, 1)
    for name in ("vanilla", "pine"):
        assert mean(measure_of(task, name, "logprob").mean) == 0


def test_methods_are_compared_example_by_example() -> None:
    """PINE is 0.5 nats better in each example, however much the examples differ."""

    def logprob(index: int, method: str, slot: int) -> float:
        return -10.0 * index + (0.5 if method == "pine" else slot - 1.0)

    task = task_of([*sweep(20, ["pine", "vanilla"], logprob)])
    (difference,) = [one for one in task.differences if one.kind == "logprob"]
    assert (difference.method, difference.than) == ("pine", "vanilla")
    assert difference.value == Estimate(mean=0.5, low=0.5, high=0.5, n=20)
    spread = measure_of(task, "vanilla", "logprob").mean
    assert spread.low is not None and spread.high is not None and spread.high - spread.low > 20


@settings(max_examples=8)
@given(st.permutations(range(18)))
def test_the_summary_does_not_depend_on_the_order_of_examples_or_methods(order: list[int]) -> None:
    records = [*sweep(3, ["vanilla", "pine"], lambda index, method, slot: -index - slot * len(method))]
    shuffled = [records[place] for place in order]
    expected, found = task_of(records, resamples=2), task_of(shuffled, resamples=2)
    assert [method.method for method in found.methods] == ["vanilla", "pine"]
    for name in ("vanilla", "pine"):
        one, other = measure_of(expected, name, "logprob"), measure_of(found, name, "logprob")
        assert other.mean.mean == pytest.approx(one.mean.mean)
        assert {a.name: a.value.mean for a in one.order_names} == pytest.approx(
            {a.name: a.value.mean for a in other.order_names}
        )


def test_records_of_two_tasks_have_a_summary_each() -> None:
    records = [judged("p", "vanilla", "as-is", "A"), *sweep(1, ["vanilla"], lambda *_: -1.0)]
    assert [task.task for task in summarize(records, resamples=FEW).tasks] == ["judge_pair", "retrieval_qa"]


def test_nothing_to_summarize_is_said() -> None:
    with pytest.raises(InputError, match="there are no records yet; run `evaluate`"):
        summarize([])
    halves = [swept("q-0", "vanilla", 0, score=1.0), swept("q-1", "pine", 0, score=1.0)]
    with pytest.raises(InputError, match="no example of retrieval_qa has been measured with every method"):
        summarize(halves)


# cost


def test_times_are_compared_where_both_were_computed() -> None:
    """Vanilla takes 2 s in each order; PINE 6 s in the first, and its second is taken from the first."""
    records = [
        swept(f"q-{index}", method, slot, k=2, score=1.0, seconds=seconds, computed=computed)
        for index in range(5)
        for method, slot, seconds, computed in (
            ("vanilla", 0, 2.0, True),
            ("vanilla", 1, 2.5, True),
            ("pine", 0, 6.0, True),
            ("pine", 1, 0.0, False),
        )
    ]
    task = task_of(records)
    vanilla, pine = method_of(task, "vanilla").cost, method_of(task, "pine").cost
    assert (vanilla.computed, pine.computed) == (10, 5)
    assert (mean(vanilla.seconds), mean(pine.seconds)) == (2.25, 6)
    assert vanilla.ratio is None and mean(pine.ratio) == 3
    assert mean(pine.prefill_ratio) == 3
    assert (mean(pine.prompt_tokens), mean(pine.answer_tokens)) == (60, 4)
    assert pine.ratio is not None and pine.ratio.n == 5


def test_without_vanilla_there_is_no_ratio() -> None:
    task = task_of([swept("q", "pine", 0, score=1.0)])
    assert method_of(task, "pine").cost.ratio is None


def test_a_summary_is_one_json_object_and_comes_back() -> None:
    summary = summarize([*sweep(2, ["vanilla"], lambda *_: -1.0)], resamples=FEW, seed=3)
    text = summary.model_dump_json()
    assert Summary.model_validate_json(text) == summary
    assert json.loads(text)["seed"] == 3 and "NaN" not in text
