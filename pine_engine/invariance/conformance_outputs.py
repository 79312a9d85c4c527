"""Outputs of the engine under the names of tensors recorded from the authors' code; see conformance.py."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.trace import Trace
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.engine.reordering import SCORES, FirstPass, reorder_documents
from pine_engine.engine.streams import MergedState, truncated_entropies
from pine_engine.engine.superposition import path_bias, path_scores
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS, Method, ScoreKind
from pine_engine.prompts.layout import TokenLayout

Outputs = dict[str, NDArray[Any]]

VANILLA = METHODS["vanilla"]

SINGLE_SCORES: tuple[ScoreKind, ...] = ("rerank", "likelihood")  # recorded without rounds


@dataclass(frozen=True)
class RecordedRun:
    """One run of a recorded case: what the engine has to compute.

    Attributes:
        layout: Prompt with the documents in the order of the run.
        steps: Number of decoded tokens; 0 if only scores are recorded.
        content_free: Question without content, for in-context re-ranking.
    """

    method: Method
    layout: TokenLayout
    steps: int
    content_free: tuple[int, ...] = ()


@torch.inference_mode()
def compute_outputs(engine: Engine, run: RecordedRun) -> tuple[Outputs, set[str]]:
    """Return all outputs of a run, and the names of those that need not be recorded."""
    if run.method.score:
        return _scores(engine, run), set()
    outputs, optional = _decoded(engine, run), {"suffix_document_share"}
    if run.method.splits_documents:
        return outputs | _streams(engine, run, outputs["decode_ids"].tolist()), set(outputs)
    if run.method.question == "in_every_document":
        return outputs | _paths(engine, run), {name for name in outputs if name.startswith("vanilla")}
    outputs |= _positions(_trace(engine, run), run.layout)
    if "suffix_importance" not in outputs:
        optional |= {name for name in outputs if name.endswith("_shift")}
    # With two documents nothing is ranked, and the released code records no document importance.
    if run.layout.num_documents == 2:
        optional.add("doc_importance")
    return outputs, optional


def _prefill(
    engine: Engine, layout: TokenLayout, method: Method, recorder: TraceRecorder | None = None
) -> Tensor:
    options = passes.PassOptions(engine.patched_models, logits_to_keep=0, recorder=recorder)
    return passes.prefill(layout, method, options)[1]


def _decoded(engine: Engine, run: RecordedRun) -> Outputs:
    """Return logits of prefill and decode steps and the decoded ids, also of vanilla."""
    outputs = {}
    result = engine.run(
        run.layout,
        methods=[VANILLA, run.method],
        max_new_tokens=run.steps,
        return_logits=True,
        stop_at_eos=False,
    )
    for method, start in ((run.method, ""), (VANILLA, "vanilla_")):
        if not method.merge:
            outputs[f"{start}prefill_logits"] = _prefill(engine, run.layout, method).numpy()
        outputs[f"{start}decode_logits"] = result.logits[method.name][run.layout.suffix_length - 1 :].numpy()
        outputs[f"{start}decode_ids"] = np.array(result.answers[method.name].token_ids)
    return outputs


def _trace(engine: Engine, run: RecordedRun) -> Trace:
    options: dict[str, Any] = {"max_new_tokens": run.steps, "trace": True, "stop_at_eos": False}
    return engine.run(run.layout, methods=run.method, **options).traces[run.method.name]


def _positions(trace: Trace, layout: TokenLayout) -> dict[str, NDArray[Any]]:
    """Return shifts, importances and shares; those of decoded tokens have the step as the first axis."""
    assert trace.suffix_attention is not None
    length = layout.suffix_length
    end = layout.documents_end - layout.lengths
    suffix_shift = end - trace.suffix_starts
    outputs = {
        "doc_shift": end - trace.document_starts,
        "suffix_shift": suffix_shift[:, :, :length],
        "decode_shift": suffix_shift[:, :, length:].transpose(2, 0, 1, 3),
        "suffix_document_share": trace.suffix_attention[:, :, :length, 1:-1].sum(-1),
    }
    importance = trace.suffix_importance
    if importance is not None and trace.document_importance is not None:
        outputs["doc_importance"] = np.nan_to_num(trace.document_importance)
        outputs["suffix_importance"] = importance[:, :, :length]
        outputs["decode_importance"] = importance[:, :, length:].transpose(2, 0, 1, 3)
    return outputs


def _streams(engine: Engine, run: RecordedRun, ids: Sequence[int]) -> Outputs:
    """Return the distributions of each stream, computed alone, and the documents chosen for the tokens."""
    layout, steps = run.layout, len(ids)
    one = layout.prefix[-1:]
    streams = [
        TokenLayout(layout.prefix[:-1], (one,), layout.suffix),
        *(TokenLayout(layout.prefix, (document,), layout.suffix) for document in layout.documents),
    ]
    logits = [_prefill(engine, stream.extend(ids[:-1]), VANILLA)[-steps:] for stream in streams]
    logprobs = torch.stack(logits, dim=1).log_softmax(-1)  # (steps, 1 + D, V)

    options = passes.PassOptions(engine.patched_models, reserved_tokens=steps)
    row, _ = passes.prefill(layout, run.method, options)
    assert isinstance(row, MergedState)
    for token in ids[:-1]:
        passes.extend([row], [[token]])
    by_ids = sorted(range(layout.num_documents), key=layout.documents.__getitem__)
    chosen = [by_ids[choice] for choice in row.cache.choices if choice is not None]
    outputs: Outputs = {"stream_logprobs": logprobs.numpy()}
    if chosen:
        entropies = torch.stack([truncated_entropies(each, run.method.top_p)[0][1:] for each in logprobs])
        for step, last in enumerate(chosen[:-1], start=1):
            entropies[step, last] -= run.method.eta
        outputs |= {"entropy": entropies.numpy(), "chosen": np.array(chosen)}
    return outputs


def _paths(engine: Engine, run: RecordedRun) -> Outputs:
    """Return positions, scores and biases of paths, and the logits before their weighting."""
    plan = build_plan(run.method, run.layout)
    logits = _prefill(engine, run.layout, replace(run.method, key_weighting="nothing"))
    scores = path_scores(logits, plan)
    return {
        "positions": plan.query_positions(),
        "branch_scores": np.array(scores),
        "branch_bias": np.array(path_bias(scores, plan)),
        "first_pass_logits": logits.numpy(),
    }


def _scores(engine: Engine, run: RecordedRun) -> Outputs:
    """Return the scores of all kinds, and the orders and scores of each round."""

    def vanilla(layout: TokenLayout, recorder: TraceRecorder | None) -> Tensor:
        return _prefill(engine, layout, VANILLA, recorder)

    first_pass = FirstPass(vanilla, run.content_free)
    order = tuple(range(run.layout.num_documents))
    scores, orders = [], []
    for _ in range(run.method.rounds):
        moved = run.layout.reorder(order)
        scores.append(SCORES["attention"](moved, first_pass))
        one_round = replace(run.method, rounds=1)
        order = tuple(order[place] for place in reorder_documents(moved, one_round, first_pass))
        orders.append(order)
    last_logits = _prefill(engine, run.layout.reorder(order), VANILLA)[-1]
    rerank, likelihood = (np.array(SCORES[kind](run.layout, first_pass)) for kind in SINGLE_SCORES)
    return {
        "attention_scores": np.array(scores),
        "order_after": np.array(orders),
        "final_last_logits": last_logits.numpy(),
        "icr_scores": rerank,
        "query_log_likelihood": likelihood,
    }
