"""Options that several verbs of the command line share."""

from typing import Annotated

import typer

from pine_engine.methods import get_methods

Methods = Annotated[
    str | None, typer.Option(help="Methods, separated by commas, or all; the default ones if not given.")
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", envvar="PINE_MODEL", help="Hub id, folder or GGUF file; the embedded model by default."
    ),
]
AnyModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="PINE_MODEL",
        help="As elsewhere, or random:llama-8b or random:tiny: that shape with random weights.",
    ),
]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def method_names(methods: str | None) -> list[str]:
    """Names of the methods asked for; checked before anything heavy is loaded."""
    chosen = None if methods is None else [name.strip() for name in methods.split(",") if name.strip()]
    return [method.name for method in get_methods(chosen)]
