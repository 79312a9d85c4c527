"""Print the agreement of a device with the CPU, and the exactness of random models over document orders.

python -m tools.gpu_exactness --device cuda

Exit status 1 if an order-invariant method changed a bit, or if a logit is not within 1e-5 of the CPU's.
"""

import random
from itertools import product

import torch
import typer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import pine_engine as pine

METHODS = ("vanilla", "nia", "pcw", "sp", "pine", "pine_reversed")
TOLERANCE = 1e-5
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

HEADS = ((8, 2, 64), (32, 8, 128), (7, 1, 64), (14, 2, 64), (28, 4, 128), (16, 16, 96))
"""Query heads, key heads and head dimension."""

FAMILIES = ("llama", "mixtral", "gemma2")
"""Model types: dense, with a mixture of experts, and with soft-capped attention."""


def check(device: str = "cuda") -> None:
    """Print one line per model."""
    gaps = agreement(device)
    print(f"agreement with the CPU, float32: {gaps}")
    held = []
    for dtype, heads in product(DTYPES, HEADS):
        held.append(is_invariant(device, dtype, heads))
        print(f"{dtype}, {heads[0]}/{heads[1]} heads of {heads[2]}: {held[-1]}", flush=True)
    for dtype, family in product(DTYPES[:2], FAMILIES[1:]):
        held.append(is_invariant(device, dtype, HEADS[0], family))
        print(f"{dtype}, {family}: {held[-1]}", flush=True)
    raise typer.Exit(not all(held) or max(gaps.values()) > TOLERANCE)


def agreement(device: str) -> dict[str, float]:
    """Return the largest difference of the logits from those on the CPU, by method, in float32."""
    expected, found = (
        pine.Engine(random_model(place, torch.float32, HEADS[0])).run(
            random_layout(), methods=METHODS, max_new_tokens=12, return_logits=True, stop_at_eos=False
        )
        for place in ("cpu", device)
    )
    return {
        method: (expected.logits[method].cpu() - found.logits[method].cpu()).abs().max().item()
        for method in METHODS
    }


def is_invariant(
    device: str, dtype: torch.dtype, heads: tuple[int, int, int], family: str = FAMILIES[0]
) -> bool:
    """Check that order-invariant methods keep all bits over five orders, without a warning."""
    engine = pine.Engine(random_model(device, dtype, heads, family))
    shuffled = engine.shuffle(random_layout(), count=5, methods=METHODS, max_new_tokens=8, stop_at_eos=False)
    expected = {name: pine.METHODS[name].is_order_invariant or None for name in METHODS}
    return engine.invariance_warning is None and shuffled.invariance_held == expected


def random_layout() -> pine.TokenLayout:
    """Return six documents of 20 to 119 random tokens."""
    generator = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(generator.randrange(3, 997) for _ in range(count))

    documents = tuple(tokens(generator.randrange(20, 120)) for _ in range(6))
    return pine.TokenLayout(tokens(20), documents, tokens(12), scores=(0.5, 0.9, -0.2, 0.5, 0.1, 0.3))


def random_model(
    device: str, dtype: torch.dtype, heads: tuple[int, int, int], family: str = FAMILIES[0]
) -> PreTrainedModel:
    """Return a model of four layers with random weights."""
    num_heads, num_kv_heads, head_dim = heads
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        family,
        vocab_size=1000,
        hidden_size=num_heads * head_dim,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=8192,
    )
    with torch.device("cpu"):  # whose random numbers are those of every device
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.eval().to(torch.device(device))
    return model


if __name__ == "__main__":
    typer.run(check)
