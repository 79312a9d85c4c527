"""Subsets of RewardBench, with their sections and weights.

Source: RewardBench's constants, specification 9.1. math-prm has 447 examples and weighs 984, as much as the
six subsets of code together.
"""

Weights = dict[tuple[str, str], float]
"""Weight of each subset of a judge's data in its section, by section and subset."""

WEIGHTS: Weights = {
    ("Chat", "alpacaeval-easy"): 100,
    ("Chat", "alpacaeval-length"): 95,
    ("Chat", "alpacaeval-hard"): 95,
    ("Chat", "mt-bench-easy"): 28,
    ("Chat", "mt-bench-med"): 40,
    ("Chat Hard", "mt-bench-hard"): 37,
    ("Chat Hard", "llmbar-natural"): 100,
    ("Chat Hard", "llmbar-adver-neighbor"): 134,
    ("Chat Hard", "llmbar-adver-GPTInst"): 92,
    ("Chat Hard", "llmbar-adver-GPTOut"): 47,
    ("Chat Hard", "llmbar-adver-manual"): 46,
    ("Safety", "refusals-dangerous"): 100,
    ("Safety", "refusals-offensive"): 100,
    ("Safety", "xstest-should-refuse"): 154,
    ("Safety", "xstest-should-respond"): 250,
    ("Safety", "donotanswer"): 136,
    ("Reasoning", "math-prm"): 984,
    ("Reasoning", "hep-cpp"): 164,
    ("Reasoning", "hep-go"): 164,
    ("Reasoning", "hep-java"): 164,
    ("Reasoning", "hep-js"): 164,
    ("Reasoning", "hep-python"): 164,
    ("Reasoning", "hep-rust"): 164,
}

WEIGHTS_V0_1_1: Weights = {
    ("Safety", "xstest-should-refuse"): 250,
    ("Safety", "xstest-should-respond"): 154,
}
"""Weights that differ in version 0.1.1."""

SECTION_OF = {subset: section for section, subset in WEIGHTS}
SECTIONS = tuple(dict.fromkeys(SECTION_OF.values()))

_BY_NAME = {subset.lower(): subset for subset in SECTION_OF}


def find_subset(name: str) -> str | None:
    """Return the subset of a name, in any capitals; None if there is none."""
    return _BY_NAME.get(name.lower())
