"""Streams: several vanilla runs of a prompt, whose next-token distributions are merged.

Either each has prefix, one document and suffix, the first prefix and suffix; or each has the whole prompt and
another RoPE base. All are continued with the same answer. Sources: Su et al. 2024, bojone/NBCE
(`least_entropy`, and the rule `naive_bayes` after which the method is named); Shi et al. 2023, REPLUG with
equal weights (`mean`); Chen et al. 2024, attention-buckets (`logits`).
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pine_engine.attention.kv_cache import KVCache
from pine_engine.attention.state import SequenceState
from pine_engine.errors import InputError
from pine_engine.methods.table import METHODS, MergeKind, Method
from pine_engine.prompts.layout import TokenLayout

CONTRAST = 0.25
"""Strength of the contrast to no document, beta of NBCE."""

PERSISTENCE = 0.1
"""Advantage of the document chosen for the token before, in nats, eta of NBCE."""

TOP_P = 0.95
"""Probability of the tokens that count for NBCE."""

Merge = Callable[[Tensor, int | None], tuple[Tensor, int | None]]
"""Merging of logits (streams, V), the stream without a document first.

Takes the document chosen for the token before, and returns scores (V,) and the chosen document.
"""


def stream_layouts(layout: TokenLayout) -> list[TokenLayout]:
    """Return the prompts of all streams: without a document, then with each, in the order of token ids.

    The suffix of each has the length of the prompt's, unless there is no prefix.

    Raises:
        InputError: Without a prefix, the suffix is a single token.
    """
    prefix, suffix = layout.prefix, layout.suffix
    if prefix:  # a document needs a token; under vanilla, it makes no difference which
        empty = TokenLayout(prefix[:-1], (prefix[-1:],), suffix)
    elif len(suffix) > 1:
        empty = TokenLayout((), (suffix[:1],), suffix[1:])
    else:
        message = "a stream without a document needs a prefix, or a suffix of two tokens or more"
        raise InputError(message, field="prompt")
    return [empty, *(TokenLayout(prefix, (ids,), suffix) for ids in sorted(layout.documents))]


def split_streams(layout: TokenLayout, method: Method) -> list[tuple[TokenLayout, Method]]:
    """Return prompt and method of each stream; raise InputError as stream_layouts does."""
    vanilla = METHODS["vanilla"]
    if method.splits_documents:
        return [(stream, vanilla) for stream in stream_layouts(layout)]
    return [
        (layout, replace(vanilla, name=method.name, rope_bases=(base,), requires="placement"))
        for base in method.rope_bases
    ]


@dataclass
class StreamsCache(KVCache):
    """Caches of all streams.

    Attributes:
        streams: Streams in the order of split_streams.
        choices: Document chosen for each token of the answer, counted in the order of token ids.
    """

    streams: tuple[SequenceState, ...] = ()
    choices: list[int | None] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Tokens of the first stream."""
        return self.streams[0].cache.length

    @property
    def num_bytes(self) -> int:
        """Memory of all streams in bytes, reserved tokens included."""
        return sum(stream.cache.num_bytes for stream in self.streams)

    def copy(self, num_free_tokens: int | None = None) -> "StreamsCache":
        """Return copies of all streams, see KVCache."""
        streams = (replace(one, cache=one.cache.copy(num_free_tokens)) for one in self.streams)
        return replace(self, streams=tuple(streams), choices=list(self.choices))

    def truncate(self, length: int) -> None:
        """Remove all tokens after the first `length` ones, and their choices."""
        num_removed = self.length - length
        for stream in self.streams:
            stream.cache.truncate(stream.cache.length - num_removed)
        del self.choices[len(self.choices) - num_removed :]


@dataclass(frozen=True)
class MergedState(SequenceState):
    """One prompt under one method that merges streams."""

    cache: StreamsCache

    @property
    def sequences(self) -> tuple[SequenceState, ...]:
        """See SequenceState."""
        return self.cache.streams

    def num_cached_tokens(self) -> int:
        """See SequenceState."""
        return self.state.plan.layout.num_tokens + len(self.cache.choices) - 1

    def merge(self, logits: Tensor, num_answer_tokens: int) -> Tensor:
        """Return the merged scores (n, V) of stream logits (streams, n, V).

        The last `num_answer_tokens` tokens choose the next token of the answer.
        """
        merge = MERGES[self.state.plan.method.merge or "mean"]
        by_token = logits.float().unbind(1)
        num_prompt_tokens = len(by_token) - num_answer_tokens
        scores = [merge(each, None)[0] for each in by_token[:num_prompt_tokens]]
        for each in by_token[num_prompt_tokens:]:
            last = self.cache.choices[-1] if self.cache.choices else None
            merged, choice = merge(each, last)
            self.cache.choices.append(choice)
            scores.append(merged)
        return torch.stack(scores)


def truncated_entropies(logprobs: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Return the entropy (n,) of the most likely tokens, not renormalized, and which they are, bool (n, V).

    These are the fewest tokens whose probability together is above `top_p`.
    """
    ascending, order = logprobs.exp().sort(-1)
    is_kept = ascending.cumsum(-1) > 1 - top_p
    is_kept[:, -1] = True
    is_kept = torch.zeros_like(is_kept).scatter_(-1, order, is_kept)
    entropies = -(logprobs.exp() * logprobs).masked_fill(~is_kept, 0).sum(-1)
    return entropies, is_kept


def _least_entropy(logits: Tensor, last: int | None) -> tuple[Tensor, int | None]:
    """Choose the document with the least entropy, and contrast it with the stream without a document."""
    logprobs = logits.log_softmax(-1)
    entropies, is_kept = truncated_entropies(logprobs, TOP_P)
    if last is not None:
        entropies[1 + last] -= PERSISTENCE
    choice = int(entropies[1:].argmin())
    chosen, prior = logprobs[1 + choice], logprobs[0]
    contrast = (1 + CONTRAST) * chosen - CONTRAST * prior
    scores = torch.where(is_kept[0], contrast, chosen)
    return scores.masked_fill(~is_kept[1 + choice], -torch.inf), choice


def _mean(logits: Tensor, last: int | None) -> tuple[Tensor, int | None]:
    """Return the logarithm of the sum of probabilities, which differs from that of the mean by a constant."""
    return logits.log_softmax(-1)[1:].logsumexp(0), None


def _naive_bayes(logits: Tensor, last: int | None) -> tuple[Tensor, int | None]:
    """Multiply all documents' probabilities; divide by the prior to the power of their number minus 1."""
    logprobs = logits.log_softmax(-1)
    return logprobs[1:].sum(0) - (len(logprobs) - 2) * logprobs[0], None


def _weighted_logits(logits: Tensor, last: int | None) -> tuple[Tensor, int | None]:
    """Return the mean of the logits, weighted by a softmax over the largest logit of each stream."""
    return (logits.amax(-1).softmax(0)[:, None] * logits).sum(0), None


def _weighted_probabilities(logits: Tensor, last: int | None) -> tuple[Tensor, int | None]:
    """Return the logarithm of the sum of probabilities, weighted by the largest one of each stream."""
    logprobs = logits.log_softmax(-1)
    return (logprobs + logprobs.amax(-1, keepdim=True)).logsumexp(0), None


MERGES: dict[MergeKind, Merge] = {
    "least_entropy": _least_entropy,
    "mean": _mean,
    "naive_bayes": _naive_bayes,
    "logits": _weighted_logits,
    "probabilities": _weighted_probabilities,
}
