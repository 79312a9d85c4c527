"""Drawings of parsed answers, selected by Task.drawn_as."""

from collections.abc import Callable
from dataclasses import dataclass

from viz.cards.molecule import molecule_svg


@dataclass(frozen=True)
class Drawn:
    """Escaped HTML of a drawing, or a remark why there is none."""

    html: str = ""
    remark: str = ""


def draw_molecule(smiles: str) -> Drawn:
    """Draw the molecule of a SMILES string."""
    try:
        svg = molecule_svg(smiles)
    except ImportError as error:
        return Drawn(remark=f"Cannot draw molecule: {error}")
    return Drawn(remark="Invalid molecule") if svg is None else Drawn(html=svg)


DRAWINGS: dict[str, Callable[[str], Drawn]] = {"molecule": draw_molecule}


def draw_finding(drawn_as: str, parsed: str | None) -> Drawn:
    """Draw the parsed answer; empty if the task draws nothing or nothing was parsed."""
    return DRAWINGS[drawn_as](parsed) if drawn_as and parsed is not None else Drawn()
