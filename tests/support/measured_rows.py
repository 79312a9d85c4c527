"""Rows that are measured on tiny models: a question, a pair, and as many other pairs as are asked for."""

from typing import Any

from pine_engine.evaluation.examples import Example
from pine_engine.prompts.prompt import Document

TIMES = {"prefill_s", "decode_s", "seconds"}
"""What a record says of time, which is never the same twice."""

QUESTION = Example(
    id="q",
    task="retrieval_qa",
    prefix="Read.",
    question="Where?",
    documents=[
        Document(text="Tides follow the moon."),
        Document(title="Sun", text="It shines."),
        Document(text="Ann has 3."),
        Document(text="No."),
    ],
    gold_index=1,
    answers=["It shines", "shines"],
)

PAIR = Example(
    id="p",
    task="judge_pair",
    system="Judge.",
    question="Who?",
    documents=[Document(text="Me."), Document(text="You, or he.")],
    gold_index=1,
    answers=["B"],
    meta={"subset": "llmbar-adver-gptinst"},
)


def pairs(count: int) -> list[dict[str, Any]]:
    """Pairs as a file has them, the better answer in turns A and B."""
    return [
        {
            "id": f"p{number}",
            "task": "judge_pair",
            "system": "Judge.",
            "question": f"Who is {number}?",
            "documents": [{"text": f"Me {number}."}, {"text": "You, or he."}],
            "gold_index": number % 2,
            "answers": ["AB"[number % 2]],
        }
        for number in range(count)
    ]
