"""The recommended action: it follows from the interval of changed answers and the measured methods."""

from collections.abc import Callable, Sequence

import pytest

from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.report.recommendation import recommendations
from tests.support.records import run_info, swept
from tests.support.report_runs import runs_of

Rule = Callable[[int, int], bool]
"""True if the answer to an example is right with the gold document in a slot."""


def stable(number: int, slot: int) -> bool:
    return number % 2 == 0


def changing(number: int, slot: int) -> bool:
    return slot == 0 if number % 3 == 0 else number % 2 == 0


def wrong(number: int, slot: int) -> bool:
    return False


def records(
    rules: dict[str, Rule], count: int, slots: Sequence[int] = (0, 1), num_documents: int = 2
) -> list[Record]:
    return [
        swept(
            f"q-{n:03}",
            method,
            slot,
            k=num_documents,
            score=float(is_right(n, slot)),
            text="ab"[is_right(n, slot)],
        )
        for n in range(count)
        for method, is_right in rules.items()
        for slot in slots
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (records({"vanilla": stable}, 100), "keep Vanilla"),
        (records({"vanilla": stable}, 20), "measure about 73 examples"),
        (records({"vanilla": lambda _, slot: slot == 0}, 5), "measure 10 examples"),
        (records({"vanilla": changing}, 100, slots=[0]), "measure another order"),
        (records({"vanilla": changing}, 100, slots=[0], num_documents=1), "measure examples of two"),
        (records({"vanilla": changing}, 100), "measure an order-invariant method"),
        (records({"vanilla": changing, "pine": changing}, 100), "report the mean over orders"),
        (records({"vanilla": changing, "pine": stable}, 100), "use PINE"),
        (records({"vanilla": changing, "pine": wrong}, 100), "report the mean over orders of Vanilla"),
        ([one.model_copy(update={"parsed": None}) for one in records({"vanilla": stable}, 20)], "change the"),
    ],
)
def test_action_follows_from_the_interval(found: list[Record], expected: str) -> None:
    info = run_info(task="retrieval_qa")
    (run,) = runs_of({"run": (info, found)})
    (sentence,) = recommendations(run)
    assert sentence.startswith(f"Recommended: {expected}")
