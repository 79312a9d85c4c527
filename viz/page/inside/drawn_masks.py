"""Tab "Masks": who may read whom under each method, by document and token by token."""

from pine_engine.methods.table import METHODS, KeyWeighting
from viz.cards.mask_cards import SegmentMask, mask_cards
from viz.drawing.identity import Role, prompt_segments
from viz.drawing.picture import pick
from viz.figures.masks import mask_states, plot_masks
from viz.page.answers.answering import FinishedRun
from viz.page.inside.drawn import TabContent
from viz.page.inside.reading import plan_of, query_of_step, token_of
from viz.page.inside.selection import Query, Selection

_SCALED: dict[KeyWeighting, tuple[Role, ...]] = {
    "nothing": (),
    "documents": ("document",),
    "documents_and_prefix": ("document", "prefix"),
}


def draw_masks(run: FinishedRun, selection: Selection) -> TabContent:
    """A document-level mask for each method, and under them the prompt token by token."""
    # What is taught, run or not, so that every class sees the same: masks need no model.
    shown = [name for name, row in METHODS.items() if row.in_tutorial or name in run.result.traces]
    masks = {name: segment_mask(run, name) for name in shown}
    cards = mask_cards(
        list(masks.values()),
        reference=masks["vanilla"],
        picks=_row_picks(run),
        selected=_row_of(run, selection.query),
    )
    token = token_of(run, selection.query)
    tokens = plot_masks(
        [plan_of(run, name) for name in shown],
        query=token if token < run.result.layout.num_tokens else None,
        order=run.order,
    )
    return TabContent(cards, {"token-masks": tokens})


def segment_mask(run: FinishedRun, method: str) -> SegmentMask:
    """The document-level mask of any method for the run's prompt."""
    has_prefix = run.result.layout.prefix_length > 0
    count = len(run.order)
    scaled = _SCALED[METHODS[method].key_weighting]
    return SegmentMask(
        METHODS[method].label,
        prompt_segments(run.order, has_prefix=has_prefix),
        mask_states(plan_of(run, method).visible, has_prefix=has_prefix),
        scale=f"\u00d71/{count}" if scaled and count > 1 else "",
        scaled=scaled,
        note="" if method in run.result.traces else "not run",
    )


def _row_picks(run: FinishedRun) -> list[str]:
    """What each row of a document-level mask selects; the prefix is no query."""
    queries = [Query("document", slot) for slot in range(len(run.order))] + [query_of_step(run, 0)]
    prefix = [""] if run.result.layout.prefix_length else []
    return prefix + [pick(query=str(query)) for query in queries]


def _row_of(run: FinishedRun, query: Query) -> int:
    """Row of a document-level mask that shows what this query may read."""
    first = int(run.result.layout.prefix_length > 0)
    return first + (query.index if query.kind == "document" else len(run.order))
