"""The errors that are meant for the reader of the page or the command line, not for a debugger."""

import textwrap


class PineError(Exception):
    """Something the user can act on; the message is one sentence that says how."""


class InputError(PineError):
    """Invalid argument, prompt, document or file.

    Attributes:
        field: Name of the invalid argument, if the error names one.
    """

    def __init__(self, message: str = "", *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class UnknownNameError(InputError, KeyError):
    """A name that is in no row of a table; a KeyError too, so that the table is a dict like any other."""

    __str__ = Exception.__str__  # a KeyError shows the repr of its sentence


class ModelError(PineError):
    """A model cannot be found, loaded, or is of a kind that is not supported."""


class WriteError(PineError):
    """What was computed cannot be kept, such as on a full disk."""


class Cancelled(PineError):  # noqa: N818 - it ends a run the user stopped; calling that an error would be wrong
    """A run was stopped before it was done."""


def one_line(error: BaseException) -> str:
    """Kind and first line of an error, the line cut at 160 characters, to be quoted in a sentence."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {textwrap.shorten(lines[0], 160, placeholder=' ...')}".rstrip(" :.")
