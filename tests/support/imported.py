"""Imports and the embedded model that the processes of forks.py share."""

from typing import Any

import torch

import app
from pine_engine import Engine
from pine_engine.models.embedded import EMBEDDED_NAME, find_embedded_gguf
from tests.support import commands  # noqa: F401 - for the subcommands

# A fork has none of the threads of a GEMM, and would wait for them.
torch.set_num_threads(1)

_load = app.load_engine
_embedded = Engine.load(dtype="auto") if find_embedded_gguf() else None


def _load_or_share(name: str | None, dtype: str, device: str, progress: Any) -> Engine:
    is_embedded = name in (None, EMBEDDED_NAME) and (dtype, device) == ("auto", "cpu")
    return _embedded if _embedded and is_embedded else _load(name, dtype, device, progress)


app.load_engine = _load_or_share
