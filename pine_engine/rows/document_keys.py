"""Keys of documents in JSON: texts under several names, and objects in which text and facts are nested."""

from collections.abc import Mapping
from typing import Any

TEXT_NAMES = ("text", "page_content", "content", "contents")
"""Keys or attributes with the text: in datasets and LlamaIndex, LangChain, haystack, and Pyserini."""

NESTED_NAMES = (
    *("node", "kwargs", "_source", "payload", "entity", "document", "doc", "content", "data"),
    *("metadata", "meta"),
)
"""Keys of objects with the text or facts of a document: LlamaIndex, LangChain, hits of search engines."""


def is_null(value: Any) -> bool:
    """Check whether a value is None or NaN."""
    return value is None or (isinstance(value, float) and value != value)


def value_at(value: Any, path: str) -> Any:
    """Return the value at a path of keys, such as hits.hits; None without it."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def flat_keys(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a document and of the objects in it, without nulls, with its text under "text"."""
    if len(fields) == 1 and isinstance(inner := next(iter(fields.values())), Mapping):  # prompt flow
        fields = inner
    found = dict(fields)
    for name in NESTED_NAMES:
        inner = found.get(name)
        if isinstance(inner, list) and name == "content":  # OpenAI: a text in parts
            parts = [part.get("text") if isinstance(part, Mapping) else part for part in inner]
            texts = [part for part in parts if isinstance(part, str)]
            found[name] = "\n".join(texts) if len(texts) == len(parts) else inner
        elif isinstance(inner, Mapping):
            found = {**inner, **{key: value for key, value in found.items() if key != name}}
    found = {key: value for key, value in found.items() if not is_null(value)}
    names = (*TEXT_NAMES, *(["document"] if isinstance(found.get("document"), str) else []))
    text_name = next((name for name in names if name in found), None)
    return found if text_name is None else {"text": found.pop(text_name), **found}
