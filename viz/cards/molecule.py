"""A molecule as a drawing: lines that take the colour of the text around them, on no background."""

import importlib
from html import escape

COLOURS = {7: (0.22, 0.47, 0.87), 8: (0.85, 0.26, 0.22), 9: (0.13, 0.56, 0.33)}
"""Colours of nitrogen, oxygen and fluorine; each has a contrast above 3 with white and with the dark page."""

LONGEST = 200
"""In characters; a longer text is no molecule that anyone could recognise in a drawing."""

OTHER_ATOMS = -1
"""RDKit's number for all elements that have no colour of their own."""

BLACK = "#000000"


def molecule_svg(smiles: str, *, width: int = 240, height: int = 180) -> str | None:
    """A drawing as SVG, titled with the SMILES; None if it is no molecule, or a long one.

    width, height: in pixels. RDKit is loaded at the first call.
    Raises ImportError, with what to install, if RDKit is not there.
    """
    try:
        chem = importlib.import_module("rdkit.Chem")
        drawing = importlib.import_module("rdkit.Chem.Draw.rdMolDraw2D")
        importlib.import_module("rdkit.RDLogger").DisableLog("rdApp.*")
    except ImportError as error:
        raise ImportError("RDKit is not installed; run `pip install rdkit==2026.9.1`") from error
    if not 0 < len(smiles) <= LONGEST or any(letter.isspace() for letter in smiles):
        return None
    molecule = chem.MolFromSmiles(smiles)
    if molecule is None or not molecule.GetNumAtoms():
        return None
    drawer = drawing.MolDraw2DSVG(width, height)
    options = drawer.drawOptions()
    options.clearBackground = False
    options.setAtomPalette({OTHER_ATOMS: (0.0, 0.0, 0.0), **COLOURS})
    drawing.PrepareAndDrawMolecule(drawer, molecule)
    drawer.FinishDrawing()
    body = drawer.GetDrawingText().partition("<!-- END OF HEADER -->")[2].replace(BLACK, "currentColor")
    title = escape(smiles)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{title}"><title>{title}</title>{body}'
    )
