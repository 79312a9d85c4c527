"""Weights in 4 bits, against the same sum written out, and what a model packs."""

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from pine_engine.benchmark.random_models import synthetic_model
from pine_engine.engine.engine import Engine
from pine_engine.errors import ModelError
from pine_engine.models.packed import GROUP, PackedWeight, is_packable, pack, stored_in_4_bits
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.prompts.layout import TokenLayout

LAYOUT = TokenLayout((1, 2, 3), ((4, 5, 6, 7), (8, 9), (10, 11, 12)), (13, 14, 15))


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def as_stored(outputs: int, inputs: int) -> Tensor:
    """Weights as a Q4_1 file holds them: 16 equal steps in each group, the first and the last among them."""
    numbers = torch.randint(
        0, 16, (outputs, inputs // GROUP, GROUP), generator=torch.Generator().manual_seed(1)
    )
    numbers[..., 0], numbers[..., 1] = 0, 15
    step, least = (
        normal(outputs, inputs // GROUP, 1, seed=2).abs() + 0.1,
        normal(outputs, inputs // GROUP, 1, seed=3),
    )
    return (numbers * step + least).flatten(1)


def test_the_product_is_that_of_weights_rounded_to_sixteen_steps_of_their_group() -> None:
    weight, rows = normal(48, 3 * GROUP), normal(5, 3 * GROUP, seed=1)
    groups = weight.double().unflatten(1, (-1, GROUP))
    least, most = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    rounded = (((groups - least) / (most - least) * 15).round() / 15 * (most - least) + least).flatten(1)
    expected = rows.bfloat16().double() @ rounded.T
    found = PackedWeight.of(weight).multiply(rows)
    assert found.dtype == rows.dtype
    assert ((found - expected).norm() / expected.norm()).item() < 5e-3
    assert (
        (found - rows.double() @ weight.double().T).norm() / expected.norm()
    ).item() > 2e-2  # 4 bits, not more


def test_weights_that_were_stored_in_4_bits_are_found_again() -> None:
    weight = as_stored(32, 2 * GROUP)
    read_off = PackedWeight.of(weight).multiply(torch.eye(2 * GROUP)).T
    assert ((read_off - weight).abs().amax() / weight.abs().amax()).item() < 2**-7  # bfloat16


def test_a_group_of_equal_weights_keeps_its_value() -> None:
    read_off = PackedWeight.of(torch.full((16, GROUP), 0.5)).multiply(torch.eye(GROUP))
    assert (read_off == 0.5).all()


@pytest.mark.parametrize(("inputs", "outputs"), [(576, 192), (1536, 576), (64, 16)])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_row_has_the_same_bits_alone_and_among_any_others(inputs: int, outputs: int, threads: int) -> None:
    packed, rows = PackedWeight.of(normal(outputs, inputs)), normal(72, inputs, seed=1)
    with torch_num_threads(1):
        alone = torch.cat([packed.multiply(row) for row in rows.split(1)])
    with torch_num_threads(threads):
        for count in (2, 3, 4, 5, 8, 16, 36, 72):
            assert torch.equal(packed.multiply(rows[:count]), alone[:count])
            assert torch.equal(packed.multiply(rows[:count].flip(0)), alone[:count].flip(0))


def test_what_the_kernel_takes() -> None:
    assert is_packable(nn.Linear(2 * GROUP, 16))
    assert not is_packable(nn.Linear(GROUP + 1, 16))
    assert not is_packable(nn.Linear(GROUP, 15))


def test_all_layers_are_packed_but_the_one_that_makes_logits() -> None:
    model = synthetic_model("random:tiny", dtype="4bit", device="cpu")
    packed = pack(model)
    linear = {module.weight for module in model.modules() if type(module) is nn.Linear}
    assert linear - packed.keys() == {model.get_output_embeddings().weight}


def test_a_model_in_another_dtype_is_refused() -> None:
    model = synthetic_model("random:tiny", dtype="bfloat16", device="cpu")
    with pytest.raises(
        ModelError, match=r"4bit is for models in float32 on the cpu, .* in bfloat16 on cpu; load"
    ):
        Engine(model, decode_in_4bit=True)


def test_a_model_without_a_layer_to_pack_is_refused() -> None:
    config = LlamaConfig(hidden_size=24, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2)
    model = LlamaForCausalLM(config)
    with pytest.raises(ModelError, match="has no linear layer that can be packed into 4 bits"):
        pack(model)


def test_whether_a_model_was_stored_in_4_bits_is_seen_by_each_of_its_layers() -> None:
    model = synthetic_model("random:tiny", dtype="float32", device="cpu")
    assert not stored_in_4_bits(model)
    for weight in pack(model):
        outputs, inputs = weight.shape
        weight.data = as_stored(outputs, inputs)
    assert stored_in_4_bits(model)
    last = list(pack(model))[-1]
    last.data = torch.randn_like(last)
    assert not stored_in_4_bits(model)
    config = LlamaConfig(hidden_size=24, intermediate_size=40, num_hidden_layers=1, num_attention_heads=2)
    assert not stored_in_4_bits(LlamaForCausalLM(config))  # nothing of it can be packed


def test_prompts_are_read_and_answers_scored_in_float32_and_answers_written_in_4_bits() -> None:
    model = synthetic_model("random:tiny", dtype="float32", device="cpu")
    whole, packed = Engine(model), Engine(model, decode_in_4bit=True)
    assert (whole.dtype, packed.dtype) == ("float32", "4bit")
    runs = [
        engine.run(
            LAYOUT, methods=("vanilla", "pine"), max_new_tokens=4, return_logits=True, stop_at_eos=False
        )
        for engine in (whole, packed)
    ]
    suffix = LAYOUT.suffix_length
    for method in runs[0].answers:
        one, other = (run.logits[method] for run in runs)
        assert torch.equal(one[:suffix], other[:suffix])
        assert not torch.equal(one[suffix], other[suffix])
        assert ((one[suffix] - other[suffix]).norm() / one[suffix].norm()).item() < 0.5


@pytest.mark.parametrize("methods", [("pine",), ("pcw", "sp", "pine")])
def test_answers_written_in_4_bits_are_the_same_in_every_order(methods: tuple[str, ...]) -> None:
    engine = Engine(synthetic_model("random:tiny", dtype="4bit", device="cpu"), decode_in_4bit=True)
    result = engine.shuffle(LAYOUT, methods=methods, max_new_tokens=5, stop_at_eos=False)
    assert all(cell.bitwise_identical for row in result.results for cell in row.comparisons.values())
