"""Validation of models: supported ones agree with their own attention, others are refused with a reason."""

import math
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, T5Config, T5ForConditionalGeneration

from pine_engine import Engine, InputError, ModelError
from pine_engine.attention import model_validation
from pine_engine.attention.model_validation import validate_model
from pine_engine.models import support
from pine_engine.models.support import UNSUPPORTED, context_limit
from pine_engine.network.rope import Rope
from tests.support.families import LATENT_EXPERTS, LAYOUT, longrope, make, rope

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

ADVICE = "use a plain RoPE model such as Llama, Qwen2 or Mistral"


def test_importance_is_independent_of_yarn_scale() -> None:
    """Importance is computed before RoPE, and so before the factor that yarn multiplies into the rotation."""
    engines = [Engine(make("llama", num_hidden_layers=1, **options)) for options in ({}, rope("yarn"))]
    assert engines[1].patched_models[0].ropes[0].scale > 1.1
    runs = (engine.run(LAYOUT, methods="pine", max_new_tokens=1, trace=True) for engine in engines)
    plain, scaled = (run.traces["pine"] for run in runs)
    assert scaled.suffix_importance == pytest.approx(plain.suffix_importance, abs=1e-6)
    assert scaled.document_importance == pytest.approx(plain.document_importance, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("place", [0, 1])
def test_rotation_with_nan_deviates_infinitely(place: int) -> None:
    vectors = [torch.ones(1, 3, 4), torch.ones(1, 3, 4)]
    vectors[place][0, 1, 2] = math.nan
    rotation = Rope(torch.zeros(2), "half", 1.0)
    assert model_validation._rotation_deviation(rotation, vectors, vectors) == math.inf


WINDOW = "the model's sliding window is"
EXTENDING = ("linear", "yarn")
LLAMA_4 = {"head_dim": 8, "num_local_experts": 2, "no_rope_layers": [1, 0]}
TWO_KINDS = {"sliding_window": 300, "use_sliding_window": True, "max_window_layers": 1}
SCALED_LATER = rope("yarn", llama_4_scaling_beta=0.1, factor=2.0, original_max_position_embeddings=200)[
    "rope_parameters"
]


@pytest.mark.parametrize(
    ("family", "options", "limit", "words"),
    [
        ("llama", {}, 512, "the context of the model is"),
        # As model cards switch scaling on: the factor times the context of the training.
        *(("llama", rope(kind, factor=8.0), 1024, "the context of the model is") for kind in EXTENDING),
        (
            "llama",
            rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0),
            512,
            "the context of the model is",
        ),
        ("llama4_text", LLAMA_4 | {"floor_scale": 300}, 299, "beyond"),
        ("llama4_text", LLAMA_4 | {"attention_chunk_size": 200}, 200, WINDOW),
        ("mistral", {"sliding_window": 300}, 300, WINDOW),
        *(("mistral", {"sliding_window": size}, 512, "the context of the model is") for size in (4096, None)),
        ("qwen2", {"sliding_window": 300}, 512, "the context of the model is"),
        ("qwen2", TWO_KINDS, 300, WINDOW),
        ("qwen2", TWO_KINDS | {"max_window_layers": 2}, 512, "the context of the model is"),
        ("gemma2", {"sliding_window": 300}, 300, WINDOW),
        ("llama4_text", {"attention_chunk_size": 300}, 300, WINDOW),
        ("ministral3", {"rope_parameters": SCALED_LATER}, 200, "beyond"),
    ],
)
def test_context_limit_is_the_shortest(family: str, options: dict[str, Any], limit: int, words: str) -> None:
    tokens, reason = context_limit(make(family, **options).config) or (None, "")
    assert tokens == limit and reason.startswith(f"{words} {limit} ")


def test_prompt_longer_than_window_is_refused() -> None:
    engine = Engine(make("mistral", sliding_window=40))
    engine.check_length(LAYOUT, 40 - LAYOUT.num_tokens)
    with pytest.raises(InputError, match="sliding window is 40 tokens"):
        engine.check_length(LAYOUT, 41 - LAYOUT.num_tokens)


SPARSE = {"layer_types": ["full_attention", "minimax_m3_sparse"], "num_local_experts": 2}
MAMBA = {"head_dim": 8, "mamba_d_ssm": 8, "mamba_n_heads": 2, "mamba_d_head": 4, "mamba_d_state": 4}
RECURRENT: dict[str, dict[str, Any]] = {
    "mamba": {"intermediate_size": 64}, "recurrent_gemma": {}, "minimax": {}, "falcon_h1": MAMBA,
    "lfm2": {"layer_types": ["conv", "full_attention"]}, "rwkv": {"attention_hidden_size": 32},
}  # fmt: skip
CHANGING = longrope(long_from=12, short_mscale=1.0, long_mscale=1.2)


@pytest.mark.parametrize(
    ("family", "options", "reason"),
    [
        *((name, {}, "ALiBi") for name in ("bloom", "mpt")),
        ("falcon", {"alibi": True}, "ALiBi"),
        *((name, {}, "learned or fixed vectors") for name in ("gpt2", "opt", "gpt_bigcode")),
        ("deepseek_v32", LATENT_EXPERTS | {"index_topk": 4}, "which an indexer selects"),
        ("roformer", {"is_decoder": True}, "by a table inside each attention layer"),
        *((name, options, "recurrent, state-space or convolution") for name, options in RECURRENT.items()),
        ("minimax_m3_vl_text", SPARSE, "minimax_m3_sparse"),
        *((name, {"sliding_window": 8}, "sliding window is 8 tokens") for name in ("mistral", "phi3")),
        ("doge", {}, "masks keys by their values"),
    ],
)
def test_unsupported_family_is_refused(family: str, options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=f"{reason}.*; {ADVICE}$"):
        validate_model(make(family, **options), {})


def test_mask_of_a_model_is_found_at_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(UNSUPPORTED, "doge")
    # Its mask depends on the values, and is hidden from the logits by its initial weights.
    with pytest.raises(ModelError, match=f"masks or biases keys by itself.*; {ADVICE}$"):
        validate_model(make("doge"), {})


def _with_silent_layer(model: PreTrainedModel) -> None:
    class Silent(nn.Module):
        def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
            return torch.zeros_like(hidden_states), None

    model.model.layers[1].self_attn = Silent()


def _with_mixed_tokens(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.register_forward_hook(lambda *args: args[-1] + 0.5 * args[-1].roll(1, dims=1))


def _with_hidden_softcap(model: PreTrainedModel) -> None:
    """The scores of the validation prompt are far below the softcap, so the logits do not show it."""
    model.config.attn_logit_softcapping = 50.0


def _with_broken_weight(model: PreTrainedModel) -> None:
    model.model.layers[1].mlp.down_proj.weight.data[0, 3] = math.nan


def _with_overflow(model: PreTrainedModel) -> None:
    model.model.embed_tokens.weight.data.mul_(6e4).clamp_(-6e4, 6e4)
    model.model.norm.weight.data.fill_(6e4)


@pytest.mark.parametrize(
    ("change", "dtypes", "reason"),
    [
        (_with_silent_layer, DTYPES[:1], "1 of 2 layers call an attention function"),
        (_with_mixed_tokens, DTYPES, "tokens interact outside attention"),
        (_with_hidden_softcap, DTYPES, "soft-capping"),
        (_with_broken_weight, DTYPES[:1], "not finite; 1 of its weights .* model.layers.1.mlp.down_proj"),
        (_with_overflow, [torch.float16], "not finite; load it in bfloat16 or float32"),
    ],
)
def test_changed_model_is_refused(
    change: Callable[[PreTrainedModel], None], dtypes: list[torch.dtype], reason: str
) -> None:
    for dtype in dtypes:
        model = make("llama", dtype)
        change(model)
        with pytest.raises(ModelError, match=f"^LlamaForCausalLM: .*{reason}"):
            validate_model(model, {})


def test_other_architectures_are_refused() -> None:
    config = T5Config(vocab_size=97, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(ModelError, match="encoder-decoder"):
        validate_model(T5ForConditionalGeneration(config), {})
    with pytest.raises(ModelError, match="'dynamic'"):
        validate_model(make("llama", **rope("dynamic")), {})
    with pytest.raises(ModelError, match="PhimoeRotaryEmbedding changes its rotation"):
        validate_model(make("phimoe", num_local_experts=4, **CHANGING), {})


def test_kernel_of_packed_weights_is_refused() -> None:
    def multiply(layer: nn.Linear, rows: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", rows, layer.weight / 99)

    model = make("llama")
    model.config.quantization_config = {"quant_method": "sealed"}
    layer: Any = model.model.layers[1].mlp.down_proj
    layer.__class__ = type("Packed", (nn.Linear,), {"forward": multiply})
    layer.weight = nn.Parameter(layer.weight.mul(99).to(torch.int8), requires_grad=False)
    with pytest.raises(ModelError, match="Packed layers .* sealed quantization"):
        validate_model(model, {})


def test_attention_that_deviates_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sliding window that the configuration does not show is an example of what only the logits show."""
    monkeypatch.setattr(support, "sliding_window", lambda _: None)
    with pytest.raises(ModelError, match=r"\(vanilla\) deviates"):
        validate_model(make("mistral", sliding_window=8), {})


def test_error_of_the_model_is_raised_unchanged() -> None:
    model = make("llama")
    model.model.layers[0].register_forward_hook(Mock(side_effect=RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        validate_model(model, {})
