"""Estimates of one task, looked up by method, metric, group and name, and as the JSON of `--json`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pine_engine.evaluation.answers import METRICS
from pine_engine.evaluation.bootstrap import NUM_RESAMPLES, SEED
from pine_engine.evaluation.grid import Grid
from pine_engine.evaluation.intervals import LEVEL, Estimate
from pine_engine.evaluation.judge_scenarios import OVER_ORDERS, SCENARIOS

COSTS = (
    *("seconds", "prefill_s", "decode_s", "ratio", "prefill_ratio"),
    *("prompts", "prompt_tokens", "answer_tokens"),
)

BETWEEN = " > "
"""Text between the parts of a name."""


@dataclass(frozen=True)
class TaskEstimates:
    """All estimates of one task, and the grid of records that they are computed from."""

    grid: Grid
    estimates: tuple[Estimate, ...]

    @cached_property
    def by_labels(self) -> dict[tuple[str, str, str, str], Estimate]:
        """Estimates by method, metric, group and name."""
        return {(one.method, one.metric, one.group, one.name): one for one in self.estimates}

    def get(self, method: str, metric: str, group: str, *name: str) -> Estimate | None:
        """Return an estimate, None if it was not measured. name: parts of the name."""
        return self.by_labels.get((method, metric, group, BETWEEN.join(name)))

    def rows(self, metrics: Sequence[str] = METRICS) -> list["Row"]:
        """Return the measured methods by metric."""
        return [
            Row(self, method, metric)
            for metric in metrics
            for method in self.grid.methods
            if self.get(method, metric, "mean") or metric == "cost"
        ]


@dataclass(frozen=True)
class Row:
    """Estimates of one method by one metric.

    part: scenario, order or number of documents that the estimates are of, "" for all. run: label of the run.
    """

    task: TaskEstimates
    method: str
    metric: str
    part: str = ""
    run: str = ""

    def get(self, group: str, *name: str) -> Estimate | None:
        """Return an estimate of this part, None if it was not measured."""
        parts = (self.part, *name) if self.part else name
        return self.task.get(self.method, self.metric, group, *parts)

    @property
    def mean(self) -> Estimate:
        """Mean over orders."""
        estimate = self.task.get(self.method, self.metric, "mean")
        assert estimate is not None, "a row has scores"
        return estimate

    def means(self, group: str, names: Sequence[str]) -> dict[str, Estimate]:
        """Return the measured estimates of a group by name."""
        return {name: one for name in names if (one := self.get(group, name))}

    def slots(self) -> dict[tuple[int, int], Estimate]:
        """Return the estimates by number of documents and slot."""
        found = {}
        for one in self.task.estimates:
            if (one.method, one.metric, one.group) == (self.method, self.metric, "slot"):
                size, slot = map(int, one.name.split(BETWEEN))
                found[size, slot] = one
        return found

    def subsets(self, *, is_v0_1_1: bool = False) -> dict[str, dict[str, float]]:
        """Return the weights of the subsets that were measured in the scenario of this row, by section."""
        grid = self.task.grid
        found: dict[str, dict[str, float]] = {}
        for (section, subset), weight in (grid.weights_v0_1_1 if is_v0_1_1 else grid.weights).items():
            if weight and self.get("subset", section, subset):
                found.setdefault(section, {})[subset] = float(weight)
        return found

    def differences(self) -> dict[str, Estimate]:
        """Return how much higher the mean of this method is, by the other method."""
        found = {}
        for one in self.task.estimates:
            if one.group == "minus" and one.metric == self.metric:
                if one.method == self.method:
                    found[one.name] = one
                elif one.name == self.method:
                    found[one.method] = one.negative()
        return found

    def extreme_orders(self) -> tuple[str, str]:
        """Return the orders with the lowest and the highest mean, of those with an answer that is parsed."""
        orders = self.means("order", self.task.grid.averaged_orders)
        parsed = {name: one for name, one in orders.items() if one.is_parsed}
        means = {name: one.mean for name, one in (parsed or orders).items()}
        return min(means, key=means.__getitem__), max(means, key=means.__getitem__)

    def json(self) -> dict[str, Any]:
        """Return all estimates of the method by the metric."""
        orders = self.means("order", self.task.grid.orders)
        worst, best = self.extreme_orders()
        sizes = dict.fromkeys(size for size, _ in self.slots())
        return {
            "kind": self.metric,
            "mean": _json(self.mean),
            "order_names": [
                {
                    "name": name,
                    "value": _json(value),
                    "changed": _json(self.get("order changed", name)),
                    "unparsed": _json(self.get("order unparsed", name)),
                    "says_a": _json(self.get("says A", name)),
                    "says_first": _json(self.get("says first", name)),
                }
                for name, value in orders.items()
            ],
            "worst": worst,
            "best": best,
            "worst_case": _json(self.get("worst case")),
            "best_case": _json(self.get("best case")),
            "changed": _json(self.get("changed")),
            "unparsed": _json(self.get("unparsed")),
            "read": _json(self.get("parsed")),
            "slots": [
                {"num_documents": size, "slot": slot, "value": _json(one)}
                for (size, slot), one in self.slots().items()
            ],
            "shuffles": [
                {"num_documents": size, "value": _json(one)}
                for size in sizes
                if (one := self.get("shuffled", str(size)))
            ],
            **replace(self, part=OVER_ORDERS).sections_json(),
            "scenarios": [
                {"name": name, "value": _json(value), **replace(self, part=name).sections_json()}
                for name, value in self.means("scenario", SCENARIOS).items()
            ],
        }

    def sections_json(self) -> dict[str, Any]:
        """Return sections, subsets and total in the scenario of this row, with both sets of weights."""
        found: dict[str, Any] = {}
        for key, version in (("", ""), ("_v0_1_1", " v0.1.1")):
            found[f"sections{key}"] = [
                {
                    "name": section,
                    "value": _json(self.get(f"section{version}", section)),
                    "subsets": [
                        {"name": name, "weight": weight, "value": _json(self.get("subset", section, name))}
                        for name, weight in subsets.items()
                    ],
                }
                for section, subsets in self.subsets(is_v0_1_1=bool(version)).items()
            ]
            found[f"total{key}"] = _json(self.get(f"total{version}"))
        return found


def nested(tasks: Sequence[TaskEstimates]) -> dict[str, Any]:
    """Return the estimates of a run by task, method and metric, and how the intervals were computed."""
    return {
        "level": LEVEL,
        "resamples": NUM_RESAMPLES,
        "seed": SEED,
        "tasks": [
            {
                "task": task.grid.task,
                "examples": len(task.grid.examples),
                "left_out": task.grid.left_out,
                "failed": task.grid.failed,
                "num_documents": task.grid.num_documents,
                "order_names": list(task.grid.orders),
                "averaged": task.grid.averaged_orders,
                "methods": [_method_json(task, method) for method in task.grid.methods],
                "differences": [
                    {"kind": one.metric, "method": one.method, "than": one.name, "value": _json(one)}
                    for one in task.estimates
                    if one.group == "minus"
                ],
            }
            for task in tasks
        ],
    }


def _method_json(task: TaskEstimates, method: str) -> dict[str, Any]:
    costs = {name: _json(task.get(method, "cost", name)) for name in COSTS}
    return {
        "method": method,
        "measures": [row.json() for row in task.rows() if row.method == method],
        "cost": {"computed": task.grid.num_computed(method), **costs},
    }


def _json(estimate: Estimate | None) -> dict[str, Any] | None:
    keys = ("mean", "low", "high", "n", "is_read")
    return dict(zip(keys, estimate.value, strict=True)) if estimate else None
