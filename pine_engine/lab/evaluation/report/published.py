"""Numbers and models of the paper, from published.toml."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pine_engine.lab.evaluation.rewardbench import SECTIONS
from pine_engine.lab.evaluation.slots import FIRST, SECOND, SHUFFLED
from pine_engine.prompts.tasks import TASKS

PAPER = "Wang et al., ICLR 2025, arXiv 2407.01100v3"

ANY = "any order"  # setting of a method without position bias


@cache
def published(name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of a table of published.toml."""
    content = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(content[name])


def tasks_of_model(hub_id: str) -> list[str]:
    """Return the labels of the tasks for which the paper names a model."""
    name = hub_id.rpartition("/")[2]
    named = {row["task"] for row in published("remarks") if row["model"] == name}
    if name in _main_scores():
        named.add("judge")
    return [task.label for task in TASKS.values() if task.name in named]


def _main_scores() -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the entries of the paper's Table 5 by model and setting."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in published("judge_scores"):
        if row["where"] == "Table 5":
            found.setdefault(row["model"], {})[row["setting"]] = row
    return found


def published_model(name: str) -> str | None:
    """Return the paper's name of the model with this hub id, folder or name; None if it has none."""
    last = name.rstrip("/").rsplit("/", 1)[-1].casefold()
    return next((model for model in _main_scores() if model.casefold() in (last, f"meta-{last}")), None)


def gains(part: str) -> list[dict[str, Any]]:
    """Return the accuracy of each model on a part of RewardBench in percent, and the gains of PINE in points.

    part: a section, or "all sections". first, second, shuffled: vanilla in each order, and on one shuffle.
    mean: of both orders, the expectation of a shuffle. on_shuffle, on_mean: gain of PINE. is_below_both: the
    shuffle scores less than both orders.
    """
    found = []
    for model, by_setting in _main_scores().items():
        rows = [by_setting[setting] for setting in (FIRST, SECOND, SHUFFLED, ANY)]
        scores = [
            row["average"] if part == "all sections" else row["sections"][SECTIONS.index(part)]
            for row in rows
        ]
        first, second, shuffled, pine = scores
        mean = (first + second) / 2
        facts = {"model": model, "part": part, "is_below_both": shuffled < min(first, second)}
        facts |= zip(("first", "second", "shuffled", "pine"), scores, strict=True)
        found.append(facts | {"mean": mean, "on_shuffle": pine - shuffled, "on_mean": pine - mean})
    return found
