"""Error messages: a sentence for the user, the traceback for the log."""

import logging
import traceback

from markupsafe import Markup
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from pine_engine.errors import PineError, is_out_of_memory
from pine_engine.rows.parse_errors import format_validation_errors
from viz.page.common.disk import FULL, is_disk_full

log = logging.getLogger(__name__)

OUT_OF_MEMORY = "Out of memory. Your input is kept. Try again later, or with fewer or shorter documents."


def explain(error: Exception) -> str:
    """Return the sentence for the user; log the traceback of anything except a PineError."""
    if isinstance(error, PineError):
        sentence = str(error)
        return sentence[:1].upper() + sentence[1:]
    if is_disk_full(error):
        log.warning("Disk full")
        return FULL
    log.error("Callback failed", exc_info=error)
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    return f"Internal error ({type(error).__name__}). Your input is kept. Try again, or check the server log."


def is_request_error(error: BaseException) -> bool:
    """Check whether gradio could not read the values of a request; other errors are those of the server."""
    error = error.__cause__ or error  # an HTTPException after the start of a response has another around it
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_ours = any(name.startswith(("viz.", "pine_engine.")) for name in modules[-1:])
    types = HTTPException | ValueError | TypeError | LookupError | AttributeError
    return isinstance(error, RecursionError) or (isinstance(error, types) and not is_ours)


def first_problem(error: ValidationError) -> str:
    """Return the first validation error, with the place of its value, such as documents[0].title."""
    return str(format_validation_errors(error, as_json=True)[0])


def notice(sentence: str, *, kind: str = "status") -> str:
    """Render a status line, or an error line for kind "error"; the sentence is escaped."""
    role = "alert" if kind == "error" else "status"
    return str(Markup('<p class="page-notice page-notice-{}" role="{}">{}</p>').format(kind, role, sentence))
