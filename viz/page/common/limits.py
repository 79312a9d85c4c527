"""Upper limits of the page."""

from pine_engine.errors import InputError

MAX_DOCUMENTS = 20  # documents of a request or of a row of a dataset
MAX_ANSWER_TOKENS = 500  # new tokens of an answer
MAX_ORDERS = 120  # document orders of a request: all orders of five documents
MAX_ROWS = 200  # examples of a dataset
MAX_VALUES = 100_000  # values in lists and objects of a request; each takes the event loop a microsecond
MAX_UPLOAD_MB = 10  # size of an uploaded file in megabytes; app.py passes it to gradio

TOO_MANY_VALUES = f"Too many values in lists and objects (limit: {MAX_VALUES:,}). Send less data."


def check_limit(problem: str, count: int, limit: int, advice: str, *, unit: str = "") -> None:
    """Raise InputError if a count is beyond its limit: "Input too long: 9 tokens (limit: 8). Shorten it."."""
    if count > limit:
        raise InputError(f"{problem}: {count:,}{unit} (limit: {limit:,}). {advice}")
