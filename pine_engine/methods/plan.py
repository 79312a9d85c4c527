"""From a method and a layout to an attention plan: who sees whom, and where segments start.

One formula serves every method: position(query, key) = start(query, segment of key) + offset(key).
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pine_engine.methods.table import Method
from pine_engine.prompts.layout import TokenLayout

MASKED = -1
"""Entry of a position matrix where the query may not see the key."""


@dataclass(frozen=True)
class AttentionPlan:
    """What a method does with one prompt; int64 tensors on the CPU, positions in tokens.

    visible: bool (D, D), may tokens of document a see document b; the diagonal is always True and
        causal inside.
    query_starts: (D,), position of each document's first token as a query; as a key its own
        document sees it there too.
    suffix_start: position of the first suffix token, as query and as key.
    document_starts: (D, D), where document b starts as seen from document a, meaningless where it is
        not visible; None if ranked.
    suffix_document_starts: (D,), where document b starts as seen from the suffix; None if ranked.
    """

    method: Method
    layout: TokenLayout
    visible: Tensor
    query_starts: Tensor
    suffix_start: int
    document_starts: Tensor | None
    suffix_document_starts: Tensor | None

    @cached_property
    def segments(self) -> Tensor:
        """Segment of each token of the prompt, int64 (n,): 0 prefix, 1 .. D documents, D + 1 suffix."""
        layout = self.layout
        lengths = [layout.prefix_length, *layout.lengths.tolist(), layout.suffix_length]
        return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))

    @property
    def is_ranked(self) -> bool:
        """True if where a document stands depends on the data: on each query's importances."""
        return self.document_starts is None

    @cached_property
    def has_fixed_keys(self) -> bool:
        """True if inside prefix and documents every key has one position, its own as a query, for all who
        see it; then the model itself can rotate."""
        if self.document_starts is None:
            return False
        as_query = self.query_starts.expand_as(self.document_starts)
        return torch.equal(self.document_starts[self.visible], as_query[self.visible])

    @cached_property
    def model_rotates(self) -> bool:
        """True if the model is given real positions and rotates; else it is given zeros and we rotate."""
        return self.has_fixed_keys and self.method.mask != "bidirectional"

    @property
    def is_reversed(self) -> bool:
        """True if more important documents are placed farther."""
        return self.method.positions == "importance_reversed"

    @property
    def tiles(self) -> bool:
        """True if for every document query prefix and documents stand at 0 .. E - 1 without gaps."""
        return self.method.mask == "bidirectional" and (self.is_ranked or self.method.positions == "own_last")

    def query_positions(self, num_decoded: int = 0) -> Tensor:
        """Position of every token as a query, (n + num_decoded,)."""
        layout = self.layout
        parts = [torch.arange(layout.prefix_length)]
        parts += [
            int(self.query_starts[d]) + torch.arange(len(ids)) for d, ids in enumerate(layout.documents)
        ]
        parts.append(self.suffix_start + torch.arange(layout.suffix_length + num_decoded))
        return torch.cat(parts)


def build_plan(method: Method, layout: TokenLayout) -> AttentionPlan:
    """The plan of one method for one prompt. Source: docs/specification.md section 3, worked in section 6."""
    lengths = torch.from_numpy(layout.lengths)
    count = layout.num_documents
    end = layout.documents_end
    shared_end = layout.prefix_length + int(lengths.max())
    input_starts = torch.from_numpy(layout.document_starts)
    shared_starts = torch.full((count,), layout.prefix_length)
    own_at_end = end - lengths
    is_own = torch.eye(count, dtype=torch.bool)

    # Each row: query_starts, suffix_start, document_starts, suffix_document_starts.
    query_starts, suffix_start, document_starts, suffix_document_starts = {
        "input": (input_starts, end, input_starts, input_starts),
        "own_last": (own_at_end, end, _own_last(lengths, end), input_starts),
        "own_at_end": (own_at_end, end, own_at_end.where(is_own, input_starts), input_starts),
        "shared": (shared_starts, shared_end, shared_starts, shared_starts),
        "shared_right": (shared_starts, shared_end, shared_starts, shared_end - lengths),
        "importance": (own_at_end, end, None, None),
        "importance_reversed": (own_at_end, end, None, None),
    }[method.positions]
    every = torch.ones(count, count, dtype=torch.bool)
    visible = {"causal": every.tril(), "none": is_own, "bidirectional": every}
    return AttentionPlan(
        method=method,
        layout=layout,
        visible=visible[method.mask],
        query_starts=query_starts,
        suffix_start=suffix_start,
        document_starts=None if document_starts is None else document_starts.expand(count, count),
        suffix_document_starts=suffix_document_starts,
    )


def _own_last(lengths: Tensor, end: int) -> Tensor:
    """Starts (D, D) in input order without gaps, each row's own document last (specification 3.6)."""
    last_first = torch.arange(len(lengths) - 1, -1, -1)
    rankings = [torch.cat((own[None], last_first[last_first != own])) for own in last_first.flip(0)]
    return starts_from_ranking(torch.stack(rankings), lengths, end)


def starts_from_ranking(ranking: Tensor, lengths: Tensor, end: int) -> Tensor:
    """Start of each document when ranked documents tile the positions before `end` without gaps.

    ranking: int64 (..., D), the most important document first. lengths: (D,) in tokens.
    Returns int64 (..., D): start of document b, so that the most important one ends at end - 1.
    Source: specification 3.5, start(a, b) = E - L_b - shift(a, b).
    """
    ranked_lengths = lengths[ranking]
    ranked_starts = end - ranked_lengths.cumsum(-1)
    return torch.empty_like(ranked_starts).scatter_(-1, ranking, ranked_starts)


def position_matrix(plan: AttentionPlan, document_starts: Tensor, suffix_starts: Tensor) -> Tensor:
    """The position each query gives to each key: the matrices of docs/specification.md section 6.

    document_starts: (D, D), where document b starts as seen from document a. suffix_starts: (Q, D),
    the same for each of Q >= T suffix tokens, decoded ones included.
    Returns int64 (n, n) with n = S + documents + Q; MASKED where the query may not see the key.
    """
    layout = plan.layout
    prefix, end = layout.prefix_length, layout.documents_end
    total = end + len(suffix_starts)
    document = plan.segments[prefix:end] - 1
    offset = torch.arange(prefix, end) - torch.from_numpy(layout.document_starts)[document]

    positions = torch.arange(total).repeat(total, 1)
    positions[prefix:end, prefix:end] = document_starts[document][:, document] + offset
    positions[end:, prefix:end] = suffix_starts[:, document] + offset
    positions[:, end:] += plan.suffix_start - end
    return torch.where(who_sees_whom(plan, len(suffix_starts) - layout.suffix_length), positions, MASKED)


def who_sees_whom(plan: AttentionPlan, num_decoded: int = 0) -> Tensor:
    """Which query (row) may attend to which key (column), bool (n + num_decoded, n + num_decoded)."""
    layout = plan.layout
    prefix, end = layout.prefix_length, layout.documents_end
    index = torch.arange(layout.num_tokens + num_decoded)
    allowed = index <= index[:, None]
    document = plan.segments[prefix:end] - 1
    other = document[:, None] != document
    sees_other = plan.visible[document][:, document]
    inside = allowed[prefix:end, prefix:end]
    allowed[prefix:end, prefix:end] = torch.where(other, sees_other, inside)
    return allowed
