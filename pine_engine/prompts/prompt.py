"""Text: a prompt in three parts, the model's chat template cut around what the user wrote.

A segment is a tuple of pieces. Markup pieces come from the chat template and may hold control
tokens; all other pieces are the user's data and are never read as control tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import as_str, as_tuple_of, describe
from pine_engine.prompts.chat_template import render_chat_template
from pine_engine.reprs import short_repr

# Private-use characters that stand for the user's text while the chat template is rendered.
_SYSTEM_SLOT = "\ue000"
_USER_SLOT = "\ue001"

CUE = "\nAnswer:"
"""Ends the prompt of a tokenizer without chat template: what follows is the answer."""


@dataclass(frozen=True)
class Piece:
    """A run of text; is_markup says whether control tokens in it count as such."""

    text: str
    is_markup: bool = False

    __repr__ = short_repr


Segment = tuple[Piece, ...]

PROMPT_HINT = (
    "documents must be told apart from what stands around them: give engine.run question and documents, each "
    "by its name, make a prompt of text with "
    'TASKS["retrieval_qa"].prompt(engine.tokenizer, documents=["...", "..."], question="..."), or one of '
    "token ids with TokenLayout(prefix, documents, suffix)"
)


@dataclass(frozen=True)
class Prompt:
    """What the model reads: [ prefix | document 1 | ... | document k | suffix ], all text.

    A segment may be given as a text, which is data: markup, in which control tokens count, comes in pieces.
    """

    prefix: Segment
    documents: tuple[Segment, ...] = ()
    suffix: Segment = ()

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Raises InputError for no document, and for what is no text or not made of characters."""
        given = (self.documents,) if isinstance(self.documents, str) else self.documents
        if not isinstance(given, list | tuple):
            raise InputError(f"the documents are {describe(given)}; {PROMPT_HINT}")
        if not given:
            raise InputError(f"the prompt has no documents; {PROMPT_HINT}")
        documents = tuple(_segment(each, f"document {index + 1}") for index, each in enumerate(given))
        object.__setattr__(self, "documents", documents)
        for name in ("prefix", "suffix"):
            segment = _segment(getattr(self, name), "the text around the documents")
            object.__setattr__(self, name, segment)


@dataclass(frozen=True)
class Document:
    """One interchangeable document as the user gave it; the title may be empty."""

    text: str
    title: str = ""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Raises InputError for what is no text."""
        if not isinstance(self.text, str):
            raise InputError(f"the text of a document is {describe(self.text)}; give its text")
        object.__setattr__(self, "title", as_str(self.title, "title of a document"))


DocumentLike = Document | str | Mapping[str, str]
"""A document, a text without title, or {"text": ..., "title": ...} as files have it."""


def as_documents(given: DocumentLike | Iterable[DocumentLike]) -> tuple[Document, ...]:
    """Documents, several or a single one. Raises InputError for anything else."""
    advice = 'give a text, a Document("text", "title"), or several of them'
    several = as_tuple_of(given, (Document, str, Mapping), "document", advice, least=0)
    return tuple(_as_document(each, f"document {place + 1}") for place, each in enumerate(several))


def _as_document(document: DocumentLike, label: str) -> Document:
    """Return one document. Raises InputError for a mapping with other fields or without a text."""
    if isinstance(document, Document):
        return document
    fields = {"text": document} if isinstance(document, str) else document
    if "text" not in fields or set(fields) - {"text", "title"}:
        raise InputError(
            f"{label} has the wrong fields: got {', '.join(map(str, fields))}, expected text and optionally "
            'title. Rename or select them, such as table[["title", "text"]].'
        )
    if not isinstance(fields["text"], str):
        raise InputError(
            f"{label} has no text: got {describe(fields['text'])}, expected a string. Fill in its text or "
            "remove the document."
        )
    return Document(**fields)


def _segment(given: Any, what: str) -> Segment:
    """A segment given as a text, a piece, or several of them. Raises InputError as Prompt does."""
    pieces = given if isinstance(given, list | tuple) else (given,)
    for piece in pieces:
        if not isinstance(piece, Piece | str):
            raise InputError(f"{what} holds {describe(piece)}, which is no text; {PROMPT_HINT}")
    segment = tuple(Piece(piece) if isinstance(piece, str) else piece for piece in pieces)
    _check_characters(segment_text(segment), what)
    return segment


def segment_text(segment: Segment) -> str:
    """The segment as one string, markup included."""
    return "".join(piece.text for piece in segment)


def build_prompt(
    tokenizer: Any,
    *,
    prefix: str,
    documents: Sequence[str],
    suffix: str,
    system: str = "",
    cue: str = CUE,
) -> Prompt:
    """Puts the user's parts into the model's chat template and cuts it around the documents.

    prefix: text before the documents, such as the instruction. suffix: text after them, such as
    the question. system: system message; where a template has none, it opens the user's message.
    A tokenizer without chat template gets the parts as they are, and then the cue; a suffix that
    asks for the answer itself needs none.
    Raises InputError if there is no document, one of them is empty, or a text is not made of characters, and
    for the name of a tokenizer in its place; ModelError if the template cannot be rendered.
    """
    if not documents:
        raise InputError("there are no documents; give at least one")
    for index, text in enumerate(documents):
        if not text.strip():
            raise InputError(f"document {index + 1} is empty; write some text or remove it")
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if isinstance(tokenizer, str):
        raise InputError(f"the tokenizer is {describe(tokenizer)}; give the engine's own, engine.tokenizer")
    before, after = _template_around(tokenizer, system, prefix, cue)
    return Prompt(
        prefix=before,
        documents=tuple((Piece(text),) for text in documents),
        suffix=(Piece(suffix), *after),
    )


def _check_characters(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} holds half of a surrogate pair ({text[error.start]!a}), which is no character; remove it"
        ) from error


def _template_around(tokenizer: Any, system: str, prefix: str, cue: str) -> tuple[Segment, Segment]:
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
        # Templates such as Gemma's refuse the system role, others leave it out; its text then opens the
        # user's message.
        prefix = f"{system}\n\n{prefix}"
        rendered = render_chat_template(tokenizer, [user])
    head, _, tail = rendered.partition(_USER_SLOT)
    opening, slot, middle = head.partition(_SYSTEM_SLOT)
    return _pieces(
        Piece(opening, is_markup=True),
        Piece(system if slot else ""),
        Piece(middle, is_markup=True),
        Piece(prefix),
    ), _pieces(Piece(tail, is_markup=True))


def _pieces(*pieces: Piece) -> Segment:
    return tuple(piece for piece in pieces if piece.text)
