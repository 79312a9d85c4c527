"""Documents that were prefilled alone, of which some tokens are recomputed: LegoLink and CacheBlend.

Keys and values of the documents come from a first pass, in which each is alone, and are rotated to their
positions in the input. In the second pass, recomputed tokens and the suffix attend to all earlier tokens:
recomputed ones with new keys and values, the others with those of the first pass. Sources: Hu et al. 2025,
DerekHJH/epic (LegoLink); Yao et al. 2025, YaoJiayi/CacheBlend.
"""

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import scattered_rows
from pine_engine.attention.kv_cache import new_layer
from pine_engine.attention.state import SequenceState, strategy_on
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.parallel import num_processes
from pine_engine.network.registration import Attend, AttentionParams, LayerInput
from pine_engine.network.thread_tuner import OnLayer, torch_num_threads

MEASURED_LAYER = 1
"""Layer whose values decide which tokens are recomputed in all later ones; up to it, all are (CacheBlend)."""


NUM_RECOMPUTED = 16
"""Number of recomputed tokens at the start of each document, for `first` (LegoLink)."""

SHARE_RECOMPUTED = 0.16
"""Share of recomputed tokens among all document tokens, for `deviating` (CacheBlend)."""


def tokens_to_recompute(plan: AttentionPlan) -> Tensor:
    """Return the physical indices of the document tokens that the second pass computes, ascending."""
    layout = plan.layout
    spans = [range(one.start, one.stop) for one in map(layout.document_slice, range(layout.num_documents))]
    if plan.method.recomputed == "first":
        spans = [span[:NUM_RECOMPUTED] for span in spans]
    return torch.tensor([token for span in spans for token in span])


def deviating_tokens(new: Tensor, cached: Tensor, plan: AttentionPlan, processes: int) -> Tensor:
    """Return the sorted indices of document tokens whose values differ most from those of the first pass.

    Shape:
        new, cached: (G, document tokens, d), values. Returns: (n,), counted from the first document token.
    """
    layout = plan.layout
    deviations = (new.double() - cached.double()).square().sum((0, 2))
    if processes > 1:  # each has its own heads
        torch.distributed.all_reduce(deviations)
    # Token ids resolve ties. The small number keeps a share of a count, such as 0.29 of 100, exact.
    count = int(SHARE_RECOMPUTED * len(deviations) + 1e-9)
    by_ids = sorted(range(layout.num_documents), key=layout.documents.__getitem__)
    places = torch.cat([torch.arange(len(deviations))[_part(plan, document)] for document in by_ids])
    places = places.to(deviations.device)
    largest = deviations[places].argsort(descending=True, stable=True)[:count]
    return places[largest].sort().values


def _part(plan: AttentionPlan, document: int) -> slice:
    part, first = plan.layout.document_slice(document), plan.layout.prefix_length
    return slice(part.start - first, part.stop - first)


def recompute_attention(
    sequence: SequenceState, source: SequenceState, on_layer: OnLayer, threads: int
) -> Attend:
    """Return the attention of a pass over the tokens to recompute and the suffix; it fills the cache.

    `source` has the documents of the first pass, at their positions in the input. The attention
    uses `threads`, because fused attention can depend on their number.
    """
    plan, processes = sequence.state.plan, num_processes(sequence.state.patched_model.network)
    end, first = plan.layout.documents_end, plan.layout.prefix_length
    tokens = tokens_to_recompute(plan)
    kept = torch.arange(len(tokens))

    def attend(layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: AttentionParams) -> Tensor:
        """Return the attention output of one layer, zero for tokens that are no longer recomputed."""
        nonlocal kept
        on_layer(layer)
        with torch_num_threads(threads):
            inputs = LayerInput(layer, query[0], key[0], value[0], scoring)
            suffix, cached = inputs.tokens(len(tokens)), source.cache.layers[layer]
            keys, values = cached.keys[:, :end].to(key.dtype), cached.values[:, :end].to(value.dtype)
            again = kept.to(query.device)
            if plan.method.recomputed == "deviating" and layer == MEASURED_LAYER:
                kept = deviating_tokens(inputs.value[:, : len(tokens)], values[:, first:], plan, processes)
            places = tokens.to(query.device)[again]
            keys = keys.index_copy(1, places, inputs.key[:, again])
            values = values.index_copy(1, places, inputs.value[:, again])
            output = torch.zeros_like(inputs.query)
            output[:, again] = scattered_rows(inputs.query[:, again], keys, values, places, scoring)
            cache = new_layer(keys, sequence.state.num_tokens)
            cache.append(keys, values)
            output[:, len(tokens) :] = strategy_on(sequence.state, query.device).decode_strategy.extend(
                suffix, cache
            )
        sequence.cache.layers.append(cache)
        return output[None]

    return attend
