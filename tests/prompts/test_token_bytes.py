"""Bytes and texts of tokens, which together are those of the text."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from pine_engine.prompts.token_bytes import token_bytes
from tests.support.tokenizers import byte_tokenizer, letter_tokenizer, sentencepiece_tokenizer

BYTES = byte_tokenizer()
BLANKS = [sentencepiece_tokenizer("prepend"), sentencepiece_tokenizer("metaspace")]
SPECIAL = {token for one in (BYTES, *BLANKS) for token in one.all_special_tokens}
# Without the blank of the tokenizers, and special tokens, which have no bytes.
CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\u2581")
TEXTS = st.text(CHARACTERS, min_size=1).filter(lambda text: not any(token in text for token in SPECIAL))


@given(TEXTS)
def test_bytes_of_byte_level_tokens_join_to_text(text: str) -> None:
    ids = BYTES.encode(text, add_special_tokens=False)
    assert [token_bytes(BYTES, one) for one in ids] == [bytes([byte]) for byte in text.encode()]


@pytest.mark.parametrize("tokenizer", BLANKS)
@given(text=TEXTS)
def test_bytes_of_sentencepiece_tokens_keep_blanks(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    joined = b"".join(token_bytes(tokenizer, one) or b"" for one in ids)
    added = "" if tokenizer is BLANKS[1] and text.startswith(" ") else " "
    assert joined == (added + text).encode()


@pytest.mark.parametrize("tokenizer", [BYTES, *BLANKS, letter_tokenizer()])
def test_special_token_has_no_bytes(tokenizer: Any) -> None:
    assert token_bytes(tokenizer, tokenizer.convert_tokens_to_ids("</s>")) is None
    assert token_bytes(tokenizer, tokenizer.convert_tokens_to_ids("a")) == b"a"
    assert token_bytes(tokenizer, 100_000) == b""
