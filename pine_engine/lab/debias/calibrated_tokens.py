"""Answers whose tokens are calibrated with content-free prompts (specification, section 8).

Source: Zhao et al. 2021, tonyzhaozh/few-shot-learning. Calibration of every token is a definition of this
project.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from pine_engine.attention.state import SequenceState
from pine_engine.engine.generation import ActiveGeneration
from pine_engine.engine.likelihood import log_probabilities
from pine_engine.lab.debias.wrappers import Steps

CANDIDATES = 100  # number of the most likely first tokens that are calibrated; the others cannot be chosen


def calibrated_prompt(
    index: int, method: str, prompts: Sequence[tuple[SequenceState, Tensor]], steps: Steps, seconds: float
) -> ActiveGeneration:
    """Return a prompt whose answer is calibrated, for decoding in a batch.

    prompts: state and logits (1, V) of the prompt, then of the content-free prompts. seconds: all prefills.
    """
    states = tuple(state for state, _ in prompts)
    return ActiveGeneration(
        index=index,
        method=method,
        rows=states[: num_continued(len(states), steps)],
        logits=torch.cat([logits for _, logits in prompts]),
        prefill_s=seconds,
        choose=lambda logits: _choose(log_probabilities(logits), steps),
    )


def num_continued(num_prompts: int, steps: Steps | None) -> int:
    """Return the number of prompts that are continued with the answer."""
    return num_prompts if steps == "every" else 1


def _choose(logprobs: Tensor, steps: Steps) -> tuple[int, float]:
    """Choose a token from logprobs (n, V), the prompt first; return it with its uncalibrated log-probability.

    `first` subtracts probabilities among the candidates, `every` divides them over the vocabulary. Without
    content-free prompts, the most likely token is chosen.
    """
    own, free = logprobs[0], logprobs[1:]
    if not len(free):
        token = int(own.argmax())
    elif steps == "every":
        # The factor 1/n of the mean is the same for all tokens.
        token = int((own - free.logsumexp(0)).argmax())
    else:
        candidates = own.topk(min(CANDIDATES, len(own))).indices
        least = free[:, candidates].amin(0)
        token = int(candidates[(own[candidates].softmax(0) - least.softmax(0)).argmax()])
    return token, float(own[token])
