"""Drawings of molecules: what is drawn, in colours that can be read, and that nothing else gets in."""

import re
import subprocess
import sys

import pytest

from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.cards.molecule import MAX_CHARACTERS, molecule_svg

PAGES = ((1.0, 1.0, 1.0), (0.043, 0.059, 0.098))
"""Backgrounds of the page, light and dark."""


def drawn(smiles: str) -> str:
    svg = molecule_svg(smiles)
    assert svg
    return svg


def test_every_bond_and_every_named_atom_is_drawn() -> None:
    svg = drawn("CC(=O)Nc1ncc(F)o1")
    bonds = {int(found) for found in re.findall(r"class='bond-(\d+)", svg)}
    assert bonds == set(range(10))
    assert {int(found) for found in re.findall(r"class='atom-(\d+)'", svg)} == {2, 3, 5, 8, 9}  # O N N F O


def test_a_drawing_is_titled_and_has_no_background() -> None:
    (picture,) = read_html(drawn("C#CCO")).all("svg")
    assert (picture.attributes["role"], picture.attributes["aria-label"]) == ("img", "C#CCO")
    assert [title.text for title in picture.all("title")] == ["C#CCO"]
    assert not list(picture.all("rect"))
    assert_harmless(drawn("C/C=C\\C"))
    wide = molecule_svg("C#CCO", width=300, height=100)
    assert wide and 'viewBox="0 0 300 100" width="300" height="100"' in wide


def luminance(colour: tuple[float, ...]) -> float:
    """Relative, by WCAG 2."""
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_lines_have_the_colour_of_the_text_and_atoms_one_that_is_seen_on_any_page() -> None:
    svg = drawn("NCC(O)CF")
    found = set(re.findall(r"#[0-9A-Fa-f]{6}", svg))
    assert "stroke:currentColor" in svg
    assert len(found) == 3
    for colour in found:
        parts = tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        for page in PAGES:
            dark, light = sorted((luminance(parts), luminance(page)))
            assert (light + 0.05) / (dark + 0.05) > 3


@pytest.mark.parametrize("text", ["", "C(", "not a molecule", "C C", "C" * (MAX_CHARACTERS + 1), *HOSTILE])
def test_what_is_no_molecule_is_not_drawn(text: str) -> None:
    assert molecule_svg(text) is None


def test_a_missing_rdkit_is_said_with_the_way_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit.Chem", None)
    with pytest.raises(ImportError, match="RDKit is not installed; run `pip install"):
        molecule_svg("C")


def test_rdkit_is_not_loaded_before_something_is_drawn() -> None:
    code = "import sys, viz.cards.molecule; sys.exit('rdkit' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
