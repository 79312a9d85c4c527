"""Shapes of benchmarks: models with random weights, and prompts of random tokens. Loads without torch."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pine_engine.errors import ModelError
from pine_engine.models.dtypes import LOADED_IN, known_dtype, resolve_dtype
from pine_engine.models.embedded import Progress
from pine_engine.models.load import TENSOR_PARALLEL, check_device, resolve

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from pine_engine.engine.engine import Engine
    from pine_engine.prompts.layout import TokenLayout

MARK = "random:"  # prefix of the name of a model with random weights

SHAPES: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Configurations by name, from shapes.toml."""

DEMANDING = {name: shape.pop("demands") for name, shape in SHAPES.items() if "demands" in shape}
"""Shapes for which native operations of torch are not batch-invariant on some CPUs, with a description."""

PREFIX_TOKENS, SUFFIX_TOKENS = 30, 28


def is_synthetic(name: str | None) -> bool:
    """Check whether a name is one of a model with random weights, of a known shape or not."""
    return name is not None and name.startswith(MARK)


def load_engine(
    name: str | None = None, *, dtype: str = "auto", device: str = "cpu", progress: Progress | None = None
) -> "Engine":
    """Load an engine, also of `random:SHAPE` for the name of a shape in SHAPES. Raises ModelError."""
    known_dtype(dtype)  # before torch is imported
    if name is not None:
        _shape(name) if is_synthetic(name) else resolve(name)

    from pine_engine.engine.engine import Engine
    from pine_engine.scheduling.worker import compute_on

    if name is not None and is_synthetic(name):
        model = compute_on(device, lambda: synthetic_model(name, dtype=dtype, device=device))
        return Engine(model, name=name, decode_in_4bit=dtype == "4bit")
    return Engine.load(name, dtype=dtype, device=device, progress=progress)


def synthetic_model(name: str, *, dtype: str, device: str) -> "PreTrainedModel":
    """Create a model with random weights in eval mode, equal for equal arguments. Raises ModelError."""
    shape = _shape(name)
    if device in ("auto", TENSOR_PARALLEL):
        raise ModelError(f"model with random weights needs one device: got {device!r}; give one such as cuda")
    check_device(device)

    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    target = torch.device(device)
    forked = [target] if target.type == "cuda" else []
    config = AutoConfig.for_model(**{"model_type": "llama", **SHAPES["tiny"], **shape})
    resolved = resolve_dtype(known_dtype(dtype), device, stored="float32")
    with torch.random.fork_rng(devices=forked), target:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, LOADED_IN[resolved]))
    model.eval().requires_grad_(False)
    return cast("PreTrainedModel", model)


def _shape(name: str) -> dict[str, Any]:
    shape = SHAPES.get(name.removeprefix(MARK))
    if shape is None:
        known = ", ".join(MARK + known for known in SHAPES)
        raise ModelError(f"unknown model {name!r} with random weights; choose from: {known}")
    return shape


@dataclass(frozen=True)
class Workload:
    """A model, and the size of its prompt and answer."""

    model: str | None
    dtype: str
    device: str
    documents: int
    document_tokens: int
    new_tokens: int

    def layout(self, engine: "Engine") -> "TokenLayout":
        """Return a prompt of random tokens. Raises InputError if it exceeds the context of the model."""
        import torch

        from pine_engine.prompts.layout import TokenLayout

        vocab_size = vocab_size_of(engine)
        lengths = [*[self.document_tokens] * self.documents, PREFIX_TOKENS, SUFFIX_TOKENS]
        generator = torch.Generator().manual_seed(0)
        *documents, prefix, suffix = (
            tuple(torch.randint(vocab_size, (length,), generator=generator).tolist()) for length in lengths
        )
        layout = TokenLayout(
            prefix, tuple(documents), suffix, scores=tuple(map(float, range(self.documents)))
        )
        engine.check_length(layout, self.new_tokens)
        return layout


def vocab_size_of(engine: "Engine") -> int:
    """Return the number of tokens; some models have more embedding rows."""
    size: int = engine.model.config.get_text_config().vocab_size
    return size if engine.tokenizer is None else min(size, len(engine.tokenizer))
