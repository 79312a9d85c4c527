"""Share of correct answers of each method over unselected questions, shown with the selected examples.

`python -m tools.base_rate` writes the file from an evaluation of the data set facts-3.
"""

from functools import cache
from pathlib import Path

from pydantic import BaseModel

from pine_engine.methods.table import METHODS
from viz.drawing.markup import render

BASE_RATE_FILE = Path(__file__).parents[3] / "assets" / "recorded" / "base_rate.json"


class MethodRate(BaseModel):
    """Percentages of one method over all questions and document orders."""

    method: str
    correct: float  # of all answers
    changes: float  # questions with more than one answer
    always: float  # questions with correct answers in all orders
    never: float  # questions with incorrect answers in all orders


class BaseRate(BaseModel):
    """Percentages of all methods, and the setting of the evaluation."""

    questions: int
    documents: int
    model: str
    dtype: str
    methods: list[MethodRate]
    sorted_vanilla: float  # correct answers of vanilla with the documents sorted by their text


@cache
def base_rate(file: Path = BASE_RATE_FILE) -> BaseRate:
    """Return the recorded percentages."""
    return BaseRate.model_validate_json(file.read_bytes())


def base_rate_sentence() -> str:
    """Return one sentence on vanilla and PINE."""
    rate = base_rate()
    correct = {row.method: row.correct for row in rate.methods}
    return (
        f"Over {rate.questions} unselected questions, vanilla is correct in {correct['vanilla']:.0f}% of "
        f"all orders and PINE in {correct['pine']:.0f}%; PINE never changes."
    )


def base_rate_html() -> str:
    """Render the answers to "Is PINE always right?" and "Why not just sort the documents?"."""
    rate = base_rate()
    rows = [
        (METHODS[row.method].label, (row.correct, row.changes, row.always, row.never)) for row in rate.methods
    ]
    return render("base_rate.html", rate=rate, rows=rows)
