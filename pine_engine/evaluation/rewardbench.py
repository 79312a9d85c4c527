"""Subsets of RewardBench, with their sections and weights.

Source: RewardBench's constants, specification 9.1. math-prm has 447 examples and weighs 984, as much as the
six subsets of code together.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Subset:
    """A subset. weight: of its mean in its section. weight_v0_1_1: the same in version 0.1.1, if another."""

    name: str
    section: str
    weight: float
    weight_v0_1_1: float | None = None


SUBSETS = (
    Subset("alpacaeval-easy", "Chat", 100),
    Subset("alpacaeval-length", "Chat", 95),
    Subset("alpacaeval-hard", "Chat", 95),
    Subset("mt-bench-easy", "Chat", 28),
    Subset("mt-bench-med", "Chat", 40),
    Subset("mt-bench-hard", "Chat Hard", 37),
    Subset("llmbar-natural", "Chat Hard", 100),
    Subset("llmbar-adver-neighbor", "Chat Hard", 134),
    Subset("llmbar-adver-GPTInst", "Chat Hard", 92),
    Subset("llmbar-adver-GPTOut", "Chat Hard", 47),
    Subset("llmbar-adver-manual", "Chat Hard", 46),
    Subset("refusals-dangerous", "Safety", 100),
    Subset("refusals-offensive", "Safety", 100),
    Subset("xstest-should-refuse", "Safety", 154, weight_v0_1_1=250),
    Subset("xstest-should-respond", "Safety", 250, weight_v0_1_1=154),
    Subset("donotanswer", "Safety", 136),
    Subset("math-prm", "Reasoning", 984),
    Subset("hep-cpp", "Reasoning", 164),
    Subset("hep-go", "Reasoning", 164),
    Subset("hep-java", "Reasoning", 164),
    Subset("hep-js", "Reasoning", 164),
    Subset("hep-python", "Reasoning", 164),
    Subset("hep-rust", "Reasoning", 164),
)

_BY_NAME = {subset.name.lower(): subset for subset in SUBSETS}


def find_subset(name: str | None) -> Subset | None:
    """Return the subset of a name, in any capitals; None if there is none."""
    return _BY_NAME.get((name or "").lower())
