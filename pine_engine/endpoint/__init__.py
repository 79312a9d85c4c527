"""Models behind an address: prompts as text, and requests to servers with the OpenAI API."""

from collections.abc import Mapping
from typing import Any

ENDPOINT = "endpoint"
"""Device of a model that a server computes, in the settings of a run."""

NO_INTERNALS = "The endpoint returns texts, and no internals such as attention, positions and logits."

NOT_GREEDY = "the answers are sampled, not greedy: a change under another order may be chance"
"""Remark on answers of requests without temperature 0."""


def is_greedy(extra_body: Mapping[str, Any]) -> bool:
    """Check whether requests with these further fields have temperature 0; otherwise, answers are sampled."""
    return bool(extra_body.get("temperature", 0) == 0)
