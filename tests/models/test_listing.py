"""Properties of models that are known without their weights, and the list of models on this machine."""

import json
import os
import shutil
from pathlib import Path

import huggingface_hub
import numpy as np
import psutil
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file

from pine_engine import ModelError
from pine_engine.models import resources
from pine_engine.models.dtypes import Dtype
from pine_engine.models.listing import LoadableModel, describe, list_models
from pine_engine.models.load import LoadedModel, load, resolve
from pine_engine.models.resources import free_disk, free_memory, in_words
from tests.support.errors import has_field
from tests.support.families import TinyLlama

COMMITS = ("0123456789abcdef0123456789abcdef01234567", "f" * 40)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub client."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put_into_cache(cache: Path, repo: str, config: str | None, commit: str = COMMITS[0]) -> None:
    """Add a commit to the cache that has a README and perhaps a config."""
    snapshot = cache / repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (cache / repo / "refs").mkdir(exist_ok=True)
    (snapshot / "README.md").write_text("weights")
    if config is not None:
        (snapshot / "config.json").write_text(config)


def state_values(loaded: LoadedModel) -> int:
    """Return the number of values that transformers' own cache has after one token."""
    with torch.inference_mode():
        cache = loaded.model(torch.tensor([[1]]), use_cache=True).past_key_values
    return sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)


def test_folder_is_described_as_it_is_loaded(tiny: Path) -> None:
    loaded, size = load(tiny), (tiny / "model.safetensors").stat().st_size
    parameters, state = loaded.model.num_parameters(), state_values(loaded)
    expected = LoadableModel(str(tiny), "folder", size, 700, "llama", True, "", parameters, state)
    assert describe(str(tiny)) == expected


def test_weights_in_several_files_are_counted(tmp_path: Path, tiny_llama: TinyLlama) -> None:
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
    shutil.copy(tiny / "config.json", tmp_path)
    save_file({"packed": torch.zeros(10, dtype=torch.int32)}, tmp_path / "model.safetensors")
    found = describe(str(tmp_path))
    assert found.parameters is None
    assert found.memory_bytes("float32") > found.size_bytes > 0


def test_describe_gguf_reads_its_header(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    writer = GGUFWriter(path, "llama")
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
    state = 2 * 3 * 2 * 8  # keys and values, layers, heads, 64 / 8
    expected = LoadableModel(str(path), "folder", path.stat().st_size, 900, "llama", True, "", 11 * 64, state)
    assert describe(str(path)) == LoadableModel(**vars(expected) | {"stored": "4bit"})
    path.write_bytes(b"GGUF" + bytes(100))
    for function in (describe, load):
        with pytest.raises(ModelError, check=has_field("weights")):
            function(str(path))


@pytest.mark.parametrize(
    ("context", "dtype", "num_bytes", "num_tokens"),
    [(8192, "bfloat16", 2, 4096), (8192, "float32", 4, 4096), (1024, "bfloat16", 2, 1024)],
)
def test_memory_is_weights_and_states(context: int, dtype: Dtype, num_bytes: int, num_tokens: int) -> None:
    model = LoadableModel("m", "hub", 0, context, "llama", True, "", 8_000_000_000, 65_536)
    expected = num_bytes * (8_000_000_000 + 65_536 * num_tokens * 4) + 500_000_000
    assert model.memory_bytes(dtype) == expected


def test_list_knows_the_embedded_model_without_its_weights(embedded_folder: Path, cache: Path) -> None:
    loaded, size = load(), Path(resolve().path_or_id).stat().st_size
    parameters, state = loaded.model.num_parameters(), state_values(loaded)
    expected = LoadableModel(
        loaded.source.name, "embedded", size, 8192, "llama", True, "", parameters, state, stored="4bit"
    )
    assert list_models() == [expected]
    assert describe(None) == describe(loaded.source.name) == expected


def test_list_has_main_branch_of_cached_model(tiny: Path, cache: Path) -> None:
    put_into_cache(cache, "datasets--org--questions", None)
    repo = cache / "models--org--tiny"
    shutil.copytree(tiny, repo / "snapshots" / COMMITS[0])
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMITS[0])
    put_into_cache(cache, "models--org--tiny", '{"model_type": "gpt2"}', COMMITS[1])
    size = sum(path.stat().st_size for path in tiny.iterdir())
    loaded = load("org/tiny")
    parameters, state = loaded.model.num_parameters(), state_values(loaded)
    expected = LoadableModel("org/tiny", "hub", size, 700, "llama", True, "", parameters, state)
    assert list_models()[1:] == [expected] == [describe("org/tiny")]


def test_list_is_sorted_by_name_without_broken_downloads(cache: Path) -> None:
    for name in ("org--zeta", "Org--alpha", "org--Beta"):
        put_into_cache(cache, f"models--{name}", json.dumps({"model_type": "llama"}))
    for name in ("refs", "snapshots"):
        (cache / "models--org--broken" / name).mkdir(parents=True)
    assert [model.name for model in list_models()[1:]] == ["Org/alpha", "org/Beta", "org/zeta"]


@pytest.mark.parametrize(
    ("config", "keyword"),
    [
        ('{"model_type": "gpt2"}', "learned or fixed"),
        ('{"model_type": "vit"}', "vit models"),
        ('{"model_type": "no_such_type"}', "no_such_type"),
        ('{"model_type": "llama"}', ".safetensors"),
        ('{"model_type": "llama", "max_position_embeddings": 0}', "max_position_embeddings"),
        ("no JSON", "config"),
        (None, "config.json"),
    ],
)
def test_list_has_reason_of_unsupported_model(cache: Path, config: str | None, keyword: str) -> None:
    put_into_cache(cache, "models--org--other", config)
    (listed,) = list_models()[1:]
    assert (listed.name, listed.supported) == ("org/other", False) and keyword in listed.reason


GIB = 2**30


def container(folder: Path, limit: str, current: int, inactive: int) -> None:
    statistics = f"anon 5\ninactive_file {inactive}\nactive_file 7"
    for name, value in {"max": limit, "current": current, "stat": statistics}.items():
        (folder / f"memory.{name}").write_text(f"{value}\n")


def test_free_memory_is_within_limit_of_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    available = free_memory("cpu")
    assert available == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    container(tmp_path, str(GIB), GIB // 2, GIB // 8)
    assert free_memory("cpu") == free_memory("auto") == GIB // 2 + GIB // 8
    container(tmp_path, "max", GIB // 2, GIB // 8)
    assert free_memory("cpu") == pytest.approx(available, rel=0.2)


def test_free_disk_accepts_folder_that_does_not_exist(tmp_path: Path) -> None:
    expected = shutil.disk_usage(tmp_path).free
    assert free_disk(tmp_path / "not" / "yet") == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("size", "words"),
    [(98_362_432, "98.4 MB"), (16.06e9, "16.1 GB"), (999e6, "999.0 MB"), (141_107_412_992, "141.1 GB")],
)
def test_in_words_uses_powers_of_ten(size: float, words: str) -> None:
    assert in_words(size) == words
