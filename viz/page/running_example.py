"""The paper's running example: eight tokens, four methods, no model.

One system token, three documents of two tokens, one decoded token; the rankings are those the paper
states (specification 6.1). Numbers are shown from 1, as in the paper's figure. Imports torch through
the plan.
"""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS, Method
from pine_engine.plan import AttentionPlan, build_plan, position_matrix, starts_from_ranking
from viz.identity import DECODED, PREFIX, Segment, document_segment
from viz.masks import SegmentMask, mask_cards, mask_states
from viz.positions import MASKED, position_table
from viz.tokens import Token

SHOWN = ("vanilla", "nia", "pcw", "pine")
LAYOUT = TokenLayout(prefix=(0,), documents=((1, 2), (3, 4), (5, 6)), suffix=(7,))

# Documents by importance, the most important first. For a document the first is always itself.
DOCUMENT_RANKINGS = ((0, 1, 2), (1, 2, 0), (2, 0, 1))
DECODED_RANKING = (1, 2, 0)


def example_plan(method: Method) -> AttentionPlan:
    """The method's plan for the eight tokens."""
    return build_plan(method, LAYOUT)


def example_positions(method: Method) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The positions each query gives to each key, (8, 8), and its own, (8,); from 1, MASKED where blank."""
    plan = example_plan(method)
    document_starts, suffix_starts = plan.document_starts, plan.suffix_document_starts
    if document_starts is None or suffix_starts is None:
        lengths = torch.from_numpy(LAYOUT.lengths)
        document_starts = starts_from_ranking(torch.tensor(DOCUMENT_RANKINGS), lengths, LAYOUT.documents_end)
        suffix_starts = starts_from_ranking(torch.tensor(DECODED_RANKING), lengths, LAYOUT.documents_end)
    positions = position_matrix(plan, document_starts, suffix_starts[None]).numpy()
    return np.where(positions == MASKED, MASKED, positions + 1), plan.query_positions().numpy() + 1


def example_tokens() -> list[Token]:
    """The eight tokens with the names the paper gives them, in letters."""
    documents = [
        Token(f"{segment.label}{place}", segment, offset)
        for segment in map(document_segment, range(LAYOUT.num_documents))
        for offset, place in enumerate("₁₂")
    ]
    return [Token("SYS", PREFIX, 0), *documents, Token("OUT", DECODED, 0)]


@cache
def running_example_html() -> str:
    """HTML of the example: who sees whom by document, and at which position by token."""
    methods = [METHODS[name] for name in SHOWN]
    segments: tuple[Segment, ...] = (PREFIX, *map(document_segment, range(LAYOUT.num_documents)), DECODED)
    masks = [
        SegmentMask(method.label, segments, mask_states(example_plan(method).visible.numpy()))
        for method in methods
    ]
    tokens = example_tokens()
    tables = []
    for method in methods:
        positions, query_positions = example_positions(method)
        tables.append(
            position_table(
                positions, query_positions, tokens, tokens, title=method.label, caption=method.meaning
            )
        )
    grid = "".join(tables)
    return f'{mask_cards(masks, reference=masks[0])}<div class="page-example-grid">{grid}</div>'
