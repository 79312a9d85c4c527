import random

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

import pine_engine as pine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

METHODS = ["vanilla", "pcw", "sp", "pine", "pine_reversed"]

HEADS = ((8, 2, 64), (32, 8, 128), (7, 1, 64), (14, 2, 64), (28, 4, 128), (16, 16, 96))
"""Query heads, key heads and head dimension."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), HEADS)
def test_methods_are_order_invariant_on_a_gpu(
    dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int
) -> None:
    generator = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(generator.randrange(3, 997) for _ in range(count))

    documents = tuple(tokens(generator.randrange(20, 120)) for _ in range(6))
    layout = pine.TokenLayout(tokens(20), documents, tokens(12))
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama",
        vocab_size=1000,
        hidden_size=num_heads * head_dim,
        intermediate_size=1536,
        num_hidden_layers=4,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=8192,
    )
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    engine = pine.Engine(model)
    shuffled = engine.shuffle(layout, count=5, methods=METHODS, max_new_tokens=8, stop_at_eos=False)
    assert engine.invariance_warning is None
    assert shuffled.invariance_held == {name: None if name == "vanilla" else True for name in METHODS}
