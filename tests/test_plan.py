"""Plans against matrices worked by hand, and the rules every plan obeys."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS
from pine_engine.plan import MASKED, build_plan, position_matrix, starts_from_ranking
from tests.worked_matrices import EXAMPLES, read_matrix

TITLES = {"vanilla": "Vanilla", "nia": "NIA", "pcw": "PCW (and SP)", "pine": "PINE"}


@pytest.mark.parametrize("section", EXAMPLES)
@pytest.mark.parametrize("method", METHODS)
def test_positions_and_masks_are_those_worked_by_hand(section: str, method: str) -> None:
    example = EXAMPLES[section]
    plan = build_plan(METHODS[method], example.layout)
    lengths, end = torch.from_numpy(example.layout.lengths), example.layout.documents_end
    if plan.document_starts is None or plan.suffix_document_starts is None:
        document_starts = starts_from_ranking(example.document_ranking, lengths, end)
        suffix_starts = starts_from_ranking(example.suffix_ranking, lengths, end)
    else:
        document_starts = plan.document_starts
        suffix_starts = plan.suffix_document_starts.expand(example.layout.suffix_length, -1)
    expected, expected_queries = read_matrix(section, TITLES[method])
    assert position_matrix(plan, document_starts, suffix_starts).tolist() == expected.tolist()
    assert plan.query_positions().tolist() == expected_queries.tolist()


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 999))
def test_ranked_documents_tile_their_positions_without_gaps(lengths: list[int], seed: int) -> None:
    ranking = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(seed))
    start, end = 3, 3 + sum(lengths)
    starts = starts_from_ranking(ranking, torch.tensor(lengths), end).tolist()
    taken = sorted(p for s, length in zip(starts, lengths, strict=True) for p in range(s, s + length))
    assert taken == list(range(start, end))
    by_distance = sorted(range(len(lengths)), key=lambda d: -starts[d])
    assert by_distance == ranking.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_every_query_sees_itself_at_its_own_position_and_nothing_later(method: str) -> None:
    layout = TokenLayout((1, 2), ((3,), (4, 5, 6), (7, 8)), (9, 10))
    plan = build_plan(METHODS[method], layout)
    ranking = torch.tensor([[0, 2, 1], [1, 0, 2], [2, 1, 0]])
    lengths = torch.from_numpy(layout.lengths)
    ranked = starts_from_ranking(ranking, lengths, layout.documents_end)
    document_starts = ranked if plan.document_starts is None else plan.document_starts
    suffix_starts = (
        ranked[:2] if plan.suffix_document_starts is None else plan.suffix_document_starts.expand(2, -1)
    )
    matrix = position_matrix(plan, document_starts, suffix_starts)
    positions = plan.query_positions()
    assert torch.equal(matrix.diagonal(), positions)
    assert (matrix[matrix != MASKED] <= positions[:, None].expand_as(matrix)[matrix != MASKED]).all()
    assert (matrix[: layout.documents_end, layout.documents_end :] == MASKED).all()


def test_only_pcw_and_pine_promise_invariance() -> None:
    assert {name for name, method in METHODS.items() if method.promises_invariance} == {"pcw", "pine"}
