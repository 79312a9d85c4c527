"""Prompts as text: the model's chat template, cut around the text of the user.

A segment is a tuple of pieces. Markup pieces come from the chat template and may contain control tokens; all
other pieces are data, in which nothing is a control token.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pine_engine.errors import InputError, ModelError
from pine_engine.input_validation import MAX_SHOWN, describe
from pine_engine.prompts.chat_templates import KWARGS, ChatTemplateKwargs, read_kwargs, render_chat_template
from pine_engine.prompts.messages import Message
from pine_engine.reprs import short_repr
from pine_engine.rows.documents import HALF_CHARACTER, has_surrogates

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
        scores: Score of each document by a retriever, None for a document without one; () if none has one.

    Raises:
        InputError: There is no document, a segment is not text, or the scores are not one per document.
    """

    prefix: Segment
    documents: tuple[Segment, ...] = ()
    suffix: Segment = ()
    scores: tuple[float | None, ...] = field(default=(), repr=False)

    __repr__ = short_repr

    if TYPE_CHECKING:

        def __init__(
            self,
            prefix: SegmentLike,
            documents: Sequence[SegmentLike],
            suffix: SegmentLike = (),
            scores: Sequence[float | None] = (),
        ) -> None: ...

    def __post_init__(self) -> None:
        documents = (self.documents,) if isinstance(self.documents, str) else self.documents
        if not isinstance(documents, list | tuple) or not documents:
            raise InputError(f"the documents are {describe(documents)}; {PROMPT_HINT}", field="documents")
        segments = tuple(_segment(each, f"document {index}") for index, each in enumerate(documents, start=1))
        object.__setattr__(self, "documents", segments)
        for name in ("prefix", "suffix"):
            object.__setattr__(self, name, _segment(getattr(self, name), name))
        object.__setattr__(self, "scores", as_scores(self.scores, len(segments)))


def as_scores(scores: Sequence[float | None], num_documents: int) -> tuple[float | None, ...]:
    """Return the score of each document, () if none has one. Raises InputError for another number of them."""
    if len(scores) not in (0, num_documents):
        message = f"scores do not fit: got {len(scores)}, expected one for each of {num_documents} documents"
        raise InputError(message, field="scores")
    return () if all(score is None for score in scores) else tuple(scores)


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


def segment_text(segment: Segment) -> str:
    """Return the segment as one string, markup included."""
    return "".join(piece.text for piece in segment)


def build_prompt(
    tokenizer: Any,
    *,
    prefix: str,
    documents: Sequence[str],
    suffix: str,
    scores: Sequence[float | None] = (),
    system: str = "",
    turns: Sequence[Message] = (),
    cue: str = CUE,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> Prompt:
    """Put the parts into the chat template of the model and cut it around the documents.

    `turns` are earlier messages. A template without a system role gets the system message at the beginning of
    the first user message. `cue` ends the prompt of a tokenizer (or an object that has one) without chat
    template, which can have no earlier messages. `chat_template_kwargs` are arguments of the chat template,
    `scores` those of the documents.
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if isinstance(tokenizer, str):
        message = f"the tokenizer is {describe(tokenizer)}; give the engine's own, engine.tokenizer"
        raise InputError(message, field="tokenizer")
    kwargs = read_kwargs(chat_template_kwargs)
    before, after = _template_around(tokenizer, system, turns, prefix, cue, kwargs)
    return Prompt(before, tuple((Piece(text),) for text in documents), (Piece(suffix), *after), scores)


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
