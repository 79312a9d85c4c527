"""Methods that the PINE paper does not compare come last, where the stylesheet hides them."""

import re
from pathlib import Path

from pine_engine import METHODS
from viz.page.form.method_boxes import DEFAULT_METHODS, OFFERED

STYLE = Path(__file__).parents[4] / "assets" / "style.css"


def test_other_methods_are_those_that_the_stylesheet_hides() -> None:
    others = [METHODS[name].role == "other" for name in OFFERED]
    assert others == sorted(others) and any(others)
    rule = next(part for part in STYLE.read_text().split("}") if ".page-more-methods input:checked" in part)
    (first_hidden,) = re.findall(r"nth-of-type\(n \+ (\d+)\)", rule)
    assert int(first_hidden) == others.index(True) + 1
    assert set(DEFAULT_METHODS) <= set(list(OFFERED)[: others.index(True)])
