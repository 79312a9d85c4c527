"""JSON from outside: objects with few keys, and lists whose validation ends at the first invalid item.

By default, pydantic creates an error for each invalid item or unknown key: 1 MB of them takes seconds and
hundreds of megabytes.
"""

import json
from typing import Annotated, Any, TypeVar

from pydantic import FailFast

from pine_engine.errors import InputError

MAX_KEYS = 64  # keys of a JSON object; OpenAI's requests have about 40 fields
MAX_OBJECTS = 20_000  # objects of a text of JSON; 200 rows of 20 documents are 4,200

Item = TypeVar("Item")


class _FailFast(FailFast):
    """FailFast that can be hashed, as the union `ListInput[str] | None` requires."""

    __hash__ = object.__hash__


ListInput = Annotated[list[Item], _FailFast()]
"""List in a pydantic model."""

TupleInput = Annotated[tuple[Item, ...], _FailFast()]
"""Tuple of any length in a pydantic model."""


def load_json(text: str | bytes | bytearray, what: str = "body") -> Any:
    """Return the content of JSON.

    Raises InputError for other text, for an object with too many keys, and for too many objects.
    """
    num_objects = 0

    def as_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal num_objects
        num_objects += 1
        if num_objects > MAX_OBJECTS:
            raise InputError(f"invalid {what}: got over {MAX_OBJECTS:,} objects; send fewer")
        if len(pairs) > MAX_KEYS:
            count = f"got an object with {len(pairs):,} keys, expected up to {MAX_KEYS}"
            raise InputError(f"invalid {what}: {count}; remove unknown fields")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=as_object)
    except (ValueError, RecursionError) as error:
        raise InputError(f"invalid {what}: expected JSON") from error
