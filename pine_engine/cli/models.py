"""Subcommand `models`: models on this machine."""

import dataclasses

from pine_engine.cli.output import CommandResult
from pine_engine.models import listing


def models() -> CommandResult:
    """List the models on this machine: which can be loaded, and why others cannot."""
    found = [dataclasses.asdict(model) for model in listing.list_models()]
    return CommandResult({"models": found}, found)
