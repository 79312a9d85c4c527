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

from pine_engine.attention.trace import Trace
from pine_engine.engine import passes
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError, PineError, one_line
from pine_engine.methods.table import METHODS, Method
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.prompts.layout import TokenLayout

LOGITS_TOLERANCE = 1e-4
"""Largest absolute difference of a float32 logit; two independent implementations differed by 8e-6."""

IMPORTANCE_TOLERANCE = 1e-5

SCORE_TOLERANCE = 1e-4
"""Largest absolute difference of a score or an attention share."""

Arrays = Mapping[str, NDArray[Any]]

COMPARED = {
    "max_logits_diff": ("prefill_logits", "decode_logits"),
    "max_vanilla_logits_diff": ("vanilla_prefill_logits", "vanilla_decode_logits"),
    "max_importance_diff": ("doc_importance", "suffix_importance", "decode_importance"),
    "max_score_diff": ("suffix_document_share",),
    "shifts_equal": ("doc_shift", "suffix_shift", "decode_shift"),
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

NUMBERS = ("temperature", "scale")
"""Columns of the table of methods that a case may set."""


def check_case(folder: Path) -> dict[str, Any]:
    """Return the largest absolute differences of all runs of a case. Raises InputError if it is invalid."""
    try:
        model = _load_model(folder)
        case: dict[str, Any] = json.loads((folder / "case.json").read_text())
        method = METHODS[case.get("method", "pine")]
        numbers: dict[str, Any] = {name: float(case[name]) for name in NUMBERS if name in case}
        method = replace(method, **numbers)
        layout = TokenLayout(case["prefix"], case["documents"], case["suffix"])
        runs = [(layout.reorder(run["order"]), _load(folder / run["file"])) for run in case["runs"]]
        steps = int(case["steps"])
    except Exception as error:  # transformers and safetensors raise many kinds
        problem = str(error) if isinstance(error, PineError) else one_line(error)
        raise InputError(f"{folder} is not a complete conformance case: {problem}") from error
    try:
        engine = Engine(model.eval(), name=folder.name)
        diffs = [_compare_run(engine, method, layout, expected, steps) for layout, expected in runs]
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


def _compare_run(
    engine: Engine, method: Method, layout: TokenLayout, expected: Arrays, steps: int
) -> dict[str, float | None]:
    """Return the largest absolute difference of each field of COMPARED; NaN if any value is NaN."""
    outputs = _compute(engine, method, layout, steps)
    if unknown := sorted(set(expected) - set(outputs)):
        raise InputError(f"unknown tensor {unknown[0]!r} for {method.name}")
    optional = {"suffix_document_share"}
    if "suffix_importance" not in outputs:
        optional |= {name for name in outputs if name.endswith("_shift")}
    # With two documents nothing is ranked, and the released code records no document importance.
    if layout.num_documents == 2:
        optional.add("doc_importance")
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
        diffs[name] = float(np.abs(array - expected[name]).max(initial=0))
    fields = {field: [diffs[name] for name in names if name in diffs] for field, names in COMPARED.items()}
    return {field: float(np.max(found)) if found else None for field, found in fields.items()}


def _compute(engine: Engine, method: Method, layout: TokenLayout, steps: int) -> dict[str, NDArray[Any]]:
    """Return the outputs of the engine under the names of the recorded tensors."""
    methods = [METHODS["vanilla"], method]
    result = engine.run(
        layout, methods=methods, max_new_tokens=steps, trace=True, return_logits=True, stop_at_eos=False
    )
    outputs = {}
    for each, start in ((method, ""), (METHODS["vanilla"], "vanilla_")):
        with torch.inference_mode():
            _, prefill = passes.prefill(
                engine.patched_models, layout, each, reserved_tokens=0, logits_to_keep=0
            )
        outputs[f"{start}prefill_logits"] = prefill.numpy()
        outputs[f"{start}decode_logits"] = result.logits[each.name][layout.suffix_length - 1 :].numpy()
        outputs[f"{start}decode_ids"] = np.array(result.answers[each.name].token_ids)
    return outputs | _positions(result.traces[method.name], layout)


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
