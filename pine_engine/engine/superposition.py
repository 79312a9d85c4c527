"""Superposition prompting: a copy of the question after each document apart; the likely ones are kept.

A path is a document with its copy of the question. Its score is the log-probability of both, from a first
pass; the task, which follows the question, and the answer attend to the best paths only. Source: Merth et al.
2024, apple/ml-superposition-prompting.
"""

import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from pine_engine.attention.arithmetic import attention_weights, tail_mask
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.methods.plan import AttentionPlan
from pine_engine.network.registration import LayerInput

NUM_KEPT = 1
"""Number of paths that task and answer attend to."""


def path_scores(logits: Tensor, plan: AttentionPlan) -> list[float]:
    """Return the score of each path, in nats, from the logits (n, V) of a prompt that repeats the question.

    It is the mean log-probability of the document's tokens plus that of the question's. The first token of
    either does not count; a part of a single token counts as 0.
    """
    layout, scores = plan.layout, []
    for document, ids in enumerate(layout.documents):
        of_path = logits[layout.document_slice(document)].double().log_softmax(-1)
        following = torch.tensor(ids[1:], device=logits.device)
        logprobs = of_path[:-1].gather(1, following[:, None])[:, 0]
        question = len(ids) - plan.question_length
        parts = logprobs[: question - 1], logprobs[question:]
        scores.append(sum(float(part.mean()) for part in parts if len(part)))
    return scores


def best_paths(scores: list[float], plan: AttentionPlan) -> list[int]:
    """Return the paths from the best to the worst; token ids resolve ties."""
    return sorted(range(len(scores)), key=lambda path: (-scores[path], plan.layout.documents[path]))


def path_bias(scores: list[float], plan: AttentionPlan) -> tuple[float, ...]:
    """Return the bias of each path's keys: 0 for the best path, minus infinity for paths that are not kept.

    It is the logarithm of the softmax of scores divided by the temperature, less that of the best path.
    """
    best_first = best_paths(scores, plan)
    best, kept = scores[best_first[0]], best_first[:NUM_KEPT]
    differences = ((score - best) / plan.method.temperature for score in scores)
    return tuple(one if path in kept else -math.inf for path, one in enumerate(differences))


class QuestionRecorder(TraceRecorder):
    """Recorder of the attention of every copy of the question, without a trace."""

    def __init__(self, plan: AttentionPlan) -> None:
        super().__init__()
        self.plan = plan
        # Of each layer, by path: (H, question, 3), attention to prefix, document and question.
        self.shares: dict[int, list[Tensor]] = defaultdict(list)

    def record_tokens(self, inputs: LayerInput, first: int, keys: Tensor, *_: Any, **__: Any) -> None:
        """See TraceRecorder."""
        prefix, question = self.plan.layout.prefix_length, self.plan.question_length
        if first < prefix or not inputs.query.shape[1]:
            return
        query = inputs.query[:, inputs.query.shape[1] - question :]
        weights = attention_weights(query, keys, inputs.scoring, tail_mask(query, keys.shape[1]))
        lengths = [prefix, keys.shape[1] - prefix - question, question]
        shares = torch.stack([part.sum(-1) for part in weights.split(lengths, dim=-1)], dim=-1)
        self.shares[inputs.layer].append(shares)

    def record_continuation(self, *_: Any, **__: Any) -> None:
        """See TraceRecorder."""

    def shares_of(self, path: int) -> list[Tensor]:
        """Return the attention of a path's question, of each layer (H, question, 1 + D + 1)."""
        found = []
        for _, shares in sorted(self.shares.items()):
            of_path = shares[path].new_zeros(*shares[path].shape[:2], self.plan.layout.num_documents + 2)
            of_path[..., [0, 1 + path, -1]] = shares[path]
            found.append(of_path)
        return found
