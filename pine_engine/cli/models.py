"""Subcommand `models`: models on this machine."""

import dataclasses

from pine_engine.cli import output
from pine_engine.cli.options import AsJson
from pine_engine.models import listing


def models(as_json: AsJson = False) -> None:
    """List the models on this machine: which can be loaded, and why others cannot.

    Args:
        as_json: Print JSON.
    """
    found = [dataclasses.asdict(model) for model in listing.list_models()]
    output.print_report({"models": found}, as_json, found)
