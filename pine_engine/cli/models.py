"""Subcommand `models`: models on this machine."""

import dataclasses

from pine_engine.cli import output
from pine_engine.cli.options import AsJson


def models(as_json: AsJson = False) -> None:
    """List the models on this machine: which can be loaded, and why others cannot.

    Args:
        as_json: Print JSON.
    """
    from pine_engine.models.listing import list_models

    found = [dataclasses.asdict(model) for model in list_models()]
    output.print_report({"models": found}, as_json, found)
