"""Estimates as the nested JSON of `--json` and of the API."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from pine_engine.evaluation.bootstrap import NUM_RESAMPLES, SEED
from pine_engine.evaluation.estimates import TaskEstimates
from pine_engine.evaluation.intervals import LEVEL, Estimate
from pine_engine.evaluation.judge_scenarios import OVER_ORDERS, SCENARIOS

COSTS = (
    *("seconds", "prefill_s", "decode_s", "ratio", "prefill_ratio"),
    *("prompts", "prompt_tokens", "answer_tokens"),
)


def nested(tasks: Sequence[TaskEstimates]) -> dict[str, Any]:
    """Return the estimates of a run by task, method and metric, and how the intervals were computed."""
    return {
        "level": LEVEL,
        "resamples": NUM_RESAMPLES,
        "seed": SEED,
        "tasks": [
            {
                "task": task.task,
                "examples": task.num_examples,
                "left_out": task.left_out,
                "failed": task.failed,
                "num_documents": list(task.num_documents),
                "order_names": list(task.orders),
                "averaged": list(task.averaged),
                "methods": [
                    {
                        "method": method,
                        "measures": [_measure(task, method, metric) for metric in task.metrics(method)],
                        "cost": _cost(task, method),
                    }
                    for method in task.methods
                ],
                "differences": [
                    {"kind": one.metric, "method": one.method, "than": one.name, "value": _value(one)}
                    for one in task.estimates
                    if one.group == "minus"
                ],
            }
            for task in tasks
        ],
    }


def _value(estimate: Estimate | None) -> dict[str, Any] | None:
    keys = ("mean", "low", "high", "n", "is_read")
    return dict(zip(keys, estimate.value, strict=True)) if estimate else None


def _cost(task: TaskEstimates, method: str) -> dict[str, Any]:
    computed = task.get(method, "cost", "computed")
    assert computed is not None
    return {"computed": int(computed.mean)} | {name: _value(task.get(method, "cost", name)) for name in COSTS}


def _measure(task: TaskEstimates, method: str, metric: str) -> dict[str, Any]:
    get = partial(task.get, method, metric)
    worst, best = task.extreme_orders(method, metric)
    return {
        "kind": metric,
        "mean": _value(get("mean")),
        "order_names": [
            {
                "name": name,
                "value": _value(get("order", name)),
                "changed": _value(get("order changed", name)),
                "unparsed": _value(get("order unparsed", name)),
                "says_a": _value(get("says A", name)),
                "says_first": _value(get("says first", name)),
            }
            for name in task.orders
            if get("order", name)
        ],
        "worst": worst,
        "best": best,
        "worst_case": _value(get("worst case")),
        "best_case": _value(get("best case")),
        "changed": _value(get("changed")),
        "unparsed": _value(get("unparsed")),
        "read": _value(get("parsed")),
        "slots": [
            {"num_documents": int(size), "slot": int(slot), "value": _value(get("slot", size, slot))}
            for size, slot in task.names(method, metric, "slot")
        ],
        "shuffles": [
            {"num_documents": int(size), "value": _value(get("shuffled", size))}
            for (size,) in task.names(method, metric, "shuffled")
        ],
        **_sections(task, method, metric, OVER_ORDERS),
        "scenarios": [
            {"name": name, "value": _value(value), **_sections(task, method, metric, name)}
            for name in SCENARIOS
            if (value := get("scenario", name))
        ],
    }


def _sections(task: TaskEstimates, method: str, metric: str, scenario: str) -> dict[str, Any]:
    get = partial(task.get, method, metric)
    found: dict[str, Any] = {}
    for key, version in (("", ""), ("_v0_1_1", " v0.1.1")):
        found[f"sections{key}"] = [
            {
                "name": section,
                "value": _value(get(f"section{version}", scenario, section)),
                "subsets": [
                    {"name": name, "weight": weight, "value": _value(get("subset", scenario, section, name))}
                    for name, weight in subsets.items()
                ],
            }
            for section, subsets in task.subsets(method, metric, scenario, is_v0_1_1=bool(version)).items()
        ]
        found[f"total{key}"] = _value(get(f"total{version}", scenario))
    return found
