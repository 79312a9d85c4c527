"""Conformance cases of any family, recorded from the definition (reference.py), one query at a time."""

import copy
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from pine_engine.prompts.layout import TokenLayout
from tests.support.reference import importance_seen, positions_seen, reference_pass

STEPS = 4


def record_case(
    folder: Path, model: PreTrainedModel, layout: TokenLayout, orders: Sequence[Sequence[int]]
) -> Path:
    """Write a case: the float32 model, and the outputs of the definition in float64."""
    model.save_pretrained(folder)
    (folder / "model.safetensors").rename(folder / "weights.safetensors")
    exact = copy.deepcopy(model).double()
    runs = [
        {"order": list(order), "file": f"expected_{index}.safetensors"} for index, order in enumerate(orders)
    ]
    for run, order in zip(runs, orders, strict=True):
        save_file(_expected(exact, layout.reorder(order)), folder / str(run["file"]))
    parts = {"prefix": layout.prefix, "documents": layout.documents, "suffix": layout.suffix}
    (folder / "case.json").write_text(json.dumps({**parts, "steps": STEPS, "runs": runs}))
    return folder


def _expected(model: PreTrainedModel, layout: TokenLayout) -> dict[str, Tensor]:
    expected: dict[str, Tensor] = {}
    for method, start in (("vanilla", "vanilla_"), ("pine", "")):
        longer = layout
        for _ in range(STEPS):
            logits, raw = _run(model, longer, method)
            longer = longer.extend([int(logits[-1].argmax())])
        expected |= {
            f"{start}prefill_logits": logits[: layout.num_tokens].float(),
            f"{start}decode_logits": logits[layout.num_tokens - 1 :].float(),
            f"{start}decode_ids": torch.tensor(longer.suffix[-STEPS:]),
        }
    return expected | _positions(layout.extend(longer.suffix[-STEPS:-1]), raw, layout.suffix_length)


def _run(model: PreTrainedModel, layout: TokenLayout, method: str) -> tuple[Tensor, Tensor]:
    """Return the logits (n, V), and the unrotated scores (A, H, n, n)."""
    scores: dict[int, dict[int, Tensor]] = defaultdict(dict)

    def keep(layer: int, head: int, raw: Tensor) -> None:
        scores[layer][head] = raw

    logits, _ = reference_pass(model, layout, method, keep)
    return logits, torch.stack([torch.stack(list(heads.values())) for _, heads in sorted(scores.items())])


def _positions(layout: TokenLayout, raw: Tensor, suffix_length: int) -> dict[str, Tensor]:
    """Return shifts and importances of a prompt with its decoded tokens. raw: (A, H, n, n), unrotated."""
    first = layout.document_starts.tolist()
    queries = [*first, *range(layout.documents_end, layout.num_tokens)]
    shifts = torch.empty(*raw.shape[:2], len(queries), layout.num_documents, dtype=torch.int64)
    importances = torch.zeros(shifts.shape)
    for layer, head in torch.cartesian_prod(*map(torch.arange, raw.shape[:2])).tolist():
        for row, query in enumerate(queries):
            scores = raw[layer, head]
            _, keys_at, _ = positions_seen(layout, "pine", query, scores)
            for document, ids in enumerate(layout.documents):
                start = keys_at[first[document]]
                shifts[layer, head, row, document] = layout.documents_end - len(ids) - start
            for document, value in importance_seen(layout, query, scores).items():
                importances[layer, head, row, document] = value
    count = layout.num_documents
    places: dict[str, Tensor] = {}
    for name, values in (("shift", shifts), ("importance", importances)):
        suffix, decoded = values[:, :, count:].split([suffix_length, STEPS - 1], dim=2)
        places |= {
            f"doc_{name}": values[:, :, :count].contiguous(),
            f"suffix_{name}": suffix.contiguous(),
            f"decode_{name}": decoded.permute(2, 0, 1, 3).contiguous(),
        }
    return places
