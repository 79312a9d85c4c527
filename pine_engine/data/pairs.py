"""Pairs of answers for a judge: RewardBench, LLMBar, MT-Bench and HumanEvalPack, each from its own form."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, StrictStr

from pine_engine.data.readers import SourceRecord
from pine_engine.data.schema import ExampleRow
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import get_task

SEED = 1234
"""Of the draws that place the better answer, where a source does not place it: RewardBench's own."""


class RewardBenchRecord(BaseModel):
    """A record of allenai/reward-bench; its id is not unique across subsets."""

    prompt: StrictStr
    chosen: StrictStr
    rejected: StrictStr
    chosen_model: StrictStr
    rejected_model: StrictStr
    subset: StrictStr
    id: int


class LLMBarRecord(BaseModel):
    """A record of LLMBar and of what LLMBar made of MT-Bench; label says which output is better."""

    input: StrictStr
    output_1: StrictStr
    output_2: StrictStr
    label: Literal[1, 2]


class HumanEvalPackRecord(BaseModel):
    """A record of HumanEvalPack. A solution is the body of the function that the declaration begins."""

    task_id: StrictStr
    instruction: StrictStr
    declaration: StrictStr
    canonical_solution: StrictStr
    buggy_solution: StrictStr
    bug_type: StrictStr


def convert_rewardbench(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per record; where the chosen answer stands is drawn as RewardBench's own run draws it.

    Source: docs/specification.md, section 9.1.
    """
    second = _draws()
    for record in records:
        pair = record.parse(RewardBenchRecord)
        yield _row(
            f"rewardbench-{record.index:04d}",
            pair.prompt,
            better=pair.chosen,
            worse=pair.rejected,
            better_is_second=next(second),
            source="RewardBench (filtered)",
            license="ODC-BY-1.0",
            meta={
                "subset": pair.subset,
                "source_id": pair.id,
                "chosen_model": pair.chosen_model,
                "rejected_model": pair.rejected_model,
            },
        )


def convert_llmbar(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per record, in the order of the source; a record's part is its subset."""
    for record in records:
        yield _row_in_order(
            f"{record.part}-{record.index:03d}", record, source="LLMBar", license="MIT", subset=record.part
        )


def convert_mt_bench(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per pair of answers, in the order of the source; a pair that was there before is left out."""
    seen: set[tuple[str, frozenset[str]]] = set()
    for record in records:
        pair = record.parse(LLMBarRecord)
        same = (pair.input, frozenset((pair.output_1, pair.output_2)))
        if same in seen:
            continue
        seen.add(same)
        yield _row_in_order(
            f"mtbench-{record.index:03d}",
            record,
            source="MT-Bench human judgments, majority vote, first turn (as processed by LLMBar)",
            license="CC-BY-4.0 (MT-Bench human judgments); MIT (LLMBar processing)",
            subset="mt-bench",
        )


def convert_humanevalpack(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per record: the reference against its buggy variant; a record's part is the language.

    RewardBench draws its code subsets from the same records; its exact form of an answer may differ.
    """
    second = _draws()
    for record in records:
        problem = record.parse(HumanEvalPackRecord)
        yield _row(
            f"hep-{record.part}-{record.index:03d}",
            problem.instruction,
            better=problem.declaration + problem.canonical_solution,
            worse=problem.declaration + problem.buggy_solution,
            better_is_second=next(second),
            source=f"HumanEvalPack ({record.part}): reference solution against its buggy variant",
            license="MIT",
            meta={"subset": f"hep-{record.part}", "bug_type": problem.bug_type},
        )


def _draws() -> Iterator[bool]:
    """Whether the better answer comes second, for one example after the other."""
    random = np.random.RandomState(SEED)  # the generator that numpy.random.seed(SEED) sets up
    while True:
        yield bool(random.rand() > 0.5)


def _row_in_order(name: str, record: SourceRecord, *, source: str, license: str, subset: str) -> ExampleRow:
    pair = record.parse(LLMBarRecord)
    better, worse = (pair.output_1, pair.output_2) if pair.label == 1 else (pair.output_2, pair.output_1)
    return _row(
        name,
        pair.input,
        better=better,
        worse=worse,
        better_is_second=pair.label == 2,
        source=source,
        license=license,
        meta={"subset": subset},
    )


def _row(
    name: str,
    question: str,
    *,
    better: str,
    worse: str,
    better_is_second: bool,
    source: str,
    license: str,
    meta: dict[str, Any],
) -> ExampleRow:
    answers = (worse, better) if better_is_second else (better, worse)
    return ExampleRow(
        id=name,
        task="judge_pair",
        system=get_task("judge_pair").instruction,
        question=question,
        documents=tuple(map(Document, answers)),
        gold_index=int(better_is_second),
        answers=("B" if better_is_second else "A",),
        source=source,
        license=license,
        meta=meta,
    )
