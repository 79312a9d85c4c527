"""Explanations of the figures of each tab."""

from markupsafe import Markup

from viz.cards.glossary import term
from viz.drawing.markup import render

_TEXTS = {
    "attention": (
        "A point is how much of its attention the token of its row gives to that of its column, in one layer "
        "and head, on a logarithmic scale; grey is masked. Drag to zoom, both panels follow; a click chooses "
        "the query of a row. Of a long prompt several tokens are one point, which has the largest of their "
        "weights.",
        "The first token takes most of the attention of most heads, whatever it is: it is called a sink. It "
        "is left out unless you ask for it.",
    ),
    "masks": (
        Markup(
            "A panel is a {}: a point is blue where the token of its row can attend to that of its column. "
            "Methods with the same mask share a panel; they differ in positions or weights. Drag to zoom, "
            "all panels follow; a click selects the query of a row."
        ).format(term("mask")),
    ),
    "positions": (
        Markup(
            "A bar is a document at the {} where one query sees it, so it may stand elsewhere for another "
            "query, layer or head. What ends nearest to the query is nearest to it. Bars that overlap share "
            "positions."
        ).format(term("position")),
        "Positions have no mean. Where a mean over layers or heads is chosen, the head is drawn that decides "
        "most between documents.",
    ),
    "importance": (
        Markup(
            "{} is what PINE ranks by: attention weights without positions, summed over the tokens that "
            "read, divided by the length of the document that is read, in tokens. No document ranks itself."
        ).format(term("importance", "Importance")),
        "A head decides if it finds documents unequally important and reads documents at all: the largest "
        "less the smallest share of importance, times the share of attention that documents get.",
        "Attention weights are not a full explanation of the answer.",
    ),
    "change": (
        "Above, both answers with the words that only one of them has. Below, the first token in which they "
        "differ: how probable each candidate was, and what was read to write it. Of equal answers it is the "
        "token whose probability differs most. A token without a bar was not among the most likely ones.",
        "Of two orders, “slot 1 → 2” is where a document stands for the first answer, and for the second.",
        "Attention weights are not a full explanation of the answer.",
    ),
}


def how_to_read(tab: str) -> str:
    """Render the folded explanation; "" for a tab that needs none."""
    if tab not in _TEXTS:
        return ""
    return render("how_to_read.html", name=tab, sentences=_TEXTS[tab])
