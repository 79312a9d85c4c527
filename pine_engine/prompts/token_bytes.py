"""Bytes of single tokens, which may be a part of a character."""

import re
from functools import cache
from typing import Any

ANCHOR = "a"  # token before the others, because decoders remove blanks from the start of a text
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")  # of SentencePiece


def token_bytes(tokenizer: Any, token_id: int) -> bytes | None:
    """Return the bytes that a token adds to a text in UTF-8, None for a special token.

    Blanks are kept. The bytes of an answer's tokens are those of its text, apart from a blank at its start.
    """
    if tokenizer.decode([token_id]) and not tokenizer.decode([token_id], skip_special_tokens=True):
        return None
    name = tokenizer.convert_ids_to_tokens(token_id)
    if name is None:  # the output of the model is larger than the vocabulary
        return b""
    anchor = tokenizer.convert_tokens_to_string([ANCHOR])
    text: str = tokenizer.convert_tokens_to_string([ANCHOR, name]).removeprefix(anchor)
    if "\ufffd" in text:  # a part of a character
        if match := BYTE_TOKEN.fullmatch(name):
            return bytes.fromhex(match[1])
        alphabet = _byte_alphabet()
        if alphabet.keys() >= set(name):
            return bytes(alphabet[character] for character in name)
    return text.encode()


@cache
def _byte_alphabet() -> dict[str, int]:
    """Return the byte of each character in the names of byte-level tokens, as those of GPT-2."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}
