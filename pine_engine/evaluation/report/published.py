"""Numbers and models of the paper, from published.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pine_engine.evaluation.rewardbench import SUBSETS
from pine_engine.evaluation.slots import FIRST, SECOND, SHUFFLED
from pine_engine.prompts.tasks import TASKS

PAPER = "Wang et al., ICLR 2025, arXiv 2407.01100v3"

ANY = "any order"
"""Setting of a method without position bias."""

SECTIONS = tuple(dict.fromkeys(subset.section for subset in SUBSETS))


@cache
def published(name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the entries of a table of published.toml."""
    content = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(content[name])


@dataclass(frozen=True)
class PaperModel:
    """A model that the paper measures. parameters: their number. context: in tokens."""

    hub_id: str
    parameters: int
    context: int

    @property
    def name(self) -> str:
        """Name in the paper."""
        return self.hub_id.rpartition("/")[2]

    @property
    def used_for(self) -> tuple[str, ...]:
        """Labels of the tasks for which the paper names the model."""
        named = {row["task"] for row in published("remarks") if row["model"] == self.name}
        if self.name in _main_scores():
            named.add("judge_pair")
        return tuple(task.label for task in TASKS.values() if task.name in named)


PAPER_MODELS = tuple(PaperModel(**row) for row in published("models"))


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


class Gain(NamedTuple):
    """Accuracy of a model on a part of RewardBench in percent, in each order and shuffled, and of PINE."""

    model: str
    part: str
    first: float
    second: float
    shuffled: float
    pine: float

    @property
    def mean(self) -> float:
        """Mean of both orders, which is the expectation of a shuffle."""
        return (self.first + self.second) / 2

    @property
    def on_shuffle(self) -> float:
        """Gain of PINE on a single shuffle in points, as printed up to rounding."""
        return self.pine - self.shuffled

    @property
    def on_mean(self) -> float:
        """Gain of PINE on the mean of both orders in points."""
        return self.pine - self.mean

    @property
    def is_below_both(self) -> bool:
        """True if the shuffle scores less than both orders that it is drawn from."""
        return self.shuffled < min(self.first, self.second)


def gains() -> list[Gain]:
    """Return the gains of each model on RewardBench's Reasoning section, then on all sections."""
    found = []
    for part in ("Reasoning", "all sections"):
        for model, by_setting in _main_scores().items():
            rows = [by_setting[setting] for setting in (FIRST, SECOND, SHUFFLED, ANY)]
            scores = (
                row["average"] if part == "all sections" else row["sections"][SECTIONS.index(part)]
                for row in rows
            )
            found.append(Gain(model, part, *scores))
    return found
