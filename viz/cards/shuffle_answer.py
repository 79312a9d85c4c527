"""What stands behind a cell of a shuffle: that answer, with what it changes of the first row's."""

from collections.abc import Sequence

from viz.drawing.identity import Segment, document_segment
from viz.drawing.markup import render
from viz.figures.change import word_diff
from viz.figures.shuffle import ShuffleColumn, ShuffleRow


def shuffle_answer(column: ShuffleColumn, row: ShuffleRow, first: ShuffleRow) -> str:
    """HTML: one method's answer in one order beside that in the first, with the words that differ marked."""
    cell, reference = row.cells[column.method], first.cells[column.method]
    before, after = word_diff(reference.text, cell.text)
    answers = [("in the first row", _documents(first), before), ("here", _documents(row), after)]
    return render(
        "shuffle_answer.html",
        label=column.label,
        cell=cell,
        is_reference=row is first,
        answers=answers[row is first :],
    )


def _documents(row: ShuffleRow) -> Sequence[Segment]:
    return [document_segment(index, slot) for slot, index in enumerate(row.order)]
