"""Labels of the task for the parts of the form: documents, answers, conditions, properties."""

from typing import Any

from pine_engine.prompts.tasks import Nouns


def capital(text: str) -> str:
    """Capitalize the first letter."""
    return text[:1].upper() + text[1:]


def documents_heading(nouns: Nouns) -> str:
    """Render the heading above the documents."""
    return f"<h3>{capital(nouns.documents)}</h3>"


def question_words(nouns: Nouns) -> dict[str, Any]:
    """Return the properties of the field for the question."""
    return {
        "label": capital(nouns.question),
        "placeholder": f"Enter the {nouns.question} for these {nouns.documents}",
    }
