"""Hand-written records of an evaluation, for tests of estimates and reports."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pine_engine.invariance.platform_facts import Platform
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.run_files import open_run, write_records
from pine_engine.lab.evaluation.settings import RunInfo

SWAPS = {
    "as-is": ((0, 1), (0, 1)), "segments-swapped": ((0, 1), (1, 0)), "labels-swapped": ((1, 0), (1, 0)),
    "swapped": ((1, 0), (0, 1)),
}  # fmt: skip
"""Input order and permutation of a pair by order name."""


def judged(
    example: str,
    method: str,
    order_name: str,
    verdict: str | None,
    *,
    better: int = 0,
    logprobs: tuple[float, float] | None = None,
    seconds: float = 1.0,
    **fields: Any,
) -> Record:
    """Return the record of a judged pair. better: index of the better stored answer."""
    entered, order = SWAPS[order_name]
    right = "AB"[entered.index(better)]
    return Record(
        example=example, task="judge", method=method, order_name=order_name, input_order=entered,
        permutation=order, gold_slot=[entered[place] for place in order].index(better), num_documents=2,
        answers=(right,), text=f"So: [[{verdict}]]" if verdict else "I cannot say.", parsed=verdict,
        score=0.5 if verdict is None else float(verdict == right),
        choice_logprobs=None if logprobs is None else {"[[A]]": logprobs[0], "[[B]]": logprobs[1]},
        choice_score=None if logprobs is None else float((logprobs[0] > logprobs[1]) == (right == "A")),
        prompt_tokens=100, answer_tokens=10, prefill_s=seconds * 0.75, decode_s=seconds * 0.25,
        seconds=seconds, **{"scoring": "verdict", **fields},
    )  # fmt: skip


def swept(
    example: str,
    method: str,
    slot: int,
    *,
    k: int = 3,
    score: float | None = None,
    logprob: float | None = None,
    text: str = "Paris",
    seconds: float = 1.0,
    **fields: Any,
) -> Record:
    """Return the record of a question over k documents, the first stored one gold and in this slot."""
    others = iter(range(1, k))
    order = tuple(0 if place == slot else next(others) for place in range(k))
    usual: dict[str, Any] = {"scoring": "words", "order_name": f"gold-at:{slot}"}
    usual |= {"prefill_s": seconds, "seconds": seconds}
    return Record(
        example=example, task="retrieval_qa", method=method, input_order=tuple(range(k)), permutation=order,
        gold_slot=slot, num_documents=k, answers=("Paris",), text=None if score is None else text,
        parsed=None if score is None else text, score=score, answer_logprob=logprob, prompt_tokens=60,
        answer_tokens=None if score is None else 4,
        **usual | fields,
    )  # fmt: skip


def sweep(
    examples: int, methods: Sequence[str], logprob: Callable[[int, str, int], float], *, k: int = 3
) -> Iterator[Record]:
    """Yield each example under each method with the gold document in each slot; correct above -2 nats."""
    for index, method, slot in product(range(examples), methods, range(k)):
        value = logprob(index, method, slot)
        yield swept(f"q-{index}", method, slot, k=k, logprob=value, score=float(value > -2))


def run_info(**changes: object) -> RunInfo:
    platform = Platform(
        model="HuggingFaceTB/SmolLM2-135M-Instruct", revision="abc123", dtype="float32", device="cpu",
        hardware="a processor", threads=2, python="3.12.1", torch="2.13.0", transformers="5.23.0",
        pine_explorer="0.1.0",
    )  # fmt: skip
    settings: dict[str, object] = {
        "started": "2026-01-02T03:04:05+00:00", "data": "pairs.jsonl", "data_sha256": "0123456789abcdef" * 4,
        "task": "judge", "methods": ("vanilla", "pine"), "order_names": ("as-is", "swapped"),
        "generate": True, "logprobs": True, "max_new_tokens": None, "address": "embedded",
        "platform": platform,
    }  # fmt: skip
    return RunInfo.model_validate({**settings, **changes})


def write_run(folder: Path, info: RunInfo, records: Iterable[Record]) -> None:
    open_run(folder, info)
    with write_records(folder) as append:
        for record in records:
            append(record)
