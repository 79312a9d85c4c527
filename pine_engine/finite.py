"""Logits that a token can be chosen from: where they are NaN, argmax gives token 0 without a word."""

import torch
from torch import Tensor

from pine_engine.errors import ModelError

ADVICE = {
    torch.float16: "load it in bfloat16 or float32, whose range is larger",
    torch.bfloat16: "load it in float32",
}
"""What to try for a model of that dtype."""


def check_finite(logits: Tensor, method: str, step: int, where: str = "") -> None:
    """Raises ModelError if the logits (..., V) of a next token are NaN or infinite; -inf rules a token out.

    method, step: whose they are, and how many tokens of the answer were read before. where: which of several
    prompts it is, as " of prompt 3".
    """
    if torch.isfinite(logits.amax(-1)).all():
        return
    when = f"after {step} tokens of the answer" if step else "for the first token of the answer"
    dtype = str(logits.dtype).removeprefix("torch.")
    advice = ADVICE.get(
        logits.dtype, "its weights may be damaged, or too large for this prompt: try another model or dtype"
    )
    raise ModelError(
        f"under {method} the model's logits{where} {when} are not finite numbers, in {dtype}; {advice}"
    )
