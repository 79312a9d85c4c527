"""Conformance: compare the engine with outputs recorded from the PINE authors' released code.

A case is a folder with config.json, weights.safetensors (weight names of transformers), case.json and
expected_<i>.safetensors: a tiny random model, a prompt in several document orders, and the recorded outputs
of prefill and greedy decoding.
"""

import json
from collections.abc import Mapping
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
from pine_engine.methods.table import METHODS
from pine_engine.models.checkpoint import quiet_transformers
from pine_engine.prompts.layout import TokenLayout

LOGITS_TOLERANCE = 1e-4
"""Largest absolute difference of a float32 logit; two independent implementations differed by 8e-6."""

IMPORTANCE_TOLERANCE = 1e-5

Arrays = Mapping[str, NDArray[Any]]

COMPARED = {
    "max_logits_diff": ("prefill_logits", "decode_logits"),
    "max_vanilla_logits_diff": ("vanilla_prefill_logits", "vanilla_decode_logits"),
    "max_importance_diff": ("doc_importance", "suffix_importance", "decode_importance"),
    "shifts_equal": ("doc_shift", "suffix_shift", "decode_shift"),
    "decoded_ids_equal": ("decode_ids", "vanilla_decode_ids"),
}
"""Recorded tensors by the difference that they determine."""


def check_case(folder: Path) -> dict[str, Any]:
    """Return the largest absolute differences of all runs of a case. Raises InputError if it is invalid."""
    try:
        model = _load_model(folder)
        case: dict[str, Any] = json.loads((folder / "case.json").read_text())
        layout = TokenLayout(case["prefix"], case["documents"], case["suffix"])
        runs = [(layout.reorder(run["order"]), _load(folder / run["file"])) for run in case["runs"]]
        steps = int(case["steps"])
    except Exception as error:  # transformers and safetensors raise many kinds
        problem = str(error) if isinstance(error, PineError) else one_line(error)
        raise InputError(f"{folder} is not a complete conformance case: {problem}") from error
    try:
        engine = Engine(model.eval(), name=folder.name)
        diffs = [_compare_run(engine, layout, expected, steps) for layout, expected in runs]
    except PineError as error:
        raise InputError(f"{folder} cannot be checked: {error}") from error
    if not diffs:
        raise InputError(f"{folder} cannot be checked: case.json names no run")
    largest: dict[str, Any] = {field: float(np.max([diff[field] for diff in diffs])) for field in COMPARED}
    largest |= {field: largest[field] == 0 for field in ("shifts_equal", "decoded_ids_equal")}
    return {"case": folder.name, "runs": len(runs), **largest, "conforms": conforms(largest)}


def conforms(diffs: Mapping[str, Any]) -> bool:
    """Check that all numbers are within their tolerance, and that shifts and token ids are equal."""
    logits_diff = np.max([diffs["max_logits_diff"], diffs["max_vanilla_logits_diff"]])  # NaN if one is
    is_close = logits_diff <= LOGITS_TOLERANCE and diffs["max_importance_diff"] <= IMPORTANCE_TOLERANCE
    return bool(is_close and diffs["shifts_equal"] and diffs["decoded_ids_equal"])


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


def _compare_run(engine: Engine, layout: TokenLayout, expected: Arrays, steps: int) -> dict[str, float]:
    """Return the largest absolute difference of each field of COMPARED; NaN if any value is NaN."""
    outputs = _compute(engine, layout, steps)
    # With two documents nothing is ranked, and the released code records no document importance.
    if layout.num_documents == 2 and "doc_importance" not in expected:
        del outputs["doc_importance"]
    for name, array in outputs.items():
        if name not in expected:
            raise InputError(f"missing tensor {name!r}")
        if expected[name].shape != array.shape:
            raise InputError(f"tensor {name!r} has shape {expected[name].shape}, expected {array.shape}")
    diffs = {name: np.abs(array - expected[name]).max(initial=0) for name, array in outputs.items()}
    return {
        field: float(np.max([diffs[name] for name in names if name in diffs]))
        for field, names in COMPARED.items()
    }


def _compute(engine: Engine, layout: TokenLayout, steps: int) -> dict[str, NDArray[Any]]:
    """Return the outputs of the engine under the names of the recorded tensors."""
    methods = ["vanilla", "pine"]
    result = engine.run(
        layout, methods=methods, max_new_tokens=steps, trace=True, return_logits=True, stop_at_eos=False
    )
    outputs = {}
    for name, start in (("pine", ""), ("vanilla", "vanilla_")):
        models, method = engine.patched_models, METHODS[name]
        with torch.inference_mode():
            _, prefill = passes.prefill(models, layout, method, reserved_tokens=0, logits_to_keep=0)
        outputs[f"{start}prefill_logits"] = prefill.numpy()
        outputs[f"{start}decode_logits"] = result.logits[name][layout.suffix_length - 1 :].numpy()
        outputs[f"{start}decode_ids"] = np.array(result.answers[name].token_ids)
    return outputs | _positions(result.traces["pine"], layout)


def _positions(trace: Trace, layout: TokenLayout) -> dict[str, NDArray[Any]]:
    """Return shifts and importances; those of decoded tokens have the step as the first axis."""
    assert trace.document_importance is not None and trace.suffix_importance is not None
    length = layout.suffix_length
    end = layout.documents_end - layout.lengths
    suffix_shift = end - trace.suffix_starts
    importance = trace.suffix_importance
    return {
        "doc_shift": end - trace.document_starts,
        "suffix_shift": suffix_shift[:, :, :length],
        "decode_shift": suffix_shift[:, :, length:].transpose(2, 0, 1, 3),
        "doc_importance": np.nan_to_num(trace.document_importance),
        "suffix_importance": importance[:, :, :length],
        "decode_importance": importance[:, :, length:].transpose(2, 0, 1, 3),
    }
