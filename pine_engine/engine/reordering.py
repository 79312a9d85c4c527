"""Reordering of documents by a score before a run: content, likelihood, attention, in-context re-ranking.

The method then runs over the documents in the new order. Sources: Peysakhovich and Lerer 2023,
adamlerer/synthwiki (attention sorting); Chen et al. 2025, OSU-NLP-Group/In-Context-Reranking; Jiang et al.
2024, microsoft/LLMLingua (query likelihood, and the arrangement `ends`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import attention_weights, tail_mask
from pine_engine.attention.recorder import StoredKeys, TraceRecorder
from pine_engine.methods.table import Arrangement, Method, ScoreKind
from pine_engine.network.registration import LayerInput
from pine_engine.prompts.layout import TokenLayout

MIN_DEVIATIONS = -2
"""Tokens whose calibrated score is this many standard deviations from the document's mean do not count."""


@dataclass(frozen=True)
class FirstPass:
    """Vanilla prefill by which documents are scored before the prefill of a method.

    Attributes:
        run: Takes a prompt and a recorder, and returns the logits (n, V) of all tokens.
        content_free: Token ids of a text without content. Without them, as for a model without a tokenizer,
            it is the last token of the suffix.
        num_processes: Number of processes between which the heads are split.
    """

    run: Callable[[TokenLayout, TraceRecorder | None], Tensor]
    content_free: tuple[int, ...] = ()
    num_processes: int = 1


def reorder_documents(layout: TokenLayout, method: Method, first_pass: FirstPass) -> tuple[int, ...]:
    """Return the order of the documents in which the method runs; the input order without a score."""
    order = tuple(range(layout.num_documents))
    if method.score is None:
        return order
    for _ in range(method.rounds):
        moved = layout.reorder(order)
        scores = SCORES[method.score](moved, first_pass)
        # Token ids resolve ties, so that the order depends on contents alone.
        best_first = sorted(range(len(scores)), key=lambda place: (-scores[place], moved.documents[place]))
        order = tuple(order[place] for place in ARRANGEMENTS[method.arrangement](best_first))
    return order


def _nothing(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return equal scores, so that token ids alone decide."""
    return [0.0] * layout.num_documents


def _question_likelihood(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return the mean log-probability, in nats, of the suffix after the prefix and each document alone."""
    scores = []
    for document in layout.documents:
        logits = first_pass.run(TokenLayout(layout.prefix, (document,), layout.suffix), None)
        logprobs = logits[-layout.suffix_length - 1 : -1].double().log_softmax(-1)
        ids = torch.tensor(layout.suffix, device=logprobs.device)
        scores.append(float(logprobs.gather(1, ids[:, None]).mean()))
    return scores


def _last_token_attention(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return the attention of the last token to each document, the mean over layers and heads."""
    by_token = key_attention(layout, first_pass, last_only=True)
    return [float(by_token[layout.document_slice(d)].sum()) for d in range(layout.num_documents)]


def _calibrated_attention(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return the attention of the question to each document, minus that of a content-free question.

    Weights are summed over layers and heads and averaged over the question; tokens far below the mean of
    their document are left out.
    """
    empty_question = first_pass.content_free or layout.suffix[-1:]
    without_content = TokenLayout(layout.prefix, layout.documents, empty_question)
    attention, baseline = (key_attention(one, first_pass) for one in (layout, without_content))
    scores = []
    for document in range(layout.num_documents):
        part = layout.document_slice(document)
        calibrated = attention[part] - baseline[part]
        if len(calibrated) > 1:  # one token has no standard deviation
            limit = calibrated.mean() + MIN_DEVIATIONS * calibrated.std()
            calibrated = calibrated[calibrated > limit]
        scores.append(float(calibrated.sum()))
    return scores


def key_attention(layout: TokenLayout, first_pass: FirstPass, *, last_only: bool = False) -> Tensor:
    """Return the attention (n,) to each token in float64, summed over layers and heads, mean over the suffix.

    With `last_only`, it is that of the last token, and the mean over layers and heads.
    """
    recorder = _KeyRecorder(1 if last_only else layout.suffix_length)
    first_pass.run(layout, recorder)
    by_layer = torch.stack(recorder.by_layer)  # (A, H, n)
    total, num_heads = by_layer.sum((0, 1)), by_layer[..., 0].numel()
    if first_pass.num_processes > 1:  # each has its own heads
        torch.distributed.all_reduce(total)
        num_heads *= first_pass.num_processes
    return total.cpu() / (num_heads if last_only else 1)


class _KeyRecorder(TraceRecorder):
    """Recorder of the mean attention of the last tokens to every token, without a trace."""

    def __init__(self, num_queries: int) -> None:
        super().__init__()
        self.num_queries = num_queries
        self.by_layer: list[Tensor] = []  # of each layer (H, n)

    def record_continuation(self, inputs: LayerInput, first: int, keys: Tensor, stored: StoredKeys) -> None:
        """See TraceRecorder."""
        if first < stored.plan.layout.documents_end:
            return
        query = inputs.query[:, -self.num_queries :]
        weights = attention_weights(query, keys, inputs.scoring, tail_mask(query, keys.shape[1], stored.bias))
        self.by_layer.append(weights.double().mean(1).to(keys.device))


SCORES: dict[ScoreKind, Callable[[TokenLayout, FirstPass], list[float]]] = {
    "content": _nothing,
    "likelihood": _question_likelihood,
    "attention": _last_token_attention,
    "rerank": _calibrated_attention,
}
"""Scores of the documents, the better the larger."""


def _ends(best_first: Sequence[int]) -> list[int]:
    """Arrange the best document first, the second last, the third second, and so on."""
    return [*best_first[::2], *reversed(best_first[1::2])]


ARRANGEMENTS: dict[Arrangement, Callable[[Sequence[int]], Sequence[int]]] = {
    "best_first": list,
    "best_last": lambda best_first: best_first[::-1],
    "ends": _ends,
}
