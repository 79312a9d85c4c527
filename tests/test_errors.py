"""Exhausted memory is named as the reason where models are loaded and packages are imported."""

import errno
import importlib
from unittest.mock import Mock

import pytest
import torch

from pine_engine.errors import InputError, ModelError, PineError
from pine_engine.models.support import model_errors
from pine_engine.optional_packages import import_extra
from tests.support.errors import has_field
from viz.page.jobs.loader import EngineSource

MEMORY_ERRORS = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB"),
]
OTHER_ERRORS = [ImportError("No module named 'x'"), OSError(errno.ENOENT, "no file"), RuntimeError("a size")]


@pytest.mark.parametrize("error", [*MEMORY_ERRORS, *OTHER_ERRORS], ids=repr)
def test_exhausted_memory_is_the_reason(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    fail, is_memory = Mock(side_effect=error), error in MEMORY_ERRORS
    with pytest.raises(ModelError) as raised, model_errors("model x", "give another"):
        fail()
    assert (raised.value.field == "memory") == is_memory
    source = EngineSource(fail, "x")
    source.start()
    with pytest.raises(PineError) as failed:
        source.wait(60)
    assert ("not enough memory" in str(failed.value)) == is_memory
    if isinstance(error, ImportError):
        monkeypatch.setattr(importlib, "import_module", fail)
        expected = {"check": None} if is_memory else {"check": has_field("pyarrow")}
        with pytest.raises(MemoryError if is_memory else InputError, **expected):
            import_extra("pyarrow.parquet", "pyarrow")
