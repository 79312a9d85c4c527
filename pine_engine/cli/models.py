"""The verb `models`: what can be loaded here."""

import dataclasses

from pine_engine.console import terminal
from pine_engine.console.options import AsJson


def show_models(as_json: AsJson = False) -> None:
    """List the models on this machine: which can be loaded, and why others cannot."""
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
    terminal.print_report({"models": [dataclasses.asdict(model) for model in found]}, as_json, rows)
