"""Which models prove themselves, and what is said to those who bring another."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pine_engine.engine import Engine
from pine_engine.errors import ModelError
from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS
from pine_engine.models import max_context
from pine_engine.probe import TOLERANCE, prove

FAMILIES = {
    "llama": "half",
    "qwen2": "half",
    "qwen3": "half",
    "mistral": "half",
    "phi": "half",
    "phi3": "half",
    "olmo2": "half",
    "gemma": "half",
    "granite": "half",
    "starcoder2": "half",
    "gpt_neox": "half",
    "persimmon": "half",
    "cohere": "interleaved",
    "glm": "interleaved",
    "glm4": "interleaved",
    "ernie4_5": "interleaved",
}
"""Families of Hugging Face transformers and how their head dimensions pair up."""

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

MODEL_OF_ADVICE = "use a plain RoPE model such as Llama"


def make(family: str, dtype: torch.dtype = torch.float32, **options: Any) -> PreTrainedModel:
    """A model of that family with random weights large enough that positions matter."""
    given = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **options,
    }
    config = AutoConfig.for_model(family, **given)
    config.initializer_range = 0.2
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="eager")
    assert isinstance(model, PreTrainedModel)
    return model.eval()


LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))


IN_HALF_PRECISION = ("llama", "qwen3", "olmo2", "gemma", "gpt_neox", "cohere", "glm4")


@pytest.mark.parametrize(
    ("family", "dtype"),
    [(family, torch.float32) for family in FAMILIES]
    + [(family, dtype) for family in IN_HALF_PRECISION for dtype in (torch.bfloat16, torch.float16)],
    ids=str,
)
def test_vanilla_is_the_models_own_attention(family: str, dtype: torch.dtype) -> None:
    model = make(family, dtype)
    ids = torch.tensor(LAYOUT.ids)[None]
    with torch.inference_mode():
        own = model(ids).logits[0]
        engine = Engine(model)
        vanilla = engine.prefill(LAYOUT, METHODS["vanilla"], room=0, rows_kept=0)[1]
    assert engine.rope.pairing == FAMILIES[family]
    assert vanilla.dtype == dtype
    assert (vanilla - own).abs().max() <= TOLERANCE[dtype] * own.abs().max()
    # Control: were positions ignored, or the mask, this is how far the logits would be.
    with torch.inference_mode():
        elsewhere = model(ids, position_ids=torch.zeros_like(ids), pine_pass=_Causal()).logits[0]
    assert (elsewhere - own).abs().max() > TOLERANCE[dtype] * own.abs().max()


class _Causal:
    """Plain causal attention in place of ours."""

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=True
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_pine_is_invariant_in_every_family(family: str) -> None:
    """What a family adds around attention must not know the order; one token more than rounding would."""
    engine = Engine(make(family))
    with torch.inference_mode():
        one, other = (
            engine.prefill(layout, METHODS["pine"], room=0, rows_kept=1)[1]
            for layout in (LAYOUT, LAYOUT.reorder([2, 0, 1]))
        )
        vanilla = engine.prefill(LAYOUT.reorder([2, 0, 1]), METHODS["vanilla"], room=0, rows_kept=1)[1]
    size = one.abs().max()
    assert (one - other).abs().max() <= TOLERANCE[torch.float32] * size
    assert (one - vanilla).abs().max() > TOLERANCE[torch.float32] * size


def test_a_model_may_be_wrapped_twice() -> None:
    model = make("llama")
    assert torch.equal(Engine(model).rope.inverse_frequencies, Engine(model).rope.inverse_frequencies)
    assert Engine(model).run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_end=False)


YARN = {
    "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 128
}  # fmt: skip


@pytest.mark.parametrize(("rope_type", "scaled"), [("linear", False), ("llama3", False), ("yarn", True)])
def test_fixed_scaled_frequencies_are_supported(rope_type: str, scaled: bool) -> None:
    parameters = YARN | {"rope_type": rope_type}
    if rope_type == "llama3":
        parameters |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope = prove(make("llama", rope_parameters=parameters))
    assert (rope.scale > 1.1) == scaled


def test_importance_does_not_know_yarns_factor() -> None:
    """Importance is taken from queries and keys as they are before the rotation and its factor."""
    plain = Engine(make("llama", num_hidden_layers=1))
    scaled = Engine(make("llama", num_hidden_layers=1, rope_parameters=YARN))
    assert scaled.rope.scale > 1.1
    ours, theirs = (
        engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, trace=True, stop_at_end=False).traces["pine"]
        for engine in (plain, scaled)
    )
    assert ours.suffix_importance is not None and theirs.suffix_importance is not None
    assert theirs.suffix_importance == pytest.approx(ours.suffix_importance, abs=1e-6)
    assert ours.document_importance is not None and theirs.document_importance is not None
    assert theirs.document_importance == pytest.approx(ours.document_importance, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ["mistral", "phi3"])
def test_a_window_shorter_than_the_probe_is_refused(family: str, dtype: torch.dtype) -> None:
    sentence = (
        r"^\w+ForCausalLM: attention through PINE's function \(vanilla, one document\) deviates from .*"
    )
    with pytest.raises(ModelError, match=sentence + "such as a sliding window.*Llama, Qwen2 or Mistral$"):
        prove(make(family, dtype, sliding_window=8))


@pytest.mark.parametrize(
    ("family", "options", "limit"),
    [
        ("llama", {}, 512),
        ("mistral", {"sliding_window": 300}, 300),
        ("mistral", {"sliding_window": 4096}, 512),
        ("mistral", {"sliding_window": None}, 512),
        ("qwen2", {"sliding_window": 300}, 512),
        ("qwen2", {"sliding_window": 300, "use_sliding_window": True, "max_window_layers": 1}, 300),
        ("qwen2", {"sliding_window": 300, "use_sliding_window": True, "max_window_layers": 2}, 512),
    ],
)
def test_a_longer_window_limits_the_context(family: str, options: dict[str, Any], limit: int) -> None:
    assert max_context(make(family, **options)) == limit


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_soft_capping_is_refused_however_coarse_the_dtype(dtype: torch.dtype) -> None:
    with pytest.raises(ModelError) as raised:
        prove(make("gemma2", dtype, attn_logit_softcapping=50.0, head_dim=8))
    assert str(raised.value) == (
        "Gemma2ForCausalLM limits its attention scores (soft-capping), which is not supported; "
        "use a plain RoPE model such as Llama, Qwen2 or Mistral"
    )


def test_sinks_are_refused() -> None:
    with pytest.raises(ModelError, match="GptOssForCausalLM: attention through PINE's function.* or sinks"):
        prove(make("gpt_oss", head_dim=8, num_local_experts=2, num_experts_per_tok=1))


@pytest.mark.parametrize("family", ["gpt2", "opt", "bloom"])
def test_models_with_other_positions_are_refused(family: str) -> None:
    with pytest.raises(
        ModelError, match="^the model has no rotary position embedding, which PINE needs; use"
    ):
        prove(make(family))


@pytest.mark.parametrize(
    ("rope_type", "options"),
    [("dynamic", {}), ("longrope", {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4})],
)
def test_frequencies_that_change_with_the_prompt_are_refused_by_name(
    rope_type: str, options: dict[str, Any]
) -> None:
    with pytest.raises(
        ModelError, match=f"^rope type '{rope_type}' changes its frequencies with the prompt's"
    ):
        prove(make("llama", rope_parameters=YARN | {"rope_type": rope_type, **options}))


@pytest.mark.parametrize("family", ["gemma3_text", "olmo3"])
def test_several_rotations_are_refused(family: str) -> None:
    with pytest.raises(ModelError, match="^the model rotates some layers by other frequencies than others"):
        prove(make(family))


@pytest.mark.parametrize("family", ["smollm3", "cohere2"])
def test_a_layer_without_rotation_is_refused(family: str) -> None:
    with pytest.raises(ModelError, match=f"deviates from plain RoPE by .* in some layer.*{MODEL_OF_ADVICE}$"):
        prove(make(family, num_hidden_layers=4))


@pytest.mark.parametrize(("family", "number"), [("minimax", 1), ("lfm2", 1), ("falcon", 0)])
def test_layers_that_do_not_ask_our_function_are_refused(family: str, number: int) -> None:
    options = {"layer_types": ["conv", "full_attention"]} if family == "lfm2" else {}
    with pytest.raises(
        ModelError, match=f": {number} of 2 layers call an attention function that can be repl"
    ):
        prove(make(family, **options))


def test_tokens_that_meet_outside_attention_are_refused() -> None:
    mamba = {
        "mamba_d_ssm": 8,
        "mamba_n_heads": 2,
        "mamba_d_head": 4,
        "mamba_d_state": 4,
        "mamba_chunk_size": 8,
    }
    with pytest.raises(
        ModelError,
        match="^FalconH1ForCausalLM: its tokens meet outside attention too, such as in a convolution",
    ):
        prove(make("falcon_h1", head_dim=8, **mamba))


def test_a_neighbour_that_is_mixed_in_is_seen() -> None:
    model = make("llama")
    model.model.layers[1].mlp.register_forward_hook(lambda *args: args[-1] + 0.5 * args[-1].roll(1, dims=1))
    with pytest.raises(ModelError, match="its tokens meet outside attention"):
        prove(model)


@pytest.mark.parametrize("family", ["stablelm", "nemotron"])
def test_families_that_hand_nothing_on_to_attention_are_refused_in_a_sentence(family: str) -> None:
    sentence = f"ForCausalLM cannot be run with PINE's attention function .*pine_pass.*; {MODEL_OF_ADVICE}"
    with pytest.raises(ModelError, match=sentence):
        prove(make(family))


def test_a_models_own_fault_is_not_taken_for_one_of_its_kind() -> None:
    model = make("llama")

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    model.model.layers[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        prove(model)
