"""Check the engine against numbers recorded from the PINE authors' released code.

A case is a folder with config.json, weights.safetensors, case.json and expected_<i>.safetensors: a tiny
random model, one prompt in several document orders, and the outputs of prefill and greedy decoding.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from pine_engine.checkpoint import one_line
from pine_engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.layout import TokenLayout
from pine_engine.methods import METHODS
from pine_engine.trace import Trace

LOGITS_TOLERANCE = 1e-4
"""Largest absolute deviation of a logit in float32; two independent formulations differed by 8e-6."""

IMPORTANCE_TOLERANCE = 1e-5


@dataclass(frozen=True)
class CaseReport:
    """Largest absolute deviations of one case over its runs, and whether what must be exact is."""

    case: str
    runs: int
    max_logits_diff: float
    max_vanilla_logits_diff: float
    max_importance_diff: float
    shifts_equal: bool
    decoded_ids_equal: bool

    @property
    def conforms(self) -> bool:
        """True if every number is within its tolerance and everything exact is equal."""
        return (
            self.max_logits_diff <= LOGITS_TOLERANCE
            and self.max_vanilla_logits_diff <= LOGITS_TOLERANCE
            and self.max_importance_diff <= IMPORTANCE_TOLERANCE
            and self.shifts_equal
            and self.decoded_ids_equal
        )


def find_cases(folder: Path) -> list[Path]:
    """The case folders under a folder, or the folder itself. Raises InputError if there is none."""
    cases = sorted(path.parent for path in folder.glob("**/case.json"))
    if not cases:
        raise InputError(f"{folder} holds no conformance case; expected folders with a case.json in them")
    return cases


def check_case(folder: Path) -> CaseReport:
    """Runs one case and compares. Raises InputError if a file of the case is missing or unreadable."""
    try:
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.float32)
        model.load_state_dict(load_file(folder / "weights.safetensors"))
        case: dict[str, Any] = json.loads((folder / "case.json").read_text())
        expected = [load_file(folder / run["file"]) for run in case["runs"]]
        documents = tuple(tuple(ids) for ids in case["documents"])
        layout = TokenLayout(tuple(case["prefix"]), documents, tuple(case["suffix"]))
        layouts = [layout.reorder(run["order"]) for run in case["runs"]]
        steps = int(case["steps"])
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise InputError(f"{folder} is not a complete conformance case: {one_line(error)}") from error
    engine = Engine(model.eval(), name=folder.name)
    try:
        runs = [_compare_run(engine, *pair, steps) for pair in zip(layouts, expected, strict=True)]
    except KeyError as error:
        raise InputError(
            f"{folder} is not a complete conformance case: no recorded tensor {error}"
        ) from error
    return CaseReport(
        case=folder.name,
        runs=len(runs),
        max_logits_diff=_largest(run["logits"] for run in runs),
        max_vanilla_logits_diff=_largest(run["vanilla"] for run in runs),
        max_importance_diff=_largest(run["importance"] for run in runs),
        shifts_equal=all(run["shifts"] for run in runs),
        decoded_ids_equal=all(run["ids"] for run in runs),
    )


def _compare_run(
    engine: Engine, layout: TokenLayout, expected: dict[str, Tensor], steps: int
) -> dict[str, Any]:
    with torch.inference_mode():
        prefill = {
            name: engine.prefill(layout, METHODS[name], room=0, rows_kept=0)[1]
            for name in ("pine", "vanilla")
        }
    result = engine.run(
        layout,
        methods=["vanilla", "pine"],
        max_new_tokens=steps,
        trace=True,
        keep_logits=True,
        stop_at_end=False,
    )
    decoded = {name: logits[layout.suffix_length - 1 :] for name, logits in result.logits.items()}
    ids = {name: list(answer.token_ids) for name, answer in result.answers.items()}
    shifts, importances = _pairs_to_compare(result.traces["pine"], layout, expected)
    return {
        "logits": _largest(
            (
                _deviation(prefill["pine"], expected["prefill_logits"]),
                _deviation(decoded["pine"], expected["decode_logits"]),
            )
        ),
        "vanilla": _largest(
            (
                _deviation(prefill["vanilla"], expected["vanilla_prefill_logits"]),
                _deviation(decoded["vanilla"], expected["vanilla_decode_logits"]),
            )
        ),
        "importance": _largest(float(np.abs(ours - theirs).max()) for ours, theirs in importances),
        "shifts": all(np.array_equal(ours, theirs) for ours, theirs in shifts),
        "ids": ids["pine"] == expected["decode_ids"].tolist()
        and ids["vanilla"] == expected["vanilla_decode_ids"].tolist(),
    }


Pairs = list[tuple[NDArray[Any], NDArray[Any]]]


def _pairs_to_compare(trace: Trace, layout: TokenLayout, expected: dict[str, Tensor]) -> tuple[Pairs, Pairs]:
    """Ours and theirs, for shifts and for importances. Theirs has decoded steps as the first axis."""
    assert trace.document_importance is not None and trace.suffix_importance is not None
    length = layout.suffix_length
    theirs = {name: tensor.numpy() for name, tensor in expected.items()}
    end = layout.documents_end - layout.lengths
    suffix_shift = end - trace.suffix_starts
    shifts = [
        (end - trace.document_starts, theirs["doc_shift"]),
        (suffix_shift[:, :, :length], theirs["suffix_shift"]),
        (suffix_shift[:, :, length:].transpose(2, 0, 1, 3), theirs["decode_shift"]),
    ]
    importances = [
        (trace.suffix_importance[:, :, :length], theirs["suffix_importance"]),
        (trace.suffix_importance[:, :, length:].transpose(2, 0, 1, 3), theirs["decode_importance"]),
    ]
    # With two documents the released code has nothing to rank and records no document importance.
    if "doc_importance" in theirs:
        importances.append((np.nan_to_num(trace.document_importance), theirs["doc_importance"]))
    return shifts, importances


def _largest(values: Iterable[float]) -> float:
    """The maximum; unlike the built-in one it is NaN if any value is."""
    return float(np.max(list(values)))


def _deviation(ours: Tensor, theirs: Tensor) -> float:
    return (ours - theirs).abs().max().item()
