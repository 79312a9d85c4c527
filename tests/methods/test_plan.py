"""Plans against matrices worked by hand, and the rules every plan obeys."""

import numpy as np
import pytest

from pine_engine.methods.plan import build_plan
from pine_engine.methods.positions import MASKED, position_matrix, starts_from_ranking
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import IntArray
from tests.support.worked_matrices import EXAMPLES, Example, read_matrix

TITLES = {
    "vanilla": "Vanilla",
    "nia": "NIA",
    "pcw": "PCW (and SP)",
    "sp": "PCW (and SP)",
    "sp_prefix": "PCW (and SP)",
    "pcw_right": 'PCW, align="right"',
    "sp_right": 'PCW, align="right"',
    "pine": "PINE",
    "pine_sum": "PINE",
    "pine_max": "PINE",
    "pine_reversed": "PINE, reversed re-assignment",
    "pine_input_order": 'PINE, no re-assignment ("compact")',
    "pine_literal_order": 'PINE, no re-assignment ("literal")',
    "mask_only": "Mask only",
    "reassignment_only": "Re-assignment only",
}


def starts_of(method: str, example: Example) -> tuple[IntArray, IntArray]:
    """Where documents start as seen from documents and suffix, under the example's stated importances."""
    plan = build_plan(METHODS[method], example.layout)
    if plan.document_starts is not None and plan.suffix_document_starts is not None:
        return plan.document_starts, np.tile(plan.suffix_document_starts, (example.layout.suffix_length, 1))
    lengths, end = example.layout.lengths, example.layout.documents_end
    from_documents, from_suffix = example.document_ranking, example.suffix_ranking
    if method == "pine_reversed":  # the own document stays first
        from_documents = np.hstack((from_documents[:, :1], from_documents[:, :0:-1]))
        from_suffix = from_suffix[:, ::-1]
    return starts_from_ranking(from_documents, lengths, end), starts_from_ranking(from_suffix, lengths, end)


@pytest.mark.parametrize("section", EXAMPLES)
@pytest.mark.parametrize("method", METHODS)
def test_positions_and_masks_are_those_worked_by_hand(section: str, method: str) -> None:
    example = EXAMPLES[section]
    plan = build_plan(METHODS[method], example.layout)
    # With equal lengths the alignment changes nothing, and the specification has one matrix for both.
    title = "PCW (and SP)" if section == "6.1" and method.endswith("_right") else TITLES[method]
    expected, expected_queries = read_matrix(section, title)
    assert position_matrix(plan, *starts_of(method, example)).tolist() == expected.tolist()
    assert plan.query_positions().tolist() == expected_queries.tolist()


SEES_LATER = {"mask_only", "pine_literal_order"}
"""Methods in which a query may see keys at later positions than its own (specification 3.6, 3.8)."""


@pytest.mark.parametrize("method", METHODS)
def test_every_query_sees_itself_at_its_own_position(method: str) -> None:
    example = EXAMPLES["6.2"]
    plan = build_plan(METHODS[method], example.layout)
    matrix, positions = position_matrix(plan, *starts_of(method, example)), plan.query_positions()
    assert np.array_equal(matrix.diagonal(), positions)
    nothing_later = ((matrix == MASKED) | (matrix <= positions[:, None])).all()
    assert nothing_later == (method not in SEES_LATER)
    assert (matrix[: example.layout.documents_end, example.layout.documents_end :] == MASKED).all()


def test_methods_that_promise_invariance() -> None:
    """Specification 2, last column, and 3.8 for the controls."""
    assert {name for name, method in METHODS.items() if method.is_order_invariant} == {
        *("pcw", "pcw_right", "sp", "sp_right", "sp_prefix"),
        *("pine", "pine_reversed", "pine_sum", "pine_max"),
    }
