"""Which models prove themselves, and what is said to those who bring another."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from pine_engine.attention import model_validation
from pine_engine.attention.model_validation import validate_model
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError, ModelError
from pine_engine.models.support import context_in_words, stated_context
from tests.support.families import LAYOUT, longrope, make, rope

DTYPES = [torch.float32, torch.bfloat16, torch.float16]

MODEL_OF_ADVICE = "use a plain RoPE model such as Llama"


def test_a_model_may_be_wrapped_twice() -> None:
    model = make("llama")
    one, other = (Engine(model).patched_models[0].ropes[0].inverse_frequencies for _ in range(2))
    assert torch.equal(one, other)
    assert Engine(model).run(LAYOUT, methods=["pine"], max_new_tokens=2, stop_at_eos=False)


def test_importance_does_not_know_yarns_factor() -> None:
    """Importance is taken from queries and keys as they are before the rotation and its factor."""
    plain = Engine(make("llama", num_hidden_layers=1))
    scaled = Engine(make("llama", num_hidden_layers=1, **rope("yarn")))
    assert scaled.patched_models[0].ropes[0].scale > 1.1
    ours, theirs = (
        engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, trace=True, stop_at_eos=False).traces["pine"]
        for engine in (plain, scaled)
    )
    assert ours.suffix_importance is not None and theirs.suffix_importance is not None
    assert theirs.suffix_importance == pytest.approx(ours.suffix_importance, abs=1e-6)
    assert ours.document_importance is not None and theirs.document_importance is not None
    assert theirs.document_importance == pytest.approx(ours.document_importance, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", ["mistral", "phi3"])
def test_a_window_shorter_than_the_probe_is_refused(family: str, dtype: torch.dtype) -> None:
    with pytest.raises(ModelError) as raised:
        validate_model(make(family, dtype, sliding_window=8))
    name = {"mistral": "Mistral", "phi3": "Phi3"}[family]
    assert str(raised.value) == (
        f"{name}ForCausalLM: its sliding window is 8 tokens, which would cut even a prompt of 35; use a "
        "plain RoPE model such as Llama, Qwen2 or Mistral"
    )


def test_attention_that_deviates_from_the_models_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that the config does not tell about stands for anything that only the logits show."""
    monkeypatch.setattr(model_validation, "sliding_window", lambda _: None)
    with pytest.raises(
        ModelError,
        match=r"PINE's function \(vanilla, one document\) deviates from .* is not supported; use a",
    ):
        validate_model(make("mistral", sliding_window=8))


READS, WINDOW, SCALES = "the model reads", "the model's sliding window is", "beyond"
TWO_KINDS = {"sliding_window": 300, "use_sliding_window": True, "max_window_layers": 1}
LATER_SCALED = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4, "llama_4_scaling_beta": 0.1}


@pytest.mark.parametrize(
    ("family", "options", "limit", "words"),
    [
        ("llama", {}, 512, READS),
        ("mistral", {"sliding_window": 300}, 300, WINDOW),
        ("mistral", {"sliding_window": 4096}, 512, READS),
        ("mistral", {"sliding_window": None}, 512, READS),
        ("qwen2", {"sliding_window": 300}, 512, READS),
        ("qwen2", TWO_KINDS, 300, WINDOW),
        ("qwen2", TWO_KINDS | {"max_window_layers": 2}, 512, READS),
        ("gemma2", {"sliding_window": 300}, 300, WINDOW),
        ("llama4_text", {"attention_chunk_size": 300}, 300, WINDOW),
        (
            "ministral3",
            {"rope_parameters": LATER_SCALED | {"original_max_position_embeddings": 200}},
            200,
            SCALES,
        ),
    ],
)
def test_what_limits_the_context_is_found_and_said(
    family: str, options: dict[str, Any], limit: int, words: str
) -> None:
    config = make(family, **options).config
    assert stated_context(config) == limit
    assert context_in_words(config).startswith(f"{words} {limit} ")


def test_a_prompt_longer_than_the_window_is_refused_naming_it() -> None:
    engine = Engine(make("mistral", sliding_window=40))
    engine.check_length(LAYOUT, 40 - LAYOUT.num_tokens)
    with pytest.raises(InputError) as raised:
        engine.check_length(LAYOUT, 41 - LAYOUT.num_tokens)
    assert str(raised.value) == (
        "the prompt has 17 tokens and the answer may take 24, but the model's sliding window is 40 tokens, "
        "and no document may fall out of it; shorten or remove documents, or ask for a shorter answer"
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_limit_on_scores_that_is_not_handed_to_attention_is_refused(dtype: torch.dtype) -> None:
    """However coarse the dtype: the probe's scores hardly reach the limit, so that logits would not tell."""
    model = make("llama", dtype)
    model.config.attn_logit_softcapping = 50.0
    with pytest.raises(ModelError) as raised:
        validate_model(model)
    assert str(raised.value) == (
        "LlamaForCausalLM: its config limits attention scores (soft-capping) to 50.0, but its layers ask for "
        "None; use a plain RoPE model such as Llama, Qwen2 or Mistral"
    )


LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
SPARSE = {"layer_types": ["full_attention", "minimax_m3_sparse"], "num_local_experts": 2}
MAMBA = {"head_dim": 8, "mamba_d_ssm": 8, "mamba_n_heads": 2, "mamba_d_head": 4, "mamba_d_state": 4}
LATENT_MOE = LATENT | {"n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1}


@pytest.mark.parametrize(
    ("family", "options", "found"),
    [
        ("bloom", {}, "BloomForCausalLM: its positions are ALiBi, a penalty on distance"),
        ("mpt", {}, "MptForCausalLM: its positions are ALiBi"),
        ("diffllama", {}, "DiffLlamaForCausalLM: its attention is a difference of two softmaxes"),
        ("hrm_text", {}, "HrmTextForCausalLM: it runs the same layers several times in cycles, and PINE"),
        ("falcon", {"alibi": True}, "FalconForCausalLM: its positions are ALiBi"),
        ("gpt2", {}, "GPT2LMHeadModel: its positions are learned or fixed vectors added to the tokens"),
        ("opt", {}, "OPTForCausalLM: its positions are learned or fixed vectors"),
        ("gpt_bigcode", {}, "GPTBigCodeForCausalLM: its positions are learned or fixed vectors"),
        ("deepseek_v2", LATENT_MOE, "DeepseekV2ForCausalLM: it has multi-head latent attention .MLA."),
        ("deepseek_v3", LATENT_MOE, "DeepseekV3ForCausalLM: it has multi-head latent attention .MLA."),
        ("minicpm3", LATENT, "MiniCPM3ForCausalLM: it has multi-head latent attention .MLA."),
        ("gptj", {"rotary_dim": 8}, "GPTJForCausalLM: it rotates by a table inside each attention layer"),
        ("gpt_oss", {"head_dim": 8, "num_local_experts": 2}, "GptOssForCausalLM: its attention has sinks"),
        ("smollm3", {"num_hidden_layers": 4}, "SmolLM3ForCausalLM: some of its layers have no rotary posi"),
        ("cohere2", {"num_hidden_layers": 4}, "Cohere2ForCausalLM: some of its layers have no rotary posit"),
        ("mamba", {"intermediate_size": 64}, "MambaForCausalLM: it has recurrent, state-space or convolu"),
        ("recurrent_gemma", {}, "RecurrentGemmaForCausalLM: it has recurrent, state-space or convolution"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "Lfm2ForCausalLM: it has recurrent, state-sp"),
        ("minimax", {}, "MiniMaxForCausalLM: it has recurrent, state-space or convolution layers"),
        ("minimax_m3_vl_text", SPARSE, "MiniMaxM3VLForCausalLM: it has layers of type 'minimax_m3_sparse'"),
        ("falcon_h1", MAMBA, "FalconH1ForCausalLM: it has recurrent, state-space or convolution layers"),
    ],
)
def test_what_the_config_tells_is_refused_by_name(family: str, options: dict[str, Any], found: str) -> None:
    with pytest.raises(ModelError, match=f"^{found}.*; {MODEL_OF_ADVICE}, Qwen2 or Mistral$"):
        validate_model(make(family, **options))


def test_an_encoder_decoder_model_is_refused() -> None:
    config = T5Config(vocab_size=97, d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2)
    with pytest.raises(
        ModelError,
        match="^T5ForConditionalGeneration: it is an encoder-decoder model, and PINE.*; use a plain",
    ):
        validate_model(T5ForConditionalGeneration(config))


def test_frequencies_that_change_with_every_length_are_refused_by_name() -> None:
    with pytest.raises(
        ModelError,
        match="^LlamaForCausalLM: its rope type 'dynamic' .dynamic RoPE. changes the frequencies .*; "
        "use a model with rope type 'default', 'linear', 'llama3', 'yarn' or 'longrope'$",
    ):
        validate_model(make("llama", **rope("dynamic")))


def test_a_rotary_module_that_goes_on_changing_its_rotation_is_refused() -> None:
    """Phi-3.5-MoE's chooses its factor by the position ids it is given, whatever it was set to."""
    changing = longrope(long_from=12, short_mscale=1.0, long_mscale=1.2)
    with pytest.raises(
        ModelError, match=r"^PhimoeRotaryEmbedding changes its rotation with the prompt's len"
    ):
        validate_model(make("phimoe", num_local_experts=4, **changing))


def test_layers_that_do_not_ask_our_function_are_refused() -> None:
    class Silent(nn.Module):
        def forward(self, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
            return torch.zeros_like(hidden_states), None

    model = make("llama")
    model.model.layers[1].self_attn = Silent()
    with pytest.raises(ModelError, match=": 1 of 2 layers call an attention function that can be replaced"):
        validate_model(model)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_neighbour_that_is_mixed_in_is_seen(dtype: torch.dtype) -> None:
    model = make("llama", dtype)
    model.model.layers[1].mlp.register_forward_hook(lambda *args: args[-1] + 0.5 * args[-1].roll(1, dims=1))
    with pytest.raises(
        ModelError, match="^LlamaForCausalLM: its tokens meet outside attention too, such as in a convolution"
    ):
        validate_model(model)


def test_weights_that_are_no_numbers_are_named() -> None:
    model = make("llama")
    model.model.layers[1].mlp.down_proj.weight.data[0, 3] = math.nan
    with pytest.raises(ModelError) as raised:
        validate_model(model)
    assert str(raised.value) == (
        "LlamaForCausalLM: its own logits are not all numbers; 1 of its weights hold NaN or infinity, the "
        "first is model.layers.1.mlp.down_proj.weight; load whole ones"
    )


def test_numbers_that_are_too_large_for_the_dtype_are_told_apart_from_broken_weights() -> None:
    model = make("llama", torch.float16)
    model.model.embed_tokens.weight.data.mul_(6e4).clamp_(-6e4, 6e4)
    model.model.norm.weight.data.fill_(6e4)
    with pytest.raises(ModelError, match="are not all numbers; load it in bfloat16 or float32$"):
        validate_model(model)


def test_a_mask_or_bias_that_a_family_makes_itself_is_refused() -> None:
    """Doge's grows out of the values, and its random weights begin with one that hides from the logits."""
    with pytest.raises(
        ModelError,
        match=f"^DogeForCausalLM: its attention masks or biases keys in a way of .*; {MODEL_OF_ADVICE}",
    ):
        validate_model(make("doge"))


def test_a_models_own_fault_is_not_taken_for_one_of_its_kind() -> None:
    model = make("llama")

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    model.model.layers[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        validate_model(model)
