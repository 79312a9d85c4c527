"""Options of several subcommands, and the help texts of all options, from docstrings."""

import inspect
import re
from collections.abc import Callable
from copy import copy
from typing import Annotated, get_args

import typer

from pine_engine.debias.table import measured_methods
from pine_engine.errors import InputError
from pine_engine.methods.table import get_methods

Positive = Annotated[int, typer.Option(min=1)]
Limit = Annotated[int | None, typer.Option(min=1)]
"""A maximum, or None for no maximum."""

Methods = Annotated[
    str | None,
    typer.Option(help="Methods, separated by commas, or all. Default: vanilla, nia, pcw and pine."),
]
MeasuredNames = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Methods, and wrappers around methods such as permutation_full:vanilla, separated by commas; "
        "or all for every method. Default: vanilla, nia, pcw and pine.",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model", envvar="PINE_MODEL", help="Hub id, folder or GGUF file. Default: the embedded model."
    ),
]
AnyModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        envvar="PINE_MODEL",
        help="Hub id, folder, GGUF file, or random:SHAPE for random weights, such as random:tiny or "
        "random:llama-8b. Default: the embedded model.",
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        help="float32, bfloat16, float16, 4bit (float32 with 4-bit weights for decode), or auto: the dtype "
        "of the stored weights if the processor has instructions for it, else float32; bfloat16 on a GPU."
    ),
]
Device = Annotated[
    str, typer.Option(help="cpu, cuda, ...; for a model larger than one GPU: auto (layers) or tp (tensors).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def add_subcommand(app: typer.Typer, function: Callable[..., None]) -> None:
    """Add a subcommand whose help is the docstring: its description, and an entry of `Args:` per option.

    A parameter without a default is an argument. A boolean option is a flag.
    """
    description, _, entries = inspect.cleandoc(function.__doc__ or "").partition("\n\nArgs:\n")
    texts = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)", entries, re.MULTILINE))
    for key, parameter in inspect.signature(function).parameters.items():
        is_annotated = hasattr(parameter.annotation, "__metadata__")
        hint, *infos = get_args(parameter.annotation) if is_annotated else (parameter.annotation,)
        if infos:
            info = copy(infos[0])
        elif parameter.default is parameter.empty:
            info = typer.Argument()
        else:
            info = typer.Option(*([f"--{key.replace('_', '-')}"] if hint is bool else []))
        info.help = info.help or " ".join(texts[key].split())
        function.__annotations__[key] = Annotated[hint, info]
    app.command(help=description)(function)


def method_names(methods: str | None) -> list[str]:
    """Return the names of methods separated by commas, checked before a model is loaded."""
    return [method.name for method in get_methods(split_names(methods))]


def measured_names(methods: str | None) -> list[str]:
    """Return the names of methods and wrapped methods separated by commas, checked likewise."""
    return [method.name for method in measured_methods(split_names(methods))]


def split_names(names: str | None) -> list[str] | None:
    """Return names separated by commas, without spaces; None for None."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def parse_numbers(numbers: str, label: str) -> list[int]:
    """Return whole numbers separated by commas.

    Raises:
        InputError: A part is no whole number.
    """
    try:
        return [int(number) for number in numbers.split(",")]
    except ValueError:
        raise InputError(
            f"invalid {label}: got {numbers!r}, expected whole numbers separated by commas, such as 2,5,10"
        ) from None
