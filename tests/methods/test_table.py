"""Methods and plans agree with docs/specification.md, and positions with matrices worked by hand."""

import dataclasses
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from pine_engine import METHODS, AttentionPlan, Method, build_plan, get_methods
from pine_engine.attention import arithmetic
from pine_engine.methods.plan import MASKED, starts_from_ranking
from pine_engine.methods.table import TUTORIAL_METHODS, get_method
from pine_engine.prompts.layout import IntArray
from tests.support.worked_matrices import EXAMPLES, Example, read_matrix

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
    cells = next(one.split(" | ") for one in table if one.split(" | ")[0] == row and one.count(" | ") == 6)
    visible = {"only j < i": "causal", "no": "none", "yes, all": "bidirectional"}
    assert METHODS[name].mask == visible[cells[1]]
    start = {
        "o_j + t'": "input", "S + t'": "shared", "S + t', logit - ln k": "shared",
        "E - L_j - shift(x,j) + t'": "importance", "as PINE, ranking reversed": "importance_reversed",
    }  # fmt: skip
    own_last = cells[3] == "as PINE with input-order shifts"
    assert METHODS[name].positions == ("own_last" if own_last else start[cells[5]])
    assert (METHODS[name].key_weighting == "documents") == ("ln k" in cells[5])
    assert METHODS[name].is_order_invariant == (cells[6] == "yes")


def of_literal(hint: Any) -> tuple[Any, ...]:
    """Return the values of a Literal, which may be optional; () for another type."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    return (
        *(value for part in get_args(hint) for value in of_literal(part)),
        *(None,) * (type(None) in get_args(hint)),
    )


def test_table_has_declared_values_only() -> None:
    hints = get_type_hints(Method)
    literals = {name: of_literal(hint) for name, hint in hints.items()}
    choices = {name: values for name, values in literals.items() if values}
    assert len(choices) == 13
    for method in METHODS.values():
        for name, hint in hints.items():
            value = getattr(method, name)
            kind = get_origin(hint) or hint
            assert value in choices[name] if name in choices else type(value) is kind, (method.name, name)


def test_invariance_needs_mask_and_positions() -> None:
    """Specification 2, last column; 3.8 has the controls."""
    assert {name for name, method in METHODS.items() if method.is_order_invariant} == {
        *("pcw", "pcw_right", "sp", "sp_right", "sp_prefix"),
        *("pine", "pine_reversed", "pine_sum", "pine_max"),
        *("rotor", "rotor_frequency", "ape", "no_positions_apart", "reorder_content", "reorder_likelihood"),
        *("by_score", "by_score_reversed", "ends_by_score", "attention_basin"),
        *("nbce", "naive_bayes", "ensemble", "superposition"),
    }
    assert not dataclasses.replace(METHODS["pine"], mask="causal").is_order_invariant
    assert not dataclasses.replace(METHODS["pine"], positions="input").is_order_invariant
    assert {method.invariance for method in METHODS.values() if method.is_order_invariant} == {"yes"}
    assert {method.invariance for method in METHODS.values() if not method.is_order_invariant} == {"no"}


def test_methods_with_equal_document_encoding() -> None:
    pcw = METHODS["pcw"].document_encoding
    shared = {name for name, method in METHODS.items() if method.document_encoding == pcw}
    assert shared == {"pcw", "pcw_right", "sp", "sp_right", "sp_prefix", "ape"}
    others = [method.document_encoding for name, method in METHODS.items() if name not in shared]
    assert len(set(others)) == len(others) - 1
    assert METHODS["calibrated_attention"].document_encoding == METHODS["vanilla"].document_encoding


def test_selection_keeps_its_order_and_has_defaults() -> None:
    assert [method.name for method in get_methods(["pine", "nia"])] == ["pine", "nia"]
    assert [method.name for method in get_methods()] == ["vanilla", "nia", "pcw", "pine"]
    assert get_method("pine") is get_method(METHODS["pine"]) is METHODS["pine"]
    assert get_methods(METHODS) == tuple(METHODS.values())
    assert get_methods("all") == tuple(row for row in METHODS.values() if not row.needs_scores)
    assert [method.name for method in TUTORIAL_METHODS] == ["vanilla", "nia", "pcw", "sp", "pine"]


TITLES = {
    "vanilla": "Vanilla", "nia": "NIA", "pcw_right": 'PCW, align="right"', "sp_right": 'PCW, align="right"',
    **dict.fromkeys(("pcw", "sp", "sp_prefix"), "PCW (and SP)"),
    **dict.fromkeys(("pine", "pine_sum", "pine_max"), "PINE"),
    "pine_reversed": "PINE, reversed re-assignment", "pine_input_order": 'PINE, no re-assignment ("compact")',
    "pine_literal_order": 'PINE, no re-assignment ("literal")', "mask_only": "Mask only",
    "reassignment_only": "Re-assignment only",
}  # fmt: skip

ATTENDS_TO_LATER_POSITIONS = {"mask_only", "pine_literal_order"}
"""Methods in which a key can have a later position than its query (specification 3.6, 3.8)."""


def plan_of(method: str, example: Example) -> tuple[AttentionPlan, IntArray, IntArray]:
    """Return the plan, and the starts for documents and suffix under the importances of the example."""
    plan = build_plan(METHODS[method], example.layout)
    if plan.document_starts is not None and plan.suffix_document_starts is not None:
        suffix = np.tile(plan.suffix_document_starts, (example.layout.suffix_length, 1))
        return plan, plan.document_starts, suffix
    lengths, end = example.layout.lengths, example.layout.documents_end
    rankings = example.document_ranking, example.suffix_ranking
    if method == "pine_reversed":  # the query's document stays first
        rankings = np.hstack((rankings[0][:, :1], rankings[0][:, :0:-1])), rankings[1][:, ::-1]
    document_starts, suffix_starts = (starts_from_ranking(ranking, lengths, end) for ranking in rankings)
    return plan, document_starts, suffix_starts


def position_matrix(plan: AttentionPlan, document_starts: IntArray, suffix_starts: IntArray) -> IntArray:
    """Evaluate position(query, key) = start(query, document of key) + offset(key) for all tokens."""
    layout, tokens = plan.layout, np.arange(plan.layout.num_tokens)
    in_suffix = tokens >= layout.documents_end
    positions = np.tile(tokens + in_suffix * (plan.suffix_start - layout.documents_end), (len(tokens), 1))
    starts = np.vstack((np.repeat(document_starts, layout.lengths, axis=0), suffix_starts))
    for index, length in enumerate(layout.lengths):
        of_document = starts[:, [index]] + np.arange(length)
        positions[layout.prefix_length :, layout.document_slice(index)] = of_document
    return np.where(plan.attention_mask(tokens, tokens), positions, MASKED)


@pytest.mark.parametrize("section", EXAMPLES)
@pytest.mark.parametrize("method", TITLES)
def test_positions_and_masks_equal_worked_example(section: str, method: str) -> None:
    plan, document_starts, suffix_starts = plan_of(method, EXAMPLES[section])
    layout = plan.layout
    # The specification has one matrix for both alignments if all lengths are equal.
    title = "PCW (and SP)" if section == "6.1" and method.endswith("_right") else TITLES[method]
    expected, expected_queries = read_matrix(section, title)
    matrix, positions = position_matrix(plan, document_starts, suffix_starts), plan.query_positions()
    assert matrix.tolist() == expected.tolist()
    assert positions.tolist() == expected_queries.tolist()
    assert plan.query_positions(2).tolist() == [*positions, positions[-1] + 1, positions[-1] + 2]

    assert np.array_equal(matrix.diagonal(), positions)
    assert (matrix[: layout.documents_end, layout.documents_end :] == MASKED).all()
    has_later = bool((matrix > positions[:, None]).any())
    assert has_later == (method in ATTENDS_TO_LATER_POSITIONS)

    random = np.random.default_rng(0)
    for size in range(1, layout.num_tokens + 1):
        queries, keys = (np.sort(random.choice(len(matrix), size)) for _ in range(2))
        assert np.array_equal(plan.attention_mask(queries, keys), matrix[np.ix_(queries, keys)] != MASKED)


@given(
    case=st.lists(st.integers(1, 9), min_size=1, max_size=6).flatmap(
        lambda lengths: st.tuples(
            st.just(np.array(lengths)),
            st.lists(st.permutations(range(len(lengths))), min_size=1, max_size=3).map(np.array),
        )
    )
)
def test_ranked_documents_fill_their_positions(case: tuple[IntArray, IntArray]) -> None:
    lengths, rankings = case
    first, end = 3, 3 + int(lengths.sum())
    all_starts = starts_from_ranking(rankings, lengths, end)
    for ranking, starts in zip(rankings, all_starts, strict=True):
        taken = sorted(p for s, length in zip(starts, lengths, strict=True) for p in range(s, s + length))
        assert taken == list(range(first, end))
        assert np.argsort(-starts).tolist() == ranking.tolist()
    of_tensors = arithmetic.starts_from_ranking(torch.from_numpy(rankings), torch.from_numpy(lengths), end)
    assert of_tensors.tolist() == all_starts.tolist()
