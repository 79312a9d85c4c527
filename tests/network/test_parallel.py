"""Models that transformers has split between processes: same answers as a whole model, and invariance."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pine_engine import ModelError
from pine_engine.models.load import load
from tests.support.commands import Run
from tests.support.families import FEW_EXPERTS, make
from tests.support.split_worker import find
from tests.support.tokenizers import letter_tokenizer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

TOLERANCE = 1e-3
"""Of float32 logits of about 10, whose sums consist of two parts."""

SPLIT = ["llama", "qwen3_moe", "tied"]
"""Dense model; mixture of experts, which are split too; one weight for embedding and output."""


def torchrun(count: int, *arguments: object) -> str:
    options = f"-m torch.distributed.run --standalone --nproc-per-node={count} --local-ranks-filter=0 -m"
    command = [sys.executable, *options.split(), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def results_of(count: int, folder: Path, *names: str) -> list[dict[str, Any]]:
    out = folder / f"results.{count}"
    torchrun(count, "tests.support.split_worker", out, *(folder / name for name in names))
    return [torch.load(f"{out}.{rank}") for rank in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        # A vocabulary that two do not divide, and halves for which torch's GEMMs are not batch-invariant.
        "llama": ("llama", {"vocab_size": 131, "hidden_size": 192, "intermediate_size": 512}),
        "qwen3_moe": ("qwen3_moe", FEW_EXPERTS | {"head_dim": 8}),
        "tied": ("llama", {"tie_word_embeddings": True}),
        "thirds": ("llama", {"num_attention_heads": 6, "num_key_value_heads": 3, "hidden_size": 48}),
        "one_key_head": ("llama", {"num_key_value_heads": 1}),
        "no_plan": ("stablelm", {}),
        "fsdp": ("llama", {}),
        "4bit": ("llama", {}),
    }
    for name, (kind, options) in kinds.items():
        make(kind, **options).save_pretrained(path / name)
        letter_tokenizer().save_pretrained(path / name)
    return path


@pytest.fixture(scope="module")
def halves(folder: Path) -> list[dict[str, Any]]:
    return results_of(2, folder, *SPLIT, "one_key_head", "no_plan", "fsdp", "4bit")


@pytest.mark.parametrize("name", SPLIT)
def test_two_processes_answer_as_one(folder: Path, halves: list[dict[str, Any]], name: str) -> None:
    whole = find(folder / name)
    assert whole["heads"] == (4, 4)
    for half in halves:
        assert half[name]["tokens"] == whole["tokens"]
        for logits, expected in zip(half[name]["logits"], whole["logits"], strict=True):
            torch.testing.assert_close(logits, expected, rtol=0, atol=TOLERANCE)
        assert half[name]["heads"] == (2, 2)


@pytest.mark.parametrize("name", SPLIT)
def test_both_processes_are_bitwise_identical_and_invariant(halves: list[dict[str, Any]], name: str) -> None:
    for first, second in zip(*(half[name]["logits"] for half in halves), strict=True):
        assert all(torch.equal(first[method], second[method]) for method in first)
    for half in halves:
        assert {held for held in half[name]["kept"].values() if held is not None} == {True}
        assert half[name]["vanilla_is_equal"] is False
        assert half[name]["invariance_warning"] is None
        assert torch.equal(half[name]["beside_one"], half[name]["logits"][0]["pine"])


def test_three_processes_have_an_invariance_warning(folder: Path) -> None:
    """The order of the sum over processes depends on the index in the batch."""
    whole = find(folder / "thirds")
    for third in results_of(3, folder, "thirds"):
        assert third["thirds"]["tokens"] == whole["tokens"]
        assert "split among 3 processes" in third["thirds"]["invariance_warning"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one_key_head", "1 key heads"),
        ("fsdp", "training"),
        ("4bit", "among 2"),
        ("no_plan", "tp_plan"),
    ],
)
def test_model_that_cannot_be_split_is_refused(halves: list[dict[str, Any]], name: str, reason: str) -> None:
    for half in halves:
        assert reason in half[name]


def test_single_process_cannot_split(folder: Path) -> None:
    with pytest.raises(ModelError, match="'tp' needs several processes"):
        load(folder / "llama", device="tp")


def test_command_line_answers_as_one_process(pine: Run, tmp_path: Path) -> None:
    make("llama", vocab_size=102, max_position_embeddings=700).save_pretrained(tmp_path / "model")
    letter_tokenizer().save_pretrained(tmp_path / "model")
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"question": "who?", "documents": ["ann has it", "bob has none"]}))
    compare = ["compare", request, "--model", tmp_path / "model", "--dtype", "float32", "--json"]
    compare += ["--max-new-tokens", "4"]
    expected = [one["text"] for one in pine(*compare).json["results"]]
    printed = torchrun(2, "pine_engine", *compare, "--device", "tp")
    assert [one["text"] for one in json.loads(printed)["results"]] == expected
