"""Prompts as text: the model's chat template, cut around the text of the user.

A segment is a tuple of pieces. Markup pieces come from the chat template and may contain control tokens; all
other pieces are data, in which nothing is a control token.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import MAX_SHOWN, as_str, as_tuple_of, describe, sequence
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs, read_kwargs, render_chat_template
from pine_engine.prompts.messages import Message
from pine_engine.prompts.parse_errors import (
    ValidationErrors,
    format_validation_errors,
    invalid,
    name_keys,
    unexpected,
)
from pine_engine.prompts.published_rows import TEXT_NAMES, is_null
from pine_engine.prompts.untrusted_json import ListInput
from pine_engine.reprs import short_repr

_FIRST_SLOT = 0xE000  # private-use characters replace the messages while the chat template is rendered

CUE = "\nAnswer:"  # end of the prompt for a tokenizer without chat template: what follows is the answer


@dataclass(frozen=True)
class Piece:
    """A run of text; in markup, control tokens count as such."""

    text: str
    is_markup: bool = False

    __repr__ = short_repr


Segment = tuple[Piece, ...]

SegmentLike = str | Piece | Sequence[str | Piece]
"""A segment, or texts and pieces that become one."""

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

    if TYPE_CHECKING:

        def __init__(
            self, prefix: SegmentLike, documents: Sequence[SegmentLike], suffix: SegmentLike = ()
        ) -> None: ...

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
        metadata: Other facts about the document, such as its source. They are not in the prompt, and two
            documents that differ in nothing else are equal.

    Raises:
        InputError: Text or title is not text.
    """

    text: str
    title: str = ""
    metadata: Annotated[Mapping[str, Any], Field(exclude=True)] = field(
        default_factory=dict, compare=False, repr=False
    )

    __repr__ = short_repr
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            message = f"the text of a document is {describe(self.text)}; give its text"
            raise InputError(message, field="text of a document")
        object.__setattr__(self, "title", as_str(self.title, "title of a document"))


DocumentLike = Any
"""A document, a text without title, {"text": ..., "title": ...}, or a document of another library.

Other keys become metadata; None and NaN are as absent. LangChain, LlamaIndex, haystack, their JSON, hits of
search engines, and rows of pandas or datasets are accepted.
"""

DOCUMENT_TYPES = (Document, str, Mapping)

_NESTED_NAMES = ("node", "kwargs", "_source", "payload", "metadata", "meta")
"""Keys of objects with the text or facts of a document: LlamaIndex, LangChain, hits of search engines."""

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

_ADAPTER = TypeAdapter(dict[str, ListInput[DocumentInput]])


def as_documents(documents: DocumentLike | Iterable[DocumentLike]) -> list[Document]:
    """Return one or several documents as a list. Raises InputError for other types."""
    advice = 'give a text, a Document("text", "title"), or several of them'
    single = _plain_document(documents)
    items = None if isinstance(single, DOCUMENT_TYPES) else sequence(documents)
    plain = single if items is None else list(map(_plain_document, items))
    found = as_tuple_of(plain, DOCUMENT_TYPES, "document", advice)
    try:
        return _ADAPTER.validate_python({"documents": found})["documents"]
    except ValidationError as error:
        raise ValidationErrors(format_validation_errors(error)) from error


def _plain_document(value: Any) -> Any:
    """Return a row or a document of another library as fields of Document, other values as they are."""
    if isinstance(value, Document | str):
        return value
    if isinstance(value, Mapping) or (hasattr(value, "keys") and not hasattr(value, "columns")):
        fields = dict(value)  # a row of pandas too, and a column, which has no name of a text
    else:
        fields = {name: text for name in TEXT_NAMES if isinstance(text := getattr(value, name, None), str)}
        if fields:
            fields |= {name: getattr(value, name, None) for name in ("metadata", "meta", "score")}
    for name in _NESTED_NAMES:
        if isinstance(inner := fields.get(name), Mapping):
            fields = {**inner, **{key: field for key, field in fields.items() if key != name}}
    fields = {key: field for key, field in fields.items() if not is_null(field)}
    text_name = next((name for name in TEXT_NAMES if name in fields), None)
    if text_name is None:
        return value
    plain = {"text": fields.pop(text_name)}
    if "title" in fields:
        plain["title"] = fields.pop("title")
    return plain | {"metadata": fields}


def _segment(value: Any, label: str) -> Segment:
    """Return a segment from a text, a piece, or several of them. Raises InputError for other types."""
    pieces = value if isinstance(value, list | tuple) else (value,)
    for piece in pieces:
        if not isinstance(piece, Piece | str):
            message = f"the {label} holds {describe(piece)}, which is no text; {PROMPT_HINT}"
            raise InputError(message, field=label)
    segment = tuple(Piece(piece) if isinstance(piece, str) else piece for piece in pieces)
    if has_surrogates(segment_text(segment)):
        raise InputError(f"the {label} {HALF_CHARACTER}", field=label)
    return segment


HALF_CHARACTER = "has half of a surrogate pair, which is no character; remove it"


def has_surrogates(text: str) -> bool:
    """Check whether a text has a half of a surrogate pair, which no encoding has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def segment_text(segment: Segment) -> str:
    """Return the segment as one string, markup included."""
    return "".join(piece.text for piece in segment)


def build_prompt(
    tokenizer: Any,
    *,
    prefix: str,
    documents: Sequence[str],
    suffix: str,
    system: str = "",
    turns: Sequence[Message] = (),
    cue: str = CUE,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> Prompt:
    """Put the parts into the chat template of the model and cut it around the documents.

    `turns` are earlier messages. A template without a system role gets the system message at the beginning of
    the first user message. `cue` ends the prompt of a tokenizer (or an object that has one) without chat
    template, which can have no earlier messages. `chat_template_kwargs` are arguments of the chat template.
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if isinstance(tokenizer, str):
        message = f"the tokenizer is {describe(tokenizer)}; give the engine's own, engine.tokenizer"
        raise InputError(message, field="tokenizer")
    kwargs = read_kwargs(chat_template_kwargs)
    before, after = _template_around(tokenizer, system, turns, prefix, cue, kwargs)
    return Prompt(before, tuple((Piece(text),) for text in documents), (Piece(suffix), *after))


def _template_around(
    tokenizer: Any, system: str, turns: Sequence[Message], prefix: str, cue: str, kwargs: ChatTemplateKwargs
) -> tuple[Segment, Segment]:
    """Return the pieces before the documents and after the suffix."""
    if not getattr(tokenizer, "chat_template", None):
        for value, field, what in ((turns, "messages", "earlier messages"), (kwargs, KWARGS, KWARGS)):
            if value:
                advice = f"set engine.tokenizer.chat_template, or give a question without {what}"
                raise InputError(f"this prompt has no chat template for {what}; {advice}", field=field)
        opening = f"{system}\n\n" if system else ""
        return _pieces(Piece(opening + prefix)), _pieces(Piece(cue))
    messages = [*turns, Message("user", prefix)]
    if system:
        with_system = [Message("system", system), *messages]
        try:
            rendered = _render_slots(tokenizer, with_system, kwargs)
        except ModelError:
            rendered = ""
        if chr(_FIRST_SLOT) in rendered:
            return _cut(rendered, with_system)
        # Templates such as Gemma's refuse the system role, others leave it out.
        first = next(index for index, message in enumerate(messages) if message.role == "user")
        messages[first] = Message("user", f"{system}\n\n{messages[first].content}")
    return _cut(_render_slots(tokenizer, messages, kwargs), messages)


def _render_slots(tokenizer: Any, messages: Sequence[Message], kwargs: ChatTemplateKwargs) -> str:
    """Return the chat template with one private-use character in place of the text of each message.

    A template that fails with texts or leaves one out gets lists of parts, as those of models with images.
    """
    slots = [chr(_FIRST_SLOT + index) for index in range(len(messages))]

    def render(contents: Sequence[Any]) -> str:
        pairs = zip(messages, contents, strict=True)
        chat = [{"role": message.role, "content": content} for message, content in pairs]
        return render_chat_template(tokenizer, chat, kwargs)

    rendered, error = "", None
    try:
        rendered = render(slots)
        if all(slot in rendered for slot in slots):
            return rendered
    except ModelError as raised:
        error = raised
    with suppress(ModelError):
        in_parts = render([[{"type": "text", "text": slot}] for slot in slots])
        if all(slot in in_parts for slot in slots):
            return in_parts
    if error:
        raise error
    return rendered


def _cut(rendered: str, messages: Sequence[Message]) -> tuple[Segment, Segment]:
    """Return the pieces up to the last message, which is included, and those after it."""
    slots = [chr(_FIRST_SLOT + index) for index in range(len(messages))]
    if missing := [index for index, slot in enumerate(slots) if slot not in rendered]:
        message = messages[missing[0]]
        reason = f"the chat template leaves out messages, such as {message.content[:MAX_SHOWN]!r}"
        raise InputError(f"{reason}; use another model, or fewer messages", field="messages")
    texts = dict(zip(slots, (message.content for message in messages), strict=True))
    pieces = [
        Piece(texts[part]) if part in texts else Piece(part, is_markup=True)
        for part in re.split(f"([{slots[0]}-{slots[-1]}])", rendered)
    ]
    end = 2 * [part for part in rendered if part in texts].index(slots[-1]) + 2
    return _pieces(*pieces[:end]), _pieces(*pieces[end:])


def _pieces(*pieces: Piece) -> Segment:
    return tuple(piece for piece in pieces if piece.text)
