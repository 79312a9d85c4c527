"""Dtypes by name, and the one that `auto` selects."""

import sys
from typing import Any

import pytest
import torch
from transformers import LlamaConfig

from pine_engine.models import dtypes
from pine_engine.models.dtypes import Dtype, resolve_dtype, stored_dtype


@pytest.mark.parametrize(
    ("stored", "capability", "bf16", "expected"),
    [
        ("4bit", "AVX512", True, "4bit"),
        ("4bit", "AVX2", False, "4bit"),
        ("4bit", "DEFAULT", True, "float32"),
        ("bfloat16", "AVX512", True, "bfloat16"),
        ("bfloat16", "AVX2", False, "float32"),
        ("float16", "AVX512", True, "float32"),
        ("float32", "AVX512", True, "float32"),
    ],
)
def test_auto_on_cpu_follows_weights_and_instructions(
    stored: Dtype, capability: str, bf16: bool, expected: Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(dtypes, "multiplies_in", lambda _dtype: bf16)
    monkeypatch.setattr(sys, "platform", "linux")
    assert resolve_dtype("auto", "cpu", stored=stored) == expected
    assert resolve_dtype("float16", "cpu", stored=stored) == "float16"
    assert resolve_dtype("auto", "tp", stored=stored) == "float32"
    monkeypatch.setattr(sys, "platform", "win32")
    assert stored != "4bit" or resolve_dtype("auto", "cpu", stored=stored) == "float32"  # a scalar kernel


@pytest.mark.parametrize(("supported", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_on_gpu_is_bfloat16(supported: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert resolve_dtype("auto", "cuda:1", stored="4bit") == expected
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_dtype("auto", "auto", stored="4bit") == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [("bfloat16", "bfloat16"), (torch.float16, "float16"), ("float64", "float32"), (None, "float32")],
)
def test_stored_dtype_is_what_the_config_states(stated: Any, expected: Dtype) -> None:
    assert stored_dtype(LlamaConfig(dtype=stated)) == expected
