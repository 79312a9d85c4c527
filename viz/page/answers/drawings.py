"""What is read in an answer, drawn: by Task.drawn_as."""

from collections.abc import Callable
from dataclasses import dataclass

from viz.cards.molecule import molecule_svg


@dataclass(frozen=True)
class Drawn:
    """html: the drawing, escaped; "" if there is none. remark: why there is none, or ""."""

    html: str = ""
    remark: str = ""


def draw_molecule(smiles: str) -> Drawn:
    """The molecule of a SMILES string."""
    try:
        svg = molecule_svg(smiles)
    except ImportError as error:
        return Drawn(remark=f"not drawn: {error}")
    return Drawn(remark="no valid molecule") if svg is None else Drawn(html=svg)


DRAWINGS: dict[str, Callable[[str], Drawn]] = {"molecule": draw_molecule}


def draw_finding(drawn_as: str, parsed: str | None) -> Drawn:
    """The drawing of what was read; nothing where the task draws nothing or nothing was read."""
    return DRAWINGS[drawn_as](parsed) if drawn_as and parsed is not None else Drawn()
