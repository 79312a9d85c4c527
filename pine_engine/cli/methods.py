"""The verbs `methods` and `models`: what there is."""

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.console import method_tables, terminal
from pine_engine.console.options import AsJson
from pine_engine.debias.measured import NAMING
from pine_engine.models.listing import list_models


def list_methods(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the tables of docs/methods.md.")
    ] = False,
    into: Annotated[
        Path | None, typer.Option(help="Write the tables into this file, between its markers.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print every method and wrapper: what it does, whether it promises invariance, cost, source."""
    if into is not None:
        method_tables.write_into(into)
    elif markdown:
        print(method_tables.markdown(), end="")
    else:
        methods, wrappers = method_tables.method_rows(), method_tables.wrapper_rows()
        shown = [
            {
                "name": row["name"],
                "what it does": row["meaning"],
                "documents see": row.get("sees"),
                "positions": row.get("positions"),
                "weight": row.get("weight"),
                "invariant": row["promise"],
                "cost": row["cost"],
                "source": row["source"],
            }
            for row in [*methods, *wrappers]
        ]
        terminal.print_report({"methods": methods, "wrappers": wrappers}, as_json, shown)
        if not as_json:
            print(NAMING)


def show_models(as_json: AsJson = False) -> None:
    """List the models on this machine: which can be loaded, and why others cannot."""
    found = list_models()
    rows = [
        {
            "name": model.name,
            "from": model.origin,
            "family": model.family or None,
            "size": f"{model.size_bytes / 1e6:,.0f} MB",
            "context": model.context,
            "loads": "yes" if model.supported else f"no: {model.reason}",
        }
        for model in found
    ]
    terminal.print_report({"models": [dataclasses.asdict(model) for model in found]}, as_json, rows)
