"""The errors that are meant for the reader of the page or the command line, not for a debugger."""


class PineError(Exception):
    """Something the user can act on; the message is one sentence that says how."""


class InputError(PineError):
    """A prompt, a document or a file cannot be used as it was given."""


class ModelError(PineError):
    """A model cannot be found, loaded, or is of a kind that is not supported."""


class WriteError(PineError):
    """What was computed cannot be kept, such as on a full disk."""


class Cancelled(PineError):  # noqa: N818 - it ends a run the user stopped; calling that an error would be wrong
    """A run was stopped before it was done."""
