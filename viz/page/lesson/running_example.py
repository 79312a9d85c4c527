"""The paper's running example: eight tokens, the methods that are taught, no model.

One system token, three documents of two tokens, one decoded token; the rankings are those the paper
states (specification 6.1). Numbers are shown from 1, as in the paper's figure.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from pine_engine.methods.plan import AttentionPlan, build_plan
from pine_engine.methods.positions import position_matrix, starts_from_ranking
from pine_engine.methods.table import TUTORIAL_METHODS, Method
from pine_engine.prompts.layout import IntArray, TokenLayout
from viz.cards.mask_cards import SegmentMask, mask_cards
from viz.cards.position_table import Token, position_table, table_rows
from viz.cards.rulers import QueryView, method_rulers
from viz.drawing.identity import DECODED, PREFIX, Segment, document_segment
from viz.drawing.markup import render
from viz.drawing.picture import Numbers, picture
from viz.figures.masks import mask_states
from viz.figures.positions import MASKED

LAYOUT = TokenLayout(prefix=(0,), documents=((1, 2), (3, 4), (5, 6)), suffix=(7,))

# Documents by importance, the most important first. For a document the first is always itself.
DOCUMENT_RANKINGS = np.array(((0, 1, 2), (1, 2, 0), (2, 0, 1)))
DECODED_RANKING = np.array((1, 2, 0))


def example_plan(method: Method) -> AttentionPlan:
    """The method's plan for the eight tokens."""
    return build_plan(method, LAYOUT)


def example_positions(method: Method) -> tuple[IntArray, IntArray]:
    """The positions each query gives to each key, (8, 8), and its own, (8,); from 1, MASKED where blank."""
    plan = example_plan(method)
    document_starts, suffix_starts = _starts(plan)
    positions = position_matrix(plan, document_starts, suffix_starts[None])
    return np.where(positions == MASKED, MASKED, positions + 1), plan.query_positions() + 1


def _starts(plan: AttentionPlan) -> tuple[IntArray, IntArray]:
    """Where each document starts as seen from each document, (3, 3), and from the decoded token, (3,)."""
    if plan.document_starts is not None and plan.suffix_document_starts is not None:
        return plan.document_starts, plan.suffix_document_starts
    return (
        starts_from_ranking(DOCUMENT_RANKINGS, LAYOUT.lengths, LAYOUT.documents_end),
        starts_from_ranking(DECODED_RANKING, LAYOUT.lengths, LAYOUT.documents_end),
    )


def example_tokens() -> list[Token]:
    """The eight tokens with the names the paper gives them, in letters."""
    documents = [
        Token(f"{segment.label}{place}", segment, offset)
        for segment in map(document_segment, range(LAYOUT.num_documents))
        for offset, place in enumerate("₁₂")
    ]
    return [Token("SYS", PREFIX, 0), *documents, Token("OUT", DECODED, 0)]


def example_view(method: Method, query: int) -> QueryView:
    """What one of the eight tokens sees under a method, in positions from 1."""
    plan, token = example_plan(method), example_tokens()[query]
    document_starts, suffix_starts = _starts(plan)
    own = token.segment.document
    starts = suffix_starts
    if own is not None:
        starts = np.where(plan.visible[own], document_starts[own], MASKED)
    elif token.segment == PREFIX:
        starts = np.full(LAYOUT.num_documents, MASKED)
    return QueryView(
        query=f"token {token.text}",
        query_position=int(plan.query_positions()[query]),
        prefix_length=LAYOUT.prefix_length,
        documents=tuple(map(document_segment, range(LAYOUT.num_documents))),
        lengths=LAYOUT.lengths,
        starts=starts,
        own_document=own,
        first_position=1,
    )


@cache
def running_example_html() -> str:
    """HTML of the example: who sees whom by document, at which position by token, and a ruler per query."""
    tokens = example_tokens()
    return render(
        "running_example.html",
        masks=_masks_picture(TUTORIAL_METHODS),
        positions=_positions_picture(TUTORIAL_METHODS, tokens),
        rulers=[(token, _ruler_picture(TUTORIAL_METHODS, query)) for query, token in enumerate(tokens)],
    )


def _masks_picture(methods: Sequence[Method]) -> str:
    segments: tuple[Segment, ...] = (PREFIX, *map(document_segment, range(LAYOUT.num_documents)), DECODED)
    masks = [
        SegmentMask(
            method.label,
            segments,
            mask_states(example_plan(method).visible),
            scale="" if method.key_weighting == "nothing" else f"\u00d71/{LAYOUT.num_documents}",
        )
        for method in methods
    ]
    return mask_cards(masks, reference=masks[0], name="example-masks")


def _positions_picture(methods: Sequence[Method], tokens: list[Token]) -> str:
    tables, rows = [], []
    for method in methods:
        positions, places = example_positions(method)
        tables.append(
            position_table(positions, places, tokens, tokens, title=method.label, label=method.description)
        )
        names = [token.text for token in tokens]
        rows += [(method.label, *row) for row in table_rows(positions, places, names)]
    return picture(
        render("example_positions.html", tables=tables),
        name="example-positions",
        title="The position each query token gives each key token",
        caption="Eight tokens, counted from 1 as in the paper: one system token, three documents of two "
        "tokens, one decoded token. PINE\u2019s orders are those the paper states; hatched is masked.",
        numbers=Numbers(
            ("method", "query", "query\u2019s position", *(token.text for token in tokens)), tuple(rows)
        ),
        readout="Point at a cell to read it.",
    )


def _ruler_picture(methods: Sequence[Method], query: int) -> str:
    return method_rulers(
        {method.label: example_view(method, query) for method in methods},
        name=f"example-ruler-{query + 1}",
        caption=f"Where token {example_tokens()[query].text} sees the documents, on one position axis "
        "counted from 1, a row per method; documents stacked above each other share positions.",
    )
