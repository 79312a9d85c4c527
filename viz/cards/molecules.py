"""Drawing of a molecule in an answer card."""

import importlib
from html import escape

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
