"""Plans and positions against matrices worked by hand (docs/specification.md, section 6)."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pine_engine import METHODS, AttentionPlan, build_plan
from pine_engine.attention import arithmetic
from pine_engine.methods.plan import MASKED, starts_from_ranking
from pine_engine.prompts.layout import IntArray
from tests.support.worked_matrices import EXAMPLES, Example, read_matrix

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
