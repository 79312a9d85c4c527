"""The keys of the page, as a list to read; assets/keys.js and the scripts of the pictures listen to them."""

from viz.drawing.markup import render

KEYS = (
    ("everywhere", "Ctrl Enter", "run"),
    ("everywhere", "Ctrl Shift Enter", "shuffle"),
    ("everywhere", "Ctrl .", "stop what is running"),
    ("in a document", "Alt ↑", "one slot up; Alt ↓ one down"),
    ("at the documents, outside of text fields", "Ctrl Z", "undo; with Shift once more"),
    ("outside of text fields", "Alt .", "the next query of the pictures, or step of the lesson"),
    ("outside of text fields", "Alt ,", "the query or step before"),
    ("in a picture", "arrows", "go from row to row, or from cell to cell"),
    ("in a picture", "Enter", "choose, here and in all other pictures"),
    ("in a picture", "Escape", "back to what was chosen at first"),
    ("in the lesson and on a projector", "← →", "the step or panel before and behind"),
)
"""Where, which, and what for; on a Mac ⌘ does what Ctrl does, ⌥ what Alt does."""


def keys_html() -> str:
    """HTML of the list."""
    return render("keys.html", keys=KEYS)
