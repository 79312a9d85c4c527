"""Scores of documents from a first pass: the method reorders the documents by them, or weights their keys.

Sources: Peysakhovich and Lerer 2023, adamlerer/synthwiki (attention sorting); Chen et al. 2025,
OSU-NLP-Group/In-Context-Reranking; Jiang et al. 2024, microsoft/LLMLingua (query likelihood, and the
arrangement `ends`); Hsieh et al. 2024, "Found in the Middle" (calibrated attention, no code released); Yi et
al. 2025, "Attention Basin", and the package attnrank 0.1.0 of another author (arrangement `attended`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import attention_weights, tail_mask
from pine_engine.attention.recorder import StoredKeys, TraceRecorder
from pine_engine.methods.plan import check_scores
from pine_engine.methods.table import Arrangement, Method, ScoreKind
from pine_engine.network.registration import LayerInput
from pine_engine.prompts.layout import TokenLayout

BASIN_RATIO = 1.5
"""Least ratio of attention to the ends, over that to the slots between them, of a basin (attnrank 0.1.0)."""

MIN_DEVIATIONS = -2
"""Tokens whose calibrated score is this many standard deviations from the document's mean do not count."""


@dataclass(frozen=True)
class FirstPass:
    """Vanilla prefill by which documents are scored before the prefill of a method.

    Attributes:
        run: Takes a prompt, a recorder and a number n, and returns the logits (n, V) of the last tokens.
        content_free: Token ids of a text without content. Without them, as for a model without a tokenizer,
            it is the last token of the suffix.
        num_processes: Number of processes between which the heads are split.
    """

    run: Callable[[TokenLayout, TraceRecorder | None, int], Tensor]
    content_free: tuple[int, ...] = ()
    num_processes: int = 1


def reorder_documents(layout: TokenLayout, method: Method, first_pass: FirstPass) -> TokenLayout:
    """Return the prompt with its documents in the order of the method; the input order without a score."""
    if method.score is None:
        return layout
    check_scores(layout, [method])
    for _ in range(method.rounds):
        scores, documents = SCORES[method.score](layout, first_pass), layout.documents
        # Token ids resolve ties, so that the order depends on contents alone.
        best_first = sorted(range(len(scores)), key=lambda place: (-scores[place], documents[place]))
        slots = ARRANGEMENTS[method.arrangement](layout, first_pass)
        placed = dict(zip(slots, best_first, strict=True))
        layout = layout.reorder([placed[slot] for slot in range(layout.num_documents)])
    return layout


def _equal_scores(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return equal scores, so that token ids alone decide."""
    return [0.0] * layout.num_documents


def _given_scores(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return the scores that a retriever gave the documents."""
    return [score for score in layout.scores if score is not None]


def _question_likelihood(layout: TokenLayout, first_pass: FirstPass) -> list[float]:
    """Return the mean log-probability, in nats, of the suffix after the prefix and each document alone."""
    scores = []
    for document in layout.documents:
        prompt = TokenLayout(layout.prefix, (document,), layout.suffix)
        logits = first_pass.run(prompt, None, layout.suffix_length + 1)
        logprobs = logits[:-1].double().log_softmax(-1)
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
    by_layer = _attention_by_head(layout, first_pass, 1 if last_only else layout.suffix_length)
    total, num_heads = by_layer.sum((0, 1)), by_layer[..., 0].numel()
    if first_pass.num_processes > 1:  # each has its own heads
        torch.distributed.all_reduce(total)
        num_heads *= first_pass.num_processes
    return total.cpu() / (num_heads if last_only else 1)


def _attention_by_head(layout: TokenLayout, first_pass: FirstPass, num_queries: int) -> Tensor:
    """Return the mean attention of the last tokens to each token by layer and head, (A, H, n) in float64."""
    recorder = _KeyRecorder(num_queries)
    first_pass.run(layout, recorder, 1)
    return torch.stack(recorder.by_layer)


class _KeyRecorder(TraceRecorder):
    """Recorder of the mean attention of the last tokens to every token, without a trace."""

    def __init__(self, num_queries: int) -> None:
        super().__init__()
        self.num_queries = num_queries
        self.by_layer: list[Tensor] = []  # of each layer (H, n)

    def record_continuation(
        self, inputs: LayerInput, first: int, keys: Tensor, stored: StoredKeys, *_: Any, **__: Any
    ) -> None:
        """See TraceRecorder; the sequence is alone."""
        if first < stored.plan.layout.documents_end:
            return
        query = inputs.query[:, -self.num_queries :]
        weights = attention_weights(query, keys, inputs.scoring, tail_mask(query, keys.shape[1], stored.bias))
        self.by_layer.append(weights.double().mean(1).to(keys.device))


SCORES: dict[ScoreKind, Callable[[TokenLayout, FirstPass], list[float]]] = {
    "content": _equal_scores,
    "given": _given_scores,
    "likelihood": _question_likelihood,
    "attention": _last_token_attention,
    "rerank": _calibrated_attention,
}
"""Scores of the documents, the better the larger."""


def _ends(layout: TokenLayout, first_pass: FirstPass) -> list[int]:
    """Return the first slot, the last, the second, and so on."""
    last = layout.num_documents - 1
    return [last - rank // 2 if rank % 2 else rank // 2 for rank in range(last + 1)]


def _attended(layout: TokenLayout, first_pass: FirstPass) -> list[int]:
    """Return the slots by the attention that the suffix gives them, the most attended first.

    Each document is in each slot once: the attention is that of all rotations of the documents, sorted by
    token ids. It is taken from the first layer in which both ends get BASIN_RATIO times the mean of the slots
    between them or more. If there is none, as for two documents, it is the mean over layers. The paper
    measures it once per model, on a calibration set.
    """
    documents, count = sorted(layout.documents), layout.num_documents
    if count == 1:
        return [0]
    rotations = []
    for start in range(count):
        rotated = TokenLayout(layout.prefix, (*documents[start:], *documents[:start]), layout.suffix)
        weights = _attention_by_head(rotated, first_pass, layout.suffix_length).sum(1)  # (A, n)
        of_slots = [weights[:, rotated.document_slice(slot)].sum(-1) for slot in range(count)]
        rotations.append(torch.stack(of_slots, -1))
    by_layer = torch.stack(rotations).sum(0)  # (A, D)
    if first_pass.num_processes > 1:  # each has its own heads
        torch.distributed.all_reduce(by_layer)
    profile = next(filter(_is_basin, by_layer), by_layer.mean(0)).tolist()
    return sorted(range(count), key=lambda slot: -profile[slot])


def _is_basin(profile: Tensor) -> bool:
    """Check whether both ends of a profile (D,) get more attention than the slots between them."""
    return len(profile) > 2 and bool(profile[[0, -1]].min() >= BASIN_RATIO * profile[1:-1].mean())


ARRANGEMENTS: dict[Arrangement, Callable[[TokenLayout, FirstPass], Sequence[int]]] = {
    "best_first": lambda layout, _: range(layout.num_documents),
    "best_last": lambda layout, _: range(layout.num_documents)[::-1],
    "ends": _ends,
    "attended": _attended,
}
"""Slots of the documents, that of the best document first."""


def calibrated_shares(layout: TokenLayout, method: Method, first_pass: FirstPass) -> tuple[float, ...]:
    """Return the logarithm of each document's share of the attention that all documents get together.

    Relevance is the mean attention of the last token to the document, minus that to a dummy in its place. A
    document's share is its length times the softmax of relevances divided by the temperature.
    """
    dummy = dummy_document(layout.documents, first_pass.content_free or layout.suffix[-1:])
    attention = key_attention(layout, first_pass, last_only=True)
    relevances = []
    for slot, ids in enumerate(layout.documents):
        documents = (*layout.documents[:slot], dummy, *layout.documents[slot + 1 :])
        without = TokenLayout(layout.prefix, documents, layout.suffix)
        of_dummy = key_attention(without, first_pass, last_only=True)
        start = int(layout.document_starts[slot])
        of_document = attention[start : start + len(ids)].mean()
        relevances.append(of_document - of_dummy[start : start + len(dummy)].mean())
    lengths = torch.from_numpy(layout.lengths)
    logits = torch.stack(relevances) / method.temperature + lengths.double().log()
    return tuple(logits.log_softmax(0).tolist())


def dummy_document(documents: Sequence[tuple[int, ...]], content: tuple[int, ...]) -> tuple[int, ...]:
    """Return a document without content: its text is between the tokens that all documents share."""
    start = _common_start(documents)
    end = _common_start([ids[len(start) :][::-1] for ids in documents])[::-1]
    return start + content + end


def _common_start(sequences: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    same = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*sequences, strict=False))
    return tuple(tokens[0] for tokens in same)
