"""Documents marked in a text."""

import pytest
from hypothesis import given, strategies as st

from pine_engine import Engine, InputError
from pine_engine.prompts.marked import split_documents, tokenize_marked
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

TEXTS = st.text("ab <>\n", max_size=5)


def marked(*documents: str) -> str:
    return "".join(f"<document>{document}</document>" for document in documents)


@given(st.lists(TEXTS, min_size=3, max_size=6))
def test_marks_split_text(parts: list[str]) -> None:
    prefix, *documents, suffix = parts
    assert split_documents(f"{prefix}{marked(*documents)}{suffix}") == (prefix, documents, suffix)
    assert split_documents("".join(parts)) is None


def test_white_space_belongs_to_the_document_before_it() -> None:
    text = f"{marked('a')}\n {marked('b')}\t{marked('c')} ?"
    assert split_documents(text) == ("", ["a\n ", "b\t", "c"], " ?")


def test_documents_of_earlier_examples_are_text() -> None:
    text = f"Read. {marked('a', 'b')} One: a.\n{marked('c')}\n{marked('d')} Two:"
    with pytest.raises(InputError, check=has_field("documents")):
        split_documents(text)
    found = split_documents(text, ignores_earlier=True)
    assert found == ("Read. ab One: a.\n", ["c\n", "d"], " Two:")


@pytest.mark.parametrize("text", ["{0}</document>", "<document>{0}", "</document> {0}"])
def test_mark_without_counterpart_is_rejected(text: str) -> None:
    for ignores_earlier in (False, True):
        with pytest.raises(InputError, check=has_field("documents")):
            split_documents(text.format(marked("a", "b")), ignores_earlier=ignores_earlier)


def test_layout_has_the_tokens_of_the_text(tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama(), letter_tokenizer())
    layout, num_documents = tokenize_marked(engine, f"Read.{marked('ab', 'c')}Who?")
    assert num_documents == 2 and engine.decode_text(layout.ids) == "Read.abcWho?"
    assert [len(ids) for ids in layout.documents] == [2, 1]
    layout, num_documents = tokenize_marked(engine, "Who?")
    assert (num_documents, layout.num_documents, len(layout.suffix)) == (0, 1, 1)
    assert engine.decode_text(layout.ids) == "Who?"
