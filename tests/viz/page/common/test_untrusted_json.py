"""JSON from outside: no list of a model of page and server creates an error for each invalid item."""

import base64
import gc
import importlib
import inspect
import json
import pkgutil
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, FailFast, Field, TypeAdapter, ValidationError
from pydantic_core import SchemaValidator
from pydantic_settings import BaseSettings

import pine_engine.invariance.certificate
import pine_engine.prompts
import pine_engine.server
import viz.page
from pine_engine.errors import InputError
from pine_engine.invariance.certificate import Certificate
from pine_engine.prompts.examples import Example
from pine_engine.rows.untrusted_json import MAX_KEYS, ListInput, TupleInput
from viz.page.api import results
from viz.page.api.calls import all_calls
from viz.page.form.documents import MAX_JSON_CHARACTERS, read_entries
from viz.page.internals.view import new_picks
from viz.page.session import MAX_LINK_CHARACTERS, from_code, from_draft

NUM_WRONG = 1_000
COLLECTIONS = ("list", "tuple", "set", "frozenset")
MAX_TIMES = 20  # times the time of parsing the JSON alone
USUAL_S = 0.5  # on a busy machine; an error for each item took seconds


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def untrusted_schemas() -> dict[str, Any]:
    """Core schemas of models and adapters of page and server, and of the arguments of the API, by name."""
    found: dict[str, Any] = {"Certificate": Certificate, "Example": Example}
    for module in (*modules_of(viz.page), *modules_of(pine_engine.server), *modules_of(pine_engine.prompts)):
        for name, value in vars(module).items():
            is_model = (
                inspect.isclass(value)
                and issubclass(value, BaseModel)
                and value.__module__ == module.__name__
            )
            if (is_model and not issubclass(value, BaseSettings)) or isinstance(value, TypeAdapter):
                found[f"{module.__name__}.{name}"] = value
    written = {name for name in found if name.startswith(f"{results.__name__}.")}  # by the page only
    schemas = {name: schema_of(value) for name, value in found.items() if name not in written}
    return schemas | {f"/{call.__name__}": schema_of(arguments) for call, arguments in all_calls()}


def schema_of(value: Any) -> Any:
    return value.core_schema if isinstance(value, TypeAdapter) else value.__pydantic_core_schema__


def collections_in(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each collection of a schema with its path."""
    if isinstance(schema, Mapping):
        if schema.get("type") in COLLECTIONS:
            yield path, schema
        for key, inner in schema.items():
            if key not in ("metadata", "serialization"):
                yield from collections_in(inner, f"{path}.{key}")
    elif isinstance(schema, list | tuple):
        for place, inner in enumerate(schema):
            yield from collections_in(inner, f"{path}.{place}")


def num_errors(validator: SchemaValidator, items: list[Any]) -> int:
    try:
        validator.validate_python(items)
    except ValidationError as error:
        return error.error_count()
    return 0


def is_unbounded(schema: Any, definitions: list[Any]) -> bool:
    """Check whether a collection creates more errors for many invalid items than for one."""
    validator = SchemaValidator({"type": "definitions", "schema": schema, "definitions": definitions})
    items: tuple[Any, ...] = (None, True, 0.5, "", {}, [{}])
    for item in items:
        if (num := num_errors(validator, [item])) and num_errors(validator, [item] * NUM_WRONG) > num:
            return True
    return False


def unbounded_in(schema: Any) -> list[str]:
    """Return the paths of collections that do not end at the first invalid item."""
    definitions = schema.get("definitions", []) if schema["type"] == "definitions" else []
    return [path for path, one in collections_in(schema) if is_unbounded(one, definitions)]


def test_lists_from_outside_end_at_first_invalid_item() -> None:
    schemas = untrusted_schemas()
    assert len(schemas) > 30 and {"/compare", "/measure"} <= schemas.keys()
    assert sum(1 for schema in schemas.values() for _ in collections_in(schema)) > 40
    assert {name: paths for name, schema in schemas.items() if (paths := unbounded_in(schema))} == {}


@pytest.mark.parametrize(
    ("kind", "is_bounded"),
    [
        (list[int], False),
        (Annotated[tuple[int, ...], Field(max_length=20)], False),
        (dict[str, list[int] | None], False),
        (ListInput[int], True),
        (TupleInput[TupleInput[int]], True),
        (Annotated[set[int], FailFast()], True),
    ],
)
def test_check_of_lists_finds_unbounded_ones(kind: Any, is_bounded: bool) -> None:
    assert bool(unbounded_in(TypeAdapter(kind).core_schema)) is not is_bounded


def session_json(**fields: Any) -> str:
    return json.dumps({"task": "retrieval_qa", "methods": [], "max_new_tokens": 8, "documents": []} | fields)


def linked(text: str) -> str:
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


@pytest.fixture
def no_collection() -> Iterator[None]:
    """No collection of garbage, whose time grows with the objects of all tests before."""
    gc.disable()
    yield
    gc.enable()


MANY = [0] * 300_000
CERTIFICATE = {"format": "pine-explorer certificate", "version": 2}
RESULTS = {"orders": MANY, "answers": []}
ANSWERS = {"method": "pine", "texts": ["x"], "origins": MANY}


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_entries, json.dumps(MANY)),
        (lambda text: new_picks(text, 0), json.dumps(MANY[:20_000])),
        (from_draft, session_json(documents=MANY)),
        (from_draft, session_json(methods=MANY)),
        (from_draft, session_json(orders=MANY)),
        (from_draft, session_json(results=RESULTS)),
        (from_draft, session_json(results={"orders": [[0]], "answers": [ANSWERS]})),
        (from_draft, json.dumps(CERTIFICATE | {"orders": MANY})),
        (lambda text: from_code(linked(text)), session_json(documents=MANY)),
        (from_draft, session_json(**{f"k{number}": 0 for number in range(60_000)})),
        (from_draft, session_json(selection={f"k{number}": [] for number in range(60_000)})),
        (read_entries, json.dumps([{f"k{number}": 0 for number in range(60_000)}])),
    ],
)  # fmt: skip
def test_wrong_json_takes_the_time_of_parsing(
    read: Callable[[str], Any], text: str, no_collection: None
) -> None:
    began = time.thread_time()
    json.loads(text)
    parsed = time.thread_time()
    with pytest.raises(InputError) as raised:
        read(text)
    assert time.thread_time() - parsed < max(MAX_TIMES * (parsed - began), USUAL_S)
    assert len(str(raised.value)) < 300


def test_object_with_too_many_keys_is_refused() -> None:
    for number, is_refused in ((MAX_KEYS, False), (MAX_KEYS + 1, True)):
        with pytest.raises(InputError) as raised:
            read_entries(json.dumps([{f"k{key}": 0 for key in range(number)}]))
        assert ("keys" in str(raised.value)) is is_refused


def test_text_too_long_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("parsed"))
    for read, text in (
        (read_entries, " " * (MAX_JSON_CHARACTERS + 1)),
        (lambda text: new_picks(text, 0), " " * 200_000),
        (from_draft, " " * 1_000_001),
        (from_code, "A" * (MAX_LINK_CHARACTERS + 1)),
    ):
        with pytest.raises(InputError):
            read(text)


@pytest.mark.parametrize("value", [[], {}, 1, None, True])
def test_documents_that_are_no_text_are_refused(value: Any) -> None:
    with pytest.raises(InputError):
        read_entries(value)
