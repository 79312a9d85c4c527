"""The paper's own numbers, to lay beside ours where the model is the same; published.toml holds them."""

import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from pine_engine.evaluation.rewardbench import SUBSETS
from pine_engine.evaluation.summary.scenarios import FIRST, SECOND, SHUFFLED

PAPER = "Wang et al., ICLR 2025, arXiv 2407.01100v3"

ANY = "any order"
"""Where the better answer stands does not matter without position bias."""

SECTIONS = tuple(dict.fromkeys(subset.section for subset in SUBSETS))

_MAIN = "Table 5"


class _Printed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SectionScores(_Printed):
    """Percent of each of RewardBench's SECTIONS for a model, and their average as printed."""

    model: str
    sections: tuple[float, float, float, float]
    average: float

    @property
    def by_section(self) -> dict[str, float]:
        """By the name of the section."""
        return dict(zip(SECTIONS, self.sections, strict=True))


class JudgeScores(SectionScores):
    """Accuracy. setting: where the better answer stands. where: in the paper."""

    method: str
    setting: str
    where: str


class SubsetScores(_Printed):
    """Accuracy in percent by section, and in each by subset, as in SUBSETS; all else as in JudgeScores."""

    model: str
    method: str
    setting: str
    where: str
    sections: tuple[tuple[float, ...], ...]

    @property
    def by_subset(self) -> dict[str, float]:
        """By the name of the subset."""
        return dict(zip((one.name for one in SUBSETS), chain.from_iterable(self.sections), strict=True))


class MoleculeErrors(_Printed):
    """Mean absolute errors on QM9, without units, of a model of the authors' own (Table 3)."""

    method: str
    alpha: float
    homo: float
    lumo: float
    gap: float
    mu: float
    cv: float


class Overhead(_Printed):
    """Wall time of PINE over that of vanilla inference, about (section 4.5)."""

    task: str
    documents: int
    ratio: float


class Remark(_Printed):
    """A result that the paper gives in words."""

    task: str
    model: str
    text: str
    where: str


class Published(_Printed):
    """All of them. changed_verdicts: when the answers are swapped, vanilla (Table 4)."""

    judge_scores: tuple[JudgeScores, ...]
    subset_scores: tuple[SubsetScores, ...]
    changed_verdicts: tuple[SectionScores, ...]
    molecule_errors: tuple[MoleculeErrors, ...]
    overheads: tuple[Overhead, ...]
    remarks: tuple[Remark, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Those that judge RewardBench in its main table."""
        return tuple(dict.fromkeys(row.model for row in self.judge_scores if row.where == _MAIN))


@cache
def published() -> Published:
    """What published.toml holds."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return Published.model_validate(tomllib.loads(text))


class Gain(_Printed):
    """What PINE gains on a single shuffle, as printed, and on the mean of both orders, in points."""

    model: str
    part: str
    first: float
    second: float
    shuffled: float
    pine: float

    @property
    def mean(self) -> float:
        """Of both orders: what a shuffle is expected to give."""
        return (self.first + self.second) / 2

    @property
    def on_shuffle(self) -> float:
        """As printed, but for rounding."""
        return self.pine - self.shuffled

    @property
    def on_mean(self) -> float:
        """PINE less the mean of both orders."""
        return self.pine - self.mean

    @property
    def is_below_both(self) -> bool:
        """The shuffle scores less than either of the two orders that it is drawn from."""
        return self.shuffled < min(self.first, self.second)


def gains() -> list[Gain]:
    """Of each model on RewardBench's Reasoning section, then on all of it."""
    main = {(row.model, row.setting): row for row in published().judge_scores if row.where == _MAIN}
    found = []
    for part in ("Reasoning", "all sections"):
        for model in published().models:
            first, second, shuffled, pine = (
                main[model, setting].by_section.get(part, main[model, setting].average)
                for setting in (FIRST, SECOND, SHUFFLED, ANY)
            )
            found.append(
                Gain(model=model, part=part, first=first, second=second, shuffled=shuffled, pine=pine)
            )
    return found


def published_model(name: str) -> str | None:
    """The paper's model of this hub id, folder or name; None if the paper has none like it."""
    last = name.rstrip("/").rsplit("/", 1)[-1].casefold()
    return next((model for model in published().models if model.casefold() in (last, f"meta-{last}")), None)
