"""Weights in 4 bits, against the same sum written out, and what a model packs."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from pine_engine import Engine, ModelError, TokenLayout
from pine_engine.benchmark.shapes import synthetic_model
from pine_engine.models.packed import GROUP, PackedWeight, is_packable, pack, stored_in_4_bits
from pine_engine.network.thread_tuner import torch_num_threads
from tests.support.errors import has_field

LAYOUT = TokenLayout((1, 2, 3), ((4, 5, 6, 7), (8, 9), (10, 11, 12)), (13, 14, 15))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def as_stored(outputs: int, inputs: int) -> Tensor:
    """Weights as a Q4_1 file holds them: 16 equal steps in each group, the first and the last among them."""
    groups = (outputs, inputs // GROUP)
    numbers = torch.randint(0, 16, (*groups, GROUP), generator=torch.Generator().manual_seed(1))
    numbers[..., 0], numbers[..., 1] = 0, 15
    step, minimum = normal(*groups, 1, seed=2).abs() + 0.1, normal(*groups, 1, seed=3)
    return (numbers * step + minimum).flatten(1)


def test_gemm_uses_sixteen_steps_per_group() -> None:
    weight, rows = normal(48, 3 * GROUP), normal(5, 3 * GROUP, seed=1)
    groups = weight.double().unflatten(1, (-1, GROUP))
    minimum, maximum = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    width = maximum - minimum
    rounded = (((groups - minimum) / width * 15).round() / 15 * width + minimum).flatten(1)
    expected = rows.bfloat16().double() @ rounded.T
    found = PackedWeight.of(weight).multiply(rows)
    assert found.dtype == rows.dtype
    exact = rows.double() @ weight.double().T
    assert ((found - expected).norm() / expected.norm()).item() < 5e-3
    assert ((found - exact).norm() / expected.norm()).item() > 2e-2  # 4 bits, not more


def test_stored_weights_are_recovered() -> None:
    for weight in (as_stored(32, 2 * GROUP), torch.full((16, GROUP), 0.5)):
        recovered = PackedWeight.of(weight).multiply(torch.eye(weight.shape[1])).T
        assert ((recovered - weight).abs().amax() / weight.abs().amax()).item() < 2**-7  # bfloat16


@pytest.mark.parametrize(("inputs", "outputs", "threads"), [(576, 192, 1), (1536, 576, 2), (64, 16, 3)])
def test_4_bit_gemm_is_batch_invariant(inputs: int, outputs: int, threads: int) -> None:
    packed, rows = PackedWeight.of(normal(outputs, inputs)), normal(72, inputs, seed=1)
    with torch_num_threads(1):
        alone = torch.cat([packed.multiply(row) for row in rows.split(1)])
    with torch_num_threads(threads):
        for count in (2, 3, 4, 5, 8, 16, 36, 72):
            assert torch.equal(packed.multiply(rows[:count]), alone[:count])
            assert torch.equal(packed.multiply(rows[:count].flip(0)), alone[:count].flip(0))


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"), [(2 * GROUP, 16, True), (GROUP + 1, 16, False), (GROUP, 15, False)]
)
def test_layer_of_whole_groups_and_blocks_is_packable(inputs: int, outputs: int, expected: bool) -> None:
    assert is_packable(nn.Linear(inputs, outputs)) == expected


def test_unpackable_model_raises_model_error() -> None:
    config = LlamaConfig(hidden_size=24, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2)
    narrow = LlamaForCausalLM(config)
    assert not stored_in_4_bits(narrow)
    for model in (narrow, synthetic_model("random:tiny", dtype="bfloat16", device="cpu")):
        with pytest.raises(ModelError, check=has_field("dtype")):
            Engine(model, decode_in_4bit=True)


def test_stored_in_4_bits_needs_every_layer() -> None:
    model = synthetic_model("random:tiny", dtype="float32", device="cpu")
    assert not stored_in_4_bits(model)
    linear = {module.weight for module in model.modules() if type(module) is nn.Linear}
    assert linear - pack(model).keys() == {model.get_output_embeddings().weight}
    for weight in pack(model):
        weight.data = as_stored(*weight.shape)
    assert stored_in_4_bits(model)
    last = list(pack(model))[-1]
    last.data = torch.randn_like(last)
    assert not stored_in_4_bits(model)


def test_only_decode_uses_packed_weights() -> None:
    model = synthetic_model("random:tiny", dtype="float32", device="cpu")
    whole, packed = Engine(model), Engine(model, decode_in_4bit=True)
    assert [repr(engine) for engine in (whole, packed)] == [
        f"Engine(model, {dtype} on cpu)" for dtype in ("float32", "4bit")
    ]
    options: Any = {"methods": ("vanilla", "pine"), "max_new_tokens": 4, "stop_at_eos": False}
    runs = [engine.run(LAYOUT, return_logits=True, **options) for engine in (whole, packed)]
    suffix = LAYOUT.suffix_length
    for method in runs[0].answers:
        one, other = (run.logits[method] for run in runs)
        assert torch.equal(one[:suffix], other[:suffix])
        assert not torch.equal(one[suffix], other[suffix])
        assert ((one[suffix] - other[suffix]).norm() / one[suffix].norm()).item() < 0.5


def test_packed_answers_are_identical_in_every_order() -> None:
    engine = Engine(synthetic_model("random:tiny", dtype="4bit", device="cpu"), decode_in_4bit=True)
    result = engine.shuffle(LAYOUT, methods=("pcw", "sp", "pine"), max_new_tokens=5, stop_at_eos=False)
    assert all(cell.bitwise_identical for row in result.results for cell in row.comparisons.values())
