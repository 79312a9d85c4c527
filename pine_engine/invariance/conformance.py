"""Conformance: compare the engine with outputs recorded from the released code of a method's authors.

A case is a folder with config.json, weights.safetensors (weight names of transformers), case.json and
expected_<i>.safetensors: a tiny random model, a prompt in several document orders, and the recorded outputs
of prefill and greedy decoding.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError, PineError, one_line
from pine_engine.invariance.conformance_outputs import RecordedRun, compute_outputs
from pine_engine.methods.table import METHODS
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.prompts.layout import TokenLayout

LOGITS_TOLERANCE = 1e-4
"""Largest absolute difference of a float32 logit; two independent implementations differed by 8e-6."""

IMPORTANCE_TOLERANCE = 1e-5

SCORE_TOLERANCE = 1e-4
"""Largest absolute difference of a score, an attention share, or a real-valued position."""

Arrays = Mapping[str, NDArray[Any]]

COMPARED = {
    "max_logits_diff": ("prefill_logits", "decode_logits", "final_last_logits", "first_pass_logits"),
    "max_vanilla_logits_diff": ("vanilla_prefill_logits", "vanilla_decode_logits"),
    "max_importance_diff": ("doc_importance", "suffix_importance", "decode_importance"),
    "max_score_diff": (
        *("suffix_document_share", "stream_logprobs", "entropy"),
        *("attention_scores", "icr_scores", "query_log_likelihood"),
        *("branch_scores", "branch_bias", "positions"),
    ),
    "shifts_equal": ("doc_shift", "suffix_shift", "decode_shift"),
    "choices_equal": ("chosen", "order_after"),
    "decoded_ids_equal": ("decode_ids", "vanilla_decode_ids"),
}
"""Recorded tensors by the difference that they determine."""

TOLERANCES = {
    "max_logits_diff": LOGITS_TOLERANCE,
    "max_vanilla_logits_diff": LOGITS_TOLERANCE,
    "max_importance_diff": IMPORTANCE_TOLERANCE,
    "max_score_diff": SCORE_TOLERANCE,
}
"""Tolerance of each difference; the other fields must be equal."""

NUMBERS = ("temperature", "scale", "beta", "eta", "top_p", "min_ratio", "max_ratio")
"""Columns of the table of methods that a case may set."""

COUNTS = {"rounds": "iterations", "top_k": "top_k"}
"""More such columns, and their names in a case."""


def check_case(folder: Path) -> dict[str, Any]:
    """Return the largest absolute differences of all runs of a case. Raises InputError if it is invalid."""
    try:
        model = _load_model(folder)
        case: dict[str, Any] = json.loads((folder / "case.json").read_text())
        method = METHODS[str(case.get("method", "pine")).split()[0]]
        numbers: dict[str, Any] = {name: float(case[name]) for name in NUMBERS if name in case}
        counts: dict[str, Any] = {name: int(case[key]) for name, key in COUNTS.items() if key in case}
        method = replace(method, **counts, **numbers)
        content_free = tuple(case.get("content_free_suffix", ()))
        is_split = method.question == "in_every_document"
        suffix, task = (case["query"] + case["task"], case["task"]) if is_split else (case["suffix"], [0])
        layout = TokenLayout(case["prefix"], case["documents"], suffix, len(task))
        steps = 0 if method.score else int(case["steps"])
        runs = [
            (
                RecordedRun(method, layout.reorder(run["order"]), steps, content_free),
                _load(folder / run["file"]),
            )
            for run in case["runs"]
        ]
    except Exception as error:  # transformers and safetensors raise many kinds
        problem = str(error) if isinstance(error, PineError) else one_line(error)
        raise InputError(f"{folder} is not a complete conformance case: {problem}") from error
    try:
        engine = Engine(model.eval(), name=folder.name)
        diffs = [_compare_run(engine, run, expected) for run, expected in runs]
    except PineError as error:
        raise InputError(f"{folder} cannot be checked: {error}") from error
    if not diffs:
        raise InputError(f"{folder} cannot be checked: case.json names no run")
    largest: dict[str, Any] = {}
    for field in COMPARED:
        found = [value for diff in diffs if (value := diff[field]) is not None]
        largest[field] = float(np.max(found)) if found else None
        if found and field not in TOLERANCES:
            largest[field] = largest[field] == 0
    names = {"case": folder.name, "method": method.name, "runs": len(runs)}
    return {**names, **largest, "conforms": conforms(largest)}


def conforms(diffs: Mapping[str, Any]) -> bool:
    """Check that all numbers are within their tolerance, and that the rest is equal; None is not recorded."""
    compared = {field: value for field, value in diffs.items() if field in COMPARED and value is not None}
    return all(
        value <= TOLERANCES[field] if field in TOLERANCES else value for field, value in compared.items()
    )


def _load(file: Path) -> Arrays:
    return {name: tensor.double().numpy() for name, tensor in load_file(file).items()}


def _load_model(folder: Path) -> PreTrainedModel:
    """Load the model with transformers, which ties, renames and joins weights."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        model_class = type(AutoModelForCausalLM.from_config(config, trust_remote_code=False))
    with quiet_transformers(warns=False):
        loaded: Any = model_class.from_pretrained(
            None,
            config=config,
            state_dict=load_file(folder / "weights.safetensors"),
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    model: PreTrainedModel
    model, report = loaded
    for kind in ("missing", "unexpected", "mismatched"):
        # A mismatched key comes with both shapes.
        if names := sorted(key if isinstance(key, str) else key[0] for key in report[f"{kind}_keys"]):
            raise InputError(f"weights.safetensors has {kind} weights: {len(names)}, the first is {names[0]}")
    return model


def _compare_run(engine: Engine, run: RecordedRun, expected: Arrays) -> dict[str, float | None]:
    """Return the largest absolute difference of each field of COMPARED; NaN if any value is NaN."""
    outputs, optional = compute_outputs(engine, run)
    if unknown := sorted(set(expected) - set(outputs)):
        raise InputError(f"unknown tensor {unknown[0]!r} for {run.method.name}")
    diffs = {}
    for name, array in outputs.items():
        if name not in expected:
            if name not in optional:
                raise InputError(f"missing tensor {name!r}")
            continue
        shape = expected[name].shape
        # Shifts that are equal in all layers, heads and tokens are recorded once.
        if shape != array.shape and not (name.endswith("_shift") and array.shape[-len(shape) :] == shape):
            raise InputError(f"tensor {name!r} has shape {shape}, expected {array.shape}")
        with np.errstate(invalid="ignore"):  # both are minus infinity where a token is cut off
            differences = np.where(array == expected[name], 0, np.abs(array - expected[name]))
        diffs[name] = float(differences.max(initial=0))
    fields = {field: [diffs[name] for name in names if name in diffs] for field, names in COMPARED.items()}
    return {field: float(np.max(found)) if found else None for field, found in fields.items()}
