"""How much room there is, on this machine and in a container."""

import shutil
from pathlib import Path

import psutil
import pytest

from pine_engine.models import resources as room
from pine_engine.models.resources import free_disk, free_memory, in_words

GIB = 2**30


def container(folder: Path, limit: str, current: int, inactive: int) -> None:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive}\nactive_file 7\n")


def test_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "CGROUP", tmp_path)
    available = free_memory("cpu")
    assert available == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    container(tmp_path, str(GIB), GIB // 2, GIB // 8)
    assert free_memory("cpu") == free_memory("auto") == GIB // 2 + GIB // 8
    container(tmp_path, "max", GIB // 2, GIB // 8)
    assert free_memory("cpu") == pytest.approx(available, rel=0.2)


def test_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    there = shutil.disk_usage(tmp_path).free
    assert free_disk(tmp_path / "not" / "yet") == pytest.approx(there, rel=0.05)


@pytest.mark.parametrize(
    ("size", "words"),
    [(98_362_432, "98.4 MB"), (16.06e9, "16.1 GB"), (999e6, "999.0 MB"), (141_107_412_992, "141.1 GB")],
)
def test_bytes_are_said_in_powers_of_ten(size: float, words: str) -> None:
    assert in_words(size) == words
