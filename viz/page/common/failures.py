"""Error messages: one sentence for the user, the traceback for the log."""

import logging

from markupsafe import Markup
from pydantic import ValidationError

from pine_engine.errors import PineError
from viz.page.common.disk import FULL, is_disk_full

log = logging.getLogger(__name__)


def explain(error: Exception) -> str:
    """Return the sentence for the user; log the traceback of anything except a PineError."""
    if isinstance(error, PineError):
        sentence = str(error)
        return sentence[:1].upper() + sentence[1:]
    if is_disk_full(error):
        log.warning("Disk full")
        return FULL
    log.error("Callback failed", exc_info=error)
    return f"Internal error ({type(error).__name__}). Your input is kept. Try again, or check the server log."


def first_problem(error: ValidationError) -> str:
    """Return the field and the message of the first validation error."""
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(map(str, first["loc"]))
    return f"{field or 'the whole'}: {first['msg'].lower()}"


def notice(sentence: str, *, kind: str = "status") -> str:
    """Render a status line, or an error line for kind "error"; the sentence is escaped."""
    role = "alert" if kind == "error" else "status"
    return str(Markup('<p class="page-notice page-notice-{}" role="{}">{}</p>').format(kind, role, sentence))
