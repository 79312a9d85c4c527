"""PINE in many families of transformers: vanilla equals the model, and PINE is independent of the order."""

import functools

import pytest
import torch
from torch import Tensor

from pine_engine import Engine
from tests.support.families import FAMILIES, LAYOUT, by_tier, make
from tests.support.forward import prefill_logits
from tests.support.reference import reference_logits

TOLERANCE = {torch.float64: 2e-5, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Relative to the largest logit. Norms, angles and experts are float32 in float64 models too."""

REORDERED = LAYOUT.reorder([2, 0, 1])

IN_HALF_PRECISION = ("llama", "qwen3", "olmo2", "gemma", "gemma2", "gpt_neox", "cohere", "glm4", "yarn")

DEFINED = (
    *("llama", "gemma2", "glm", "gpt_neox", "phi", "cohere", "qwen3"),
    *("falcon", "falcon, one key head", "gemma3_text", "nanochat", "nemotron", "olmo3", "stablelm"),
    *("gemma3", "mistral3", "qwen2_vl", "qwen2_5_vl"),
    *("yarn", "yarn, interleaved", "yarn, partial", "yarn, partial and interleaved"),
    *("longrope, a short prompt", "longrope, a long prompt", "longrope, partial"),
)
"""Families that differ in rotation, pairing, scale, softcap, or the call of attention."""


@functools.lru_cache(maxsize=1)  # tests of one family follow each other
def engine_of(name: str, dtype: torch.dtype = torch.float64) -> Engine:
    family = FAMILIES[name]
    return Engine(make(family.kind, dtype, **family.options))


@torch.inference_mode()
def expected_logits(engine: Engine) -> Tensor:
    """Return the logits (n, V) of the model's own attention."""
    logits: Tensor = engine.model(torch.tensor(LAYOUT.ids)[None]).logits[0]
    return logits


def difference(result: Tensor, expected: Tensor) -> float:
    """Return the largest deviation, relative to the largest logit."""
    return ((result - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("name", by_tier(FAMILIES))
def test_vanilla_equals_the_model_and_pine_is_invariant(name: str) -> None:
    engine, tolerance = engine_of(name), TOLERANCE[torch.float64]
    expected = expected_logits(engine)
    assert {rope.pairing for rope in engine.patched_models[0].ropes} == {FAMILIES[name].pairing}
    assert difference(prefill_logits(engine, LAYOUT, "vanilla"), expected) <= tolerance

    pine, shuffled = (prefill_logits(engine, layout, "pine")[-1] for layout in (LAYOUT, REORDERED))
    assert difference(shuffled, pine) <= tolerance
    # Controls: vanilla depends on the order, and PINE differs from vanilla.
    assert difference(prefill_logits(engine, REORDERED, "vanilla")[-1], expected[-1]) > 20 * tolerance
    assert difference(pine, expected[-1]) > 20 * tolerance


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", by_tier(IN_HALF_PRECISION))
def test_half_precision_is_close_and_bitwise_invariant(name: str, dtype: torch.dtype) -> None:
    engine = engine_of(name, dtype)
    expected, vanilla = expected_logits(engine), prefill_logits(engine, LAYOUT, "vanilla")
    assert vanilla.dtype == dtype
    assert difference(vanilla, expected) <= TOLERANCE[dtype]
    assert difference(prefill_logits(engine, REORDERED, "vanilla")[-1], expected[-1]) > TOLERANCE[dtype]
    assert torch.equal(
        prefill_logits(engine, REORDERED, "pine")[-1], prefill_logits(engine, LAYOUT, "pine")[-1]
    )


@pytest.mark.parametrize(
    "method", ["pine", "pine_reversed", "pine_sum", "pine_max", "reassignment_only", "pcw_right", "vanilla"]
)
@pytest.mark.parametrize("name", by_tier(DEFINED))
def test_method_equals_its_definition(name: str, method: str) -> None:
    engine = engine_of(name)
    expected = reference_logits(engine.model, LAYOUT, method)
    assert difference(prefill_logits(engine, LAYOUT, method), expected) <= TOLERANCE[torch.float64]
