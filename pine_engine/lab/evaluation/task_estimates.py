"""Estimates of one task, looked up by method, metric, group and name, and as the JSON of `--json`."""

import string
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pine_engine.lab.evaluation.bootstrap import NUM_RESAMPLES, SEED
from pine_engine.lab.evaluation.bradley_terry import rating_notes
from pine_engine.lab.evaluation.cautions import cautions, scoring_rules
from pine_engine.lab.evaluation.grid import BETWEEN, METRICS, Grid, Scores
from pine_engine.lab.evaluation.intervals import LEVEL, Estimate
from pine_engine.lab.evaluation.slots import OVER_ORDERS, SCENARIOS
from pine_engine.prompts.tasks import TASKS

TIMES = ("seconds", "prefill_s", "decode_s")
TOKENS = ("prompts", "prompt_tokens", "answer_tokens")
COSTS = (*TIMES, "ratio", "prefill_ratio", *TOKENS)

GROUPS = {
    "worst_case": "worst case",
    "best_case": "best case",
    "always_correct": "always correct",
    "never_correct": "never correct",
    "changed": "changed",
    "flip_rate": "flip rate",
    "again_changed": "again changed",
    "unparsed": "unparsed",
    "several_verdicts": "several verdicts",
    "read": "parsed",
}
"""Groups of one estimate, by their JSON keys."""

BIAS_GROUPS = {
    "first_slot": "first slot",
    "first_slot_excess": "first slot excess",
    "consistent": "consistent",
    "order_gap": "order gap",
}
"""Groups of the position bias of a judge, by their JSON keys."""

DETECTABLE = (0.6, 0.95)
"""Accuracies between which position bias can be detected ("Position Bias is Hidden Behind Ceiling Effects",
arXiv 2607.20864)."""

RANKING_GROUPS = {"kendall_tau": "kendall tau", "order_tau": "order tau", "first_relevant": "first relevant"}
"""Groups of rankings, by their JSON keys."""

ORDER_GROUPS = {
    "value": "order",
    "changed": "order changed",
    "unparsed": "order unparsed",
    "says_a": "says A",
    "says_first": "says first",
}
"""Groups of one estimate per order, by their JSON keys."""


@dataclass(frozen=True)
class Row:
    """Estimates of one method by one metric."""

    grid: Grid
    method: str
    metric: str
    part: str = ""  # scenario, order or number of documents that the estimates are of, "" for all
    run: str = ""  # label of the run

    def get(self, group: str, *name: str) -> Estimate | None:
        """Return an estimate of this part, None if it was not measured."""
        parts = (self.part, *name) if self.part else name
        return self.grid.get(self.method, self.metric, group, *parts)

    @property
    def mean(self) -> Estimate:
        """Mean over orders."""
        estimate = self.grid.get(self.method, self.metric, "mean")
        assert estimate is not None, "a row has scores"
        return estimate

    def means(self, group: str, names: Sequence[str]) -> dict[str, Estimate]:
        """Return the measured estimates of a group by name."""
        return {name: one for name in names if (one := self.get(group, name))}

    def slots(self, group: str = "slot") -> dict[tuple[int, int], Estimate]:
        """Return the estimates of a group by number of documents and slot."""
        found = {}
        for one in self.grid.estimates:
            if (one.method, one.metric, one.group) == (self.method, self.metric, group):
                size, slot = map(int, one.name.split(BETWEEN))
                found[size, slot] = one
        return found

    def subsets(self, version: str = "") -> dict[str, dict[str, float]]:
        """Return the weights of the subsets that were measured in the scenario of this row, by section."""
        found: dict[str, dict[str, float]] = {}
        for (section, subset), weight in self.grid.weights.get(version, {}).items():
            if weight and self.get("subset", section, subset):
                found.setdefault(section, {})[subset] = float(weight)
        return found

    def differences(self) -> dict[str, Estimate]:
        """Return how much higher the mean of this method is, by the other method."""
        found = {}
        for one in self.grid.estimates:
            if one.group == "minus" and one.metric == self.metric:
                if one.method == self.method:
                    found[one.name] = one
                elif one.name == self.method:
                    found[one.method] = one.negative()
        return found

    def common_orders(self) -> dict[str, Estimate]:
        """Return the estimates of the averaged orders that all examples have."""
        orders = self.means("order", self.grid.averaged_orders)
        return {name: one for name, one in orders.items() if one.num_examples == self.mean.num_examples}

    def extreme_orders(self) -> tuple[str, str] | None:
        """Return the common orders with the lowest and the highest mean, None if there are none.

        Orders in which no answer is parsed do not count, unless there are no others.
        """
        orders = self.common_orders()
        parsed = {name: one for name, one in orders.items() if one.is_parsed}
        means = {name: one.mean for name, one in (parsed or orders).items()}
        return (min(means, key=means.__getitem__), max(means, key=means.__getitem__)) if means else None

    def json(self) -> dict[str, Any]:
        """Return all estimates of the method by the metric."""
        worst, best = self.extreme_orders() or (None, None)
        slots = self.slots()
        return {
            "kind": self.metric,
            "mean": estimate_json(self.mean),
            "order_names": [
                {"name": name}
                | {key: estimate_json(self.get(group, name)) for key, group in ORDER_GROUPS.items()}
                for name in self.means("order", self.grid.orders)
            ],
            "worst": worst,
            "best": best,
            **{key: estimate_json(self.get(group)) for key, group in GROUPS.items()},
            **({"unfinished": estimate_json(one)} if (one := self.get("unfinished")) else {}),
            **self.bias_json(),
            **{key: estimate_json(one) for key, group in RANKING_GROUPS.items() if (one := self.get(group))},
            **({"letters": letters} if (letters := self.letters_json()) else {}),
            **({"ratings": ratings} if (ratings := self.ratings_json()) else {}),
            **({"rating_notes": notes} if (notes := self.rating_notes) else {}),
            "slots": [
                {"num_documents": size, "slot": slot, "value": estimate_json(one)}
                for (size, slot), one in slots.items()
            ],
            "shuffles": [
                {"num_documents": size, "value": estimate_json(one)}
                for size in dict.fromkeys(size for size, _ in slots)
                if (one := self.get("shuffled", str(size)))
            ],
            **({"held": held} if (held := self._held_json()) else {}),
            **replace(self, part=OVER_ORDERS).sections_json(),
            "scenarios": [
                {"name": name, "value": estimate_json(value), **replace(self, part=name).sections_json()}
                for name, value in self.means("scenario", SCENARIOS).items()
            ],
        }

    def _held_json(self) -> list[dict[str, Any]]:
        """Return accuracy and changed answers by the slot in which the gold document was held."""
        changed = self.slots("held changed")
        return [
            {
                "num_documents": place[0],
                "slot": place[1],
                "value": estimate_json(one),
                "changed": estimate_json(changed.get(place)),
            }
            for place, one in self.slots("held").items()
        ]

    @property
    def is_judge(self) -> bool:
        """True if the answers are verdicts."""
        return TASKS[self.grid.task].is_judge

    @property
    def is_bias_detectable(self) -> bool:
        """True if the accuracy is in the range in which position bias can be detected."""
        return DETECTABLE[0] <= self.mean.mean <= DETECTABLE[1]

    def bias_json(self) -> dict[str, Any]:
        """Return the position bias of a judge, nothing for other tasks and log-probabilities."""
        if not self.get("consistent") and not self.get("first slot"):
            return {}
        return {
            **{key: estimate_json(self.get(group)) for key, group in BIAS_GROUPS.items()},
            "cramers_v": [
                {"num_documents": size, "value": estimate_json(one)}
                for size in self.grid.num_documents
                if (one := self.get("cramers v", str(size)))
            ],
            **({"is_bias_detectable": self.is_bias_detectable} if self.is_judge else {}),
        }

    @property
    def rated_models(self) -> list[str]:
        """Systems with a rating, the best first."""
        models = {model for record in self.grid.some_records for model in record.models}
        found = self.means("rating", sorted(models))
        return sorted(found, key=lambda model: -found[model].mean)

    @property
    def rating_notes(self) -> list[str]:
        """Ratings that cannot be compared, or are finite by the additional ties alone."""
        scores = [Scores(self.grid, self.method, metric) for metric in METRICS if metric == self.metric]
        return [note for one in scores if self.rated_models for note in rating_notes(one)]

    @property
    def letter_sizes(self) -> dict[int, dict[str, Estimate]]:
        """Recalls by letter, for each number of options."""
        letters = string.ascii_uppercase
        found = {
            size: {letter: one for letter in letters if (one := self.get("recall", str(size), letter))}
            for size in self.grid.num_documents
        }
        return {size: recalls for size, recalls in found.items() if recalls}

    def letters_json(self) -> list[dict[str, Any]]:
        """Return the recall of each letter and their spread, by number of options."""
        return [
            {
                "num_documents": size,
                "spread": estimate_json(self.get("recall spread", str(size))),
                "recalls": [
                    {"letter": letter, "value": estimate_json(one)} for letter, one in recalls.items()
                ],
            }
            for size, recalls in self.letter_sizes.items()
        ]

    def ratings_json(self) -> list[dict[str, Any]]:
        """Return the rating of each system, the best first."""
        return [
            {"model": model, "value": estimate_json(self.get("rating", model))} for model in self.rated_models
        ]

    def sections_json(self) -> dict[str, Any]:
        """Return sections, subsets and total in the scenario of this row, with both sets of weights."""
        found: dict[str, Any] = {}
        for key, version in (("", ""), ("_v0_1_1", " v0.1.1")):
            found[f"sections{key}"] = [
                {
                    "name": section,
                    "value": estimate_json(self.get(f"section{version}", section)),
                    "subsets": [
                        {
                            "name": name,
                            "weight": weight,
                            "value": estimate_json(self.get("subset", section, name)),
                        }
                        for name, weight in subsets.items()
                    ],
                }
                for section, subsets in self.subsets(version).items()
            ]
            found[f"total{key}"] = estimate_json(self.get(f"total{version}"))
        return found


def answer_estimate(grid: Grid, method: str, group: str) -> Estimate | None:
    """Return an estimate of the generated answers, else of the most likely choices; None without both."""
    return grid.get(method, "generated", group) or grid.get(method, "chosen", group)


def method_rows(grid: Grid, metrics: Sequence[str] = METRICS) -> list[Row]:
    """Return the measured methods of a task by metric."""
    return [
        Row(grid, method, metric)
        for metric in metrics
        for method in grid.methods
        if grid.get(method, metric, "mean") or metric == "cost"
    ]


def nested(grids: Sequence[Grid]) -> dict[str, Any]:
    """Return the estimates of a run by task, method and metric, and how the intervals were computed."""
    return {"level": LEVEL, "resamples": NUM_RESAMPLES, "seed": SEED, "tasks": list(map(_task_json, grids))}


def _task_json(grid: Grid) -> dict[str, Any]:
    rows = method_rows(grid)
    return {
        "task": grid.task,
        "examples": len(grid.examples),
        "left_out": grid.left_out,
        "failed": grid.failed,
        **({"quoted_verdicts": count} if (count := grid.num_quoted_verdicts) else {}),
        "num_documents": grid.num_documents,
        "order_names": list(grid.orders),
        "averaged": grid.averaged_orders,
        "scoring": scoring_rules(grid),
        "cautions": cautions(grid),
        "methods": [
            {
                "method": method,
                "measures": [row.json() for row in rows if row.method == method],
                "cost": {"computed": grid.num_computed(method)}
                | {name: estimate_json(grid.get(method, "cost", name)) for name in COSTS},
            }
            for method in grid.methods
        ],
        "differences": [
            {"kind": one.metric, "method": one.method, "than": one.name, "value": estimate_json(one)}
            for one in grid.estimates
            if one.group == "minus"
        ],
    }


def estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    """Return mean, interval and number of examples of an estimate, None for None."""
    keys = ("mean", "low", "high", "n", "is_read")
    return dict(zip(keys, estimate.value, strict=True)) if estimate else None
