"""Optional packages of the project: what they add, asked for by name, so that the core runs without them."""

from importlib import import_module
from typing import Any


def find_addition(package: str, name: str, default: Any) -> Any:
    """Return an attribute of a package, such as "pine_engine.lab", or the default without the package."""
    try:
        found = import_module(package)
    except ModuleNotFoundError as error:
        if not package.startswith(str(error.name)):
            raise
        return default
    return getattr(found, name)
