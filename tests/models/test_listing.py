"""Properties of a model that are known without its weights. The list is tested in test_load.py."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file
from transformers import LlamaForCausalLM

from pine_engine.errors import ModelError
from pine_engine.models.dtypes import Dtype
from pine_engine.models.listing import LoadableModel, describe
from pine_engine.models.load import load


def test_folder_is_described_as_it_is_loaded(tiny: Path) -> None:
    found, loaded = describe(str(tiny)), load(str(tiny))
    assert (found.name, found.origin, found.family, found.reason) == (str(tiny), "folder", "llama", "")
    assert found.supported and found.missing_bytes == 0
    assert found.context == loaded.max_context_length == 700
    assert found.parameters == loaded.model.num_parameters()
    assert found.size_bytes == (tiny / "model.safetensors").stat().st_size


def test_weights_in_several_files_are_counted_and_missing_ones_named(
    tmp_path: Path, tiny_llama: Callable[..., LlamaForCausalLM]
) -> None:
    model = tiny_llama(layers=4)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 2
    assert describe(str(tmp_path)).parameters == model.num_parameters()
    shards[1].unlink()
    found = describe(str(tmp_path))
    assert not found.supported and shards[1].name in found.reason


@pytest.mark.parametrize("size", [0, 1000, 30_000])
def test_describe_truncated_weights_is_unsupported(size: int, tmp_path: Path, tiny: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    os.truncate(tmp_path / "model.safetensors", size)
    found = describe(str(tmp_path))
    assert not found.supported and "damaged" in found.reason


def test_packed_weights_are_not_counted_as_parameters(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "config.json").write_bytes((tiny / "config.json").read_bytes())
    save_file({"packed": torch.zeros(10, dtype=torch.int32)}, tmp_path / "model.safetensors")
    found = describe(str(tmp_path))
    assert found.parameters is None
    assert found.memory_bytes("float32") > found.size_bytes > 0


def test_describe_gguf_reads_its_header(tmp_path: Path) -> None:
    writer = GGUFWriter(tmp_path / "small.gguf", "llama")
    writer.add_context_length(900)
    writer.add_block_count(3)
    writer.add_embedding_length(64)
    writer.add_head_count(8)
    writer.add_head_count_kv(2)
    writer.add_tensor("token_embd.weight", np.zeros((11, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = describe(str(tmp_path / "small.gguf"))
    assert (found.family, found.context, found.parameters) == ("llama", 900, 11 * 64)
    assert found.state_values == 2 * 3 * 2 * 8  # keys and values, layers, heads, 64 / 8
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    for read in (describe, load):
        with pytest.raises(ModelError, match="bad.gguf"):
            read(str(tmp_path / "bad.gguf"))


@pytest.mark.parametrize(
    ("context", "dtype", "num_bytes", "num_tokens"),
    [(8192, "bfloat16", 2, 4096), (8192, "float16", 2, 4096), (8192, "float32", 4, 4096),
     (1024, "bfloat16", 2, 1024)],
)  # fmt: skip
def test_memory_has_weights_and_states_of_four_methods(
    context: int, dtype: Dtype, num_bytes: int, num_tokens: int
) -> None:
    model = LoadableModel("m", "hub", 0, context, "llama", True, "", 8_000_000_000, 65_536)
    expected = num_bytes * (8_000_000_000 + 65_536 * num_tokens * 4) + 500_000_000
    assert model.memory_bytes(dtype) == expected


@pytest.mark.parametrize("name", ["~nobody-has-this-name/model", "a" * 5000, "\0", "\ud800/x", "../.."])
def test_describe_impossible_name_raises_model_error(name: str) -> None:
    with pytest.raises(ModelError):
        describe(name)
