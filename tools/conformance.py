"""Comparison of the engine with outputs recorded from the released code of each method's authors.

    python -m tools.conformance tests/golden/conformance

A case is a folder with config.json, weights.safetensors, case.json and expected_<i>.safetensors: a tiny
random model, a prompt in several document orders, and the recorded outputs of prefill and greedy decoding.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from safetensors.numpy import load_file
from safetensors.torch import load_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from pine_engine.attention.recorder import TraceRecorder
from pine_engine.attention.trace import Trace
from pine_engine.cli.options import as_command
from pine_engine.cli.output import FAILED, CommandResult
from pine_engine.engine import passes, streams, superposition
from pine_engine.engine.engine import Engine
from pine_engine.engine.reordering import SCORES, FirstPass, reorder_documents
from pine_engine.engine.streams import MergedState, truncated_entropies
from pine_engine.engine.superposition import path_bias, path_scores
from pine_engine.errors import InputError
from pine_engine.methods.plan import build_plan
from pine_engine.methods.table import METHODS, Method
from pine_engine.prompts.layout import TokenLayout

Arrays = dict[str, NDArray[Any]]

VANILLA = METHODS["vanilla"]

TOLERANCE, IMPORTANCE_TOLERANCE = 1e-4, 1e-5
"""Largest absolute difference of a float32; two independent implementations differed by 8e-6 in logits."""

NUMBERS = ("temperature", "scale")
"""Columns of the method table that a case may set."""

CONSTANTS = {
    "beta": (streams, "CONTRAST"),
    "eta": (streams, "PERSISTENCE"),
    "top_p": (streams, "TOP_P"),
    "top_k": (superposition, "NUM_KEPT"),
}
"""Constants of methods that a case may set, by their keys in the case."""


@dataclass(frozen=True)
class Run:
    """One run of a case: its prompt, and the question without content for in-context re-ranking."""

    engine: Engine
    method: Method
    layout: TokenLayout
    steps: int
    content_free: tuple[int, ...]

    def prefill(self, layout: TokenLayout, method: Method, recorder: TraceRecorder | None = None) -> Tensor:
        """Return the logits of all tokens of a prompt."""
        options = passes.PassOptions(self.engine.patched_models, logits_to_keep=0, recorder=recorder)
        return passes.prefill(layout, method, options)[1]


def conformance(folder: Path) -> CommandResult:
    """Compare the engine with recorded outputs of the authors' code; exit 1 if a case does not conform.

    Args:
        folder: Folder that contains recorded cases.
    """
    cases = sorted(path.parent for path in folder.glob("**/case.json"))
    if not cases:
        raise typer.BadParameter(f"folder has no case: got {folder}, expected folders with a case.json")
    rows = [check_case(case) for case in cases]
    return CommandResult({"cases": rows}, rows, status=FAILED if any(row["failed"] for row in rows) else 0)


def check_case(folder: Path) -> dict[str, Any]:
    """Return the largest absolute difference in all runs of a case, and names of tensors beyond tolerance."""
    case = json.loads((folder / "case.json").read_text())
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
    load_model(model, folder / "weights.safetensors")
    engine = Engine(model.eval(), name=folder.name)
    method = METHODS[case.get("method", "pine").split()[0]]
    numbers = {name: case[name] for name in NUMBERS if name in case}
    method = replace(method, rounds=case.get("iterations", method.rounds), **numbers)
    task = case["task"] if method.question == "in_every_document" else [0]
    suffix = case["suffix"] if "suffix" in case else case["query"] + task
    layout = TokenLayout(case["prefix"], case["documents"], suffix, len(task))
    content_free = tuple(case.get("content_free_suffix", ()))
    differences, failed = [], set()
    for entry in case["runs"]:
        run = Run(engine, method, layout.reorder(entry["order"]), case.get("steps", 0), content_free)
        recorded = load_file(folder / entry["file"])
        with constants_of(case):
            outputs, optional = compute_outputs(run)
        for name, difference in compare(outputs, optional, recorded).items():
            differences.append(difference)
            if not difference <= tolerance(name, recorded[name]):  # also if it is NaN
                failed.add(name)
    names = {"case": folder.name, "method": method.name, "tensors": len(differences)}
    beyond = ", ".join(sorted(failed)) or None
    return {**names, "max_difference": float(np.max(differences)), "failed": beyond}


@contextmanager
def constants_of(case: Mapping[str, Any]) -> Iterator[None]:
    """Set the constants of methods to those of a case."""
    with ExitStack() as stack:
        for name in CONSTANTS.keys() & case.keys():
            stack.enter_context(mock.patch.object(*CONSTANTS[name], case[name]))
        yield


def tolerance(name: str, recorded: NDArray[Any]) -> float:
    """Return the largest allowed difference of a tensor; token ids, shifts and choices must be equal."""
    limit = IMPORTANCE_TOLERANCE if name.endswith("_importance") else TOLERANCE
    return limit if recorded.dtype.kind == "f" else 0


def compare(outputs: Arrays, optional: set[str], recorded: Arrays) -> dict[str, float]:
    """Return the largest absolute difference of each recorded tensor; NaN if a value is NaN.

    Raises:
        InputError: A tensor is unknown, has the wrong shape, or is missing and not in `optional`.
    """
    if wrong := recorded.keys() - outputs.keys() | outputs.keys() - recorded.keys() - optional:
        raise InputError(f"unknown or missing tensors: got {sorted(wrong)}, expected {sorted(outputs)}")
    differences = {}
    for name, expected in recorded.items():
        array = outputs[name].astype(float)
        # Shifts that are equal in all layers, heads and tokens are recorded once.
        shape = array.shape[-expected.ndim :] if name.endswith("_shift") else array.shape
        if expected.shape != shape:
            raise InputError(f"tensor {name!r} has the wrong shape: got {expected.shape}, expected {shape}")
        with np.errstate(invalid="ignore"):  # both are minus infinity where a token is cut off
            difference = np.where(array == expected, 0, np.abs(array - expected))
        differences[name] = float(difference.max(initial=0))
    return differences


@torch.inference_mode()
def compute_outputs(run: Run) -> tuple[Arrays, set[str]]:
    """Return all outputs of a run, and the names of those that need not be recorded."""
    if run.method.score:
        return _scores(run), set()
    outputs: Arrays = {}
    is_traced = not (run.method.splits_documents or run.method.question == "in_every_document")
    options: dict[str, Any] = {"return_logits": True, "stop_at_eos": False, "trace": is_traced}
    methods = [VANILLA, run.method]
    result = run.engine.run(run.layout, methods=methods, max_new_tokens=run.steps, **options)
    for method, start in ((run.method, ""), (VANILLA, "vanilla_")):
        if not method.merge:
            outputs[f"{start}prefill_logits"] = run.prefill(run.layout, method).numpy()
        outputs[f"{start}decode_logits"] = result.logits[method.name][run.layout.suffix_length - 1 :].numpy()
        outputs[f"{start}decode_ids"] = np.array(result.answers[method.name].token_ids)
    if run.method.splits_documents:
        return outputs | _streams(run, outputs["decode_ids"].tolist()), set(outputs)
    if not is_traced:
        return outputs | _paths(run), {name for name in outputs if name.startswith("vanilla")}
    outputs |= _positions(result.traces[run.method.name], run.layout)
    optional = {"suffix_document_share"}
    if "suffix_importance" not in outputs:
        optional |= {name for name in outputs if name.endswith("_shift")}
    # With two documents nothing is ranked, and the released code records no document importance.
    return outputs, optional | ({"doc_importance"} if run.layout.num_documents == 2 else set())


def _positions(trace: Trace, layout: TokenLayout) -> Arrays:
    """Return shifts, importances and shares; those of decoded tokens have the step as the first axis."""
    assert trace.suffix_attention is not None
    end, length = layout.documents_end - layout.lengths, layout.suffix_length
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


def _streams(run: Run, ids: Sequence[int]) -> Arrays:
    """Return the distributions of each stream, computed alone, and the documents chosen for the tokens."""
    layout, steps = run.layout, len(ids)
    documents = [TokenLayout(layout.prefix, (document,), layout.suffix) for document in layout.documents]
    prompts = [TokenLayout(layout.prefix[:-1], (layout.prefix[-1:],), layout.suffix), *documents]
    logits = [run.prefill(stream.extend(ids[:-1]), VANILLA)[-steps:] for stream in prompts]
    logprobs = torch.stack(logits, dim=1).log_softmax(-1)  # (steps, 1 + D, V)
    options = passes.PassOptions(run.engine.patched_models, reserved_tokens=steps)
    row, _ = passes.prefill(layout, run.method, options)
    assert isinstance(row, MergedState)
    for token in ids[:-1]:
        passes.extend([row], [[token]])
    by_ids = sorted(range(layout.num_documents), key=layout.documents.__getitem__)
    chosen = [by_ids[choice] for choice in row.cache.choices if choice is not None]
    outputs: Arrays = {"stream_logprobs": logprobs.numpy()}
    if chosen:
        entropies = torch.stack([truncated_entropies(each, streams.TOP_P)[0][1:] for each in logprobs])
        for step, last in enumerate(chosen[:-1], start=1):
            entropies[step, last] -= streams.PERSISTENCE
        outputs |= {"entropy": entropies.numpy(), "chosen": np.array(chosen)}
    return outputs


def _paths(run: Run) -> Arrays:
    """Return positions, scores and biases of paths, and the logits before their weighting."""
    plan = build_plan(run.method, run.layout)
    logits = run.prefill(run.layout, replace(run.method, key_weighting="nothing"))
    scores = path_scores(logits, plan)
    return {
        "positions": plan.query_positions(),
        "branch_scores": np.array(scores),
        "branch_bias": np.array(path_bias(scores, plan)),
        "first_pass_logits": logits.numpy(),
    }


def _scores(run: Run) -> Arrays:
    """Return the scores of all kinds, and the orders and scores of each round."""
    first_pass = FirstPass(
        lambda layout, recorder, count: run.prefill(layout, VANILLA, recorder)[-count:], run.content_free
    )
    rounds = range(1, run.method.rounds + 1)
    reordered = [reorder_documents(run.layout, replace(run.method, rounds=n), first_pass) for n in rounds]
    orders = [list(map(run.layout.documents.index, layout.documents)) for layout in reordered]
    layouts = [run.layout, *reordered]
    scores = [SCORES["attention"](layout, first_pass) for layout in layouts[:-1]]
    return {
        "attention_scores": np.array(scores),
        "order_after": np.array(orders),
        "final_last_logits": run.prefill(layouts[-1], VANILLA)[-1].numpy(),
        "icr_scores": np.array(SCORES["rerank"](run.layout, first_pass)),
        "query_log_likelihood": np.array(SCORES["likelihood"](run.layout, first_pass)),
    }


if __name__ == "__main__":
    typer.run(as_command(conformance))
