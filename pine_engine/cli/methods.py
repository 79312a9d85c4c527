"""The verb `methods`: what there is to choose from."""

from pathlib import Path
from typing import Annotated

import typer

from pine_engine.console import method_tables, terminal
from pine_engine.console.options import AsJson
from pine_engine.debias.measured import NAMING


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
                "what it does": row["description"],
                "documents see": row.get("sees"),
                "positions": row.get("positions"),
                "weight for the suffix": row.get("weight"),
                "order-invariant": row["invariance"],
                "cost": row["cost"],
                "source": row["source"],
            }
            for row in [*methods, *wrappers]
        ]
        terminal.print_report({"methods": methods, "wrappers": wrappers}, as_json, shown)
        if not as_json:
            print(NAMING)
