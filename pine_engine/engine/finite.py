"""Logits that a token can be chosen from: where they are NaN, argmax gives token 0 without a word."""

import math

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
    they are, as " of sequence 3".
    """
    if not torch.isfinite(logits.amax(-1)).all():
        raise _no_number(logits, method, step, where)


def check_logprob(logprob: float, logits: Tensor, method: str, step: int) -> None:
    """The same by the log-probability of any one token, known anyway: softmax makes all of them NaN."""
    if math.isnan(logprob):
        raise _no_number(logits, method, step, "")


def _no_number(logits: Tensor, method: str, step: int, where: str) -> ModelError:
    when = f"after {step} tokens of the answer" if step else "for the first token of the answer"
    dtype = str(logits.dtype).removeprefix("torch.")
    advice = ADVICE.get(
        logits.dtype, "its weights may be damaged, or too large for this prompt: try another model or dtype"
    )
    return ModelError(
        f"under {method} the model's logits{where} {when} are not finite numbers, in {dtype}; {advice}"
    )
