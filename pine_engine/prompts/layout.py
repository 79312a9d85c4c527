"""Token ids of a prompt by segment.

A physical index counts tokens from the start of the prompt. Positions, which RoPE uses, are in
methods/plan.py.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.errors import InputError
from pine_engine.input_validation import as_int, as_ints, describe, sequence
from pine_engine.prompts.prompt import Piece, Prompt, Segment, as_scores
from pine_engine.reprs import short_repr

IntArray = NDArray[np.int64]

TOKEN_IDS = 'token ids in one list, array or tensor, such as [5, 9, 60], or tokenizer(text)["input_ids"]'

PLACES = "the documents' places counted from 0, such as [2, 0, 1]"

GUARDS = ("\n", "a")
"""Texts after which a tokenizer adds no blank; the second is for texts that begin with newlines."""


@dataclass(frozen=True)
class TokenLayout:
    """Token ids of [ prefix | documents | suffix ] in input order.

    Args:
        prefix: Ids before the documents, in any sequence, array or tensor; may be empty.
        documents: Ids of each document, such as the rows of an array.
        suffix: Ids after the documents.
        task_length: Number of suffix tokens after the question, such as those of the assistant header. Only
            methods that repeat the question use it.
        scores: Score of each document by a retriever, None for a document without one; () if none has one.

    Raises:
        InputError: A value is no token id, there is no document, a document or the suffix is empty, the task
            is not a part of the suffix, or the scores are not one per document.
    """

    prefix: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...]
    suffix: tuple[int, ...]
    task_length: int = 1
    scores: tuple[float | None, ...] = dataclasses.field(default=(), repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        documents = sequence(self.documents)
        if not documents:
            message = f"the documents are {describe(self.documents)}; expected at least one, of {TOKEN_IDS}"
            raise InputError(message, field="documents")
        inputs = {"prefix": self.prefix, "suffix": self.suffix} | {
            f"document {index}": ids for index, ids in enumerate(documents, start=1)
        }
        segments = {label: as_ints(ids, label, TOKEN_IDS) for label, ids in inputs.items()}
        for name in ("prefix", "suffix"):
            object.__setattr__(self, name, segments.pop(name))
        object.__setattr__(self, "documents", tuple(segments.values()))
        for label, ids in (segments | {"suffix": self.suffix}).items():
            if not ids:
                raise InputError(f"{label} has no tokens; write some text or remove it", field=label)
        length = as_int(self.task_length, "task length", least=1, unit=" tokens")
        if length > len(self.suffix):
            message = f"invalid task length: got {length}, expected at most the suffix, {len(self.suffix)}"
            raise InputError(message, field="task_length")
        object.__setattr__(self, "task_length", length)
        object.__setattr__(self, "scores", as_scores(self.scores, len(self.documents)))

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.documents)

    @property
    def prefix_length(self) -> int:
        """Length of the prefix in tokens."""
        return len(self.prefix)

    @property
    def suffix_length(self) -> int:
        """Length of the suffix in tokens."""
        return len(self.suffix)

    @cached_property
    def lengths(self) -> IntArray:
        """Length of each document in tokens, (D,)."""
        return np.array([len(ids) for ids in self.documents], dtype=np.int64)

    @cached_property
    def document_starts(self) -> IntArray:
        """Physical index of the first token of each document, (D,)."""
        starts: IntArray = self.prefix_length + np.cumsum(self.lengths) - self.lengths
        return starts

    @cached_property
    def documents_end(self) -> int:
        """Physical index of the first suffix token."""
        return self.prefix_length + int(self.lengths.sum())

    @property
    def num_tokens(self) -> int:
        """Length of the prompt in tokens."""
        return self.documents_end + self.suffix_length

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """All token ids in physical order."""
        middle = tuple(token for ids in self.documents for token in ids)
        return self.prefix + middle + self.suffix

    def document_slice(self, index: int) -> slice:
        """Return the physical indices of the tokens of a document.

        Args:
            index: Slot of the document.
        """
        start = int(self.document_starts[index])
        return slice(start, start + len(self.documents[index]))

    def reorder(self, order: Sequence[int]) -> "TokenLayout":
        """Return the prompt with document order[0] first, order[1] second, ...

        Args:
            order: Permutation of the documents.

        Raises:
            InputError: The order is no permutation of the documents.
        """
        places = as_ints(order, "order", PLACES)
        if sorted(places) != list(range(self.num_documents)):
            message = f"order {list(places)} is not a permutation of {self.num_documents} documents"
            raise InputError(message, field="order")
        return self.select(places)

    def select(self, places: Sequence[int]) -> "TokenLayout":
        """Return the prompt with the documents of these places alone, in this order.

        Args:
            places: Indices of documents.
        """
        documents = tuple(self.documents[place] for place in places)
        scores = tuple(self.scores[place] for place in places) if self.scores else ()
        return dataclasses.replace(self, documents=documents, scores=scores)

    def extend(self, ids: Sequence[int]) -> "TokenLayout":
        """Return the layout with more tokens in the suffix.

        Args:
            ids: Token ids to append.
        """
        added = as_ints(ids, "ids", TOKEN_IDS)
        return dataclasses.replace(
            self, suffix=self.suffix + added, task_length=self.task_length + len(added)
        )

    def repeat_question(self) -> "TokenLayout":
        """Return the prompt with the question at the end of every document, and the task as the suffix."""
        question, task = self.suffix[: -self.task_length], self.suffix[-self.task_length :]
        return TokenLayout(self.prefix, tuple(ids + question for ids in self.documents), task, len(task))

    def check_vocabulary(self, size: int) -> None:
        """Raise InputError for the first id outside 0 .. size - 1.

        Args:
            size: Vocabulary size of the model.
        """
        check_vocabulary("prefix", self.prefix, size)
        for index, ids in enumerate(self.documents, start=1):
            check_vocabulary(f"document {index}", ids, size)
        check_vocabulary("suffix", self.suffix, size)


def check_vocabulary(label: str, ids: Sequence[int], size: int) -> None:
    """Raise InputError for the first id outside 0 .. size - 1."""
    for index, token in enumerate(ids):
        if not 0 <= token < size:
            message = f"{label} has the token id {token} at index {index}, expected 0 to {size - 1}"
            raise InputError(f"{message}; use the tokenizer of the model", field=label)


def tokenize(prompt: Prompt, tokenizer: Any) -> TokenLayout:
    """Encode each segment separately (specification 2), with BOS first if the tokenizer adds it."""
    encode = _SegmentEncoder(tokenizer)
    prefix = encode(prompt.prefix)
    bos = tokenizer.bos_token_id
    adds_bos = bos is not None and tokenizer("a")["input_ids"][:1] == [bos]
    if adds_bos and prefix[:1] != (bos,):
        prefix = (bos, *prefix)
    documents, suffix = tuple(map(encode, prompt.documents)), encode(prompt.suffix)
    # The task is the last piece of the suffix: what the chat template, or the cue, adds after the question.
    question = encode(prompt.suffix[:-1]) if len(prompt.suffix) > 1 else suffix[:-1]
    is_equal = [one == other for one, other in zip(question, suffix, strict=False)]
    num_question = min((*is_equal, False).index(False), len(suffix) - 1)
    return TokenLayout(prefix, documents, suffix, len(suffix) - num_question, prompt.scores)


def tokenize_text(text: str, tokenizer: Any) -> tuple[int, ...]:
    """Return the ids of a text in which nothing is a control token."""
    return _SegmentEncoder(tokenizer)((Piece(text),))


class _SegmentEncoder:
    """Encoder of segments: control tokens count in markup only, and no blank is added before the text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Some tokenizers have added tokens for runs of blanks, which control nothing.
        self._control_ids: dict[str, int] = {
            name: token_id for name, token_id in tokenizer.get_added_vocab().items() if len(name.strip()) > 1
        }
        names = sorted(self._control_ids, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, names))) if names else None
        # SentencePiece tokenizers of the Llama-2 type add a blank before each text.
        with_guard, guard = self._encode_raw(f"{GUARDS[0]}a"), self._encode_raw(GUARDS[0])
        self._needs_guard = self._encode_raw("a") != with_guard[len(guard) :]

    def __call__(self, segment: Segment) -> tuple[int, ...]:
        ids: list[int] = []
        data = ""
        for piece in segment:
            start = 0
            if piece.is_markup and self._control:
                for match in self._control.finditer(piece.text):
                    ids += self._encode_data(data + piece.text[start : match.start()])
                    ids.append(self._control_ids[match.group()])
                    data, start = "", match.end()
            data += piece.text[start:]
        return tuple(ids + self._encode_data(data))

    def _encode_data(self, text: str) -> list[int]:
        """Return ids of text in which nothing is a control token.

        The text is cut inside names of added tokens that split_special_tokens does not split.
        """
        if not text:
            return []
        if not self._control or not self._control.search(text):
            return self._encode_plain(text)
        matched = [
            re.escape(name)
            for name, token_id in self._control_ids.items()
            if name in text and token_id in self._encode_plain(name)
        ]
        # The lookahead also finds names that overlap.
        cuts = {found.start() + 1 for name in matched for found in re.finditer(f"(?={name})", text)}
        borders = [0, *sorted(cuts), len(text)]
        return [token for start, end in pairwise(borders) for token in self._encode_plain(text[start:end])]

    def _encode_plain(self, text: str) -> list[int]:
        """Return ids of text without a blank before it, by encoding it after a guard."""
        if not self._needs_guard:
            return self._encode_raw(text)
        for guard in GUARDS:
            front = self._encode_raw(guard)
            ids = self._encode_raw(guard + text)
            if ids[: len(front)] == front:
                return ids[len(front) :]
        raise InputError(f"the tokenizer joins the start of {text[:20]!r} with the text before it")

    def _encode_raw(self, text: str) -> list[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        ids: list[int] = encoded["input_ids"]
        return ids
