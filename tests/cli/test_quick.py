"""Help and bad arguments are answered without torch, which takes seconds to import."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pine_engine.cli.main import app

ROOT = Path(__file__).parents[2]
SLOW = ("torch", "transformers", "accelerate", "sklearn", "rdkit", "pooch", "pyarrow")

TRIED = f"""
import contextlib, io, json, os, sys
from pine_engine.cli.main import main
statuses = []
for arguments in json.loads(sys.stdin.read()):
    sys.argv = ["pine_engine", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            main()
            statuses.append(0)
        except SystemExit as ended:
            statuses.append(ended.code or 0)
    if slow := [name for name in {SLOW!r} if name in sys.modules]:
        sys.exit(f"{{arguments}} imported {{slow}}")
print(json.dumps(statuses))
"""


def statuses(commands: Sequence[Sequence[str]], folder: Path) -> list[int]:
    """What the commands exit with, one after the other in one process, which must not import what is slow."""
    ended = subprocess.run(
        [sys.executable, "-c", TRIED],
        input=json.dumps(commands),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(folder / "no cache")},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    printed: list[int] = json.loads(ended.stdout)
    return printed


def test_help_and_what_there_is_to_choose_from_need_no_torch(tmp_path: Path) -> None:
    verbs = [command.name or command.callback.__name__.replace("_", "-")
             for command in app.registered_commands if command.callback]  # fmt: skip
    assert len(verbs) == 15
    commands = [["--help"], *([verb, "--help"] for verb in verbs), ["methods"], ["models"], ["download-data"]]
    assert statuses(commands, tmp_path) == [0] * len(commands)


@pytest.mark.parametrize("json_given", [False, True], ids=["plain", "json"])
def test_bad_arguments_need_no_torch(tmp_path: Path, json_given: bool) -> None:
    row: dict[str, Any] = {"id": "a", "task": "kv_retrieval", "question": "k", "answers": ["v"]}
    row |= {"documents": [{"title": "k", "text": "v"}]}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    (tmp_path / "comparison.json").write_text('{"question": "Why?", "documents": ["a", "b"]}')
    refused = [
        "nonsense",
        "compare comparison.json --nonsense",
        "compare absent.json",
        "compare comparison.json --methods magic",
        "compare comparison.json --dtype int8",
        "compare comparison.json --model no/such/folder",
        "compare comparison.json --model random:tiny",
        "verify absent.jsonl",
        "verify",
        "verify rows.jsonl --methods magic",
        "verify --self-test --threads 2,many",
        "verify --self-test --model random:magic",
        "debias absent.json --wrapper pride",
        "debias comparison.json --wrapper magic",
        "debias comparison.json --wrapper permutation_full --base magic",
        "conformance absent",
        "reproduce absent.json",
        "bench --methods magic",
        "bench --sizes 2",
        "bench --sweep documents --sizes 500",
        "evaluate absent.jsonl --output-dir run",
        "evaluate rows.jsonl --output-dir run --methods magic",
        "evaluate rows.jsonl --output-dir run --orders magic",
        "evaluate rows.jsonl --output-dir run --metrics magic",
        "download-data magic",
        "report absent --output-dir report",
        "reproduce-paper --output-dir papers",
        "train-molecules absent.jsonl --output-dir model",
        "molecules absent.jsonl --predictor-data absent.jsonl",
        "methods --into absent.md",
    ]
    commands = [
        line.split() + ["--json"] * (json_given and "reproduce-paper" not in line) for line in refused
    ]
    assert statuses(commands, tmp_path) == [2] * len(commands)
