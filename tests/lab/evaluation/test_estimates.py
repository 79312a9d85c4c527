"""Estimates of records against means by hand, and intervals against published values and simulations."""

import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, product
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from pine_engine import InputError
from pine_engine.lab.evaluation.bootstrap import draw, mean, ratio, totals
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid
from pine_engine.lab.evaluation.intervals import MIN_EXAMPLES, Estimate, share
from pine_engine.lab.evaluation.report.published import ANY, published
from pine_engine.lab.evaluation.rewardbench import WEIGHTS
from pine_engine.lab.evaluation.slots import CHANGED, OVER_ORDERS, SHUFFLED
from pine_engine.lab.evaluation.task_estimates import Row, nested
from tests.support.records import SWAPS, judged, sweep, swept
from tests.support.report_runs import mean_of, rewardbench, task_of


def group(
    task: Grid, name: str, method: str = "vanilla", metric: str = "generated"
) -> dict[str, tuple[float, int]]:
    labels = (method, metric, name)
    found = [one for one in task.estimates if (one.method, one.metric, one.group) == labels]
    return {one.name: (mean_of(one), one.num_examples) for one in found}


def means(task: Grid, name: str, method: str = "vanilla", metric: str = "generated") -> list[float]:
    return [mean for mean, _ in group(task, name, method, metric).values()]


def test_each_order_and_their_mean_are_estimated() -> None:
    """Four pairs, the first answer better. Vanilla says A in three of four, in any order."""
    verdicts = {"vanilla": {"as-is": "AAAB", "swapped": "AAAB"}, "pine": {"as-is": "AABB", "swapped": "BBAA"}}
    records = [
        judged(f"p-{index}", method, name, verdicts[method][name][index])
        for method, name, index in product(verdicts, ("as-is", "swapped"), range(4))
    ]
    task = task_of(records)
    assert group(task, "order") == {"as-is": (0.75, 4), "swapped": (0.25, 4)}
    assert means(task, "order", "pine") == [0.5, 0.5] and means(task, "mean", "pine") == [0.5]
    assert Row(task, "vanilla", "generated").extreme_orders() == ("swapped", "as-is")
    found = [means(task, name)[0] for name in ("mean", "worst case", "best case", "changed")]
    assert found == [0.5, 0, 1, 1] and means(task, "changed", "pine") == [0]
    found = [
        means(task, f"{name} correct", by)[0] for by in ("vanilla", "pine") for name in ("always", "never")
    ]
    assert found == [0, 0, 0.5, 0.5]
    assert task.averaged_orders == ["as-is", "swapped"]
    assert group(task, "slot") == {"2 > 0": (0.75, 4), "2 > 1": (0.25, 4)}
    expected = share(np.array([0.5, 0.5, -0.5, -0.5]), minimum=-1.0)
    assert expected and Row(task, "pine", "generated").differences()["vanilla"].value == expected.value


def test_only_orders_of_all_examples_are_compared() -> None:
    """The orders of an easy pair are not better than that of a single document."""
    single = swept("one", "vanilla", 0, k=1, score=0.0)
    pair = [swept("two", "vanilla", slot, k=2, score=1.0 - slot) for slot in range(2)]
    shared = Row(task_of([single, *pair]), "vanilla", "generated")
    assert shared.common_orders().keys() == {"gold-at:0"}
    assert shared.extreme_orders() == ("gold-at:0", "gold-at:0")
    other = single.model_copy(update={"order_name": "order:0"})
    assert Row(task_of([other, *pair]), "vanilla", "generated").extreme_orders() is None


def test_shuffle_is_averaged_only_without_other_orders() -> None:
    slots = [swept("q", "vanilla", slot, logprob=-1.0 - slot) for slot in range(3)]
    shuffle = swept("q", "vanilla", 2, logprob=-9.0, order_name="shuffled:7").model_copy(
        update={"permutation": (2, 1, 0)}
    )
    task = task_of([*slots, shuffle])
    found = [means(task, name, metric="logprob")[0] for name in ("mean", "worst case", "best case")]
    assert found == [-2, -3, -1] and means(task, "shuffled", metric="logprob") == [-9]
    assert task.averaged_orders == ["gold-at:0", "gold-at:1", "gold-at:2"]
    assert Row(task, "vanilla", "logprob").extreme_orders() == ("gold-at:2", "gold-at:0")
    assert means(task_of([shuffle]), "mean", metric="logprob") == [-9]
    drawn = judged("p", "vanilla", "swapped", "A").model_copy(update={"order_name": "shuffled:0"})
    records = [drawn, judged("p", "vanilla", "swapped", "A"), judged("p", "vanilla", "as-is", "A")]
    assert task_of(records).averaged_orders == ["swapped", "as-is"]
    named_twice = swept("q", "vanilla", 0, logprob=-1.0, order_name="as-is")  # the order of gold-at:0
    assert means(task_of([named_twice, *slots]), "mean", metric="logprob") == [-2]


def test_answers_without_letters_change_with_their_words() -> None:
    texts = {"q-0": ("Paris", "Paris"), "q-1": ("Paris", "Rome"), "q-2": ("Rome", "Rome"),
             "q-3": ("A", "B")}  # fmt: skip
    records = [
        swept(example, "vanilla", slot, k=2, score=float(text == "Paris"), text=text)
        for example, pair in texts.items()
        for slot, text in enumerate(pair)
    ]
    task = task_of(records)
    assert means(task, "changed") == [0.5]
    assert group(task, "order changed") == {"gold-at:1": (0.5, 4)}, "gold-at:0 is the stored order"


def test_letters_and_places_are_distinguished() -> None:
    """One judge prefers the letter A, one the first place, and one knows the better answer."""
    preferences = {
        "vanilla": lambda name: "A",
        "nia": lambda name: "AB"[SWAPS[name][1][0]],
        "pine": lambda name: "AB"[SWAPS[name][0].index(1)],
    }
    records = [
        judged(f"p-{index}", method, name, verdict(name), better=index % 2)
        for (method, verdict), name, index in product(preferences.items(), SWAPS, range(4))
    ]
    task = task_of(records)
    changed = [means(task, "order changed", method) for method in preferences]
    assert changed == [[0, 1, 1], [1, 0, 1], [0, 0, 0]]
    assert means(task, "says A") == means(task, "says first", "nia") == [1, 1, 1, 1]
    assert means(task, "says first") == means(task, "says A", "nia") == [1, 0, 0, 1]
    assert [means(task, "changed", method) for method in preferences] == [[1], [1], [0]]


def test_swap_is_compared_with_the_stored_order() -> None:
    """This judge says A. Gold first is the stored order of the first pair, and swaps the second one."""
    records = [
        judged(f"p-{better}", "vanilla", swap, "A", better=better).model_copy(update={"order_name": name})
        for better, swaps in ((0, ("as-is", "swapped")), (1, ("swapped", "as-is")))
        for swap, name in zip((*swaps, "segments-swapped"), ("gold-first", "gold-last", "x"), strict=True)
    ]
    expected = {"gold-first": (1, 1), "gold-last": (1, 1), "x": (0, 2)}
    assert group(task_of(records), "order changed") == expected
    without_stored = [record for record in records if record.order_name == "x"]
    assert group(task_of(without_stored), "order changed") == {}


def test_unparsed_verdict_counts_half_without_change() -> None:
    verdicts = {"p-0": (None, None), "p-1": (None, "A"), "p-2": ("B", "A")}
    records = [
        judged(example, "vanilla", name, verdict)
        for example, pair in verdicts.items()
        for name, verdict in zip(("as-is", "swapped"), pair, strict=True)
    ]
    task = task_of(records)
    assert group(task, "changed") == {"": (0, 1)} and group(task, "order changed") == {"swapped": (0, 1)}
    assert group(task, "scenario")[CHANGED] == (0, 1), "one pair has two verdicts"
    assert group(task, "unparsed") == {"": (1 / 2, 3)} and group(task, "parsed") == {"": (0, 2)}
    assert means(task, "order unparsed") == pytest.approx([2 / 3, 1 / 3])
    assert means(task, "order") == pytest.approx([1 / 3, 1 / 6])
    assert means(task, "says A") == pytest.approx([0, 2 / 3])
    estimates = {verdict: task_of([judged("p", "vanilla", "as-is", verdict)]) for verdict in ("A", None)}
    for verdict, found in estimates.items():
        assert all(one.is_parsed == (verdict is not None) for one in found.estimates if one.group == "order")


@pytest.mark.parametrize(
    ("logprobs", "expected"),
    [
        ([(-1.0, -2.0), (-1.0, -3.0)], {"order": [0, 1], "changed": [1], "says A": [1, 1]}),
        ([(-1.0, -1.0), (-1.0, -1.5)], {"changed": [1], "unparsed": [0]}),
        ([(-1.0, -1.0), (-2.0, -2.0)], {"changed": [0], "says A": [0, 0], "says first": [0, 0]}),
    ],
)
def test_likeliest_choice_is_verdict(logprobs: list[Any], expected: dict[str, list[float]]) -> None:
    """Equally likely choices are a verdict that names neither answer."""
    records = [
        judged("p", "pine", name, None, logprobs=pair, better=1)
        for name, pair in zip(("as-is", "swapped"), logprobs, strict=True)
    ]
    assert {name: means(task_of(records), name, "pine", "chosen") for name in expected} == expected


def in_sections(parts: Sequence[tuple[str, str, float | None, str]]) -> Grid:
    """Return the estimates of pairs with these sections, subsets, weights and verdicts; A is right."""
    records = [
        judged(f"{name}-{number}", "vanilla", "as-is", verdict, section=section, subset=name, weight=weight)
        for section, name, weight, verdicts in parts
        for number, verdict in enumerate(verdicts)
    ]
    return task_of(records)


def test_sections_weigh_subsets_and_total_does_not() -> None:
    """Reasoning: (1 x 984 + 0 x 328) / 1312 = 0.75. Chat: one subset, 0.5."""
    reasoning_parts = [("Reasoning", "math-prm", 984.0, "AA"), ("Reasoning", "hep-go", 328.0, "BBBB")]
    task = in_sections([*reasoning_parts, ("Chat", "alpacaeval-easy", 100.0, "AB")])
    chat, reasoning = f"{OVER_ORDERS} > Chat", f"{OVER_ORDERS} > Reasoning"
    assert group(task, "section") == {chat: (0.5, 2), reasoning: (0.75, 6)}
    assert means(task, "total") == [0.625] and means(task, "mean") == pytest.approx([3 / 8])
    section = task.get("vanilla", "generated", "section", OVER_ORDERS, "Reasoning")
    # Equivalent to 3.0 examples: the first two have three quarters of the weight.
    assert section is not None and section.interval == pytest.approx((0.310, 0.953), abs=1e-3)
    assert group(task, "subset")[f"{reasoning} > math-prm"] == (1, 2)
    assert Row(task, "vanilla", "generated", OVER_ORDERS).subsets() == {
        "Chat": {"alpacaeval-easy": 100},
        "Reasoning": {"math-prm": 984, "hep-go": 328},
    }
    # The weight of a subset without one is its number of examples.
    unweighted = in_sections([("Chat", "easy", None, "B"), ("Chat", "hard", None, "AAA")])
    assert means(unweighted, "section") == [0.75] and not group(unweighted, "total")


def test_published_subsets_make_published_sections() -> None:
    """Tables 8 and 5 of the paper, both rounded to a tenth, with the weights of version 0.1.1."""
    model = "Meta-Llama-3-70B-Instruct"
    records = [
        judged(name, row["method"], "as-is", "A", section=section, subset=name, weight=weight)
        .model_copy(update={"score": score / 100})
        for row in published("subset_scores")
        if row["model"] == model
        for ((section, name), weight), score in zip(WEIGHTS.items(), chain(*row["sections"]), strict=True)
    ]  # fmt: skip
    task = task_of(records)
    for method, setting in (("vanilla", SHUFFLED), ("pine", ANY)):
        labels = (model, method, setting)
        (row,) = [one for one in published("judge_scores")
                  if (one["model"], one["method"], one["setting"]) == labels]  # fmt: skip
        found = [100 * mean for mean in means(task, "section v0.1.1", method)]
        assert found == pytest.approx(row["sections"], abs=0.1)
        total = means(task, "total v0.1.1", method)
        assert 100 * total[0] == pytest.approx(row["average"], abs=0.1)
    safety = group(task, "section")[f"{OVER_ORDERS} > Safety"]
    assert 100 * safety[0] == pytest.approx(73.2, abs=0.1), "the control: later weights differ"


def test_incomplete_examples_are_left_out_for_all_methods() -> None:
    whole = sweep(3, ["vanilla", "pine"], lambda index, _, __: -float(index))
    found = {one.key: one for one in whole if one.key != ("q-1", "pine", "gold-at:2")}
    found["q-2", "vanilla", "gold-at:0"] = swept("q-2", "vanilla", 0, error="too long")
    task = task_of([*found.values()])
    assert (len(task.examples), task.left_out, task.failed) == (1, 2, 1)
    assert means(task, "mean", metric="logprob") == means(task, "mean", "pine", "logprob") == [0]


@settings(max_examples=8)
@given(st.permutations(range(120)))
def test_methods_are_compared_example_by_example(order: list[int]) -> None:
    """PINE is 0.5 nats better in each example, and the examples differ much more."""

    def logprob(index: int, method: str, slot: int) -> float:
        return -10.0 * index + (0.5 if method == "pine" else slot - 1.0)

    records = [*sweep(20, ["pine", "vanilla"], logprob)]
    task = task_of([records[place] for place in order])
    assert task.methods == ("vanilla", "pine")
    difference = Row(task, "pine", "logprob").differences()["vanilla"]
    assert difference.value == (0.5, 0.5, 0.5, 20, True)
    assert Row(task, "vanilla", "logprob").differences()["pine"].value == (-0.5, -0.5, -0.5, 20, True)
    spread = task.get("vanilla", "logprob", "mean")
    assert spread is not None and spread.interval is not None and spread.interval[1] - spread.interval[0] > 20
    assert spread.mean == pytest.approx(-95)


def test_times_are_compared_for_orders_computed_under_both_methods() -> None:
    """Vanilla takes 2 s in each order; PINE 6 s in the first, and its second is taken from the first."""
    records = [
        swept(f"q-{index}", method, slot, k=2, score=None if method == "pride:vanilla" else 1.0,
              seconds=seconds, was_computed=computed, decode_s=1.0)
        for index in range(5)
        for method, slot, seconds, computed in (
            ("vanilla", 0, 2.0, True),
            ("vanilla", 1, 2.5, True),
            ("pine", 0, 6.0, True),
            ("pine", 1, 0.0, False),
            ("pride:vanilla", 0, 4.0, True),  # generates no answer, so only its prefills are compared
            ("pride:vanilla", 1, 5.0, True),
        )
    ]  # fmt: skip
    task = task_of(records)
    assert [task.num_computed(method) for method in ("vanilla", "pine")] == [10, 5]
    costs = {(one.method, one.group): one for one in task.estimates if one.metric == "cost"}
    found = {key: one.mean for key, one in costs.items()}
    assert (found["vanilla", "seconds"], found["pine", "seconds"]) == (2.25, 6)
    assert ("vanilla", "ratio") not in found and ("pride:vanilla", "ratio") not in found
    assert found["pride:vanilla", "prefill_ratio"] == 2
    assert (found["pine", "prefill_ratio"], found["pine", "ratio"]) == (3, 7 / 3)
    assert costs["pine", "ratio"].num_examples == 5
    assert (found["pine", "prompt_tokens"], found["pine", "answer_tokens"]) == (60, 4)
    alone = task_of([swept("q", "pine", 0, score=1.0)])
    assert alone.get("pine", "cost", "ratio") is None


def test_each_task_has_estimates() -> None:
    records = [judged("p", "vanilla", "as-is", "A"), *sweep(1, ["vanilla"], lambda *_: -1.0)]
    assert [task.task for task in estimate_tasks(records)] == ["judge", "retrieval_qa"]
    for incomplete in ([], [swept("q-0", "vanilla", 0, score=1.0), swept("q-1", "pine", 0, score=1.0)]):
        with pytest.raises(InputError):
            estimate_tasks(incomplete)


def test_nested_json_has_all_estimates() -> None:
    task = task_of([*rewardbench()])
    text = json.dumps(nested([task]), allow_nan=False)
    found: list[tuple[object, ...]] = []

    def note(value: dict[str, object]) -> dict[str, object]:
        found.extend([tuple(value.values())] if "is_read" in value else [])
        return value

    content = json.loads(text, object_hook=note)
    assert (content["resamples"], content["seed"]) == (2000, 0)
    twice = [one for one in task.estimates if one.group == "subset"]  # with both sets of weights
    assert sorted(map(repr, found)) == sorted(repr(one.value) for one in (*task.estimates, *twice))
    measure = content["tasks"][0]["methods"][1]["measures"][0]
    assert measure["scenarios"][2]["sections"][0]["subsets"][0]["weight"] == 100


FEW = 200
"""Number of resamples in tests of other properties than the interval."""

Values = NDArray[np.float64]
Sample = Callable[[np.random.Generator], Values]


def ends(estimate: Estimate | None) -> tuple[float, float]:
    assert estimate is not None and estimate.interval is not None
    low, high = estimate.interval
    assert low <= estimate.mean <= high
    return low, high


def coverage(
    sample: Sample, truth: float, interval: Callable[[Values], Estimate | None], trials: int = 400
) -> float:
    """Return the share of samples whose interval contains the truth; 400 have an error of 2 points."""
    generator = np.random.default_rng(1)
    found = [ends(interval(sample(generator))) for _ in range(trials)]
    return sum(low <= truth + 1e-9 and truth - 1e-9 <= high for low, high in found) / trials


@pytest.mark.parametrize(
    ("right", "count", "expected"),
    [
        (0, 1, (0.0, 0.7935)),
        (1, 10, (0.0179, 0.4042)),
        (31, 31, (0.8897, 1.0)),
        # Newcombe 1998, table I; those above are computed from the formula.
        (81, 263, (0.2553, 0.3662)),
        (15, 148, (0.0624, 0.1605)),
        (0, 20, (0.0, 0.1611)),
        (1, 29, (0.0061, 0.1718)),
    ],
)
def test_interval_of_proportion_is_wilsons(right: int, count: int, expected: tuple[float, float]) -> None:
    values = np.array([1.0] * right + [0.0] * (count - right))
    assert ends(share(values)) == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("count", [1, 2, 7, 31])
@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [("orders", 1.0, 1.0), ("orders", 2.0, 40.0), ("orders", 40.0, 2.0), ("verdicts", 0.02, 0.95),
     ("verdicts", 0.0, 0.3), ("differences", 0.3, 0.3), ("differences", 0.02, 0.95)],
)  # fmt: skip
def test_share_of_examples_is_covered(count: int, kind: str, first: float, second: float) -> None:
    if kind == "orders":
        truth = first / (first + second)
        found = coverage(lambda rng: rng.binomial(10, rng.beta(first, second, size=count)) / 10, truth, share)
    else:
        minimum = -1.0 if kind == "differences" else 0.0
        values, odds = np.linspace(minimum, 1, 3), np.array([first, 1 - first - second, second])
        interval = partial(share, minimum=minimum)
        found = coverage(
            lambda draws: draws.choice(values, p=odds, size=count), float(values @ odds), interval
        )
    assert found > 0.93


def test_share_interval_is_narrower_for_similar_values() -> None:
    samples = (np.array([0.0, 1.0] * 16), np.array([0.4, 0.6] * 16), np.full(32, 0.5))
    widths = [high - low for low, high in (ends(share(values)) for values in samples)]
    assert widths[0] > 2 * widths[1] > 2 * widths[2] > 0.1


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=30),
    st.lists(st.floats(0.1, 9), min_size=30, max_size=30),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-1.0, 2.0)]),
)
def test_interval_of_share_is_within_bounds_and_symmetric(
    values: list[float], weights: list[float], bounds: tuple[float, float]
) -> None:
    minimum, maximum = bounds
    each = np.array(weights[: len(values)])
    estimate = share(np.array(values), each, minimum=minimum, maximum=maximum)
    low, high = ends(estimate)
    assert estimate is not None and estimate.num_examples == len(values)
    assert estimate.mean == pytest.approx(float(np.average(values, weights=each)))
    assert minimum <= low <= high <= maximum and high - low > 0.05
    mirrored = share(-np.array(values), each, minimum=-maximum, maximum=-minimum)
    assert ends(mirrored) == pytest.approx((-high, -low), abs=1e-9)
    assert estimate.negative().interval == (-high, -low)


def test_example_without_value_is_not_counted() -> None:
    assert share(np.array([np.nan, 1.0, 0.0, 1.0])) == share(np.array([1.0, 0.0, 1.0]))
    assert share(np.array([np.nan])) is None and share(np.array([])) is None
    drawn = draw(3, num_resamples=FEW)
    assert mean(np.array([np.nan, 2.0, 2.0]), drawn) == Estimate(2, None, None, 2)
    assert mean(np.array([np.nan]), draw(1, num_resamples=FEW)) is None


@pytest.mark.parametrize("count", [10, 31])
@pytest.mark.parametrize("kind", ["normal", "gamma", "lognormal", "ratio"])
def test_bootstrap_interval_is_covered(kind: str, count: int) -> None:
    """Means of nats, and a ratio of seconds that vary much more between the examples."""
    drawn = draw(count, num_resamples=1000)

    def sample(generator: np.random.Generator) -> Values:
        below = generator.gamma(4, size=count)
        samples = {
            "normal": generator.normal(size=count),
            "gamma": -generator.gamma(3, size=count),
            "lognormal": generator.lognormal(0, 0.8, size=count),
            "ratio": np.stack([below, below * generator.lognormal(math.log(2) - 0.02, 0.2, size=count)]),
        }
        return samples[kind]

    def interval(values: Values) -> Estimate | None:
        return ratio(values[1], values[0], drawn) if kind == "ratio" else mean(values, drawn)

    truth = {"normal": 0.0, "gamma": -3.0, "lognormal": math.exp(0.32), "ratio": 2.0}[kind]
    assert coverage(sample, truth, interval) > 0.88


@pytest.mark.slow
@pytest.mark.parametrize("subsets", [20, 5])
def test_small_subsets_do_not_narrow_an_interval(subsets: int) -> None:
    def interval(values: Values, labels: Sequence[str]) -> Estimate | None:
        blank: dict[str, Any] = {"text": None, "parsed": None, "score": None}
        records = [
            judged(f"p-{n}", "vanilla", "as-is", "A", section="Chat", subset=f"s-{n % subsets}")
            .model_copy(update=blank | {"answer_logprob": value})
            for n, value in enumerate(values.tolist())
        ]  # fmt: skip
        return task_of(records).get("vanilla", "logprob", *labels)

    for labels in (["mean"], ["section", OVER_ORDERS, "Chat"]):
        covered = partial(interval, labels=labels)
        assert coverage(lambda generator: generator.normal(size=20), 0.0, covered, trials=200) > 0.91


@pytest.mark.parametrize("count", [1, MIN_EXAMPLES - 1])
def test_fewer_than_ten_examples_have_no_interval(count: int) -> None:
    drawn = draw(count, num_resamples=FEW)
    values, ones = np.arange(count, dtype=np.float64) - 4.0, np.ones(count)
    for estimate in (mean(values, drawn), ratio(ones, ones, drawn)):
        assert estimate is not None and estimate.interval is None and estimate.num_examples == count
        assert estimate.negative().interval is None


@given(st.lists(st.floats(-1e3, 1e3), min_size=MIN_EXAMPLES, max_size=30), st.integers(0, 5))
def test_bootstrap_interval_lies_within_the_values(values: list[float], seed: int) -> None:
    drawn = draw(len(values), num_resamples=FEW, seed=seed)
    estimate = mean(np.array(values), drawn)
    low, high = ends(estimate)
    assert estimate is not None
    assert estimate.mean == pytest.approx(math.fsum(values) / len(values), abs=1e-9)
    slack = 1e-9 * max(1.0, *map(abs, values))
    assert min(values) - slack <= low <= high <= max(values) + slack
    equal = np.full(len(values), values[0])
    assert mean(equal, drawn) == Estimate(values[0], values[0], values[0], len(values))


def test_interval_follows_the_formula_of_efron() -> None:
    """Efron 1987 with one resample after another; the reach is that of Student's t."""
    values = np.random.default_rng(3).exponential(size=40)
    other = np.random.default_rng(4)
    means = np.sort([other.choice(values, size=40).mean() for _ in range(20_000)])
    normal = NormalDist()
    bias = normal.inv_cdf(float(np.mean(means < values.mean())))
    centred = values - values.mean()
    lean = (centred**3).sum() / (6 * (centred**2).sum() ** 1.5)
    expected = []
    for student in (-2.0227, 2.0227):  # of 39 degrees of freedom
        z = bias + student * math.sqrt(40 / 39)
        expected.append(float(np.quantile(means, normal.cdf(bias + z / (1 - lean * z)))))
    assert ends(mean(values, draw(40, num_resamples=20_000))) == pytest.approx(expected, abs=0.01)


def test_resamples_are_drawn_with_replacement_and_by_seed() -> None:
    """Draws of the last of four examples: binomial(4, 1/4)."""
    drawn = draw(4, num_resamples=4000)
    shares = np.bincount(drawn[:, 3], minlength=5) / 4000
    assert shares == pytest.approx([math.comb(4, i) * 3 ** (4 - i) / 256 for i in range(5)], abs=0.03)
    assert np.array_equal(drawn, draw(4, num_resamples=4000))
    assert not np.array_equal(drawn, draw(4, num_resamples=4000, seed=1))
    values = np.random.default_rng(1).normal(size=(4, 3))
    assert totals(drawn, values) == pytest.approx(drawn.astype(float) @ values)
    assert set(drawn.sum(axis=1)) == {4}


def test_ratio_is_that_of_the_sums() -> None:
    drawn = np.ones((2, 2), dtype=np.uint16)
    assert ratio(np.array([6.0, 2.0]), np.array([1.0, 1.0]), drawn) == Estimate(4, None, None, 2)
    assert ratio(np.zeros(2), np.zeros(2), drawn) is None
