"""The parts of the form by the names that a task has for them: documents, answers, conditions, properties."""

from typing import Any

from pine_engine.prompts.tasks import Nouns


def capital(text: str) -> str:
    """The text with a capital first letter, as in a heading."""
    return text[:1].upper() + text[1:]


def documents_heading(nouns: Nouns) -> str:
    """HTML of the heading above the documents."""
    return f"<h3>{capital(nouns.documents)}</h3>"


def question_words(nouns: Nouns) -> dict[str, Any]:
    """Properties of the field for the question."""
    return {
        "label": capital(nouns.question),
        "placeholder": f"The {nouns.question} that the {nouns.documents} belong to",
    }
