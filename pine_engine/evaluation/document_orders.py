"""Document orders of an evaluation: their names, and the slots and letters of the documents.

Documents of some tasks have a label: the letter or number of the place at which they were entered. There, a
user who changes the order enters the documents at other places, which changes their labels. The orders
segments-swapped and labels-swapped separate both effects.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

from pine_engine.errors import InputError
from pine_engine.evaluation.examples import Example, check_some
from pine_engine.prompts.layout import moved_order
from pine_engine.prompts.request import Request
from pine_engine.prompts.tasks import Task, document_letter, get_task

Places = tuple[int, ...]

AS_IS = "as-is"

MAX_FOR_ALL = 5
"""Limit of the documents for `all`, which has 120 orders of 5 documents."""

ORDERS = {
    AS_IS: "as stored",
    "reversed": "the last document first",
    "gold-first": "the gold document first, the others as they were",
    "gold-last": "the gold document last",
    "gold-at:I": "the gold document in slot I, counted from 0",
    "gold-all": "the gold document in every slot in turn",
    "shuffled:S": "one shuffle of each example, with seed S",
    "order:1-0-2": "the stored documents in this order",
    "all": f"every order of at most {MAX_FOR_ALL} documents",
    "judge": "gold-first, gold-last and shuffled:0, which the paper's tables of judges need",
    "swapped": "two documents change places and labels, as when a user swaps them",
    "segments-swapped": "two documents change places, and keep their labels",
    "labels-swapped": "two documents change labels, and keep their places",
}
"""Names of the orders that can be evaluated, and their meaning."""


@dataclass(frozen=True)
class DocumentOrder:
    """Slots and letters of the documents of an example.

    Attributes:
        input_order: input_order[i] is the stored document that is entered at place i and has letter i.
        permutation: The document that was entered at place permutation[p] is in slot p. It keeps its letter.
    """

    name: str
    input_order: Places
    permutation: Places

    @property
    def slots(self) -> Places:
        """Stored document of each slot."""
        return tuple(self.input_order[place] for place in self.permutation)

    def gold_slot(self, example: Example) -> int | None:
        """Return the slot of the document with the answer."""
        return None if example.gold_index is None else self.slots.index(example.gold_index)

    def request(self, example: Example) -> Request:
        """Return the request with its documents as entered, before they are reordered."""
        whole = example.comparison()
        return whole.model_copy(update={"documents": [whole.documents[index] for index in self.input_order]})

    def answers(self, example: Example) -> tuple[str, ...]:
        """Return the accepted answers. The letter of a document is replaced by its letter in this order."""
        if not get_task(example.task).has_letters:
            return tuple(example.answers)
        return tuple(self.letters.get(answer, answer) for answer in example.answers)

    @property
    def letters(self) -> dict[str, str]:
        """Letter of each document in this order, by its letter as stored."""
        return {
            document_letter(stored): document_letter(place) for place, stored in enumerate(self.input_order)
        }


def names_of(spec: Sequence[str], num_documents: int) -> list[str]:
    """Return the single orders that names such as gold-all stand for, each once."""
    return list(dict.fromkeys(name for each in spec for name in expand(each, num_documents)))


def expand(name: str, num_documents: int) -> list[str]:
    """Return the single orders of one name."""
    if name == "gold-all":
        return [f"gold-at:{slot}" for slot in range(num_documents)]
    if name == "judge":
        return ["gold-first", "gold-last", "shuffled:0"]
    if name == "all" and num_documents <= MAX_FOR_ALL:
        orders = permutations(range(num_documents))
        return ["order:" + "-".join(map(str, order)) for order in orders]
    return [name]


def arrange(example: Example, name: str) -> DocumentOrder:
    """Return the order of a name. Raises InputError for a name that is unknown or does not fit."""
    task, count = get_task(example.task), len(example.documents)
    kind, colon, value = name.partition(":")
    as_stored = tuple(range(count))
    if name in _SWAPS:
        if not _has_labels(task):
            raise InputError(
                f"{name} needs documents with labels, and those of {task.name} have none; use reversed"
            )
        if count != 2:
            raise InputError(f"{name} needs 2 documents, and {example.id} has {count}; use reversed")
        return DocumentOrder(name, *_SWAPS[name])
    if name == "all":
        raise InputError(
            f"{example.id} has {count} documents, and all orders are tried of at most {MAX_FOR_ALL}; "
            "use shuffled:0"
        )
    pattern, slots_of = _MOVES.get(kind, _UNKNOWN)
    if not re.fullmatch(pattern, colon + value):
        raise InputError(f"unknown order {name!r}; choose from: {', '.join(ORDERS)}")
    slots = tuple(slots_of(example, value))
    if sorted(slots) != list(as_stored):
        raise InputError(f"{name} is no order of the {count} documents of {example.id}, counted from 0")
    return in_slots(example, name, slots)


def arrange_all(example: Example, spec: Sequence[str]) -> list[DocumentOrder]:
    """Return the orders of several names. Raises InputError like arrange."""
    return [arrange(example, name) for name in names_of(spec, len(example.documents))]


def in_slots(example: Example, name: str, slots: Places) -> DocumentOrder:
    """Return the order with these stored documents in the slots. Labels are those of the slots."""
    as_stored = tuple(range(len(slots)))
    if _has_labels(get_task(example.task)):
        return DocumentOrder(name, slots, as_stored)
    return DocumentOrder(name, as_stored, slots)


def check_orders(spec: Sequence[str], examples: Sequence[Example]) -> None:
    """Raise InputError for no name, a duplicate, and a name that fits none of the examples."""
    if not spec:
        raise InputError(f"no order was chosen; choose at least one of: {', '.join(ORDERS)}")
    if len(set(spec)) < len(spec):
        raise InputError(f"an order was named twice in {','.join(spec)}; name each order once")
    for name in spec:
        check_some(examples, partial(arrange_all, spec=[name]))


def is_drawn(name: str) -> bool:
    """Check whether an order is drawn at random for each example."""
    return name.startswith("shuffled:")


def labels_follow_slots(task: str, permutation: Places) -> bool:
    """Check whether documents in this order have the labels of their slots, or no labels."""
    return not _has_labels(get_task(task)) or list(permutation) == sorted(permutation)


def _gold(example: Example, slot: int) -> Places:
    if example.gold_index is None:
        raise InputError(f"{example.id} has no gold_index, so no document can be moved as the gold one")
    count = len(example.documents)
    if slot >= count:
        raise InputError(f"{example.id} has no slot {slot}; its {count} slots are counted from 0")
    return moved_order(count, example.gold_index, slot)


def _shuffled(example: Example, seed: str) -> list[int]:
    slots = list(range(len(example.documents)))
    random.Random(f"{seed}:{example.id}").shuffle(slots)  # a text, so each example has its own shuffle
    return slots


def _has_labels(task: Task) -> bool:
    return task.has_letters or task.has_numbers


_MOVES: dict[str, tuple[str, Callable[[Example, str], Sequence[int]]]] = {
    AS_IS: ("", lambda example, _: range(len(example.documents))),
    "reversed": ("", lambda example, _: range(len(example.documents))[::-1]),
    "gold-first": ("", lambda example, _: _gold(example, 0)),
    "gold-last": ("", lambda example, _: _gold(example, len(example.documents) - 1)),
    "gold-at": (r":\d{1,4}", lambda example, slot: _gold(example, int(slot))),
    "shuffled": (r":\d{1,9}", _shuffled),
    "order": (r":\d{1,4}(-\d{1,4})*", lambda _, order: [int(place) for place in order.split("-")]),
}
"""Pattern of the part behind each name, and the stored document of each slot."""

_UNKNOWN = ("(?!)", _shuffled)
"""Pattern that matches nothing."""

_SWAPS: dict[str, tuple[Places, Places]] = {
    "swapped": ((1, 0), (0, 1)),
    "segments-swapped": ((0, 1), (1, 0)),
    "labels-swapped": ((1, 0), (1, 0)),
}
"""`input_order` and `permutation` of two documents."""
