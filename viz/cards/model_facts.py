"""Facts of a model that may be loaded: its size, the memory that it needs, and why it cannot be used."""

from dataclasses import dataclass

from viz.drawing.markup import render


@dataclass(frozen=True)
class Need:
    """Memory of a model in one dtype, in words; `fits` if this much is free."""

    dtype: str
    memory: str
    fits: bool


@dataclass(frozen=True)
class ModelFacts:
    """Names and values of a model.

    Attributes:
        room: Free memory and its device, in words.
        reason: Reason why the model cannot be used; empty if it can.
    """

    name: str
    facts: tuple[tuple[str, str], ...]
    needs: tuple[Need, ...]
    room: str
    reason: str = ""


def model_facts(model: ModelFacts) -> str:
    """Render the facts."""
    return render("model_facts.html", model=model)
