"""Models on the Hugging Face hub: commit of a revision, size, and download."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pine_engine.errors import ModelError, one_line
from pine_engine.models.embedded import EMBEDDED_NAME, INSTALL_ADVICE, Progress, find_embedded_gguf
from pine_engine.models.resources import free_disk, in_words
from pine_engine.models.support import model_errors

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0

_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors"],
    "ignore_patterns": ["*/*"],
}
"""Files of a model and its tokenizer, all in the top folder of the repository."""


def find_on_hub(hub_id: str, revision: str | None) -> tuple[str, bool]:
    """Return the commit of a revision, and True if it is from the hub, False if from the local cache."""
    from huggingface_hub import try_to_load_from_cache

    try:
        return str(_model_info(hub_id, revision).sha), True
    except ModelError as error:
        if error.field != "hub":
            raise
        cached = try_to_load_from_cache(hub_id, "config.json", revision=revision)
        if not isinstance(cached, str):
            raise
        commit = Path(cached).parent.name
        logger.warning("the hub cannot be reached; using %s at commit %s from the cache", hub_id, commit)
        return commit, False


def look_up(hub_id: str, revision: str | None) -> tuple[int | None, int, int]:
    """Return the number of parameters, if stated, and the bytes of the weights and to download."""
    info, files = _model_info(hub_id, revision), _list_files(hub_id, revision)
    weights_bytes = sum(file.file_size for file in files if file.filename.endswith(".safetensors"))
    return info.safetensors.total if info.safetensors else None, weights_bytes, _missing_bytes(files)


def bring(hub_id: str, revision: str | None, progress: Progress) -> None:
    """Download the missing files of a model into the cache; an exception of `progress` ends the download."""
    from huggingface_hub import constants, snapshot_download

    missing = _missing_bytes(_list_files(hub_id, revision))
    if not missing:
        return
    cache = Path(constants.HF_HUB_CACHE)
    if missing > (free := free_disk(cache)):
        message = f"{hub_id!r} needs {in_words(missing)}, and {cache} has {in_words(free)}; make room"
        raise ModelError(f"{message}, or set HF_HOME to a folder on a larger disk", field="disk")

    def report(done: float) -> None:
        progress(min(1.0, done / missing), f"downloading, {in_words(done)} of {in_words(missing)}")

    advice = f"complete files are kept: check that {cache} can be written, then load again"
    with model_errors(f"the download of {hub_id!r}", advice, field="download"):
        snapshot_download(hub_id, revision=revision, tqdm_class=_bar(report), **_PATTERNS)


def _model_info(hub_id: str, revision: str | None) -> Any:
    """Return the answer of the hub, without the retries that take 25 s per file if there is no network."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return HfApi().model_info(hub_id, revision=revision, timeout=TIMEOUT_S)
    except (HFValidationError, RepositoryNotFoundError) as error:
        message = f"the hub has no public model {hub_id!r}; check its spelling, or `hf auth login`"
        raise ModelError(message, field="model") from error
    except RevisionNotFoundError as error:
        message = f"model {hub_id!r} has no revision {revision!r}; give a branch, tag or commit of its page"
        raise ModelError(message, field="revision") from error
    except Exception as error:  # errors of the HTTP client, HTTP 5xx, or offline mode
        message = f"model {hub_id!r} is not on this machine and the hub cannot be reached ({one_line(error)})"
        embedded = "" if find_embedded_gguf() else f" (not installed; {INSTALL_ADVICE})"
        advice = f"give a local folder, a GGUF file, or the embedded model {EMBEDDED_NAME}{embedded}"
        raise ModelError(f"{message}; {advice}", field="hub") from error


def _bar(report: Callable[[float], None]) -> type:
    """Return a progress bar class for the hub client that draws nothing and reports the written bytes."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]  # tqdm ships no types, so its class is Any
        def __init__(self, *_: Any, **options: Any) -> None:
            # The client has three bars: files, bytes in transfer, and bytes written.
            self._counts_written = options.get("unit") == "B" and options.get("desc") != "Downloading bytes"
            self._done = 0.0
            super().__init__(disable=True)

        def update(self, n: float | None = 1) -> None:
            self._done += n or 0
            if self._counts_written:
                report(self._done)

    return Bar


def _list_files(hub_id: str, revision: str | None) -> list[Any]:
    """Return the files of a model with their sizes and download states."""
    from huggingface_hub import snapshot_download

    # A gated model has a public page, but no public files.
    advice = "if the model is gated, accept its terms on its page and log in with `hf auth login`"
    with model_errors(f"the file list of {hub_id!r}", advice, field="hub"):
        files: list[Any] = snapshot_download(
            hub_id, revision=revision, dry_run=True, tqdm_class=_bar(lambda _: None), **_PATTERNS
        )
    return files


def _missing_bytes(files: list[Any]) -> int:
    return sum(file.file_size for file in files if file.will_download)
