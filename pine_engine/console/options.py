"""Options that several verbs of the command line share."""

from typing import Annotated

import typer

from pine_engine.debias.measured import measured_methods
from pine_engine.errors import InputError
from pine_engine.methods.table import get_methods

Methods = Annotated[
    str | None, typer.Option(help="Methods, separated by commas, or all; the default ones if not given.")
]
MeasuredNames = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Methods, and wrappers around them such as permutation_full:vanilla, separated by commas; or "
        "all, for every method; the default ones if not given.",
    ),
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
Dtype = Annotated[
    str,
    typer.Option(
        help="float32, bfloat16, float16, 4bit (float32 with 4-bit weights for decode), or auto: the dtype "
        "of the stored weights if the processor has instructions for it, else float32; bfloat16 on a GPU."
    ),
]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...; auto or tp for a model larger than one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def method_names(methods: str | None) -> list[str]:
    """Names of the methods asked for; checked before anything heavy is loaded."""
    return [method.name for method in get_methods(_listed(methods))]


def measured_names(methods: str | None) -> list[str]:
    """Names of the methods and wrapped methods asked for, checked likewise."""
    return [method.name for method in measured_methods(_listed(methods))]


def as_ints(numbers: str, what: str) -> list[int]:
    """What is given as "2,5,10". what: of which numbers they are, for the sentence. Raises InputError."""
    try:
        return [int(number) for number in numbers.split(",")]
    except ValueError:
        raise InputError(
            f"the {what} {numbers!r} are not numbers; give whole numbers separated by commas, such as 2,5,10"
        ) from None


def _listed(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]
