"""Readers of source files, and conversion of their records to rows of the schema in docs/data.md.

Every source is pinned to a commit or a checksum, so the form of its records is not validated here.
"""

import csv
import gzip
import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pine_engine.errors import InputError
from pine_engine.prompts.tasks import TASKS
from pine_engine.rows.files import read_parquet as read_parquet

PLACEMENT_SEED = 1234  # seed of RewardBench for the draws that decide whether the better answer is A or B

EV_PER_HARTREE = 27.211386
ENERGIES = ("homo", "lumo", "gap")

Row = dict[str, Any]
"""One example. Its keys have the order of the schema."""

SourceRecord = tuple[Any, int, str]
"""Content of a record, its index in its file, counted from 0, and the part of the set in the file."""


def check_num_documents(count: int, least: int, most: int) -> None:
    """Raise InputError for a number of documents that a generator does not have."""
    if not least <= count <= most:
        raise InputError(f"invalid documents: got {count}, expected {least} to {most}", field="documents")


def read_json_lines(path: Path) -> Iterator[Any]:
    """Read JSON lines, also from a gzip file. Lines end with a line feed only."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield from (json.loads(line) for line in file if line.strip())


def read_json_list(path: Path) -> Iterator[Any]:
    """Read the items of a JSON list."""
    yield from json.loads(path.read_bytes())


def read_csv(path: Path) -> Iterator[dict[str, str]]:
    """Read the rows of a CSV file as dicts."""
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def convert_rewardbench(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert RewardBench. Places the chosen answer as RewardBench does (docs/specification.md, 9.1)."""
    for (pair, index, _), is_second in zip(records, _draw_placements(), strict=False):
        yield _pair_row(
            id=f"rewardbench-{index:04d}",
            question=pair["prompt"],
            better=pair["chosen"],
            worse=pair["rejected"],
            is_second=is_second,
            source="RewardBench (filtered)",
            license="ODC-BY-1.0",
            meta={"subset": pair["subset"], "source_id": pair["id"]}
            | {name: pair[name] for name in ("chosen_model", "rejected_model")},
        )


def convert_llmbar(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert LLMBar in the order of the source. The part of a record is its subset."""
    for pair, index, part in records:
        fields = {"source": "LLMBar", "license": "MIT", "meta": {"subset": part}}
        yield _labeled_pair_row(pair, id=f"{part}-{index:03d}", **fields)


def convert_mt_bench(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert MT-Bench in the order of the source, without repeated pairs."""
    seen: set[tuple[str, frozenset[str]]] = set()
    for pair, index, _ in records:
        key = (pair["input"], frozenset((pair["output_1"], pair["output_2"])))
        if key in seen:
            continue
        seen.add(key)
        yield _labeled_pair_row(
            pair,
            id=f"mtbench-{index:03d}",
            source="MT-Bench human judgments, majority vote, first turn (as processed by LLMBar)",
            license="CC-BY-4.0 (MT-Bench human judgments); MIT (LLMBar processing)",
            meta={"subset": "mt-bench"},
        )


def convert_judgebench(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert JudgeBench in the order of the source. The part of a record is the model of both answers."""
    for pair, index, part in records:
        label = {"A>B": 1, "B>A": 2}[pair["label"]]
        yield _labeled_pair_row(
            {"input": pair["question"], "output_1": pair["response_A"], "output_2": pair["response_B"]}
            | {"label": label},
            id=f"judgebench-{part}-{index:03d}",
            source="JudgeBench",
            license="MIT",
            meta={"subset": pair["source"], "source_id": pair["pair_id"], "model": pair["response_model"]},
        )


def convert_humanevalpack(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert HumanEvalPack to pairs of the reference solution and its buggy variant."""
    for (problem, index, part), is_second in zip(records, _draw_placements(), strict=False):
        yield _pair_row(
            id=f"hep-{part}-{index:03d}",
            question=problem["instruction"],
            better=problem["declaration"] + problem["canonical_solution"],
            worse=problem["declaration"] + problem["buggy_solution"],
            is_second=is_second,
            source=f"HumanEvalPack ({part}): reference solution against its buggy variant",
            license="MIT",
            meta={"subset": f"hep-{part}", "bug_type": problem["bug_type"]},
        )


def convert_questions(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert the questions of Lost in the Middle, with their passages in the order of the source."""
    for question, index, _ in records:
        passages = question["ctxs"]
        (gold,) = (number for number, passage in enumerate(passages) if passage["isgold"])
        count = len(passages)
        yield _row(
            id=f"qa{count}-{index:04d}",
            task="retrieval_qa",
            prefix=TASKS["retrieval_qa"].instruction,
            question=question["question"],
            documents=[_document(passage["text"], passage["title"]) for passage in passages],
            gold_index=gold,
            answers=question["answers"],
            source=f"lost-in-the-middle (NaturalQuestions-Open, {count} total documents, gold at {gold})",
            license="MIT (lost-in-the-middle data) and CC-BY-SA-3.0 (Wikipedia passages, NaturalQuestions "
            "annotations)",
            meta={"retrieval_rank": [passage.get("original_retrieval_index") for passage in passages]},
        )


def convert_key_values(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert key-value pairs. The title of a document is a key, its text the value."""
    for content, index, _ in records:
        pairs = content["ordered_kv_records"]
        yield _row(
            id=f"kv{len(pairs)}-{index:04d}",
            task="kv_retrieval",
            prefix=TASKS["kv_retrieval"].instruction,
            question=content["key"],
            documents=[_document(value, key) for key, value in pairs],
            gold_index=pairs.index([content["key"], content["value"]]),
            answers=[content["value"]],
            source=f"lost-in-the-middle (key-value retrieval, {len(pairs)} keys)",
            license="MIT",
        )


def convert_molecules(records: Iterable[SourceRecord]) -> Iterator[Row]:
    """Convert QM9: six properties, energies in eV with four decimals; without repeated SMILES."""
    seen: set[str] = set()
    for molecule, _, _ in records:
        smiles = molecule["smiles"]
        if smiles in seen:
            continue
        seen.add(smiles)
        values = {name: float(molecule[name]) for name in ("alpha", *ENERGIES, "mu", "cv")}
        if not all(map(math.isfinite, values.values())):
            raise ValueError("a property is not finite")
        texts = {
            name: f"{value * EV_PER_HARTREE:.4f}" if name in ENERGIES else f"{value:g}"
            for name, value in values.items()
        }
        yield _row(
            id=f"qm9-{int(molecule['mol_id'].removeprefix('gdb_')):06d}",
            task="molecule_generation",
            documents=[_document(text, name) for name, text in texts.items()],
            answers=[smiles],
            source="QM9",
            license="CC0-1.0",
            meta={"properties": {name: float(text) for name, text in texts.items()}},
        )


def _draw_placements() -> Iterator[bool]:
    """Draw for each example whether the better answer comes second."""
    generator = np.random.RandomState(PLACEMENT_SEED)
    while True:
        yield bool(generator.rand() > 0.5)


def _labeled_pair_row(pair: dict[str, Any], **fields: Any) -> Row:
    label = pair["label"]
    outputs = {"better": pair[f"output_{label}"], "worse": pair[f"output_{3 - label}"]}
    return _pair_row(question=pair["input"], **outputs, is_second=label == 2, **fields)


def _pair_row(*, better: str, worse: str, is_second: bool, **fields: Any) -> Row:
    return _row(
        task="judge",
        system=TASKS["judge"].instruction,
        documents=[_document(text) for text in ((worse, better) if is_second else (better, worse))],
        gold_index=int(is_second),
        answers=["B" if is_second else "A"],
        **fields,
    )


def _row(**fields: Any) -> Row:
    optional: Row = {"system": "", "prefix": "", "question": "", "gold_index": None, "meta": {}}
    keys = ("id", "task", "system", "prefix", "question", "documents", "gold_index", "answers", "source",
            "license", "meta")  # fmt: skip
    return {key: (optional | fields)[key] for key in keys}


def _document(text: str, title: str = "") -> dict[str, str]:
    return {"title": title, "text": text} if title else {"text": text}
