"""Calibrated attention: a first pass measures the attention to each document beyond that of its place.

Source: Hsieh et al. 2024, "Found in the Middle: Calibrating Positional Attention Bias" (no code released).
"""

from collections.abc import Sequence
from itertools import takewhile

import torch

from pine_engine.engine.reordering import FirstPass, key_attention
from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout


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
