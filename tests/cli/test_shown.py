"""What the verbs show to people: titles in words, and whole words at every width."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from pine_engine.console import tables, terminal
from tests.support.commands import COMPARISON, Run, write

GOLDEN = Path(__file__).parents[1] / "golden" / "conformance"
ROW = {"id": "a", "task": "kv_retrieval", "question": "k1", "answers": ["v1"], "gold_index": 0,
       "documents": [{"title": "k1", "text": "v1"}, {"title": "k2", "text": "v22"}]}  # fmt: skip
METHODS = ["--methods", "vanilla,pine_input_order"]
SMALL = ["--model", "random:tiny", "--document-tokens", 8, "--max-new-tokens", 2, *METHODS]
VERBS: dict[str, list[Any]] = {
    "methods": ["methods"],
    "models": ["models"],
    "download-data": ["download-data"],
    "compare": ["compare", "COMPARISON", *METHODS, "--max-new-tokens", 2],
    "verify": ["verify", "ROWS", *METHODS, "--num-orders", 1, "--max-new-tokens", 1],
    "self-test": ["verify", "--self-test", "--num-orders", 1],
    "conformance": ["conformance", GOLDEN / "s1_llama_k2"],
    "debias": ["debias", "COMPARISON", "--wrapper", "permutation_cyclic", "--labels", "A,B"],
    "bench": ["bench", *SMALL, "--repeats", 1, "--sweep", "documents", "--sizes", "2"],
    "end-to-end": [
        "bench",
        "--end-to-end",
        "--model",
        "random:tiny",
        "--document-tokens",
        8,
        "--max-new-tokens",
        2,
    ],
    "profile": ["bench", *SMALL, "--profile"],
    "evaluate": ["evaluate", "ROWS", "--output-dir", "OUT", *METHODS, "--orders", "as-is,reversed"],
}


def words(text: str) -> set[str]:
    return {word for word in re.split(r"[\s│┃]+", text) if re.search(r"\w", word)}


@pytest.mark.usefixtures("skip_memory_measurement")
@pytest.mark.parametrize("verb", VERBS)
def test_titles_are_words_and_no_word_is_broken(
    pine: Run, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    given = {
        "COMPARISON": write(tmp_path / "comparison.json", COMPARISON),
        "ROWS": write(tmp_path / "rows.jsonl", json.dumps(ROW)),
        "OUT": tmp_path / "run",
    }
    shown: list[dict[str, Any]] = []
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.setattr(terminal, "print_rows", lambda _, rows: shown.extend(rows))
    outcome = pine(*(given.get(part, part) for part in VERBS[verb]))
    assert outcome.status == 0, outcome.stderr
    assert shown and not [title for row in shown for title in row if "_" in title]
    asked = {
        word
        for row in shown
        for value in row.values()
        if value is not None
        for word in words(tables._cell(value))
    }
    for width in (60, 80, 120):
        console = Console(file=io.StringIO(), width=width)
        tables.print_rows(console, shown)
        assert isinstance(console.file, io.StringIO)
        assert asked <= words(console.file.getvalue())
