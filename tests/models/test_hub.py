"""Bringing a model from the hub, with the hub's own client and a stand-in for the hub on this machine."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine.errors import Cancelled, ModelError
from pine_engine.models import hub
from pine_engine.models.hub import bring
from pine_engine.models.listing import describe
from pine_engine.models.load import load
from tests.support.hub_server import COMMIT, HubServer, hub_of
from tests.support.tokenizers import letter_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Callable[..., LlamaForCausalLM]) -> Path:
    """A model of some megabytes, as its repository has it."""
    folder = tmp_path_factory.mktemp("hub") / "model"
    tiny_llama(layers=8, heads=8, head_dim=16).save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    (folder / "pytorch_model.bin").write_bytes(bytes(1000))
    return folder


@pytest.fixture
def served(folder: Path, tmp_path: Path) -> Iterator[HubServer]:
    with hub_of("org/tiny", folder, tmp_path / "cache") as served:
        yield served


def size(*files: Path) -> int:
    return sum(file.stat().st_size for file in files)


def test_remote_model_is_described_without_its_weights(served: HubServer, folder: Path) -> None:
    found = describe("org/tiny")
    weights = folder / "model.safetensors"
    others = [file for file in folder.iterdir() if file.suffix in (".json", ".jinja")]
    assert (found.origin, found.supported, found.family, found.context) == ("hub", True, "llama", 512)
    assert found.size_bytes == size(weights)
    assert found.missing_bytes == size(weights, *others)
    assert served.asked == ["config.json"]


def test_download_reports_progress_and_skips_pickles(served: HubServer, folder: Path) -> None:
    calls: list[tuple[float, str]] = []
    loaded = load("org/tiny", progress=lambda part, step: calls.append((part, step)))
    parts = [part for part, step in calls if step.startswith("downloading")]
    assert len(set(parts)) > 5 and max(parts) == 1.0
    assert re.fullmatch(r"downloading, \d\.\d MB of 4\.\d MB", calls[-2][1])
    assert calls[-1] == (1.0, "reading the weights")
    assert loaded.source.revision == COMMIT
    assert "pytorch_model.bin" not in served.asked
    original = LlamaForCausalLM.from_pretrained(folder)
    assert torch.equal(loaded.model.lm_head.weight, original.lm_head.weight)
    assert describe("org/tiny").parameters == original.num_parameters()
    assert describe("org/tiny").missing_bytes == 0


def test_cancelled_download_is_resumed(served: HubServer, tmp_path: Path) -> None:
    def enough(part: float, _: str) -> None:
        if part > 0.5:
            raise Cancelled("stopped")

    with pytest.raises(Cancelled):
        bring("org/tiny", None, enough)
    assert describe("org/tiny").missing_bytes > 0
    assert not list((tmp_path / "cache").rglob("*.incomplete"))
    parts: list[float] = []
    bring("org/tiny", None, lambda part, _: parts.append(part))
    assert max(parts) == 1.0
    assert load("org/tiny").source.revision == COMMIT


def test_lost_connection_is_reported_and_resumed(served: HubServer, tmp_path: Path) -> None:
    served.break_at = 100_000
    with pytest.raises(ModelError, match=f"'org/tiny'.*{tmp_path}/cache"):
        load("org/tiny", progress=lambda *_: None)
    served.break_at = None
    assert load("org/tiny", progress=lambda *_: None).source.revision == COMMIT


def test_unwritable_cache_raises_model_error(served: HubServer, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in place of the folder")
    with pytest.raises(ModelError):
        bring("org/tiny", None, lambda *_: None)


def test_full_disk_is_rejected_before_the_download(
    served: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "free_disk", lambda _: 99_000)
    with pytest.raises(ModelError):
        bring("org/tiny", None, lambda *_: None)
    assert served.asked == []


def test_unsupported_model_is_rejected_before_the_download(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "bloom"
    shutil.copytree(folder, other)
    (other / "config.json").write_text('{"model_type": "bloom"}')
    with hub_of("org/bloom", other, tmp_path / "cache") as served:
        found = describe("org/bloom")
        assert not found.supported and "ALiBi" in found.reason
        with pytest.raises(ModelError, match="ALiBi"):
            load("org/bloom", progress=lambda *_: None)
        assert served.asked == ["config.json"]
