"""Failures of a request: those of one prompt, and those of all requests; in the words of the provider."""

import json
import re
from textwrap import shorten
from typing import Any

from pine_engine.endpoint.text_layout import HARMLESS
from pine_engine.errors import EndpointError, one_line

MAX_MESSAGE = 500  # characters of a message of the server that are quoted
STATUS_OF_ALL = (401, 402, 404, 405, 407, 429)
"""Statuses that do not depend on the prompt: key, payment, address or model, method, proxy and rate limit."""

LIMIT = "max_tokens"
"""Field of the maximum length of an answer, which reasoning models refuse."""

_MESSAGE_KEYS = ("message", "detail", "error", "msg", "code", "type")


class RefusalError(EndpointError):
    """One request has no usable answer; others may have one.

    Args:
        message: Reason, in the words of the provider where it states one.
        status: Status of the response, 0 if it does not matter.
        is_timeout: True if there was no reply in time.
    """

    def __init__(self, message: str, *, status: int = 0, is_timeout: bool = False) -> None:
        super().__init__(message, field="prompt")
        self.status, self.is_timeout = status, is_timeout

    def of_all(self, model_ref: str) -> EndpointError:
        """Return the failure of all requests, of which this is one."""
        message = f"{model_ref} answers no prompt, not even {HARMLESS.decode()!r}: {str(self).rstrip('.')}"
        if self.status == 403:
            message += "; check that OPENAI_API_KEY may use the model"
        if named := [name for name in ("temperature", "seed", "max_tokens") if name in str(self)]:
            message += f'; an extra body of {{"{named[0]}": null}} (--extra-body) leaves this field out'
        return EndpointError(message, field="endpoint")


def provider_words(body: Any) -> str:
    """Return the reason that the body of an error states, at most MAX_MESSAGE characters."""
    for _ in range(len(_MESSAGE_KEYS)):  # {"error": {"message": ...}}
        if not isinstance(body, dict) or not (known := [key for key in _MESSAGE_KEYS if body.get(key)]):
            break
        body = body[known[0]]
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    storable = text[: 20 * MAX_MESSAGE].encode(errors="replace").decode()
    return shorten(storable, MAX_MESSAGE, placeholder=" ...")


def refuses_limit(error: Any) -> bool:
    """Check whether a server refuses the field max_tokens itself, not its value."""
    words = f"{error.code} {error.param} {provider_words(error.body)}".lower()
    is_unknown = re.search(r"unsupported|not supported|unrecognized|unknown|not permitted", words)
    return LIMIT in words and ("max_completion_tokens" in words or bool(is_unknown))


def failure_of(error: Any, *, model_name: str, max_retries: int, timeout_s: float) -> EndpointError:
    """Return an error of the client `openai` as a sentence without the name of the server.

    The result is a RefusalError if other requests may have an answer.
    """
    import openai

    status = getattr(error, "status_code", 0)
    words = provider_words(getattr(error, "body", None) or str(error))
    match error:
        case openai.APITimeoutError() | TimeoutError():
            reason = f"no answer within {timeout_s:g} s; use a faster server or shorter answers"
            return RefusalError(reason, is_timeout=True)
        case openai.APIConnectionError():
            reason = one_line(error.__cause__ or error)
            problem = f"cannot be reached ({reason}); check that the server runs"
        case openai.AuthenticationError():
            problem = f"refuses the key (status 401: {words}); set OPENAI_API_KEY to a valid one"
        case openai.NotFoundError():
            advice = "check --model, and the address, which usually ends with /v1"
            problem = f"has no model {model_name!r} (status 404: {words}); {advice}"
        case openai.RateLimitError():
            problem = f"still limits the rate after {max_retries} retries ({words}); try again later"
        case openai.APIStatusError() if status in STATUS_OF_ALL:
            problem = f"refuses every request (status {status}): {words}"
        case openai.APIStatusError():
            is_long = status == 413 or (status == 400 and "context" in f"{error.code} {words}".lower())
            reason = f"the prompt is too long for {model_name}" if is_long else f"refused (status {status})"
            return RefusalError(f"{reason}: {words}", status=status)
        case _:
            return RefusalError(f"the server does not answer as the OpenAI API does ({words})")
    return EndpointError(problem, field="endpoint")
