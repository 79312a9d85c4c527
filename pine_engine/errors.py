"""Errors whose messages name the problem and an action, such as how to install an optional package."""

import errno
import re
import textwrap
from collections.abc import Iterable


class PineError(Exception):
    """Base class of errors that the user can act on.

    Args:
        message: What is wrong, and what to do.
        field: Parameter, field or object that has the wrong value, if the error names one.
    """

    is_rejection = True  # False if a valid request has failed

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InputError(PineError):
    """A prompt, a document, an option or a file cannot be used."""


class UnknownNameError(InputError, KeyError):
    """A name that a registry does not have; a KeyError too, because the registry is a dict.

    Args:
        kind: Kind of the entries, such as "method".
        name: Name that was looked up.
        choices: Names that the registry has.
    """

    __str__ = Exception.__str__  # the one of KeyError returns the repr of the message

    def __init__(self, kind: str, name: object, choices: Iterable[str]) -> None:
        self.kind, self.name, self.choices = kind, name, tuple(choices)
        super().__init__(f"unknown {kind} {name!r:.60}; choose from: {', '.join(self.choices)}", field=kind)

    def __reduce__(self) -> tuple[type["UnknownNameError"], tuple[str, object, tuple[str, ...]]]:
        return type(self), (self.kind, self.name, self.choices)


class ModelError(PineError):
    """A model cannot be found or loaded, or its architecture is not supported."""


class EndpointError(PineError):
    """A server cannot be reached, refuses a request, or does not answer as the OpenAI API does."""

    is_rejection = False


class WriteError(PineError):
    """A result cannot be written, such as to a full disk."""


class Cancelled(PineError):  # noqa: N818 - Stop is no error of the run
    """A run was stopped before it finished."""


OUT_OF_MEMORY = ("allocate memory", "failed to map segment", "out of memory")
"""Parts of messages of torch, of safetensors and of the loader of libraries, which have no type for it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Check whether an error of Python, of the system or of torch means that memory is exhausted."""
    is_named = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
    return is_named or any(part in str(error).lower() for part in OUT_OF_MEMORY)


def one_line(error: BaseException) -> str:
    """Return the type and the first line of an error without errno, at most 160 characters, to be quoted."""
    lines = re.sub(r"\[Errno -?\d+\] ", "", str(error)).strip().splitlines() or [""]
    return f"{type(error).__name__}: {textwrap.shorten(lines[0], 160, placeholder=' ...')}".rstrip(" :.")
