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
from itertools import chain, repeat

from pine_engine.errors import InputError
from pine_engine.prompts.examples import Example
from pine_engine.prompts.orders import Order, all_orders, moved_order
from pine_engine.prompts.request import Request
from pine_engine.prompts.scoring import Verdict
from pine_engine.prompts.tasks import TASKS, Task, document_letter

AS_IS, AGAIN = "as-is", "again"

MAX_FOR_ALL = 5  # limit of the documents for `all`, which has 120 orders of 5 documents

ORDERS = {
    AS_IS: "as stored",
    AGAIN: "as stored, measured once more, as a control",
    "reversed": "the last document first",
    "gold-first": "the gold document first, the others as they were",
    "gold-last": "the gold document last",
    "gold-at:I": "the gold document in slot I, counted from 0",
    "gold-all": "the gold document in every slot in turn",
    "gold-held:S": "the gold document in its slot, the others shuffled with seed S",
    "shuffled:S": "one shuffle of each example, with seed S",
    "order:1-0-2": "the stored documents in this order",
    "all": f"every order of at most {MAX_FOR_ALL} documents",
    "judge": "gold-first, gold-last and shuffled:0, which the paper's tables of judges need",
    "swapped": "two documents change places and labels, as when a user swaps them",
    "segments-swapped": "two documents change places, and keep their labels",
    "labels-swapped": "two documents change labels, and keep their places",
}
"""Names of the orders that can be evaluated, and their meaning."""

_SINGLE = re.compile(
    r"as-is|again|reversed|gold-first|gold-last|gold-at:\d{1,4}|(shuffled|gold-held):\d{1,9}|order:\d{1,4}(-\d{1,4})*"
)

_SWAPS: dict[str, tuple[Order, Order]] = {
    "swapped": ((1, 0), (0, 1)),
    "segments-swapped": ((0, 1), (1, 0)),
    "labels-swapped": ((1, 0), (1, 0)),
}
"""`input_order` and `permutation` of two documents."""


@dataclass(frozen=True)
class DocumentOrder:
    """Slots and letters of the documents of an example."""

    name: str
    input_order: Order  # input_order[i] is the stored document that is entered at place i and has letter i
    permutation: Order  # slot p has the document that was entered at place permutation[p], with its letter

    @property
    def slots(self) -> Order:
        """Stored document of each slot."""
        return tuple(self.input_order[place] for place in self.permutation)

    @property
    def letters(self) -> dict[str, str]:
        """Letter of each document in this order, by its letter as stored."""
        pairs = enumerate(self.input_order)
        return {document_letter(stored): document_letter(place) for place, stored in pairs}

    def gold_slot(self, example: Example) -> int | None:
        """Return the slot of the document with the answer."""
        return None if example.gold_index is None else self.slots.index(example.gold_index)

    def request(self, example: Example) -> Request:
        """Return the request with its documents as entered, before they are reordered."""
        request = example.comparison()
        documents = [request.documents[index] for index in self.input_order]
        return request.model_copy(update={"documents": documents})

    def task(self, example: Example, verdict: Verdict = "last") -> Task:
        """Return the task of an example, which parses answers with the letters of this order."""
        texts = [example.documents[stored].text for stored in self.input_order]
        return example.sized_task(verdict).with_documents(texts, self.relevance(example))

    def choice_texts(self, example: Example) -> dict[str, tuple[str, ...]]:
        """Return the texts whose probabilities are added for each choice, with the letters of this order."""
        templates = ("{choice}",) if example.choices else example.sized_task().choice_texts
        texts = chain((example.documents[stored].text for stored in self.input_order), repeat(""))
        return {
            choice: tuple(template.format(choice=choice, text=text) for template in templates)
            for choice, text in zip(example.scored_choices, texts, strict=False)
        }

    def answers(self, example: Example) -> tuple[str, ...]:
        """Return the accepted answers. The letter of a document is replaced by its letter in this order."""
        letters = self.letters if TASKS[example.task].has_letters else {}
        return tuple(letters.get(answer, answer) for answer in example.accepted)

    def relevance(self, example: Example) -> tuple[float, ...]:
        """Return the relevance of the documents by their letters in this order, () if none are ranked."""
        return tuple(example.grades[stored] for stored in self.input_order if example.grades)


def names_of(spec: Sequence[str], num_documents: int) -> list[str]:
    """Return the single orders of names such as gold-all, each once."""
    names: list[str] = []
    for name in spec:
        if name == "gold-all":
            names += [f"gold-at:{slot}" for slot in range(num_documents)]
        elif name == "judge":
            names += ["gold-first", "gold-last", "shuffled:0"]
        elif name == "all" and num_documents <= MAX_FOR_ALL:
            names += ["order:" + "-".join(map(str, order)) for order in all_orders(num_documents)]
        else:
            names.append(name)
    return list(dict.fromkeys(names))


def arrange(example: Example, name: str) -> DocumentOrder:
    """Return the order of a name. Raises InputError for a name that is unknown or does not fit."""
    count = len(example.documents)
    if name in _SWAPS:
        if not TASKS[example.task].has_labels:
            raise _refusal(f"{name} needs documents with labels, unlike {example.task}; use reversed")
        if count != 2:
            raise _refusal(f"{name} needs 2 documents, and {example.id} has {count}; use reversed")
        return DocumentOrder(name, *_SWAPS[name])
    if name == "all":
        raise _refusal(f"all needs at most {MAX_FOR_ALL} documents: {example.id} has {count}; use shuffled:0")
    if not _SINGLE.fullmatch(name):
        raise _refusal(f"unknown order {name!r}; choose from: {', '.join(ORDERS)}")
    return in_slots(example, name, _slots(example, name))


def _slots(example: Example, name: str) -> Order:
    """Return the stored document of each slot."""
    kind, _, value = name.partition(":")
    places = list(range(len(example.documents)))
    if kind == "reversed":
        places.reverse()
    elif kind == "shuffled":
        random.Random(f"{value}:{example.id}").shuffle(places)  # a text, so each example has its own shuffle
    elif kind == "order":
        order = [int(place) for place in value.split("-")]
        if sorted(order) != places:
            raise _refusal(f"{name} is no order of {example.id}: it has {len(places)} documents, from 0")
        return tuple(order)
    elif kind not in (AS_IS, AGAIN):
        if example.gold_index is None:
            raise _refusal(f"{example.id} has no gold_index, so no document can be moved as the gold one")
        if kind == "gold-held":
            places.remove(example.gold_index)
            random.Random(f"{value}:{example.id}").shuffle(places)
            return (*places[: example.gold_index], example.gold_index, *places[example.gold_index :])
        slot = {"gold-first": 0, "gold-last": len(places) - 1}.get(kind, int(value or 0))
        if slot >= len(places):
            raise _refusal(f"{example.id} has no slot {slot}; its {len(places)} slots are counted from 0")
        return moved_order(len(places), example.gold_index, slot)
    return tuple(places)


def arrange_all(example: Example, spec: Sequence[str]) -> list[DocumentOrder]:
    """Return the orders of several names. Raises InputError like arrange."""
    return [arrange(example, name) for name in names_of(spec, len(example.documents))]


def in_slots(example: Example, name: str, slots: Order) -> DocumentOrder:
    """Return the order with these stored documents in the slots. Labels are those of the slots."""
    as_stored = tuple(range(len(slots)))
    if TASKS[example.task].has_labels:
        return DocumentOrder(name, slots, as_stored)
    return DocumentOrder(name, as_stored, slots)


def check_orders(spec: Sequence[str], examples: Sequence[Example]) -> None:
    """Raise InputError for no name, a duplicate, and a name that fits none of the examples."""
    if not spec:
        raise _refusal(f"no order was chosen; choose at least one of: {', '.join(ORDERS)}")
    if len(set(spec)) < len(spec):
        raise _refusal(f"an order was named twice in {','.join(spec)}; name each order once")
    for name in spec:
        check_some(examples, partial(arrange_all, spec=[name]))


def check_some(examples: Sequence[Example], check: Callable[[Example], object]) -> None:
    """Raise the InputError that the check raises for the first example, if it raises one for all."""
    errors = []
    for example in examples:
        try:
            check(example)
            return
        except InputError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def is_random_order(name: str) -> bool:
    """Check whether an order is drawn at random for each example."""
    return name.startswith("shuffled:") or is_gold_held(name)


def is_gold_held(name: str) -> bool:
    """Check whether the gold document keeps its slot, and the others are drawn at random."""
    return name.startswith("gold-held:")


def labels_follow_slots(task: str, permutation: Order) -> bool:
    """Check whether documents in this order have the labels of their slots, or no labels."""
    return not TASKS[task].has_labels or list(permutation) == sorted(permutation)


def _refusal(message: str) -> InputError:
    return InputError(message, field="orders")
