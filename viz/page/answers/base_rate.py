"""Shares of correct answers over unselected questions, recorded by `python -m tools.base_rate`."""

import json
from functools import cache
from typing import Any

from pine_engine.methods.table import METHODS
from viz.drawing.markup import render
from viz.page.answers.recordings import RECORDED

BASE_RATE_FILE = RECORDED / "base_rate.json"


@cache
def base_rate() -> dict[str, Any]:
    """Return the percentages of all methods, and the setting of the evaluation; see `tools/base_rate.py`."""
    rate: dict[str, Any] = json.loads(BASE_RATE_FILE.read_bytes())
    return rate


def base_rate_sentence(task: str) -> str:
    """Return one sentence on vanilla and PINE; "" for another task than that of the base rate."""
    rate = base_rate()
    if task != rate["task"]:
        return ""
    vanilla, pine = ({row["method"]: row for row in rate["methods"]}[name] for name in ("vanilla", "pine"))
    return (
        f"Of {rate['questions']} unselected questions, PINE answers {pine['always']:.0f}% correctly in all "
        f"orders, vanilla {vanilla['always']:.0f}%. Mean over the orders: PINE {pine['correct']:.0f}%, "
        f"vanilla {vanilla['correct']:.0f}%."
    )


def base_rate_html() -> str:
    """Render the answers to "Is PINE always right?" and "Why not just sort the documents?"."""
    labels = {name: method.label for name, method in METHODS.items()}
    return render("base_rate.html", rate=base_rate(), labels=labels)
