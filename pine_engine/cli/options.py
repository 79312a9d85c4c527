"""Options of the subcommands: their types, their help texts from docstrings, and lists in options."""

import dataclasses
import inspect
import re
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.errors import InputError
from pine_engine.methods.table import get_methods

Positive = Annotated[int, typer.Option(min=1)]
OutputDir = Annotated[Path, typer.Option(file_okay=False)]
Limit = Annotated[int | None, typer.Option(min=1)]  # a maximum, or None for no maximum

Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods, separated by commas, or all. Default: vanilla, nia, pcw and pine; vanilla and "
        "reorder_content for a model whose attention cannot be replaced."
    ),
]
TemplateKwargs = Annotated[
    str | None,
    typer.Option(help='Arguments of the chat template as JSON, such as {"enable_thinking": false}.'),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Column of the data for a field, such as question=prompt; repeatable. Fields: question, "
        "documents, answers, document1, document2, ..., and text for the key of a document's text.",
    ),
]
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


@dataclasses.dataclass(frozen=True)
class ModelOptions:
    """Options of the subcommands that load a model.

    Attributes:
        model: Hub id, folder or GGUF file; in `bench` and `verify --self-test` also random:SHAPE for random
            weights, such as random:tiny or random:llama-8b. Default: the embedded model.
        dtype: float32, bfloat16, float16, 4bit (float32 with 4-bit weights for decode), or auto: the dtype of
            the stored weights if the processor has instructions for it, else float32; bfloat16 on a GPU.
        device: cpu, cuda, ...; for a model larger than one GPU: auto (layers) or tp (tensors).
    """

    model: Annotated[str | None, typer.Option(envvar="PINE_MODEL")] = None
    dtype: str = "auto"
    device: str = "cpu"

    def load(self, *, needs_tokenizer: bool = False) -> "pine.Engine":
        """Load the engine."""
        return output.load(self.model, self.dtype, self.device, needs_tokenizer=needs_tokenizer)


def as_command(function: Callable[..., output.CommandResult]) -> Callable[..., None]:
    """Return a typer command that prints the result of a function, with the option --json added.

    Its help is the docstring. A parameter without a default is an argument, a boolean option is a flag, and a
    dataclass as the type of a parameter is replaced by one option per field.
    """
    parameters = _parameters(function)
    parameters.append(inspect.Parameter("as_json", KEYWORD_ONLY, default=False, annotation=AsJson))
    hints = function.__annotations__.items()
    groups: dict[str, Any] = {key: hint for key, hint in hints if dataclasses.is_dataclass(hint)}

    def run(*, as_json: bool, **options: Any) -> None:
        for key, group in groups.items():
            names = [field.name for field in dataclasses.fields(group)]
            options[key] = group(**{name: options.pop(name) for name in names})
        output.print_result(function(**options), as_json=as_json)

    run.__name__ = function.__name__
    run.__doc__ = (inspect.getdoc(function) or "").partition("\n\nArgs:\n")[0]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameters(documented: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function or dataclass as options with help."""
    _, _, entries = (inspect.getdoc(documented) or "").partition(
        "\n\nAttributes:\n" if dataclasses.is_dataclass(documented) else "\n\nArgs:\n"
    )
    texts = dict(re.findall(r"^    (\w+): (.+(?:\n     .+)*)", entries, re.MULTILINE))
    parameters: list[inspect.Parameter] = []
    for key, parameter in inspect.signature(documented).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            parameters += _parameters(parameter.annotation)
            continue
        is_annotated = hasattr(parameter.annotation, "__metadata__")
        hint, *infos = get_args(parameter.annotation) if is_annotated else (parameter.annotation,)
        if infos:
            info = copy(infos[0])
        elif parameter.default is parameter.empty:
            info = typer.Argument()
        else:
            info = typer.Option(*([f"--{key.replace('_', '-')}"] if hint is bool else []))
        info.help = info.help or " ".join(texts[key].split())
        parameters.append(parameter.replace(kind=KEYWORD_ONLY, annotation=Annotated[hint, info]))
    return parameters


def method_names(methods: str | None) -> list[str] | None:
    """Return the names of methods separated by commas, checked before a model is loaded; None for None."""
    return None if methods is None else [method.name for method in get_methods(split_names(methods))]


def split_names(names: str | None) -> list[str] | None:
    """Return names separated by commas, without spaces; None for None."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def parse_numbers(numbers: str, label: str) -> list[int]:
    """Return positive whole numbers separated by commas, or raise InputError."""
    parts = [part.strip() for part in numbers.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        expected = "whole numbers from 1 on, separated by commas, such as 2,5,10"
        raise InputError(f"invalid {label}: got {numbers!r}, expected {expected}", field=label)
    return list(map(int, parts))
