"""Sentences beside the numbers of a task: scoring rule, one slot for all answers, labels that move."""

from collections.abc import Iterable, Iterator, Sequence

from pine_engine.lab.debias.measured import is_order_invariant, method_label
from pine_engine.lab.evaluation.document_orders import MAX_FOR_ALL
from pine_engine.lab.evaluation.grid import METRICS, Grid
from pine_engine.lab.evaluation.record import Record
from pine_engine.prompts.scoring import SCORES, TIE
from pine_engine.prompts.tasks import TASKS, document_letter

UNKNOWN_RULE = "unknown"  # rule of the records of earlier versions


def scoring_rules(grid: Grid) -> list[str]:
    """Return the names of the rules that scored the records of a task."""
    return sorted({record.scoring or UNKNOWN_RULE for record in grid.some_records})


def scoring_sentence(grid: Grid) -> str:
    """Return the condition under which an answer counts as correct, by the name of the rule."""
    texts = {name: condition for name, (_, condition) in SCORES.items()}
    texts[UNKNOWN_RULE] = "the records do not name their rule, as those of earlier versions"
    return "Scoring: " + "; ".join(f"{name}: {texts.get(name, name)}" for name in scoring_rules(grid)) + "."


def cautions(grid: Grid) -> list[str]:
    """Return what else the numbers of a task measure than the judgment or the order, [] for nothing."""
    return [*_one_place(grid), *label_cautions(_records(grid), _changed(grid))]


def _records(grid: Grid) -> list[Record]:
    """Return the records of one method in the orders over which examples are averaged."""
    pairs = zip(grid.columns[grid.methods[0]], grid.averaged, strict=True)
    return [column[name] for column, names in pairs for name in names]


def _changed(grid: Grid) -> list[str]:
    """Return the methods whose answer changes with the orders."""
    changes = [(method, grid.get(method, metric, "changed")) for method in grid.methods for metric in METRICS]
    return list(dict.fromkeys(method for method, one in changes if one and one.mean))


def _one_place(grid: Grid) -> Iterator[str]:
    """Yield a sentence if one slot, or one letter, is right for all examples of a task with letters."""
    records = [record for record in _records(grid) if record.answers]
    if not TASKS[grid.task].has_letters or len({record.example for record in records}) < 2:
        return
    letters = set.intersection(*({*record.answers} - {TIE} for record in records))
    slots = set.intersection(*map(_accepted_slots, records))
    if not letters and not slots:
        return
    sizes = {record.num_documents for record in records}
    orders = "as-is,swapped" if sizes == {2} else "all" if max(sizes) <= MAX_FOR_ALL else "as-is,reversed"
    slot = min(slots, default=None)
    place = f"has always the letter {min(letters)}" if slot is None else f"is always in slot {slot + 1}"
    place = "is always first" if slot == 0 else place
    said = min(letters) if letters else "the answer there"
    nouns = TASKS[grid.task].nouns
    yield (
        f"The {nouns.gold} {place}: the accuracy measures the preference for this place alone, and a "
        f"{nouns.reader} that always names {said} has 100 %. Use --orders {orders}."
    )


def _accepted_slots(record: Record) -> set[int]:
    """Return the slots of the answers that are accepted."""
    letters = [document_letter(place) for place in record.permutation]
    return {slot for slot, letter in enumerate(letters) if letter in record.answers}


def label_cautions(records: Iterable[Record], changed: Sequence[str]) -> Iterator[str]:
    """Yield why the answer of an order-invariant method changes, if labels move with the documents.

    changed: methods whose answer changes.
    """
    by_example: dict[str, dict[str, Record]] = {}
    for record in records:
        by_example.setdefault(record.example, {})[record.order_name] = record
    methods = [method_label(name) for name in changed if is_order_invariant(name)]
    moved = dict.fromkeys(
        name
        for orders in by_example.values()
        for name, record in orders.items()
        if TASKS[record.task].has_labels and list(record.input_order) != sorted(record.input_order)
    )
    if not methods or not moved:
        return
    is_pair = all(one.num_documents == 2 for orders in by_example.values() for one in orders.values())
    advice = "To move the documents alone, use --orders as-is,segments-swapped"
    advice += "" if is_pair else ", which is for two documents"
    tasks = {TASKS[one.task].without_letters for orders in by_example.values() for one in orders.values()}
    advice += "".join(f", or --task {name}, which has no labels" for name in sorted(tasks - {""}))
    yield (
        f"Under {', '.join(moved)} the labels change with the slots, so that each document has another text. "
        f"So {' and '.join(methods)} can answer differently, without an effect of the order. {advice}."
    )
