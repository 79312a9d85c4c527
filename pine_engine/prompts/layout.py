"""Tokens: the ids of a prompt, and which segment and offset each token has.

An offset counts tokens from the start of a segment; a physical index counts them from the start of
the prompt. Positions, which RoPE sees, belong to plan.py.
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
from pine_engine.input_validation import as_ints, describe, sequence
from pine_engine.prompts.prompt import Piece, Prompt, Segment
from pine_engine.reprs import short_repr

IntArray = NDArray[np.int64]

TOKEN_IDS = (
    'token ids, whole numbers in one list, array or tensor, such as [5, 9, 60]; tokenizer(text)["input_ids"] '
    "gives those of a text"
)

PLACES = "the documents' places counted from 0, such as [2, 0, 1]"

GUARDS = ("\n", "a")
"""Texts behind which a tokenizer puts no blank; the second for texts that start with newlines, which may
join into one token with the first."""


@dataclass(frozen=True)
class TokenLayout:
    """Token ids of [ prefix | documents | suffix ], in input order; the prefix may be empty.

    Each segment may be given as any sequence of whole numbers (a list, a numpy array, a torch tensor), the
    documents as a sequence of these, such as the rows of an array; they are kept as tuples of int.
    """

    prefix: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...]
    suffix: tuple[int, ...]

    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Raises InputError for what is no token id, no document, one without tokens, or an empty suffix."""
        documents = sequence(self.documents)
        if documents is None:
            raise InputError(
                f"the documents are {describe(self.documents)}; expected a list of documents, each made of "
                f"{TOKEN_IDS}"
            )
        segments = {
            "prefix": as_ints(self.prefix, "the prefix", TOKEN_IDS),
            "documents": tuple(
                as_ints(ids, f"document {index + 1}", TOKEN_IDS) for index, ids in enumerate(documents)
            ),
            "suffix": as_ints(self.suffix, "the suffix", TOKEN_IDS),
        }
        for name, ids in segments.items():
            object.__setattr__(self, name, ids)
        if not self.documents:
            raise InputError("there are no documents; give at least one")
        for index, ids in enumerate(self.documents):
            if not ids:
                raise InputError(f"document {index + 1} has no tokens; write some text or remove it")
        if not self.suffix:
            raise InputError("nothing follows the documents; give a question")

    @property
    def num_documents(self) -> int:
        """Number of documents, k."""
        return len(self.documents)

    @property
    def prefix_length(self) -> int:
        """Length of the prefix in tokens, S."""
        return len(self.prefix)

    @property
    def suffix_length(self) -> int:
        """Length of the suffix in tokens, T."""
        return len(self.suffix)

    @cached_property
    def lengths(self) -> IntArray:
        """Length of each document in tokens, (D,)."""
        return np.array([len(ids) for ids in self.documents], dtype=np.int64)

    @cached_property
    def document_starts(self) -> IntArray:
        """Physical index of each document's first token, (D,)."""
        starts: IntArray = self.prefix_length + np.cumsum(self.lengths) - self.lengths
        return starts

    @cached_property
    def documents_end(self) -> int:
        """Physical index of the first suffix token, E."""
        return self.prefix_length + int(self.lengths.sum())

    @property
    def num_tokens(self) -> int:
        """Length of the whole prompt in tokens, n."""
        return self.documents_end + self.suffix_length

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """All token ids in physical order, (n,)."""
        middle = tuple(token for ids in self.documents for token in ids)
        return self.prefix + middle + self.suffix

    def document_slice(self, index: int) -> slice:
        """Physical indices of one document's tokens."""
        start = int(self.document_starts[index])
        return slice(start, start + len(self.documents[index]))

    def reorder(self, order: Sequence[int]) -> "TokenLayout":
        """The same prompt with document order[0] first, order[1] second, ...

        Raises InputError if order is not a permutation of the documents.
        """
        places = as_ints(order, "the order", PLACES)
        if sorted(places) != list(range(self.num_documents)):
            raise InputError(f"order {list(places)} is not a permutation of {self.num_documents} documents")
        return dataclasses.replace(self, documents=tuple(self.documents[d] for d in places))

    def extend(self, ids: Sequence[int]) -> "TokenLayout":
        """The layout after more tokens were appended to the suffix."""
        return dataclasses.replace(self, suffix=self.suffix + as_ints(ids, "what is appended", TOKEN_IDS))

    def check_vocabulary(self, size: int) -> None:
        """Raises InputError that names the first id outside 0 .. size - 1, and where it stands."""
        check_vocabulary("the prefix", self.prefix, size)
        for index, ids in enumerate(self.documents):
            check_vocabulary(f"document {index + 1}", ids, size)
        check_vocabulary("the suffix", self.suffix, size)


def check_vocabulary(what: str, ids: Sequence[int], size: int) -> None:
    """Raises InputError that names the first id outside 0 .. size - 1, and where in `what` it stands."""
    if not ids or (min(ids) >= 0 and max(ids) < size):
        return
    place = next(place for place, token in enumerate(ids) if not 0 <= token < size)
    raise InputError(
        f"{what} holds the token id {ids[place]} at place {place}, but the vocabulary of the model has "
        f"{size} tokens, 0 to {size - 1}; use the model's own tokenizer"
    )


def tokenize(prompt: Prompt, tokenizer: Any) -> TokenLayout:
    """Encodes each segment on its own (specification 2); BOS, if the model wants one, opens the prefix once.

    Raises InputError if a document has no tokens.
    """
    encode = _SegmentEncoder(tokenizer)
    prefix = encode(prompt.prefix)
    bos = tokenizer.bos_token_id
    adds_bos = bos is not None and tokenizer("a")["input_ids"][:1] == [bos]
    if adds_bos and prefix[:1] != (bos,):
        prefix = (bos, *prefix)
    return TokenLayout(prefix, tuple(map(encode, prompt.documents)), encode(prompt.suffix))


def tokenize_text(text: str, tokenizer: Any) -> tuple[int, ...]:
    """Ids of a text that is data: nothing in it counts as a control token."""
    return _SegmentEncoder(tokenizer)((Piece(text),))


class _SegmentEncoder:
    """Encodes segments: control tokens count in markup only, and no dummy blank is put in front."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Runs of blanks, which some tokenizers add as tokens of their own, control nothing.
        self._control_ids: dict[str, int] = {
            name: token_id for name, token_id in tokenizer.get_added_vocab().items() if len(name.strip()) > 1
        }
        names = sorted(self._control_ids, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, names))) if names else None
        # SentencePiece tokenizers of the Llama-2 type put a blank in front of every text they are given.
        guard = GUARDS[0]
        self._needs_guard = (
            self._encode_raw("a") != self._encode_raw(f"{guard}a")[len(self._encode_raw(guard)) :]
        )

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
        """Ids of text in which nothing counts as a control token.

        Tokens that were added without being marked special are matched even with
        split_special_tokens; the text is cut inside each so that none can be.
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
        # Looking ahead finds those that overlap, too.
        cuts = {found.start() + 1 for name in matched for found in re.finditer(f"(?={name})", text)}
        borders = [0, *sorted(cuts), len(text)]
        return [token for start, end in pairwise(borders) for token in self._encode_plain(text[start:end])]

    def _encode_plain(self, text: str) -> list[int]:
        """Ids of text without a blank in front: it is encoded behind a guard, whose tokens are dropped."""
        if not self._needs_guard:
            return self._encode_raw(text)
        for guard in GUARDS:
            front = self._encode_raw(guard)
            ids = self._encode_raw(guard + text)
            if ids[: len(front)] == front:
                return ids[len(front) :]
        raise InputError(f"the tokenizer joins the start of {text[:20]!r} with whatever stands before it")

    def _encode_raw(self, text: str) -> list[int]:
        encoded = self._tokenizer(text, add_special_tokens=False, split_special_tokens=True)
        ids: list[int] = encoded["input_ids"]
        return ids


def moved_order(num_documents: int, document: int, slot: int) -> tuple[int, ...]:
    """The order with that document in that slot, the others as they were around it."""
    others = [index for index in range(num_documents) if index != document]
    return (*others[:slot], document, *others[slot:])
