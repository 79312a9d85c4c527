"""LoRA adapters as models: equal to peft, and adapters that cannot be loaded."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from pine_engine import Engine, InputError, ModelError
from pine_engine.models.adapters import BASE, CONFIG, WEIGHTS
from pine_engine.models.listing import describe
from pine_engine.models.load import load
from tests.support.errors import has_field
from tests.support.tokenizers import THINKING, letter_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")

IDS = torch.arange(5, 30)[None]


@pytest.fixture
def adapter(tiny: Path, tmp_path: Path) -> Path:
    """Folder of an adapter of the tiny model, with random weights."""
    torch.manual_seed(0)
    config = peft.LoraConfig(
        r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    model = LlamaForCausalLM.from_pretrained(tiny)
    folder = tmp_path / "adapter"
    peft.get_peft_model(model, config).save_pretrained(str(folder))
    return folder


def write(folder: Path, **changes: Any) -> None:
    file = folder / CONFIG
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps(content), encoding="utf-8")


@torch.no_grad()
def test_adapter_is_added_to_its_base_model(adapter: Path, tiny: Path) -> None:
    loaded = load(adapter)
    expected = peft.PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(tiny), str(adapter))(
        IDS
    ).logits
    found = loaded.model(IDS).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)  # merged weights are rounded
    assert (found - load(tiny).model(IDS).logits).abs().max() > 1e-2
    assert (loaded.source.name, loaded.source.address) == ("adapter", "adapter")
    engine = Engine.load(adapter)
    shuffled = engine.shuffle(question="Who?", documents=["Ana.", "Dario."], methods="pine", max_new_tokens=2)
    assert shuffled.invariance_held["pine"]


def test_tokenizer_of_the_adapter_is_used(adapter: Path) -> None:
    assert load(adapter).tokenizer.chat_template != THINKING
    letter_tokenizer(chat_template=THINKING).save_pretrained(adapter)
    assert load(adapter).tokenizer.chat_template == THINKING


def test_adapter_is_listed_as_its_base(adapter: Path, tiny: Path) -> None:
    found, base = describe(str(adapter)), describe(str(tiny))
    assert found.supported and (found.name, found.parameters) == (str(adapter), base.parameters)


def save_prompt_tuning(adapter: Path) -> None:
    """Replace the adapter by one that has no weights to add."""
    config = peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
    base = json.loads((adapter / CONFIG).read_text())[BASE]
    peft.get_peft_model(LlamaForCausalLM.from_pretrained(base), config).save_pretrained(str(adapter))


def reshape(adapter: Path) -> None:
    """Give the adapter the weights of a wider model."""
    weights = load_file(adapter / WEIGHTS)
    save_file({name: torch.cat([weight, weight], -1) for name, weight in weights.items()}, adapter / WEIGHTS)


@pytest.mark.parametrize(
    ("damage", "keyword"),
    [
        (lambda folder: (folder / WEIGHTS).unlink(), WEIGHTS),
        (lambda folder: (folder / CONFIG).write_text("{"), CONFIG),
        (lambda folder: write(folder, **{BASE: None}), BASE),
        (lambda folder: write(folder, **{BASE: "no/such/folder"}), "no/such/folder"),
        (save_prompt_tuning, "LoRA"),
        (reshape, "LoRA"),
    ],
)
def test_unusable_adapter_raises(adapter: Path, damage: Callable[[Path], object], keyword: str) -> None:
    damage(adapter)
    with pytest.raises(ModelError, match=keyword):
        load(adapter)


@pytest.mark.parametrize("base", ["no/such-model", "/no/such/folder"])
@pytest.mark.parametrize("read", [load, lambda folder: describe(str(folder))])
def test_missing_base_names_adapter_and_base(
    adapter: Path, monkeypatch: pytest.MonkeyPatch, base: str, read: Callable[[Path], object]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write(adapter, **{BASE: base})
    with pytest.raises(ModelError, match=rf"{adapter} is an adapter.*{base}", check=has_field(BASE)):
        read(adapter)


def test_missing_peft_is_named_first(adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(adapter, **{BASE: "no/such/folder"})
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(InputError, match="pip install peft"):
        load(adapter)
