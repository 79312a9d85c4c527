"""`model.generate(custom_generate=CUSTOM_GENERATE, documents=...)`: transformers' `generate` under a method.

transformers copies this file to its cache before it runs it, and refuses relative imports.
"""

from typing import Any

from torch import Tensor

from pine_engine.engine.engine import Engine
from pine_engine.engine.run import PromptLike, RequestParts, tokenize_request
from pine_engine.engine.transformers_generate import patch_generate
from pine_engine.errors import InputError
from pine_engine.methods.table import Method


def generate(
    model: Any,
    *,
    prompt: PromptLike = None,
    method: str | Method = "pine",
    tokenizer: Any = None,
    return_prompt: bool = True,
    **options: Any,
) -> Any:
    """Answer a question over documents with `model.generate` under a method.

    Args:
        model: PreTrainedModel whose `generate` was called.
        prompt: Prompt of text or token ids. Alternatively, pass its parts, see Engine.run: question and
            documents, or messages and documents.
        method: Method of the answer.
        tokenizer: Tokenizer of the model; for a TokenLayout, only stop_strings need it.
        return_prompt: False to return new tokens only.
        **options: Parts of the prompt, and arguments of `generate`, see patch_generate.

    Returns:
        Tokens, int64 (sequences, tokens), or what `generate` returns with return_dict_in_generate.

    Raises:
        InputError: As Engine.run and patch_generate, and for input_ids together with a prompt.
        ModelError: As patch_generate.
    """
    options = {name: value for name, value in options.items() if value is not None}
    for name in ("inputs", "input_ids", "inputs_embeds"):
        if name in options:
            message = f"{name} and a prompt were passed; pass question and documents without {name}"
            raise InputError(message, field=name)
    parts = {name: options.pop(name) for name in RequestParts.__annotations__ if name in options}
    engine = Engine(model, tokenizer)
    layout = tokenize_request(engine, prompt, **parts)
    with patch_generate(engine, layout, method=method) as inputs:
        output = model.generate(**inputs, tokenizer=tokenizer, **options)
    if return_prompt:
        return output
    num_prompt_tokens = inputs["input_ids"].shape[1]
    if isinstance(output, Tensor):
        return output[:, num_prompt_tokens:]
    output.sequences = output.sequences[:, num_prompt_tokens:]
    return output
