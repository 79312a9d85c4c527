"""Drawings of molecules have all bonds, and colors with contrast."""

import re
from itertools import product

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.cards.molecules import MAX_SMILES, molecule_svg
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
    (picture,) = read_html(svg).all("svg")
    assert picture.attributes["aria-label"] == "CC(=O)Nc1ncc(F)o1" and not list(picture.all("rect"))
    assert_harmless(drawn("C/C=C\\C"))


def test_atom_colors_have_contrast_on_any_page() -> None:
    svg = drawn("NCC(O)CF")
    colors = set(re.findall(r"#[0-9A-Fa-f]{6}", svg))
    assert "stroke:currentColor" in svg and len(colors) == 3
    for color, background in product(colors, PAGES):
        dark, light = sorted((relative_luminance(color), relative_luminance(background)))
        assert (light + 0.05) / (dark + 0.05) > 3


@pytest.mark.parametrize("text", ["", "C(", "not a molecule", "C C", "C" * (MAX_SMILES + 1), *HOSTILE])
def test_invalid_smiles_is_not_drawn(text: str) -> None:
    assert molecule_svg(text) is None
