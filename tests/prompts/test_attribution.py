"""Tests of the attribution of words to documents."""

import pytest

from pine_engine.prompts.attribution import attribute_words, stop_words_of

QUESTION = "Who founded the mill?"
DOCUMENTS = (
    "Ada Brandt founded the mill in 1913.",
    "In 1920, Ida Holm bought the mill.",
    "The mill is green.",
)


def found(text: str, *without: str | None, documents: tuple[str, ...] = DOCUMENTS) -> list[tuple[str, int]]:
    result = attribute_words(text, question=QUESTION, documents=documents, texts_without=without)
    assert bool(result.sources) == (result.finding == "sources")
    return [(text[one.start : one.stop], one.document) for one in result.sources]


def finding(text: str, *without: str | None, documents: tuple[str, ...] = DOCUMENTS) -> str:
    return attribute_words(text, question=QUESTION, documents=documents, texts_without=without).finding


def test_source_is_the_document_that_is_needed() -> None:
    text = "Ada Brandt founded it in 1913, and Ida Holm got it."
    without = "Ida Holm in 1913", "Ada Brandt in 1913", text
    assert found(text, *without) == [("Ada Brandt", 0), ("Ida Holm", 1)]


def test_source_contains_its_word() -> None:
    """The answer without B lacks "1913", which B does not contain."""
    assert found("In 1913.", "1913", "1920", "1913") == []
    assert finding("In 1913.", "1913", "1920", "1913") == "no single source"


def test_words_of_two_needed_documents_have_no_source() -> None:
    documents = ("Ada was there.", "Ada was here.")
    assert finding("Ada", "Bo", "Cy", documents=documents) == "no single source"
    assert found("Ada", "Bo", "Ada", documents=documents) == [("Ada", 0)]


def test_hallucination_is_in_no_document() -> None:
    for without in ((), ("x", "y", "z")):
        assert finding("The Great Pyramid of Giza", *without) == "in no document"


def test_unknown_answers_have_no_finding() -> None:
    assert finding("Ada Brandt") == finding("Ada Brandt", None, "Ada Brandt", "Ada Brandt") == "unknown"


@pytest.mark.parametrize(
    ("answer", "documents"),
    [
        ("It was not.", ("It was not.", "It is.")),
        ("Das ist es nicht.", ("Das ist es nicht, sagte der Müller.", "Die Mühle ist alt.")),
        ("No es la que está.", ("No es la que está en la casa.", "El molino es verde.")),
        ("B", ("B is here.", "A is there.")),
        ("the mill", DOCUMENTS[:2]),
        ("", DOCUMENTS[:2]),
    ],
)
def test_words_without_content_have_no_source(answer: str, documents: tuple[str, ...]) -> None:
    assert finding(answer, "x", "y", documents=documents) == "no content"


@pytest.mark.parametrize(
    ("answer", "documents", "sources"),
    [
        ("埃菲尔铁塔建于1889年。", ("埃菲尔铁塔建于1889年。", "东京塔建于1958年。"), {0}),
        ("エッフェル塔です", ("エッフェル塔はパリにある。", "東京タワーは東京にある。"), {0}),
        ("Brandts Mühle", ("Die Mühle von Brandts.", "Ein Haus."), {0}),
        ("Das sind 12", ("Es sind 12 Lampen.", "Es sind 5."), {0}),
    ],
)
def test_words_of_other_languages_have_sources(
    answer: str, documents: tuple[str, ...], sources: set[int]
) -> None:
    assert {document for _, document in found(answer, "x", answer, documents=documents)} == sources


@pytest.mark.parametrize(
    ("answer", "document", "sources"),
    [
        ("Buenos Aires", "Buenos Aires is the capital.", ["Buenos Aires"]),
        ("a computer", "A computer is used.", ["computer"]),
        ("It has 5.", "It has 5 wheels.", ["5"]),
        ("Son 5.", "Los molinos que son de la ciudad tienen 5 ruedas.", ["5"]),
        ("Drei Tage", "Die Reise dauert drei Tage.", ["Drei Tage"]),
        ("Will Holm", "It is owned by Will Holm.", ["Will Holm"]),
        ("in May 1920", "It closed in May 1920.", ["May 1920"]),
        ("Theresa May", "Theresa May was there.", ["Theresa May"]),
        ("Als Fred", "Das ist so. Als Fred kam, war es spät.", ["Fred"]),
        ("with Ida", "She came with Ida.", ["Ida"]),
        ("Will it?", "Will Holm owns it, and it is old.", []),
    ],
)
def test_stop_words_with_content_have_a_source(answer: str, document: str, sources: list[str]) -> None:
    found_words = found(answer, "x", answer, documents=(document, "It is green."))
    assert found_words == [(word, 0) for word in sources]


@pytest.mark.parametrize("answer", ["서울은", "Nobelpreises"])
def test_other_form_of_a_word_is_in_a_document(answer: str) -> None:
    assert finding(answer, "x", documents=("서울에서, den Nobelpreis",)) == "no single source"


def test_stop_words_are_of_the_language_of_the_text() -> None:
    german, english = map(stop_words_of, ("das ist nicht der Müller", "this is not the miller"))
    assert "nicht" in german - english and "this" in english - german
