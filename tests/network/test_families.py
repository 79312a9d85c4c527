"""PINE in many families of transformers: read as their own attention reads, and without knowing the order."""

import functools

import pytest
import torch
from torch import Tensor

from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout
from tests.support.families import FAMILIES, LAYOUT, by_tier, defined_logits, make

TOLERANCE = {torch.float64: 2e-5, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Relative to the largest logit. Norms, angles and experts are float32 in float64 models too."""

CLEARLY = 20
"""How many times the tolerance a change is that must be seen."""

REORDERED = LAYOUT.reorder([2, 0, 1])

IN_HALF_PRECISION = ("llama", "qwen3", "olmo2", "gemma", "gemma2", "gpt_neox", "cohere", "glm4", "yarn")

DEFINED = (
    *("llama", "gemma2", "glm", "gpt_neox", "phi", "cohere", "qwen3"),
    *("falcon", "falcon, one key head", "gemma3_text", "nanochat", "nemotron", "olmo3", "stablelm"),
    *("gemma3", "mistral3", "qwen2_vl", "qwen2_5_vl"),
    *("yarn", "yarn, interleaved", "yarn, partial", "yarn, partial and interleaved"),
    *("longrope, a short prompt", "longrope, a long prompt", "longrope, partial"),
)
"""Families that differ in how they rotate, pair, scale, limit, or are called."""


def read(engine: Engine, layout: TokenLayout, method: str) -> Tensor:
    """Logits (n, V) of a prompt under a method."""
    with torch.inference_mode():
        return passes.prefill(engine.patched_models, layout, METHODS[method], room=0, logits_to_keep=0)[1]


def difference(one: Tensor, other: Tensor) -> float:
    """Largest deviation, relative to the largest logit."""
    return ((one - other).abs().max() / other.abs().max()).item()


@pytest.mark.parametrize("name", by_tier(FAMILIES))
def test_a_family_is_read_as_its_own_attention_reads_it(name: str) -> None:
    family = FAMILIES[name]
    model = make(family.kind, torch.float64, **family.options)
    with torch.inference_mode():
        own = model(torch.tensor(LAYOUT.ids)[None]).logits[0]
    engine = Engine(model)
    assert {rope.pairing for rope in engine.patched_models[0].ropes.kinds} == {family.pairing}
    tolerance = TOLERANCE[torch.float64]
    assert difference(read(engine, LAYOUT, "vanilla"), own) <= tolerance

    pine, shuffled = (read(engine, layout, "pine")[-1] for layout in (LAYOUT, REORDERED))
    assert difference(shuffled, pine) <= tolerance
    # Controls: the order matters to vanilla, and PINE is not vanilla.
    assert difference(read(engine, REORDERED, "vanilla")[-1], own[-1]) > CLEARLY * tolerance
    assert difference(pine, own[-1]) > CLEARLY * tolerance


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", by_tier(IN_HALF_PRECISION))
def test_half_precision_is_read_too(name: str, dtype: torch.dtype) -> None:
    family = FAMILIES[name]
    model = make(family.kind, dtype, **family.options)
    with torch.inference_mode():
        own = model(torch.tensor(LAYOUT.ids)[None]).logits[0]
    engine = Engine(model)
    vanilla = read(engine, LAYOUT, "vanilla")
    assert vanilla.dtype == dtype
    assert difference(vanilla, own) <= TOLERANCE[dtype]
    assert difference(read(engine, REORDERED, "vanilla")[-1], own[-1]) > TOLERANCE[dtype]
    assert torch.equal(read(engine, REORDERED, "pine")[-1], read(engine, LAYOUT, "pine")[-1])


EXPERTS = ("granitemoe", "mixtral", "olmoe", "phimoe", "qwen2_moe", "qwen3_moe")


@pytest.mark.parametrize("name", by_tier(EXPERTS))
def test_a_mixture_of_experts_proves_itself_in_half_precision(name: str) -> None:
    """Rounding sends some tokens to other experts there, which says nothing about attention."""
    family = FAMILIES[name]
    options = family.options | {"num_hidden_layers": 4}
    engine = Engine(make(family.kind, torch.bfloat16, **options))
    assert torch.equal(read(engine, REORDERED, "pine")[-1], read(engine, LAYOUT, "pine")[-1])


@functools.lru_cache(maxsize=1)  # all methods of a family are tried one after the other
def made(name: str) -> Engine:
    family = FAMILIES[name]
    return Engine(make(family.kind, torch.float64, **family.options))


@pytest.mark.parametrize(
    "method",
    ["pine", "pine_reversed", "pine_sum", "pine_max", "reassignment_only", "pcw_right", "vanilla"],
)
@pytest.mark.parametrize("name", by_tier(DEFINED))
def test_a_method_is_what_the_definition_says_in_every_kind_of_family(name: str, method: str) -> None:
    engine = made(name)
    expected = defined_logits(engine.model, LAYOUT, method)
    assert difference(read(engine, LAYOUT, method), expected) <= TOLERANCE[torch.float64]
