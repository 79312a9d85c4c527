"""The orders that an evaluation can be asked for, by name."""

AS_IS = "as-is"

MOST_FOR_ALL = 5
"""Most documents of which all orders are tried: 120."""

ORDERS = {
    AS_IS: "as stored",
    "reversed": "the last document first",
    "gold-first": "the gold document first, the others as they were",
    "gold-last": "the gold document last",
    "gold-at:I": "the gold document in slot I, counted from 0",
    "gold-all": "the gold document in every slot in turn",
    "shuffled:S": "one shuffle of each example, with seed S",
    "order:1-0-2": "the stored documents in this order",
    "all": f"every order of at most {MOST_FOR_ALL} documents",
    "judge": "gold-first, gold-last and shuffled:0, which the paper's tables of judges need",
    "swapped": "two documents change places and labels, as when a user swaps them",
    "segments-swapped": "two documents change places, and keep their labels",
    "labels-swapped": "two documents change labels, and keep their places",
}
"""What can be asked for, and what it means."""
