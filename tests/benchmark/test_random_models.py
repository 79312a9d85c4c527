"""Models with random weights: the shape asked for, the same weights every time, no side effects."""

import pytest
import torch

from pine_engine.benchmark.random_models import SHAPES, is_synthetic, load_engine, synthetic_model
from pine_engine.errors import ModelError


def test_the_same_name_gives_the_same_weights_and_leaves_the_callers_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = synthetic_model("random:tiny", dtype="bfloat16", device="cpu")
    assert torch.equal(torch.rand(3), expected)
    second = synthetic_model("random:tiny", dtype="bfloat16", device="cpu")
    for own, other in zip(first.parameters(), second.parameters(), strict=True):
        assert own.dtype == torch.bfloat16 and not own.requires_grad
        assert torch.equal(own, other)
    assert first.config._attn_implementation == "sdpa" and not first.training


def test_the_large_shape_has_eight_billion_weights() -> None:
    with torch.device("meta"):
        model = synthetic_model("random:llama-8b", dtype="bfloat16", device="meta")
    assert sum(weight.numel() for weight in model.parameters()) == 8_030_261_248
    assert {weight.device.type for weight in model.parameters()} == {"meta"}


def test_the_engine_of_such_a_model_has_its_name_and_no_tokenizer() -> None:
    engine = load_engine("random:tiny")
    assert (engine.model_name, engine.tokenizer) == ("random:tiny", None)
    assert engine.max_context_length == SHAPES["tiny"]["max_position_embeddings"]


def test_other_names_are_not_such_models() -> None:
    assert is_synthetic("random:huge")
    assert not is_synthetic("some/random") and not is_synthetic(None)
    with pytest.raises(ModelError, match="'random:huge' .*; choose from: random:tiny, .*, random:llama-8b"):
        load_engine("random:huge")
    with pytest.raises(ModelError, match="'no/such/folder' is not a model"):
        load_engine("no/such/folder")
