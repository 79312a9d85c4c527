"""Models quantized by other packages, in an environment of their own, with the releases in docs/faq.md."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.commands import COMPARISON, write
from tests.support.environments import run_apart
from tests.support.pages import PAGES

PACKAGES = (
    "bitsandbytes==0.50.2", "compressed-tensors==0.20.0", "hqq==0.2.8.post1", "optimum-quanto==0.2.7",
    "torchao==0.18.0",
)  # fmt: skip

INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
INT8_CONFIG = {
    "quant_method": "compressed-tensors", "format": "int-quantized", "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {"group_0": {
        "targets": ["Linear"],
        "weights": INT8 | {"strategy": "channel"},
        "input_activations": INT8 | {"strategy": "token", "dynamic": True},
    }},
}  # fmt: skip

FIND = """
import json, sys
from types import SimpleNamespace
import torch
from hqq.core.quantize import BaseQuantizeConfig
from hqq.models.hf.base import AutoHQQHFModel
from optimum.quanto.library.extensions.extension import get_extension
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, QuantoConfig, TorchAoConfig
from pine_engine import Engine, ModelError, TokenLayout
from pine_engine.invariance.selftest import check_batch_neighbors

source, compressed = sys.argv[1:]
# quanto compiles for a minute what unpacks two integers from each byte.
unpack = lambda packed, _: torch.cat([packed & 15, packed >> 4])
get_extension("quanto_cpp")._lib = SimpleNamespace(unpack=unpack)
ids = tuple(torch.randint(97, (60,), generator=torch.Generator().manual_seed(1)).tolist())
layout = TokenLayout(ids[:5], (ids[5:28], ids[28:37], ids[37:51]), ids[51:])

def quantize(dtype, config):
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, quantization_config=config)
    return model.eval()

def examine(engine):
    options = {"max_new_tokens": 3, "stop_at_eos": False, "return_logits": True}
    found = {"vanilla": set(), "pine": set()}
    for threads in 1, 2:
        torch.set_num_threads(threads)
        shuffled = engine.shuffle(layout, methods=list(found), **options)
        for name in found:
            logits = [row.result.logits[name].float() for row in shuffled.results]
            found[name].update(each.numpy().tobytes() for each in logits)
    own = engine.model(torch.tensor([layout.ids])).logits[0, -1]
    vanilla = engine.run(layout, methods="vanilla", max_new_tokens=0, return_logits=True).logits["vanilla"]
    deviation = (vanilla[-1] - own).abs().max() / own.abs().max()
    numbers = {name: len(logits) for name, logits in found.items()}
    alone = check_batch_neighbors(engine).holds  # as in any batch
    return {**numbers, "deviation": deviation.item(), "neighbors": alone}

def examine_saved(folder):
    return examine(Engine.load(folder))

found, refused = {}, {}
for dtype in torch.float32, torch.bfloat16:
    for name, config in {
        "bitsandbytes": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
        "torchao": TorchAoConfig(Int8WeightOnlyConfig()),
        "quanto": QuantoConfig(weights="int4"),
    }.items():
        model = quantize(dtype, config)
        found[f"{name} {dtype}"] = examine(Engine(model))
        if name != "quanto":  # transformers cannot save it
            model.save_pretrained(name)
            AutoTokenizer.from_pretrained(source).save_pretrained(name)
            found[f"{name} in a folder, {dtype}"] = examine_saved(name)
for name, config, in_4bit in (
    ("bitsandbytes", BitsAndBytesConfig(load_in_8bit=True), False),
    ("torchao", TorchAoConfig(Int8DynamicActivationInt8WeightConfig()), False),
    ("packed", TorchAoConfig(Int8WeightOnlyConfig()), True),
):
    model = quantize(torch.float32, config)
    try:
        Engine(model, decode_in_4bit=in_4bit)
    except ModelError as error:
        refused[name] = str(error)
    if name == "bitsandbytes":
        found["8 bits, dequantized"] = examine(Engine(model.dequantize()))
found["compressed-tensors"] = examine_saved(compressed)
model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).eval()
config = BaseQuantizeConfig(nbits=4, group_size=32)
AutoHQQHFModel.quantize_model(model, quant_config=config, compute_dtype=torch.float32, device="cpu")
found["hqq"] = examine(Engine(model))
with open("found.json", "w") as file:
    json.dump([found, refused], file)
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def python(published: Callable[..., Path]) -> Path:
    return published(*PACKAGES)


def compress(source: Path, folder: Path) -> Path:
    """Save a copy of a model with weights in 8 bits and one scale per output, for activations in 8 bits."""
    folder.mkdir()
    weights = load_file(source / "model.safetensors")
    for name in [name for name in weights if name.endswith("proj.weight")]:
        scale = weights[name].abs().amax(1, keepdim=True) / 127
        stored = (weights[name] / scale).round().to(torch.int8)
        weights |= {name: stored, f"{name}_scale": scale}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for file in source.glob("*.json"):
        (folder / file.name).write_text(file.read_text())
    config = json.loads((source / "config.json").read_text()) | {"quantization_config": INT8_CONFIG}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_quantized_models_are_order_invariant_or_refused(python: Path, tiny: Path, tmp_path: Path) -> None:
    compressed = compress(tiny, tmp_path / "compressed")
    run_apart(python, tmp_path, write(tmp_path / "find.py", FIND), tiny, compressed, OMP_NUM_THREADS="2")
    found, refused = json.loads((tmp_path / "found.json").read_text())
    assert len(found) == 13
    for name, result in found.items():
        assert result["pine"] == 1 < result["vanilla"] and result["neighbors"], name
        # The model's own pass: bitsandbytes multiplies in bfloat16 on processors with instructions for it.
        can_round = "bitsandbytes" in name or "bfloat16" in name
        assert result["deviation"] < (0.1 if can_round else 1e-4), name
    assert "bitsandbytes quantization" in refused["bitsandbytes"]
    assert "torchao quantization" in refused["torchao"] and "4 bits" in refused["packed"]
    request = write(tmp_path / "request.json", json.dumps(COMPARISON))
    command: list[Any] = ["-m", "pine_engine", "compare", request, "--model", "bitsandbytes", "--json"]
    printed = json.loads(run_apart(python, tmp_path, *command, "--max-new-tokens", "3"))
    assert (printed["model"], printed["dtype"]) == ("bitsandbytes", "bfloat16")


def test_documentation_names_the_tested_releases() -> None:
    text = PAGES["faq.md"].read_text(encoding="utf-8")
    assert [package for package in PACKAGES if package.replace("==", " ") not in text] == []
