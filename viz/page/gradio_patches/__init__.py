"""Patches of gradio; imported before gradio, which is imported here without the stub files of components.

Gradio (6.31) parses its sources and writes these files at every start, which takes 1.5 s. It writes none for
a class that has no file.
"""

import inspect
from typing import Any
from unittest import mock

_file_of = inspect.getfile


def file_of(item: Any) -> str:
    """Return the file of anything but a class. Raises OSError for a class."""
    if isinstance(item, type):
        raise OSError("no stub is written for this class")
    return _file_of(item)


with mock.patch.object(inspect, "getfile", file_of):
    import gradio  # noqa: F401
