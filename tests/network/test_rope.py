"""Our rotation against transformers' own, and what it must not change."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.cohere.modeling_cohere import CohereRotaryEmbedding
from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb as rotate_interleaved
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb as rotate_partially
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as rotate_halves

from pine_engine.errors import ModelError
from pine_engine.network.rope import Pairing, Rope, from_pairs, possible_ropes
from tests.support.families import FAMILIES, make

HEAD_DIM = 16
ANGLE_ROUNDING = 1e-5
"""Float32 angles of positions below 100 are off by up to 4e-6, ours and theirs alike but not equally."""

EXACT = 1e-12
"""Float64 sums of 16 products."""

FREQUENCIES = 1 / 10_000 ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)


def random_vectors(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def rotated(rope: Rope, vectors: Tensor) -> Tensor:
    """Vectors (..., n, head_dim) rotated by positions 0 .. n - 1, in pair layout."""
    table = rope.table(vectors.shape[-2], vectors.shape[-1], vectors.dtype)
    return from_pairs(rope.to_pairs(vectors) * table)


def in_pair_layout(rope: Rope, vectors: Tensor) -> Tensor:
    return from_pairs(rope.to_pairs(vectors))


def embedding(kind: type[nn.Module], **options: Any) -> nn.Module:
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        head_dim=HEAD_DIM,
        max_position_embeddings=512,
        **options,
    )
    return kind(config)


@pytest.mark.parametrize(
    ("kind", "pairing", "their_rotation"),
    [
        (LlamaRotaryEmbedding, "half", rotate_halves),
        (CohereRotaryEmbedding, "interleaved", rotate_interleaved),
    ],
)
@pytest.mark.parametrize("rope_type", ["default", "linear", "llama3", "yarn"])
def test_rotation_is_transformers_own(
    kind: Any, pairing: Pairing, their_rotation: Any, rope_type: str
) -> None:
    parameters = {"rope_type": rope_type, "rope_theta": 10_000.0, "factor": 4.0}
    if rope_type in ("llama3", "yarn"):
        parameters["original_max_position_embeddings"] = 128
    if rope_type == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    module = embedding(kind, rope_parameters=parameters)
    rope = one_of(module, pairing)
    assert (rope.scale > 1.1) == (rope_type == "yarn")

    vectors = random_vectors(4, 60, HEAD_DIM)
    cos, sin = module(vectors, torch.arange(60)[None])
    theirs, _ = their_rotation(vectors[None], vectors[None], cos, sin)
    ours = rotated(rope, vectors) * rope.scale
    torch.testing.assert_close(ours, in_pair_layout(rope, theirs[0]), rtol=0, atol=ANGLE_ROUNDING)


def test_dimensions_beyond_the_rotary_ones_rest() -> None:
    turning = 6
    rope = Rope(FREQUENCIES.float()[: turning // 2], "half", 1.0)
    vectors = random_vectors(4, 40, HEAD_DIM)
    angles = torch.arange(40)[:, None] * rope.inverse_frequencies
    both = torch.cat((angles, angles), dim=-1)[None]
    theirs, _ = rotate_partially(vectors[None], vectors[None], both.cos(), both.sin())
    ours = rotated(rope, vectors)
    torch.testing.assert_close(ours, in_pair_layout(rope, theirs[0]), rtol=0, atol=ANGLE_ROUNDING)
    assert torch.equal(ours[..., turning:], vectors[..., turning:])


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [4, 10, HEAD_DIM])
def test_pair_layout_is_a_permutation_and_keeps_scalar_products(pairing: Pairing, rotary_dim: int) -> None:
    rope = Rope(FREQUENCIES[: rotary_dim // 2], pairing, 1.0)
    numbered = torch.arange(HEAD_DIM, dtype=torch.float64)
    layout = in_pair_layout(rope, numbered)
    assert sorted(layout.tolist()) == numbered.tolist()
    turning = layout[:rotary_dim].view(-1, 2).tolist()
    half = rotary_dim // 2
    expected = [[i, i + half] if pairing == "half" else [2 * i, 2 * i + 1] for i in range(half)]
    assert turning == expected


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_the_table_holds_unit_numbers_in_the_precision_asked_for(
    dtype: torch.dtype, tolerance: float
) -> None:
    table = Rope(FREQUENCIES.float(), "half", 1.0).table(300, HEAD_DIM, dtype)
    assert table.shape == (300, HEAD_DIM // 2)
    torch.testing.assert_close(
        table.abs(), torch.ones(300, HEAD_DIM // 2, dtype=dtype), rtol=0, atol=tolerance
    )
    assert torch.equal(table[0], torch.ones_like(table[0]))
    assert table[1, 0].angle().item() == pytest.approx(1.0, abs=10 * tolerance)


@given(
    query_at=st.integers(0, 60), key_at=st.integers(0, 60), shift=st.integers(0, 60), seed=st.integers(0, 99)
)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary_dim", [6, HEAD_DIM])
def test_moving_query_and_key_together_changes_no_score(
    pairing: Pairing, rotary_dim: int, query_at: int, key_at: int, shift: int, seed: int
) -> None:
    rope = Rope(FREQUENCIES[: rotary_dim // 2], pairing, 1.0)
    table = rope.table(121, HEAD_DIM, torch.float64)
    query, key = rope.to_pairs(random_vectors(2, HEAD_DIM, dtype=torch.float64, seed=seed))

    def score(query_at: int, key_at: int) -> float:
        return float(from_pairs(query * table[query_at]) @ from_pairs(key * table[key_at]))

    assert score(query_at + shift, key_at + shift) == pytest.approx(score(query_at, key_at), abs=EXACT)


def test_control_moving_the_key_alone_changes_the_score() -> None:
    rope = Rope(FREQUENCIES, "half", 1.0)
    table = rope.table(9, HEAD_DIM, torch.float64)
    query, key = rope.to_pairs(random_vectors(2, HEAD_DIM, dtype=torch.float64))
    scores = [float(from_pairs(query * table[8]) @ from_pairs(key * table[at])) for at in (0, 1)]
    assert abs(scores[0] - scores[1]) > 0.1


# which models


def llama(**parameters: Any) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": 10_000.0, "factor": 2.0, **parameters},
    )
    model: LlamaForCausalLM = LlamaForCausalLM(config).eval()
    return model


def one_of(model: nn.Module, pairing: Pairing, sign: int = 1) -> Rope:
    """The only possible rope of a model that pairs its dimensions so and turns that way."""
    (rope,) = (
        rope
        for rope in possible_ropes(model)
        if rope.pairing == pairing and sign * rope.inverse_frequencies[0] > 0
    )
    return rope


def test_the_models_own_frequencies_are_taken() -> None:
    model = llama(rope_type="linear")
    rope = one_of(model, "interleaved")
    assert torch.equal(rope.inverse_frequencies, model.model.rotary_emb.inv_freq)
    assert rope.inverse_frequencies[0].item() == 0.5
    assert (rope.pairing, rope.scale) == ("interleaved", 1.0)
    assert torch.equal(one_of(model, "half", sign=-1).inverse_frequencies, -rope.inverse_frequencies)


def test_each_kind_of_layer_may_have_frequencies_of_its_own() -> None:
    config: Any = make("gemma3_text", **FAMILIES["gemma3_text"].options).config
    found = {rope.inverse_frequencies[0].item() for rope in possible_ropes(Gemma3RotaryEmbedding(config))}
    assert found == {1.0, -1.0, 0.25, -0.25}


def test_the_scale_is_taken_out_of_the_dimensions_that_turn_alone() -> None:
    rope = Rope(torch.ones(2), "half", 3.0)
    vectors = random_vectors(5, 8)
    model_gives = torch.cat((3 * vectors[:, :4], vectors[:, 4:]), dim=-1)
    pairs = rope.to_pairs(model_gives)
    scores = from_pairs(rope.unscaled(pairs)) @ from_pairs(pairs).T
    torch.testing.assert_close(scores, vectors @ vectors.T)


def test_a_model_without_rotation_is_refused() -> None:
    with pytest.raises(
        ModelError, match="^the model has no rotary position embedding, which PINE needs; use"
    ):
        possible_ropes(nn.Linear(2, 2))
