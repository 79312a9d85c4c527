"""Answer cards: one per method, side by side; and the drawing of a molecule in them."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, Self

import pine_engine as pine
from viz.drawing.markup import render

AnswerState = Literal["waiting", "reading", "writing", "finished", "stopped"]

_STATUS: dict[AnswerState, str] = {
    "waiting": "Queued",
    "reading": "Prefill",
    "writing": "Generating",
    "finished": "Done",
    "stopped": "Stopped",
}


@dataclass(frozen=True)
class Reading:
    """Parsed answer of a task."""

    parsed: str | None  # None if the answer could not be parsed
    finding: str  # name of the value, such as "verdict"
    score: float | None = None  # 0 to 1; None without accepted answers
    drawing: str = ""  # escaped HTML of the drawn value
    remark: str = ""  # reason for a missing drawing
    rule: str = ""  # condition of a correct answer, with the accepted ones; "" without any


@dataclass(frozen=True)
class AnswerCard:
    """Answer of one method so far; seconds are None before they are measured."""

    method: str
    state: AnswerState = "waiting"
    text: str = ""  # untrusted, as is the thinking part
    thinking: str = ""
    is_finished: bool = True  # False if the tokens end inside the thinking part
    prefill: "pine.PrefillProgress | None" = None
    num_tokens: int = 0
    prefill_s: float | None = None
    decode_s_per_token: float | None = None
    finish_reason: str = ""  # "stop" or "length"
    refusal: str = ""  # reason of an endpoint that refuses the request
    recorded: str = ""  # origin of an answer that was not computed now, such as "precomputed"
    model: str = ""  # "" if it is the only one
    reading: Reading | None = None

    @classmethod
    def finished(cls, answer: "pine.Answer") -> Self:
        """Return the card of a finished answer, whose times are not known from an endpoint."""
        return cls(
            method=answer.method,
            state="finished",
            text=answer.text,
            thinking=answer.thinking,
            is_finished=answer.is_finished,
            num_tokens=answer.num_tokens,
            prefill_s=answer.times.get("prefill_s"),
            decode_s_per_token=answer.times.get("decode_s_per_token"),
            finish_reason=answer.finish_reason,
        )

    @property
    def row(self) -> "pine.Method":
        """Method of the card."""
        return pine.METHODS[self.method]

    @property
    def says(self) -> str:
        """Parsed value, where it is not the answer itself."""
        parsed = self.reading.parsed if self.reading else None
        return parsed if parsed is not None and parsed != self.text.strip() else ""

    @property
    def is_busy(self) -> bool:
        """True while the answer is still changing."""
        return self.state in ("reading", "writing")

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Names and values of the measurements so far, with units."""
        measured = []
        if self.num_tokens:
            measured.append(("tokens", str(self.num_tokens)))
        if self.prefill_s is not None:
            measured.append(("prefill", f"{self.prefill_s:.2f} s"))
        if self.decode_s_per_token:
            measured.append(("decode", f"{1 / self.decode_s_per_token:.1f} tokens/s"))
        return measured

    @property
    def status(self) -> str:
        """Progress in one line: "Prefill: layer 4 of 30"."""
        if self.state == "finished" and self.finish_reason == "length":
            return f"Stopped at the token limit{'' if self.is_finished else ', inside the thinking part'}"
        if self.refusal:
            return f"No answer: {self.refusal}"
        place = f": {self.prefill.place}" if self.state == "reading" and self.prefill else ""
        return _STATUS[self.state] + place


def answer_grid(cards: Sequence[AnswerCard]) -> str:
    """Render all cards, side by side where there is space."""
    return render("answer_grid.html", cards=cards)


# Molecules

ATOM_COLORS = {-1: (0.0, 0.0, 0.0), 7: (0.22, 0.47, 0.87), 8: (0.85, 0.26, 0.22), 9: (0.13, 0.56, 0.33)}
"""Colors by atomic number, with a contrast above 3 on white and on the dark page; -1: all other elements."""

WIDTH, HEIGHT = 240, 180  # in pixels
MAX_SMILES = 200  # maximum characters; a larger molecule is not recognizable in a drawing


def molecule_svg(smiles: str) -> str | None:
    """Draw a molecule as SVG; None if the SMILES is invalid or too long."""
    try:
        chem = importlib.import_module("rdkit.Chem")
        drawing = importlib.import_module("rdkit.Chem.Draw.rdMolDraw2D")
        importlib.import_module("rdkit.RDLogger").DisableLog("rdApp.*")
    except ImportError as error:
        raise ImportError("RDKit is not installed; run `pip install rdkit==2026.9.1`") from error
    if not 0 < len(smiles) <= MAX_SMILES or any(letter.isspace() for letter in smiles):
        return None
    molecule = chem.MolFromSmiles(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        return None
    drawer = drawing.MolDraw2DSVG(WIDTH, HEIGHT)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.setAtomPalette(ATOM_COLORS)
    drawing.PrepareAndDrawMolecule(drawer, molecule)
    drawer.FinishDrawing()
    body = drawer.GetDrawingText().partition("<!-- END OF HEADER -->")[2].replace("#000000", "currentColor")
    title = escape(smiles)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label="{title}"><title>{title}</title>{body}'
    )
