"""JSON that browsers, links and files send to the page."""

from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from pine_engine.errors import InputError
from pine_engine.rows.untrusted_json import load_json
from viz.page.common.failures import first_problem

Value = TypeVar("Value")


def read_json(
    schema: TypeAdapter[Value], text: str | bytes, problem: str, *, max_size: int, is_strict: bool = False
) -> Value:
    """Return JSON from outside as a value of a schema, whose lists are `ListInput` or `TupleInput`.

    `problem` begins the message of an error. `max_size`, in characters or bytes, is checked before the text
    is parsed. `is_strict` converts no types.

    Raises:
        InputError: The text is too long, or does not fit the schema.
    """
    if not isinstance(text, str | bytes):  # gradio accepts any value of a gr.HTML
        raise InputError(f"{problem}: expected JSON as text.")
    if len(text) > max_size:
        unit = "bytes" if isinstance(text, bytes) else "characters"
        raise InputError(f"{problem}: over {max_size:,} {unit}. Shorten it.")
    try:
        load_json(text, "JSON")
    except InputError as error:
        raise InputError(f"{problem}: {error}.") from error
    try:
        return schema.validate_json(text, strict=is_strict or None)
    except ValidationError as error:
        raise InputError(f"{problem}: {first_problem(error)}.") from error
