"""Drawings of molecules: bonds, legible colors, and escaping."""

import re
import subprocess
import sys
from itertools import product

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.cards.molecule import MAX_CHARACTERS, molecule_svg
from viz.drawing.identity import relative_luminance

PAGES = ("#FFFFFF", "#0B0F19")
"""Backgrounds of the page, light and dark."""


def drawn(smiles: str) -> str:
    svg = molecule_svg(smiles)
    assert svg
    return svg


def test_drawing_has_all_bonds_and_named_atoms() -> None:
    svg = drawn("CC(=O)Nc1ncc(F)o1")
    bonds = {int(found) for found in re.findall(r"class='bond-(\d+)", svg)}
    assert bonds == set(range(10))
    assert {int(found) for found in re.findall(r"class='atom-(\d+)'", svg)} == {2, 3, 5, 8, 9}  # O N N F O


def test_drawing_has_title_and_size() -> None:
    (picture,) = read_html(drawn("C#CCO")).all("svg")
    assert picture.attributes["aria-label"] == "C#CCO" and not list(picture.all("rect"))
    assert {key: picture.attributes[key] for key in ("width", "height")} == {"width": "240", "height": "180"}
    assert_harmless(drawn("C/C=C\\C"))


def test_atom_colors_have_contrast_on_any_page() -> None:
    svg = drawn("NCC(O)CF")
    colors = set(re.findall(r"#[0-9A-Fa-f]{6}", svg))
    assert "stroke:currentColor" in svg and len(colors) == 3
    for color, page in product(colors, PAGES):
        dark, light = sorted((relative_luminance(color), relative_luminance(page)))
        assert (light + 0.05) / (dark + 0.05) > 3


@pytest.mark.parametrize("text", ["", "C(", "not a molecule", "C C", "C" * (MAX_CHARACTERS + 1), *HOSTILE])
def test_invalid_smiles_is_not_drawn(text: str) -> None:
    assert molecule_svg(text) is None


def test_missing_rdkit_raises_import_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(ImportError):
        molecule_svg("C")


def test_rdkit_is_loaded_at_the_first_drawing() -> None:
    code = "import sys, viz.cards.molecule; sys.exit('rdkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
