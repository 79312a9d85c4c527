"""Arrangements: which document is entered where, and in which order the entered ones stand in the prompt.

Documents of some tasks bear a label, the letter or number of the place where they were entered. There a user
who changes the order enters the documents elsewhere, and their labels change; what comes of the order alone
and what of the labels alone is told apart by two order_names of their own.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

from pine_engine.errors import InputError
from pine_engine.evaluation.examples import Example, check_some
from pine_engine.evaluation.order_names import AS_IS, MOST_FOR_ALL, ORDERS
from pine_engine.prompts.layout import moved_order
from pine_engine.prompts.request import Request
from pine_engine.prompts.tasks import Task, document_letter, get_task

Places = tuple[int, ...]


@dataclass(frozen=True)
class DocumentOrder:
    """How the documents of an example stand in a prompt.

    entered: entered[i] is the stored document that is entered i-th, and bears letter i. order: the entered
    one order[p] stands in slot p; it is reordered as tokens, and keeps its letter.
    """

    name: str
    entered: Places
    order: Places

    @property
    def slots(self) -> Places:
        """The stored document in each slot."""
        return tuple(self.entered[place] for place in self.order)

    def gold_slot(self, example: Example) -> int | None:
        """The slot of the document that holds the answer."""
        return None if example.gold_index is None else self.slots.index(example.gold_index)

    def comparison(self, example: Example) -> Request:
        """The example with its documents as they are entered, still to be reordered."""
        whole = example.comparison()
        return whole.model_copy(update={"documents": [whole.documents[index] for index in self.entered]})

    def answers(self, example: Example) -> tuple[str, ...]:
        """The accepted answers; one that is a document's letter is the letter that it bears now."""
        if not get_task(example.task).has_letters:
            return tuple(example.answers)
        return tuple(self.letters.get(answer, answer) for answer in example.answers)

    @property
    def letters(self) -> dict[str, str]:
        """The letter that each document bears now, by the one that it bears as stored."""
        return {document_letter(stored): document_letter(place) for place, stored in enumerate(self.entered)}


def order_names(example: Example, spec: Sequence[str] = (AS_IS,)) -> list[DocumentOrder]:
    """The order_names that were asked for, each name once.

    Raises InputError for an unknown name, and for one that this example cannot be brought into.
    """
    names = (name for asked in spec for name in expand(asked, len(example.documents)))
    return [arrange(example, name) for name in dict.fromkeys(names)]


def expand(name: str, num_documents: int) -> list[str]:
    """The names of single order_names that a name stands for; all others stand for themselves."""
    if name == "gold-all":
        return [f"gold-at:{slot}" for slot in range(num_documents)]
    if name == "judge":
        return ["gold-first", "gold-last", "shuffled:0"]
    if name == "all" and num_documents <= MOST_FOR_ALL:
        orders = permutations(range(num_documents))
        return ["order:" + "-".join(map(str, order)) for order in orders]
    return [name]


def arrange(example: Example, name: str) -> DocumentOrder:
    """The order_name of that name. Raises InputError as order_names does."""
    task, count = get_task(example.task), len(example.documents)
    kind, colon, value = name.partition(":")
    as_stored = tuple(range(count))
    if name in _SWAPS:
        if not _bears_labels(task):
            raise InputError(
                f"{name} needs documents with labels, and those of {task.name} have none; use reversed"
            )
        if count != 2:
            raise InputError(f"{name} needs 2 documents, and {example.id} has {count}; use reversed")
        return DocumentOrder(name, *_SWAPS[name])
    if name == "all":
        raise InputError(
            f"{example.id} has {count} documents, and all orders are tried of at most {MOST_FOR_ALL}; "
            "use shuffled:0"
        )
    pattern, slots_of = _MOVES.get(kind, _UNKNOWN)
    if not re.fullmatch(pattern, colon + value):
        raise InputError(f"unknown order {name!r}; choose from: {', '.join(ORDERS)}")
    slots = tuple(slots_of(example, value))
    if sorted(slots) != list(as_stored):
        raise InputError(f"{name} is no order of the {count} documents of {example.id}, counted from 0")
    return in_slots(example, name, slots)


def in_slots(example: Example, name: str, slots: Places) -> DocumentOrder:
    """The order_name in which these stored documents stand in the slots, as when a user enters them there:
    where documents bear labels, those of their slots."""
    as_stored = tuple(range(len(slots)))
    if _bears_labels(get_task(example.task)):
        return DocumentOrder(name, slots, as_stored)
    return DocumentOrder(name, as_stored, slots)


def check_arrangements(spec: Sequence[str], examples: Sequence[Example]) -> None:
    """Raises InputError for names that none of the examples can be brought into, and for one given twice."""
    if not spec:
        raise InputError(f"no order was chosen; choose at least one of: {', '.join(ORDERS)}")
    if len(set(spec)) < len(spec):
        raise InputError(f"an order was named twice in {','.join(spec)}; name each order once")
    for name in spec:
        check_some(examples, partial(order_names, spec=[name]))


def is_drawn(name: str) -> bool:
    """Whether the order_name of that name is drawn at random, for each example anew."""
    return name.startswith("shuffled:")


def labels_go_with_places(task: str, order: Places) -> bool:
    """Whether documents in this order bear the labels of their places, or none at all."""
    return not _bears_labels(get_task(task)) or list(order) == sorted(order)


def _gold(example: Example, slot: int) -> Places:
    if example.gold_index is None:
        raise InputError(f"{example.id} has no gold_index, so no document can be moved as the gold one")
    count = len(example.documents)
    if slot >= count:
        raise InputError(f"{example.id} has no slot {slot}; its {count} slots are counted from 0")
    return moved_order(count, example.gold_index, slot)


def _shuffled(example: Example, seed: str) -> list[int]:
    slots = list(range(len(example.documents)))
    random.Random(f"{seed}:{example.id}").shuffle(slots)  # a text, so that equal seeds shuffle examples apart
    return slots


def _bears_labels(task: Task) -> bool:
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
"""What follows each name, and the stored document in each slot."""

_UNKNOWN = ("(?!)", _shuffled)
"""A pattern that fits nothing."""

_SWAPS: dict[str, tuple[Places, Places]] = {
    "swapped": ((1, 0), (0, 1)),
    "segments-swapped": ((0, 1), (1, 0)),
    "labels-swapped": ((1, 0), (1, 0)),
}
"""How two documents are entered, and in which order these stand."""
