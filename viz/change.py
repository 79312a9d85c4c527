"""What changed between two answers: their words, their tokens, and the documents that carried them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from viz.identity import Segment

FloatArray = NDArray[np.float32]


@dataclass(frozen=True)
class AnswerTokens:
    """One answer, token by token.

    label: whose answer it is, such as "PINE". text: all of it; a character may span tokens. tokens, logprobs:
    text of each generated token and its log-probability in nats. alternatives: for each generated token the
    most likely ones with their log-probabilities, the most likely first. attention: float32 (tokens,
    1 + D + 1), share of the attention paid to the prefix, each document and the suffix while the token was
    written, mean over layers and heads. documents: D segments in the order of the input.
    """

    label: str
    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    alternatives: tuple[tuple[tuple[str, float], ...], ...]
    attention: FloatArray
    documents: tuple[Segment, ...]

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.logprobs) == len(self.alternatives)
        assert self.attention.shape == (len(self.tokens), len(self.documents) + 2)
