"""The models of the paper: their sizes worked out from their shapes, their uses from the paper's tables."""

from typing import Any

import pytest

from pine_engine.evaluation.report.paper_models import PAPER_MODELS, PaperModel
from pine_engine.evaluation.report.published import published

SHAPES = {
    # layers, hidden size, intermediate size, query heads, key heads, vocabulary; as their configs say
    "Meta-Llama-3-8B-Instruct": (32, 4096, 14336, 32, 8, 128256),
    "Meta-Llama-3-70B-Instruct": (80, 8192, 28672, 64, 8, 128256),
    "Qwen1.5-1.8B-Chat": (24, 2048, 5504, 16, 16, 151936),
    "Qwen1.5-4B-Chat": (40, 2560, 6912, 20, 20, 151936),
    "Qwen1.5-7B-Chat": (32, 4096, 11008, 32, 32, 151936),
    "Qwen1.5-32B-Chat": (64, 5120, 27392, 40, 8, 152064),
    "Qwen1.5-72B-Chat": (80, 8192, 24576, 64, 64, 152064),
    "Qwen2.5-72B-Instruct": (80, 8192, 29568, 64, 8, 152064),
    "Qwen1.5-110B-Chat": (80, 8192, 49152, 64, 8, 152064),
}


@pytest.mark.parametrize("model", PAPER_MODELS, ids=lambda model: model.name)
def test_the_number_of_parameters_follows_from_the_shape(model: PaperModel) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    layers, hidden, intermediate, heads, kv_heads, vocabulary = SHAPES[model.name]
    kind: Any = (LlamaConfig, LlamaForCausalLM) if "Llama" in model.name else (Qwen2Config, Qwen2ForCausalLM)
    config = kind[0](
        num_hidden_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        assert kind[1](config).num_parameters() == model.parameters


def test_all_models_of_the_paper_s_tables_are_there_with_what_they_were_used_for() -> None:
    uses = {model.name: model.used_for for model in PAPER_MODELS}
    assert set(uses) == {row.model for row in published().judge_scores} == set(SHAPES)
    assert uses["Meta-Llama-3-70B-Instruct"] == ("Question over documents", "Judge two answers")
    assert all("Judge two answers" in use for use in uses.values())
