"""Models with random weights: known shape, same weights every time, no side effects."""

import pytest
import torch

from pine_engine.benchmark.random_models import SHAPES, is_synthetic, load_engine, synthetic_model
from pine_engine.errors import ModelError


def test_weights_are_reproducible_without_side_effects() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = synthetic_model("random:tiny", dtype="bfloat16", device="cpu")
    assert torch.equal(torch.rand(3), expected)
    second = synthetic_model("random:tiny", dtype="bfloat16", device="cpu")
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert one.dtype == torch.bfloat16 and not one.requires_grad and torch.equal(one, other)
    assert first.config._attn_implementation == "sdpa" and not first.training


def test_llama_8b_has_eight_billion_weights() -> None:
    with torch.device("meta"):
        model = synthetic_model("random:llama-8b", dtype="bfloat16", device="meta")
    assert sum(weight.numel() for weight in model.parameters()) == 8_030_261_248


def test_engine_of_random_model_has_name_and_no_tokenizer() -> None:
    engine = load_engine("random:tiny")
    assert (engine.model_name, engine.tokenizer) == ("random:tiny", None)
    assert engine.max_context_length == SHAPES["tiny"]["max_position_embeddings"]


def test_unknown_shape_device_and_other_names_are_refused() -> None:
    assert is_synthetic("random:huge") and not is_synthetic("some/random") and not is_synthetic(None)
    with pytest.raises(ModelError, match="random:llama-8b"):
        load_engine("random:huge")
    with pytest.raises(ModelError, match="'auto'"):
        load_engine("random:tiny", device="auto")
    with pytest.raises(ModelError, match="'no/such/folder'"):
        load_engine("no/such/folder")
