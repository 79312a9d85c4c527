"""Positions of single tokens: of parts, of rankings, on every device the same."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pine_engine.attention import arithmetic
from pine_engine.methods.plan import build_plan
from pine_engine.methods.positions import MASKED, position_matrix, starts_from_ranking, who_sees_whom
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import IntArray
from tests.methods.test_plan import TITLES, starts_of
from tests.support.worked_matrices import EXAMPLES, read_matrix


@pytest.mark.parametrize("section", EXAMPLES)
@pytest.mark.parametrize("method", METHODS)
def test_who_sees_whom_is_where_there_is_a_position(section: str, method: str) -> None:
    layout = EXAMPLES[section].layout
    tokens = np.arange(layout.num_tokens)
    sees = who_sees_whom(build_plan(METHODS[method], layout), tokens, tokens)
    expected, _ = read_matrix(section, "PCW (and SP)" if method.endswith("_right") else TITLES[method])
    assert sees.tolist() == (expected != MASKED).tolist()


@pytest.mark.parametrize("section", EXAMPLES)
@pytest.mark.parametrize("method", METHODS)
def test_a_part_is_cut_out_of_the_whole_matrix(section: str, method: str) -> None:
    example = EXAMPLES[section]
    plan, starts = build_plan(METHODS[method], example.layout), starts_of(method, example)
    whole = position_matrix(plan, *starts)
    random = np.random.default_rng(0)
    for size in range(1, example.layout.num_tokens + 1):
        rows, columns = (np.sort(random.choice(len(whole), size)) for _ in range(2))
        part = position_matrix(plan, *starts, rows, columns)
        assert np.array_equal(part, whole[np.ix_(rows, columns)])


@st.composite
def rankings(draw: st.DrawFn) -> tuple[IntArray, IntArray]:
    """Lengths of documents, and some orders of them."""
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    orders = st.permutations(range(len(lengths)))
    return np.array(lengths), np.array(draw(st.lists(orders, min_size=1, max_size=3)))


@given(rankings())
def test_ranked_documents_tile_their_positions_without_gaps(drawn: tuple[IntArray, IntArray]) -> None:
    lengths, orders = drawn
    start, end = 3, 3 + int(lengths.sum())
    for ranking, starts in zip(orders, starts_from_ranking(orders, lengths, end), strict=True):
        taken = sorted(p for s, length in zip(starts, lengths, strict=True) for p in range(s, s + length))
        assert taken == list(range(start, end))
        assert np.argsort(-starts).tolist() == ranking.tolist()


@given(rankings())
def test_attention_places_ranked_documents_as_the_pictures_do(drawn: tuple[IntArray, IntArray]) -> None:
    lengths, orders = drawn
    ours = arithmetic.starts_from_ranking(torch.from_numpy(orders), torch.from_numpy(lengths), 99)
    assert ours.tolist() == starts_from_ranking(orders, lengths, 99).tolist()
