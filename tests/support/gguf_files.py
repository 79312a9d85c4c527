"""Tiny GGUF files that llama.cpp and transformers load: a random Llama with a tokenizer of bytes."""

from pathlib import Path

import torch
from gguf import GGUFWriter, TokenType
from tokenizers import pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from tests.support.tokenizers import CHAT_TEMPLATE, CONTROL

LAYER_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_tiny_gguf(path: Path, *, context: int = 2048, heads: int = 4, kv_heads: int = 2) -> Path:
    """Write a model of float32 weights, which generates letters until its limit of tokens."""
    tokens = [*CONTROL, *sorted(pre_tokenizers.ByteLevel.alphabet()), "th"]
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=context,
        initializer_range=0.2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    is_letter = torch.tensor([len(name) == 1 and name.isascii() for name in tokens])
    model.lm_head.weight.data[~is_letter] = 0  # answers are ASCII text, because the others have logit 0
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(context)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(config.hidden_size // heads)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL] * len(CONTROL) + [TokenType.NORMAL] * 256 + [TokenType.NORMAL])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in model.state_dict().items():
        kind = {"q_proj": heads, "k_proj": kv_heads}.get(name.split(".")[-2])
        writer.add_tensor(_gguf_name(name), (weight if kind is None else _interleave(weight, kind)).numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in OTHER_NAMES:
        return f"{OTHER_NAMES[stem]}.weight"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.weight"


def _interleave(weight: Tensor, heads: int) -> Tensor:
    """Return rows of queries or keys in the order of llama.cpp, which rotates neighboring dimensions."""
    halves = weight.reshape(heads, 2, -1, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape).contiguous()
