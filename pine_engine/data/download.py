"""One file from the network onto the disk: it goes on where it stopped, and is kept only if it is whole."""

import hashlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pine_engine.errors import InputError

MAX_BYTES = 200_000_000
"""Most bytes that are taken of a file; the largest that is known here has 30 million."""

TIMEOUT = 30
"""Seconds without an answer after which a server counts as out of reach."""

_CHUNK = 1 << 17
"""Bytes taken at a time."""

ByteProgress = Callable[[int, int | None], None]
"""Is told the bytes so far, and how many there will be, if that is known."""


@dataclass(frozen=True)
class Checksum:
    """What a file must be. otherwise: said after the two checksums if it is another."""

    sha256: str
    otherwise: str


@dataclass(frozen=True)
class _Begun:
    """What is known of a download that has begun: of which state of the file the bytes are."""

    url: str
    etag: str
    size: int | None


class _Changed(Exception):  # noqa: N818 - the server has another state; nothing is wrong
    """The server has no such rest of the file: it must be read from its start."""


def fetch(
    url: str,
    path: Path,
    *,
    expected: Checksum | None = None,
    max_bytes: int = MAX_BYTES,
    progress: ByteProgress = lambda done, total: None,
) -> None:
    """Downloads a file. Until it is whole and as expected its bytes stand in PATH.part, never under `path`.

    If there is such a part of the same state of the same file, the download goes on behind it. The state is
    known by the server's ETag; without one a part is used only if `expected` will check the whole.
    Raises InputError, of one sentence that says what to do: out of reach, stopped on the way, refused by the
    server, larger than max_bytes, not as expected, or not to be written here.
    """
    part = _part(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        _receive(url, path, _begun(url, part, expected), max_bytes, progress)
    except _Changed:
        _receive(url, path, None, max_bytes, progress)
    if expected is not None and (found := sha256_of(part)) != expected.sha256:
        _discard(part)
        raise InputError(
            f"{url} has the sha256 {found}, expected {expected.sha256}: {expected.otherwise}; "
            "nothing was kept"
        )
    with writing(path):
        part.replace(path)
    _discard(part)


def sha256_of(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _begun(url: str, part: Path, expected: Checksum | None) -> _Begun | None:
    """What is known of the part, if it can be gone on with."""
    try:
        begun = _Begun(**json.loads(_notes(part).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    usable = begun.url == url and (begun.etag or expected is not None)
    return begun if usable and part.is_file() else None


def _receive(url: str, path: Path, begun: _Begun | None, max_bytes: int, progress: ByteProgress) -> None:
    """Reads what is missing into the part. Raises _Changed if the server does not have the rest of it."""
    part = _part(path)
    start = part.stat().st_size if begun else 0
    if begun and start == begun.size:
        return  # it was whole, and was not given its name any more
    headers = {"User-Agent": "pine-explorer"}
    if begun:
        headers["Range"] = f"bytes={start}-"
        if begun.etag.startswith('"'):
            headers["If-Range"] = begun.etag  # a weak one is not allowed there, and is compared below
    with _asking(url, headers, path) as response:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            total = _total(response.headers, start)
            if begun is None or total is None or not _same(begun, response.headers, total):
                raise _Changed
        else:
            start, total = 0, _number(response.headers.get("Content-Length"))
        _check_size(url, total or 0, max_bytes)
        if start == 0:
            now = _Begun(url, response.headers.get("ETag") or "", total)
            with writing(part):
                _discard(part)  # first, or its bytes would stand under the notes of another state
                _notes(part).write_text(json.dumps(asdict(now)), encoding="utf-8")
        done = start
        progress(done, total)
        with writing(part), part.open("ab") as file:
            for chunk in _chunks(url, response, done, total):
                done += len(chunk)
                _check_size(url, done, max_bytes)
                file.write(chunk)
                progress(done, total)
    if total is not None and done != total:
        raise _stopped(url, done, total, "the connection was closed")


@contextmanager
def _asking(url: str, headers: Mapping[str, str], path: Path) -> Iterator[Any]:
    """The server's answer, of status 200 or 206. path: where the whole file will be."""
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=dict(headers)), timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and "Range" in headers:
            raise _Changed from None
        advice = (
            "the server asks for patience; run the same command again later"
            if error.code == http.HTTPStatus.TOO_MANY_REQUESTS or error.code >= 500
            else "the file has moved, or is not for everybody any more; see the set's own page"
        )
        raise InputError(f"{url} was refused with status {error.code} ({error.reason}): {advice}") from error
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise InputError(
            f"{url} cannot be reached ({_reason(error)}): check the connection and run the same command "
            f"again, or put a copy that you have at {path}"
        ) from error
    with response:
        yield response


def _chunks(url: str, response: Any, done: int, total: int | None) -> Iterator[bytes]:
    """The bytes of an answer as they come."""
    while True:
        try:
            chunk = response.read1(_CHUNK)
        except (http.client.HTTPException, OSError) as error:
            raise _stopped(url, done, total, _reason(error)) from error
        if not chunk:
            return
        done += len(chunk)
        yield chunk


def _stopped(url: str, done: int, total: int | None, reason: str) -> InputError:
    whole = f" of {total:,}" if total is not None else ""
    return InputError(
        f"the download of {url} stopped after {done:,}{whole} bytes ({reason}): run the same command again; "
        "what is there is used, where the server allows it"
    )


def _check_size(url: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise InputError(
            f"{url} is larger than {max_bytes:,} bytes, the most that is taken here: it is not the file that "
            "this version of the program knows"
        )


def _same(begun: _Begun, headers: Mapping[str, str], total: int) -> bool:
    """Whether a rest belongs to the part: another state has another ETag or another length."""
    same_size = begun.size is None or total == begun.size
    return same_size and (headers.get("ETag") or "") == begun.etag


def _total(headers: Mapping[str, str], start: int) -> int | None:
    """The length of the whole file, if the answer is all of it from `start` on."""
    span, _, total = headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
    size = _number(total)
    return size if size is not None and span == f"{start}-{size - 1}" else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", error)
    return getattr(inner, "strerror", None) or str(inner) or type(inner).__name__


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _notes(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _notes(part).unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns what the disk refuses into a sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror}; free some space, or give another folder with --out"
        ) from error
