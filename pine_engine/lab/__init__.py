"""Evaluation, debiasing, datasets and molecules: what is built on the engine, and can be left out.

The core does not import this package. It asks for the names below (`pine_engine.additions`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pine_engine.lab.debias.measured import MeasuredMethod
    from pine_engine.lab.debias.wrappers import Wrapper

SUBCOMMANDS = {
    **{
        name: f"pine_engine.lab.cli.{name}"
        for name in ("compare", "debias", "evaluate", "report", "molecules")
    },
    "download-data": "pine_engine.lab.cli.download_data",
    "reproduce-paper": "pine_engine.lab.cli.report",
}
"""Module of each subcommand, a function of this name; `compare` replaces that of the core."""


def wrappers() -> "tuple[tuple[Wrapper, ...], str]":
    """Return the debiasing wrappers, and an explanation of their names."""
    from pine_engine.lab.debias.wrappers import DEBIASERS, NAMING

    return tuple(DEBIASERS.values()), NAMING


def find_measured(name: str) -> "MeasuredMethod | None":
    """Return a method with or without a wrapper, None for an unknown name."""
    from pine_engine.lab.debias.measured import find_measured

    return find_measured(name)


def paper_models() -> dict[str, list[str]]:
    """Return the tasks for which the paper has results, by hub id of its models."""
    from pine_engine.lab.evaluation.report.published import published, tasks_of_model

    return {model["hub_id"]: tasks_of_model(model["hub_id"]) for model in published("models")}
