"""Right or wrong: a score as a sign and a word, and the class that colours it."""


def mark(score: float) -> str:
    """In words; score: from 0 to 1."""
    return {1.0: "✓ right", 0.0: "✗ wrong"}.get(score, f"◐ {score:g} points")


def mark_class(score: float) -> str:
    """The class that colours it."""
    return {1.0: "pine-same", 0.0: "pine-changed"}.get(score, "pine-reference")
