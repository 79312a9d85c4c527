"""Functions of the API calls as gradio and MCP clients see them, from the models of their arguments."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import gradio as gr
from pydantic import BaseModel, ValidationError

from pine_engine.methods.table import METHODS
from pine_engine.rows.parse_errors import MAX_SHOWN, format_validation_errors
from viz.page.api.arguments import Host, Question

if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]  # an enum of the schema


class TitledDocument(TypedDict, total=False):
    """Document in the API schema, where gradio has no other way to mark the title as optional."""

    text: str
    title: str


SCHEMA_TYPES: dict[str, Any] = {"documents": list[str | TitledDocument], "methods": list[MethodName] | None}
"""Types of the fields of a `Question` in the schema of gradio, which does not describe the others."""


def api_function(
    compute: Callable[[Host, Any], dict[str, Any]], arguments: type[BaseModel], host: Host
) -> Callable[..., dict[str, Any]]:
    """Return the function of a call: its parameters are the fields of a model, which checks them.

    Its docstring, from which gradio and MCP take descriptions, is that of `compute` with the descriptions of
    the fields. It raises gr.Error that names invalid arguments.
    """
    # Clients also give arguments by position.
    fields = sorted(arguments.model_fields.items(), key=lambda item: item[0] == "chat_template_kwargs")
    types = {name: field.annotation for name, field in fields} | {
        name: shown for name, shown in SCHEMA_TYPES.items() if issubclass(arguments, Question)
    }
    signature = inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if field.is_required() else field.default,
                annotation=types[name],
            )
            for name, field in fields
        ],
        return_annotation=dict[str, Any],
    )

    def call(*values: Any, **named: Any) -> dict[str, Any]:
        try:
            request = arguments.model_validate(signature.bind(*values, **named).arguments)
        except ValidationError as error:
            problems = format_validation_errors(error, as_json=True)[:MAX_SHOWN]
            raise gr.Error(f"Invalid argument {'; '.join(map(str, problems))}.") from error
        return compute(host, request)

    about, returns, result = (inspect.getdoc(compute) or "").partition("\n\nReturns:")
    described = "".join(f"\n    {name}: {field.description}" for name, field in fields)
    call.__name__ = call.__qualname__ = compute.__name__
    call.__doc__ = f"{about}\n\nArgs:{described}{returns}{result}"
    call.__annotations__ = types | {"return": dict[str, Any]}
    vars(call)["__signature__"] = signature
    return call
