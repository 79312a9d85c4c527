"""A model that transformers has split among processes answers as a whole one, and keeps its promise."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pine_engine.engine.engine import Engine
from pine_engine.errors import ModelError
from pine_engine.models.load import load
from tests.models.test_load import save_tokenizer
from tests.support.commands import Run, run_verb
from tests.support.families import FEW_EXPERTS, make
from tests.support.forks import fork
from tests.support.split_worker import find, leave_found
from tests.support.tokenizers import letter_tokenizer

TOLERANCE = 1e-3
"""Of logits of size 10 in float32, whose sums are taken in two parts."""

pytestmark = pytest.mark.slow

SPLIT = ["llama", "qwen3_moe", "tied"]
"""Dense; a mixture of experts, whose experts are split too; one weight that is both embedding and output."""


def forked(count: int, folder: Path, work: Callable[..., object], *arguments: object) -> list[str]:
    """Work done by so many processes, each told its place as torchrun does; what each printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    printed = [folder / f"printed.{rank}" for rank in range(count)]
    processes = [
        fork(
            work,
            *arguments,
            stdout=path,
            stderr=folder / f"complaints.{rank}",
            environment={
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            },
        )
        for rank, path in enumerate(printed)
    ]
    for process in processes:
        process.join(200)
    complaints = "\n".join((folder / f"complaints.{rank}").read_text() for rank in range(count))
    assert [process.exitcode for process in processes] == [0] * count, complaints
    return [path.read_text() for path in printed]


def found_by(count: int, folder: Path, *names: str) -> list[dict[str, Any]]:
    """What each process has found of the models of that name."""
    out = folder / f"found.{count}"
    forked(count, folder, leave_found, str(out), *(str(folder / name) for name in names))
    return [torch.load(f"{out}.{rank}") for rank in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a folder for each model."""
    path = tmp_path_factory.mktemp("models")
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        # A vocabulary that two do not divide, and halves wide enough that torch's own products are uneven.
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
        save_tokenizer(path / name)
    return path


@pytest.fixture(scope="module")
def halves(folder: Path) -> list[dict[str, Any]]:
    """What each of two processes has found."""
    return found_by(2, folder, *SPLIT, "one_key_head", "no_plan", "fsdp", "4bit")


@pytest.mark.parametrize("name", SPLIT)
def test_two_processes_answer_as_one(folder: Path, halves: list[dict[str, Any]], name: str) -> None:
    alone = find(Engine.load(folder / name))
    for half in halves:
        assert half[name]["tokens"] == alone["tokens"]
        for own, theirs in zip(half[name]["logits"], alone["logits"], strict=True):
            torch.testing.assert_close(own, theirs, rtol=0, atol=TOLERANCE)
        assert alone["heads"] == (4, 4)
        assert half[name]["heads"] == (2, 2)


@pytest.mark.parametrize("name", SPLIT)
def test_both_processes_have_the_same_bits(halves: list[dict[str, Any]], name: str) -> None:
    first, second = (half[name] for half in halves)
    for own, theirs in zip(first["logits"], second["logits"], strict=True):
        assert all(torch.equal(own[method], theirs[method]) for method in own)


@pytest.mark.parametrize("name", SPLIT)
def test_the_promise_is_kept_to_the_last_bit(halves: list[dict[str, Any]], name: str) -> None:
    for half in halves:
        assert {kept for kept in half[name]["kept"].values() if kept is not None} == {True}
        assert half[name]["vanilla_is_equal"] is False
        assert half[name]["invariance_warning"] is None
        assert torch.equal(half[name]["beside_one"], half[name]["logits"][0]["pine"])


def test_of_three_processes_nothing_is_promised(folder: Path) -> None:
    """What each has is added to a sum in an order that depends on where in the batch it stands."""
    alone = find(Engine.load(folder / "thirds"))
    for third in found_by(3, folder, "thirds"):
        assert third["thirds"]["tokens"] == alone["tokens"]
        assert "split among 3 processes" in third["thirds"]["invariance_warning"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "one_key_head",
            "LlamaForCausalLM: its 4 heads and 1 key heads cannot be dealt out evenly to 2 processes; start "
            "a number of them that divides both",
        ),
        (
            "fsdp",
            "LlamaForCausalLM: it is split by stages, experts or for training (FSDP), and PINE knows only "
            "layers that are split by heads; load it with DistributedConfig(tp_plan='auto')",
        ),
        (
            "4bit",
            "4bit is for models that are whole in one process, and this one is split among 2; load it in "
            "float32, bfloat16 or float16",
        ),
        ("no_plan", "`StableLmForCausalLM` has no `tp_plan`"),
    ],
)
def test_what_cannot_be_split_is_refused(halves: list[dict[str, Any]], name: str, sentence: str) -> None:
    for half in halves:
        assert sentence in half[name]


def test_one_process_alone_cannot_split(folder: Path) -> None:
    with pytest.raises(ModelError) as refused:
        load(folder / "llama", device="tp")
    assert str(refused.value) == (
        "device 'tp' splits a model among processes, and there is one; start two with `torchrun "
        "--nproc-per-node 2 -m pine_engine compare ...`, or name another device"
    )


def test_the_command_line_answers_as_one_process_does(pine: Run, tmp_path: Path) -> None:
    make("llama", vocab_size=102, max_position_embeddings=700).save_pretrained(tmp_path / "model")
    letter_tokenizer().save_pretrained(tmp_path / "model")
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({"question": "who?", "documents": ["ann has it", "bob has none"]}))
    compare = ["compare", asked, "--model", tmp_path / "model", "--dtype", "float32", "--json"]
    compare += ["--max-new-tokens", "4"]
    words = ["pine_engine", *map(str, compare), "--device", "tp"]
    whole = [one["text"] for one in pine(*compare).json["results"]]
    for answer in forked(2, tmp_path, run_verb, words):  # of which torchrun shows one, if asked to
        assert [one["text"] for one in json.loads(answer)["results"]] == whole
