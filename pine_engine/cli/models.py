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

    found = list_models()
    rows = [
        {
            "name": model.name,
            "from": model.origin,
            "family": model.family or None,
            "size": f"{model.size_bytes / 1e6:,.0f} MB",
            "context, tokens": model.context,
            "loads": "yes" if model.supported else f"no: {model.reason}",
        }
        for model in found
    ]
    output.print_report({"models": [dataclasses.asdict(model) for model in found]}, as_json, rows)
