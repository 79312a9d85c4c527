"""Free memory and disk space, on this machine and in a container."""

import shutil
from pathlib import Path

import psutil
import pytest

from pine_engine.models import resources
from pine_engine.models.resources import free_disk, free_memory, in_words

GIB = 2**30


def container(folder: Path, limit: str, current: int, inactive: int) -> None:
    statistics = f"anon 5\ninactive_file {inactive}\nactive_file 7"
    for name, value in {"max": limit, "current": current, "stat": statistics}.items():
        (folder / f"memory.{name}").write_text(f"{value}\n")


def test_free_memory_is_within_limit_of_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "CGROUP", tmp_path)
    available = free_memory("cpu")
    assert available == pytest.approx(psutil.virtual_memory().available, rel=0.2)
    container(tmp_path, str(GIB), GIB // 2, GIB // 8)
    assert free_memory("cpu") == free_memory("auto") == GIB // 2 + GIB // 8
    container(tmp_path, "max", GIB // 2, GIB // 8)
    assert free_memory("cpu") == pytest.approx(available, rel=0.2)


def test_free_disk_accepts_folder_that_does_not_exist(tmp_path: Path) -> None:
    expected = shutil.disk_usage(tmp_path).free
    assert free_disk(tmp_path / "not" / "yet") == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize(
    ("size", "words"),
    [(98_362_432, "98.4 MB"), (16.06e9, "16.1 GB"), (999e6, "999.0 MB"), (141_107_412_992, "141.1 GB")],
)
def test_in_words_uses_powers_of_ten(size: float, words: str) -> None:
    assert in_words(size) == words
