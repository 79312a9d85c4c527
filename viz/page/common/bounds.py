"""Upper limits of the page, and their check; a host can set lower ones."""

from pine_engine.errors import InputError

MAX_DOCUMENTS = 20  # documents of a request or of a row of a dataset
MAX_ROWS = 200  # examples of a dataset
MAX_UPLOAD_MB = 10  # size of an uploaded file in megabytes; app.py passes it to gradio


def check_limit(problem: str, count: int, limit: int, advice: str, *, unit: str = "") -> None:
    """Raise InputError if a count is beyond its limit: "Input too long: 9 tokens (limit: 8). Shorten it."."""
    if count > limit:
        raise InputError(f"{problem}: {count:,}{unit} (limit: {limit:,}). {advice}")
