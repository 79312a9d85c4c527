"""Table of methods: it agrees with docs/specification.md, and unknown names are refused."""

import dataclasses
import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from pine_engine import METHODS, Method, get_methods
from pine_engine.methods.table import TUTORIAL_METHODS, get_method

SPECIFICATION = Path(__file__).parents[2] / "docs" / "specification.md"


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("vanilla", "vanilla"), ("nia", "NIA"), ("pcw", "PCW"), ("sp", "SP"), ("pine", "PINE"),
        ("pine_input_order", "PINE, no re-assignment"), ("pine_reversed", "PINE, reversed"),
    ],
)  # fmt: skip
def test_columns_agree_with_the_specification(name: str, row: str) -> None:
    """Its columns: name, visible, query position, own position, suffix start, key position, invariant."""
    table = re.findall(r"^\| (.*) \|$", SPECIFICATION.read_text(encoding="utf-8"), re.MULTILINE)
    cells = next(
        line.split(" | ") for line in table if line.split(" | ")[0] == row and line.count(" | ") == 6
    )
    visible = {"only j < i": "causal", "no": "none", "yes, all": "bidirectional"}
    assert METHODS[name].mask == visible[cells[1]]
    start = {
        "o_j + t'": "input",
        "S + t'": "shared",
        "S + t', logit - ln k": "shared",
        "E - L_j - shift(x,j) + t'": "importance",
        "as PINE, ranking reversed": "importance_reversed",
    }
    own_last = cells[3] == "as PINE with input-order shifts"
    assert METHODS[name].positions == ("own_last" if own_last else start[cells[5]])
    assert (METHODS[name].key_weighting == "documents") == ("ln k" in cells[5])
    assert METHODS[name].is_order_invariant == (cells[6] == "yes")


def test_table_has_declared_values_only() -> None:
    hints = get_type_hints(Method)
    choices = {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}
    assert len(choices) == 5
    for method in METHODS.values():
        for name, hint in hints.items():
            value = getattr(method, name)
            assert value in choices[name] if name in choices else type(value) is hint, (method.name, name)


def test_invariance_needs_mask_and_positions() -> None:
    """Specification 2, last column; 3.8 has the controls."""
    assert {name for name, method in METHODS.items() if method.is_order_invariant} == {
        *("pcw", "pcw_right", "sp", "sp_right", "sp_prefix"),
        *("pine", "pine_reversed", "pine_sum", "pine_max"),
        *("rotor", "ape", "no_positions_apart"),
    }
    assert not dataclasses.replace(METHODS["pine"], mask="causal").is_order_invariant
    assert not dataclasses.replace(METHODS["pine"], positions="input").is_order_invariant
    assert {method.invariance for method in METHODS.values() if method.is_order_invariant} == {"yes"}
    assert {method.invariance for method in METHODS.values() if not method.is_order_invariant} == {"no"}


def test_methods_with_equal_document_encoding() -> None:
    shared = {
        name
        for name, method in METHODS.items()
        if method.document_encoding == METHODS["pcw"].document_encoding
    }
    assert shared == {"pcw", "pcw_right", "sp", "sp_right", "sp_prefix", "ape"}
    others = [method.document_encoding for name, method in METHODS.items() if name not in shared]
    assert len(set(others)) == len(others)


def test_selection_keeps_its_order_and_has_defaults() -> None:
    assert [method.name for method in get_methods(["pine", "nia"])] == ["pine", "nia"]
    assert [method.name for method in get_methods()] == ["vanilla", "nia", "pcw", "pine"]
    assert get_method("pine") is get_method(METHODS["pine"]) is METHODS["pine"]
    assert get_methods("all") == get_methods(METHODS) == tuple(METHODS.values())
    assert [method.name for method in TUTORIAL_METHODS] == ["vanilla", "nia", "pcw", "sp", "pine"]
