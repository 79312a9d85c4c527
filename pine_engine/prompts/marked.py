"""Documents marked in a text, for programs that send one text: <document>...</document>."""

import re
from collections.abc import Mapping
from itertools import cycle
from typing import Any

from pine_engine.errors import InputError
from pine_engine.prompts.layout import TokenLayout
from pine_engine.prompts.messages import Chat
from pine_engine.prompts.prompt import Piece, Prompt, build_prompt

MARK = re.compile(r"</?document>")
PAIR = ("<document>", "</document>")


def split_documents(text: str, *, ignores_earlier: bool = False) -> tuple[str, list[str], str] | None:
    """Return the text before the marked documents, these, and the text after them; None without documents.

    White space between two documents belongs to the first of them. Documents before other text are those of
    earlier examples: with `ignores_earlier`, they are text before the documents. Raises InputError for them
    otherwise, and for a mark without its counterpart.
    """
    # A pattern of both marks would search the rest of the text for each mark without a counterpart.
    prefix, *parts = MARK.split(text)
    marks = MARK.findall(text)
    if PAIR[0] not in marks or PAIR[1] not in marks[marks.index(PAIR[0]) :]:
        return None
    unpaired = [mark for mark, expected in zip(marks, cycle(PAIR), strict=False) if mark != expected]
    if unpaired or len(marks) % 2:
        advice = "mark each document as <document>...</document>"
        raise InputError(f"{[*unpaired, PAIR[0]][0]} has no counterpart; {advice}", field="documents")
    documents, gaps = parts[::2], parts[1::2]
    first = max((index + 1 for index, gap in enumerate(gaps[:-1]) if gap.strip()), default=0)
    if first and not ignores_earlier:
        gap = gaps[first - 1].strip()
        message = f"there is text between documents: got {gap[:40]!r}, expected white space"
        raise InputError(f"{message}; move it into a document, or before or after all", field="documents")
    earlier = zip(documents[:first], gaps[:first], strict=True)
    prefix += "".join(document + gap for document, gap in earlier)
    last = [document + gap for document, gap in zip(documents[first:-1], gaps[first:-1], strict=True)]
    return prefix, [*last, documents[-1]], gaps[-1]


def chat_prompt(
    tokenizer: Any,
    chat: Chat,
    *,
    ignores_earlier: bool = False,
    chat_template_kwargs: Mapping[str, Any] | None = None,
) -> tuple[Prompt, int]:
    """Return the prompt of a chat, and the number of documents marked in its question, 0 for a plain one.

    A plain question is one document, under which every method equals vanilla. Raises InputError.
    """
    marked = split_documents(chat.question, ignores_earlier=ignores_earlier)
    prefix, documents, suffix = marked or ("", [chat.question], "")
    prompt = build_prompt(
        tokenizer,
        prefix=prefix,
        documents=documents,
        suffix=suffix,
        system=chat.system,
        turns=chat.turns,
        chat_template_kwargs=chat_template_kwargs,
    )
    return prompt, len(documents) if marked else 0


def tokenize_marked(engine: Any, text: str, *, ignores_earlier: bool = False) -> tuple[TokenLayout, int]:
    """Return the tokens of a text, and the number of marked documents, 0 for a plain text.

    The layout of a plain text has one document, under which every method equals vanilla. Raises InputError.
    """
    if marked := split_documents(text, ignores_earlier=ignores_earlier):
        prefix, documents, suffix = marked
        segments = tuple((Piece(document),) for document in documents)
        prompt = Prompt((Piece(prefix),), segments, (Piece(suffix),))
        return engine.tokenize(prompt), len(segments)
    ids = tokenize_plain(engine, text)
    if len(ids) < 2:
        raise InputError(f"prompt is too short: got {text!r:.60}, expected 2 tokens or more", field="prompt")
    return TokenLayout((), (ids[:-1],), ids[-1:]), 0  # all but the last token are one document


def tokenize_plain(engine: Any, text: str) -> tuple[int, ...]:
    """Return the tokens of a text without documents, none for an empty text."""
    if not text:
        return ()
    # The text is one document, and the letter after it the suffix, which each layout has.
    whole = engine.tokenize(Prompt((), ((Piece(text),),), (Piece("a"),)))
    ids: tuple[int, ...] = whole.prefix + whole.documents[0]
    return ids
