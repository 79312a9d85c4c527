"""Rows that are measured on tiny models: a question, a pair, and any number of other pairs."""

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import pytest

from pine_engine import Document, Engine
from pine_engine.engine import passes
from pine_engine.engine.events import Event
from pine_engine.lab.evaluation.measure import stream_evaluation
from pine_engine.lab.evaluation.record import Key, Record
from pine_engine.lab.evaluation.settings import choose
from pine_engine.prompts.examples import Example

TIMES = {"prefill_s", "decode_s", "seconds"}

QUESTION = Example(
    id="q", task="retrieval_qa", prefix="Read.", question="Where?", gold_index=1,
    documents=[Document("Tides follow the moon."), Document("It shines.", "Sun"), Document("Ann has 3."),
               Document("No.")],
    answers=["It shines", "shines"],
)  # fmt: skip

PAIR = Example(
    id="p", task="judge", system="Judge.", question="Who?", gold_index=1, answers=["B"],
    documents=[Document("Me."), Document("You, or he.")], meta={"subset": "llmbar-adver-gptinst"},
)  # fmt: skip


def pairs(count: int) -> list[dict[str, Any]]:
    """Return pairs as in a file; the better answer is A or B in turns."""
    same = {"task": "judge", "system": "Judge."}
    return [
        {"id": f"p{number}", **same, "question": f"Who is {number}?",
         "documents": [{"text": f"Me {number}."}, {"text": "You, or he."}],
         "gold_index": number % 2, "answers": ["AB"[number % 2]]}
        for number in range(count)
    ]  # fmt: skip


def measure(
    engine: Engine, examples: Sequence[Example], *, found: Iterable[Record] = (), **options: Any
) -> Generator[Event | Record | str, None, None]:
    """Yield the events and records of an evaluation; the options are those of `choose`."""
    return stream_evaluation(engine, examples, choose(examples, **options), found=found)


def evaluate_records(engine: Engine, examples: Sequence[Example], **options: Any) -> dict[Key, Record]:
    """Evaluate examples with answers of at most 6 tokens; return the records by their keys."""
    items = measure(engine, examples, **{"max_new_tokens": 6, **options})
    records = [item for item in items if isinstance(item, Record)]
    assert len({record.key for record in records}) == len(records)
    return {record.key: record for record in records}


def outcome(record: Record) -> dict[str, Any]:
    return record.model_dump(exclude={*TIMES, "was_computed"})


def watch_prefills(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return a list that receives the method and the number of computed tokens of each prefill."""
    made: list[tuple[str, int]] = []
    prefill = passes.prefill

    def watched(layout: Any, method: Any, options: Any) -> Any:
        counts: list[int] = []
        embeddings = engine.patched_models[0].network.model.embed_tokens
        hook = embeddings.register_forward_hook(lambda _, ids, __: counts.append(ids[0].numel()))
        try:
            return prefill(layout, method, options)
        finally:
            hook.remove()
            made.append((method.name, sum(counts)))

    monkeypatch.setattr(passes, "prefill", watched)
    return made
