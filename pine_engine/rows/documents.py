"""Documents: the parts of a prompt that may change places, from any form in which libraries have them."""

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from pine_engine.errors import InputError
from pine_engine.input_validation import as_str, as_tuple_of, describe, sequence
from pine_engine.reprs import short_repr
from pine_engine.rows.document_keys import TEXT_NAMES, flat_keys, is_null
from pine_engine.rows.parse_errors import (
    MAX_KEYS,
    ValidationErrors,
    format_validation_errors,
    invalid,
    name_keys,
    unexpected,
)
from pine_engine.rows.untrusted_json import ListInput


@dataclass(frozen=True)
class Document:
    """One interchangeable document.

    Args:
        text: Text of the document.
        title: Title; may be empty.
        metadata: Other facts about the document, such as its source. They are not in the prompt, and two
            documents that differ in nothing else are equal.
        score: Relevance of the document to the question by a retriever, the larger the better; None if it is
            unknown. Default: a finite number in one of `SCORE_NAMES` of the metadata. It is not in the prompt
            either, and does not make documents different.

    Raises:
        InputError: Text or title is not text, or the score is no finite number.
    """

    text: str
    title: str = ""
    metadata: Annotated[Mapping[str, Any], Field(exclude=True)] = field(
        default_factory=dict, compare=False, repr=False
    )
    score: Annotated[float | None, Field(exclude_if=lambda score: score is None)] = field(
        default=None, compare=False, repr=False
    )

    __repr__ = short_repr
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            message = f"the text of a document is {describe(self.text)}; give its text"
            raise InputError(message, field="text of a document")
        object.__setattr__(self, "title", as_str(self.title, "title of a document"))
        given = [self.metadata.get(name) for name in SCORE_NAMES] if self.score is None else [self.score]
        scores = [score for value in given if (score := _as_score(value)) is not None]
        if self.score is not None and not scores:
            message = f"the score of a document is {describe(self.score)}; give a finite number"
            raise InputError(message, field="score of a document")
        object.__setattr__(self, "score", scores[0] if scores else None)


DocumentLike = Any
"""A document, a text without title, {"text": ..., "title": ...}, or a document of another library.

Other keys become metadata; None and NaN are as absent. LangChain, LlamaIndex, haystack, their JSON, hits of
search engines, pairs of a document and its score, and rows of pandas or datasets are accepted.
"""

DOCUMENT_TYPES = (Document, str, Mapping)

SCORE_NAMES = ("score", "_score", "relevance_score")
"""Keys with the score of a document: of most retrievers, of Elasticsearch and of Cohere."""

DOCUMENT_FORM = f'a text or {{"text": ..., "title": ...}}, the text also as {" or ".join(TEXT_NAMES[1:])}'


def _document_fields(value: Any) -> Any:
    plain = {"text": value} if isinstance(value, str) else _plain_document(value)
    if isinstance(plain, Document) or (isinstance(plain, Mapping) and not is_null(plain.get("text"))):
        return plain
    if isinstance(value, Mapping):
        raise invalid(f"got {name_keys(value)} and no text, expected {DOCUMENT_FORM}")
    raise unexpected(value, DOCUMENT_FORM)


DocumentInput = Annotated[Document, BeforeValidator(_document_fields)]
"""Document in pydantic models, which accept each form of `DocumentLike`."""


def _with_scores(documents: Any) -> Any:
    """Return documents, with the negative of the number in LangChain's pairs if that is a distance.

    A vector store returns the best document first, with a similarity or a distance. Raises a validation error
    for numbers in neither order, which could be both.
    """
    numbers = [one[1] for one in documents if _is_pair(one)] if isinstance(documents, list | tuple) else []
    ascending = sorted(numbers)
    if numbers == ascending[::-1]:
        return documents
    if numbers == ascending:
        return [(one[0], -one[1]) if _is_pair(one) else one for one in documents]
    got = f"got {', '.join(f'{number:g}' for number in numbers[:MAX_KEYS])}, expected the best document first"
    problem = f"numbers of documents in no order can be scores or distances: {got}"
    raise invalid(f'{problem}; sort the pairs, or give each document a "score", the larger the better')


DocumentsInput = Annotated[ListInput[DocumentInput], BeforeValidator(_with_scores)]
"""List of documents in pydantic models."""

_ADAPTER = TypeAdapter(dict[str, DocumentsInput])


def as_documents(documents: DocumentLike | Iterable[DocumentLike]) -> list[Document]:
    """Return one or several documents as a list. Raises InputError for other types."""
    advice = 'give a text, a Document("text", "title"), or several of them'
    single = documents if isinstance(documents, list) else _plain_document(documents)
    items = None if isinstance(single, DOCUMENT_TYPES) else sequence(documents)
    try:
        plain = single if items is None else list(map(_plain_document, _with_scores(items)))
    except PydanticCustomError as error:
        raise InputError(error.message(), field="documents") from error
    found = as_tuple_of(plain, DOCUMENT_TYPES, "document", advice)
    try:
        return _ADAPTER.validate_python({"documents": found})["documents"]
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error)) from error


def _plain_document(value: Any) -> Any:
    """Return a row or a document of another library as fields of Document, other values as they are."""
    if isinstance(value, Document | str):
        return value
    if _is_pair(value):
        document, score = value
        plain = _plain_document(document)
        plain = {"text": plain} if isinstance(plain, str) else plain
        return _plain_document({**plain, "score": score}) if isinstance(plain, Mapping) else plain
    if isinstance(value, Mapping) or (hasattr(value, "keys") and not hasattr(value, "columns")):
        fields = dict(value)  # a row of pandas too, and a column, which has no name of a text
    else:
        fields = {name: text for name in TEXT_NAMES if isinstance(text := getattr(value, name, None), str)}
        if fields:
            fields |= {name: getattr(value, name, None) for name in ("metadata", "meta", "score")}
    fields = flat_keys(fields)
    if "text" not in fields:
        return value
    plain = {name: fields.pop(name) for name in ("text", "title") if name in fields}
    return plain | {"metadata": fields}


def _is_pair(value: Any) -> bool:
    """Check whether a value is a document and a number, of LangChain's similarity_search_with_score."""
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[1], Real)


def _as_score(value: Any) -> float | None:
    """Return a number, also as text, as a finite float; None for other values."""
    if isinstance(value, bool) or not isinstance(value, Real | str):
        return None
    with suppress(ValueError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


HALF_CHARACTER = "has half of a surrogate pair, which is no character; remove it"


def has_surrogates(text: str) -> bool:
    """Check whether a text has a half of a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
