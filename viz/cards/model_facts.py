"""What is known of a model that may be loaded: its size, what it needs, and why it cannot be used."""

from dataclasses import dataclass

from viz.drawing.markup import render


@dataclass(frozen=True)
class Need:
    """Memory for a model in one precision, in words. fits: whether there is so much."""

    dtype: str
    memory: str
    fits: bool


@dataclass(frozen=True)
class ModelFacts:
    """facts: names and values, in words. reason: why the model cannot be used, empty if it can.

    room: the memory that is free, and where, in words.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    needs: tuple[Need, ...]
    room: str
    reason: str = ""


def model_facts(model: ModelFacts) -> str:
    """HTML of the facts."""
    return render("model_facts.html", model=model)
