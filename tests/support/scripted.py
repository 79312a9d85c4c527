"""Tiny model whose next token depends on the last one alone, so that it generates a given text."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tests.support.tokenizers import THINKING, letter_tokenizer

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM

MARKERS = ("<think>", "</think>")


def scripted_llama(ids: Sequence[int], vocab_size: int, width: int = 128) -> "LlamaForCausalLM":
    """Return a Llama that generates `ids` after their first, each different, token by token."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    assert len(set(ids)) == len(ids) and vocab_size <= width
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=4,
        max_position_embeddings=900,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    model.eval()
    with torch.no_grad():
        layer = model.model.layers[0]
        layer.self_attn.o_proj.weight.mul_(1e-3)  # attention has a small effect, so that logits differ
        layer.mlp.down_proj.weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(width)[:vocab_size])
        model.lm_head.weight.mul_(1e-3)
        for token, following in pairwise(ids):
            model.lm_head.weight[following, token] = 1.0
    return model


def thinking_model(text: str = "hm</think>Ana") -> "tuple[LlamaForCausalLM, Any]":
    """Return a model that generates <think>, the text and </s> after a question, and its tokenizer."""
    tokenizer = letter_tokenizer(chat_template=THINKING, unmarked=MARKERS)
    ids = tokenizer.encode(f"\n<think>{text}</s>", add_special_tokens=False)
    return scripted_llama(ids, len(tokenizer)), tokenizer
