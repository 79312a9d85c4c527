"""The table of methods: its rows are those of docs/specification.md, and wrong names are said."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from pine_engine.cli.reproduce_paper import STUDIES
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, TUTORIAL_METHODS, Method, get_methods

SPECIFICATION = Path(__file__).parents[2] / "docs" / "specification.md"
KNOWN = (
    "vanilla, nia, pcw, sp, pine, pine_input_order, pine_reversed, mask_only, reassignment_only, "
    "pcw_right, sp_right, sp_prefix, pine_literal_order, pine_sum, pine_max"
)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("vanilla", "vanilla"),
        ("nia", "NIA"),
        ("pcw", "PCW"),
        ("sp", "SP"),
        ("pine", "PINE"),
        ("pine_input_order", "PINE, no re-assignment"),
        ("pine_reversed", "PINE, reversed"),
    ],
)
def test_rows_promise_what_the_summary_of_the_specification_says(name: str, row: str) -> None:
    """Its columns: name, sees others, query position, own position, suffix start, key position, invariant."""
    table = re.findall(r"^\| (.*) \|$", SPECIFICATION.read_text(encoding="utf-8"), re.MULTILINE)
    cells = next(
        line.split(" | ") for line in table if line.split(" | ")[0] == row and line.count(" | ") == 6
    )
    sees = {"only j < i": "causal", "no": "none", "yes, all": "bidirectional"}
    assert METHODS[name].mask == sees[cells[1]]
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


def test_all_methods_in_the_order_of_the_table() -> None:
    assert [method.name for method in get_methods(["all"])] == KNOWN.split(", ")
    assert all(METHODS[method.name] is method for method in get_methods(["all"]))


def test_methods_come_in_the_order_asked_for() -> None:
    assert [method.name for method in get_methods(["pine", "nia"])] == ["pine", "nia"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], f"no method was chosen; choose at least one of: {KNOWN}"),
        (["pine", "magic"], f"unknown method 'magic'; choose from: {KNOWN}, or 'all' alone"),
        (["PINE"], f"unknown method 'PINE'; choose from: {KNOWN}, or 'all' alone"),
        (["pine", "pcw", "pine"], "a method was named twice in pine, pcw, pine; name each method once"),
    ],
)
def test_wrong_names_are_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        get_methods(names)
    assert str(raised.value) == sentence


def test_a_promise_needs_both_mask_and_positions() -> None:
    """The control of specification 3.8: ranked positions under a causal mask depend on the order."""
    assert not dataclasses.replace(METHODS["pine"], mask="causal").is_order_invariant
    assert not dataclasses.replace(METHODS["pine"], positions="input").is_order_invariant


def test_a_row_cannot_be_changed() -> None:
    row: Any = METHODS["pine"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        row.mask = "causal"


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_every_row_says_what_it_means_in_a_sentence_and_where_it_comes_from(method: Method) -> None:
    row = dataclasses.asdict(method)
    assert row["description"].endswith(".") and row["description"][0].isupper()
    assert len(row["source"]) > 10
    assert len(row["cost"]) > 10
    assert method.invariance == ("yes" if method.is_order_invariant else "no")


def test_all_stands_for_every_row_and_nothing_for_the_default_ones() -> None:
    assert get_methods(["all"]) == tuple(METHODS.values())
    assert [method.name for method in get_methods()] == ["vanilla", "nia", "pcw", "pine"]


def test_what_is_taught_and_what_the_paper_measures() -> None:
    taught = ["vanilla", "nia", "pcw", "sp", "pine"]
    assert [method.name for method in TUTORIAL_METHODS] == taught
    assert STUDIES["gsm8k"].methods.split(",") == [*taught, "pine_input_order", "pine_reversed"]


def test_methods_that_read_documents_alike() -> None:
    alike = {
        name
        for name, method in METHODS.items()
        if method.document_encoding == METHODS["pcw"].document_encoding
    }
    assert alike == {"pcw", "pcw_right", "sp", "sp_right", "sp_prefix"}
    others = [method.document_encoding for name, method in METHODS.items() if name not in alike]
    assert len(set(others)) == len(others)
