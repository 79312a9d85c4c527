"""Prompts as text: the model's chat template, cut around the text of the user.

A segment is a tuple of pieces. Markup pieces come from the chat template and may contain control tokens; all
other pieces are data, in which nothing is a control token.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_str, as_tuple_of, describe
from pine_engine.prompts.chat_template import render_chat_template
from pine_engine.prompts.parse_errors import ValidationErrors, format_validation_errors
from pine_engine.reprs import short_repr

# Private-use characters in place of the user's text while the chat template is rendered.
_SYSTEM_SLOT = "\ue000"
_USER_SLOT = "\ue001"

CUE = "\nAnswer:"  # end of the prompt for a tokenizer without chat template: what follows is the answer


@dataclass(frozen=True)
class Piece:
    """A run of text; in markup, control tokens count as such."""

    text: str
    is_markup: bool = False

    __repr__ = short_repr


Segment = tuple[Piece, ...]

PROMPT_HINT = (
    "documents must be separate from the text around them: give question=... and documents=[...], a Prompt "
    'of TASKS["retrieval_qa"].prompt(...), or TokenLayout(prefix, documents, suffix)'
)


@dataclass(frozen=True)
class Prompt:
    """The text of a prompt: [ prefix | document 1 | ... | document k | suffix ].

    Args:
        prefix: Text before the documents. In each argument, a string is data; only pieces can be markup.
        documents: One segment per document.
        suffix: Text after the documents.

    Raises:
        InputError: There is no document, or a segment is not text.
    """

    prefix: Segment
    documents: tuple[Segment, ...] = ()
    suffix: Segment = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        documents = (self.documents,) if isinstance(self.documents, str) else self.documents
        if not isinstance(documents, list | tuple) or not documents:
            raise InputError(f"the documents are {describe(documents)}; {PROMPT_HINT}", field="documents")
        segments = tuple(_segment(each, f"document {index}") for index, each in enumerate(documents, start=1))
        object.__setattr__(self, "documents", segments)
        for name in ("prefix", "suffix"):
            object.__setattr__(self, name, _segment(getattr(self, name), name))


@dataclass(frozen=True)
class Document:
    """One interchangeable document.

    Args:
        text: Text of the document.
        title: Title; may be empty.

    Raises:
        InputError: An argument is not text.
    """

    text: str
    title: str = ""

    __repr__ = short_repr
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            message = f"the text of a document is {describe(self.text)}; give its text"
            raise InputError(message, field="text of a document")
        object.__setattr__(self, "title", as_str(self.title, "title of a document"))


DocumentLike = Document | str | Mapping[str, str]
"""A document, a text without title, or {"text": ..., "title": ...}."""


def unexpected(value: Any, expected: str) -> PydanticCustomError:
    """Return the error that a validator raises for a value of another form."""
    message = f"got {describe(value)}, expected {expected}"
    return PydanticCustomError("unexpected", "{message}", {"message": message})


def _document_fields(value: Any) -> Any:
    if isinstance(value, str):
        return {"text": value}
    if isinstance(value, Mapping):  # a table has None where a title is missing
        return {key: field for key, field in value.items() if key != "title" or field is not None}
    if isinstance(value, Document):
        return value
    raise unexpected(value, 'a text or {"text": ..., "title": ...}')


DocumentInput = Annotated[Document, BeforeValidator(_document_fields)]
"""Document in pydantic models, which accept each form of `DocumentLike`."""

_ADAPTER = TypeAdapter(dict[str, list[DocumentInput]])


def as_documents(documents: DocumentLike | Iterable[DocumentLike]) -> list[Document]:
    """Return one or several documents as a list. Raises InputError for other types."""
    advice = 'give a text, a Document("text", "title"), or several of them'
    found = as_tuple_of(documents, (Document, str, Mapping), "document", advice)
    try:
        return _ADAPTER.validate_python({"documents": found})["documents"]
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error)) from error


def _segment(value: Any, label: str) -> Segment:
    """Return a segment from a text, a piece, or several of them. Raises InputError for other types."""
    pieces = value if isinstance(value, list | tuple) else (value,)
    for piece in pieces:
        if not isinstance(piece, Piece | str):
            message = f"the {label} holds {describe(piece)}, which is no text; {PROMPT_HINT}"
            raise InputError(message, field=label)
    segment = tuple(Piece(piece) if isinstance(piece, str) else piece for piece in pieces)
    try:
        segment_text(segment).encode()
    except UnicodeEncodeError as error:
        message = f"the {label} has half of a surrogate pair, which is no character; remove it"
        raise InputError(message, field=label) from error
    return segment


def segment_text(segment: Segment) -> str:
    """Return the segment as one string, markup included."""
    return "".join(piece.text for piece in segment)


def build_prompt(
    tokenizer: Any, *, prefix: str, documents: Sequence[str], suffix: str, system: str = "", cue: str = CUE
) -> Prompt:
    """Put the parts into the chat template of the model and cut it around the documents.

    A template without a system role gets the system message at the beginning of the user message. `cue` ends
    the prompt of a tokenizer (or an object that has one) without chat template.
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if isinstance(tokenizer, str):
        message = f"the tokenizer is {describe(tokenizer)}; give the engine's own, engine.tokenizer"
        raise InputError(message, field="tokenizer")
    before, after = _template_around(tokenizer, system, prefix, cue)
    return Prompt(before, tuple((Piece(text),) for text in documents), (Piece(suffix), *after))


def _template_around(tokenizer: Any, system: str, prefix: str, cue: str) -> tuple[Segment, Segment]:
    """Return the pieces before the documents and after the suffix."""
    if not getattr(tokenizer, "chat_template", None):
        opening = f"{system}\n\n" if system else ""
        return _pieces(Piece(opening + prefix)), _pieces(Piece(cue))
    user = {"role": "user", "content": _USER_SLOT}
    messages = [{"role": "system", "content": _SYSTEM_SLOT}, user] if system else [user]
    try:
        rendered = render_chat_template(tokenizer, messages)
    except ModelError:
        if not system:
            raise
        rendered = ""
    if system and _SYSTEM_SLOT not in rendered:
        # Templates such as Gemma's refuse the system role, others leave it out.
        prefix = f"{system}\n\n{prefix}"
        rendered = render_chat_template(tokenizer, [user])
    head, _, tail = rendered.partition(_USER_SLOT)
    opening, slot, middle = head.partition(_SYSTEM_SLOT)
    data = Piece(system if slot else "")
    before = Piece(opening, is_markup=True), data, Piece(middle, is_markup=True), Piece(prefix)
    return _pieces(*before), _pieces(Piece(tail, is_markup=True))


def _pieces(*pieces: Piece) -> Segment:
    return tuple(piece for piece in pieces if piece.text)
