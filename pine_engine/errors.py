"""Errors that tell the user what to do."""

import textwrap


class PineError(Exception):
    """Base class of errors that the user can act on.

    Args:
        message: What is wrong, and what to do.
        field: Parameter, field or object that has the wrong value, if the error names one.
    """

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InputError(PineError):
    """A prompt, a document, an option or a file cannot be used."""


class UnknownNameError(InputError, KeyError):
    """A name that a registry does not have; a KeyError too, because the registry is a dict."""

    __str__ = Exception.__str__  # the one of KeyError returns the repr of the message


class ModelError(PineError):
    """A model cannot be found or loaded, or its architecture is not supported."""


class WriteError(PineError):
    """A result cannot be written, such as to a full disk."""


class Cancelled(PineError):  # noqa: N818 - the user stopped the run; calling that an error would be wrong
    """A run was stopped before it finished."""


def one_line(error: BaseException) -> str:
    """Return the type and the first line of an error, at most 160 characters, to be quoted in a message."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {textwrap.shorten(lines[0], 160, placeholder=' ...')}".rstrip(" :.")
