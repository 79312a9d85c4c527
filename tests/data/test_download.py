"""A download is whole or absent, goes on where it stopped, and never mixes two states of a file."""

import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pine_engine.data import download
from pine_engine.data.download import Checksum, fetch, sha256_of
from pine_engine.errors import InputError
from tests.support.file_server import FileServer, serving

CONTENT = bytes(range(256)) * 2000
"""Half a megabyte: several chunks."""


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(CONTENT) as served:
        yield served


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "file.bin"


def checksum(content: bytes) -> Checksum:
    return Checksum(hashlib.sha256(content).hexdigest(), "it is another")


def stop_after(server: FileServer, path: Path, count: int, expected: Checksum | None = None) -> None:
    """A download that the server breaks off."""
    server.drop_after = count
    with pytest.raises(InputError, match="stopped after"):
        fetch(server.url, path, expected=expected)
    server.drop_after = None
    assert not path.exists()


def files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def test_a_file_comes_whole_and_leaves_nothing_else(server: FileServer, path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    fetch(server.url, path, progress=lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert files(path) == ["file.bin"]
    assert told[0] == (0, len(CONTENT)) and told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)
    assert (
        server.asked[0]["Accept-Encoding"] == "identity"
    )  # packed on the way, it had another length and ETag


def test_a_broken_connection_is_said_and_the_next_run_gets_only_the_rest(
    server: FileServer, path: Path
) -> None:
    stop_after(server, path, 300_000)
    assert path.with_name("file.bin.part").read_bytes() == CONTENT[:300_000]
    fetch(server.url, path, expected=checksum(CONTENT))
    assert path.read_bytes() == CONTENT
    assert files(path) == ["file.bin"]
    assert server.ranges_asked == [None, "bytes=300000-"]
    assert server.asked[1]["If-Range"] == '"state-1"'


def test_what_stopped_says_how_far_it_came(server: FileServer, path: Path) -> None:
    server.drop_after = 300_000
    with pytest.raises(InputError) as raised:
        fetch(server.url, path)
    assert str(raised.value) == (
        f"the download of {server.url} stopped after 300,000 of 512,000 bytes (the connection was closed): "
        "run the same command again; what is there is used, where the server allows it"
    )


def test_it_can_stop_as_often_as_it_likes(server: FileServer, path: Path) -> None:
    for _ in range(3):
        stop_after(server, path, 100_000)
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert server.ranges_asked == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]


@pytest.mark.parametrize("before", ['"state-1"', 'W/"state-1"'])
@pytest.mark.parametrize("etag", ['"state-2"', 'W/"state-2"', None])
def test_a_rest_of_another_state_is_never_added(
    server: FileServer, path: Path, before: str, etag: str | None
) -> None:
    server.etag = before
    stop_after(server, path, 300_000)
    server.content, server.etag = CONTENT[::-1], etag
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT[::-1]


def test_bytes_of_one_state_never_stand_under_the_notes_of_another(
    server: FileServer, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(server, path, 300_000)
    server.content, server.etag = CONTENT[::-1], '"state-2"'
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(download, "asdict", interrupt)
        fetch(server.url, path)
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT[::-1]
    stop_after(server, path.with_name("other"), 300_000)
    server.content, server.etag = CONTENT, '"state-3"'
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "open", interrupt)
        fetch(server.url, path.with_name("other"))
    fetch(server.url, path.with_name("other"))
    assert path.with_name("other").read_bytes() == CONTENT


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_another_length_is_another_state(server: FileServer, path: Path) -> None:
    server.etag = None
    now = CONTENT[::-1] + b"more"
    stop_after(server, path, 300_000, expected=checksum(now))
    server.content = now
    fetch(server.url, path, expected=checksum(now))
    assert path.read_bytes() == now
    assert server.ranges_asked == [None, "bytes=300000-", None]


def test_a_state_known_by_a_weak_mark_is_compared_here(server: FileServer, path: Path) -> None:
    server.etag = 'W/"state-1"'
    stop_after(server, path, 300_000)
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert server.ranges_asked == [None, "bytes=300000-"]
    assert "If-Range" not in server.asked[1]


def test_without_any_mark_a_part_is_used_only_if_the_whole_is_checked(server: FileServer, path: Path) -> None:
    server.etag = None
    stop_after(server, path, 300_000)
    fetch(server.url, path)
    assert server.ranges_asked == [None, None]
    path.unlink()
    stop_after(server, path, 300_000)
    fetch(server.url, path, expected=checksum(CONTENT))
    assert server.ranges_asked[2:] == [None, "bytes=300000-"]
    assert path.read_bytes() == CONTENT


def test_a_server_that_knows_no_ranges_sends_all_again(server: FileServer, path: Path) -> None:
    stop_after(server, path, 300_000)
    server.ranges = False
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT


def test_a_rest_from_another_place_is_not_added(server: FileServer, path: Path) -> None:
    stop_after(server, path, 300_000)
    server.shift = 7
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert server.ranges_asked == [None, "bytes=300000-", None]


def test_a_part_longer_than_the_file_is_given_up(server: FileServer, path: Path) -> None:
    stop_after(server, path, 300_000)
    path.with_name("file.bin.part").write_bytes(CONTENT + b"more")
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT


def test_a_part_that_is_whole_already_needs_no_server(server: FileServer, path: Path) -> None:
    stop_after(server, path, 300_000)
    path.with_name("file.bin.part").write_bytes(CONTENT)
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT
    assert len(server.asked) == 1


def test_a_part_of_another_address_is_not_used(server: FileServer, path: Path) -> None:
    stop_after(server, path, 300_000)
    fetch(f"{server.url}?other", path)
    assert server.ranges_asked == [None, None]


@pytest.mark.parametrize("notes", ["", "{}", "[]", '{"url": 1, "etag": "", "size": null}'])
def test_a_part_of_which_nothing_is_known_is_not_used(server: FileServer, path: Path, notes: str) -> None:
    stop_after(server, path, 300_000)
    path.with_name("file.bin.part.json").write_text(notes)
    fetch(server.url, path)
    assert server.ranges_asked == [None, None]
    assert path.read_bytes() == CONTENT


def test_another_checksum_is_refused_and_nothing_kept(server: FileServer, path: Path) -> None:
    with pytest.raises(InputError) as raised:
        fetch(server.url, path, expected=checksum(b"something else"))
    assert str(raised.value) == (
        f"{server.url} has the sha256 {hashlib.sha256(CONTENT).hexdigest()}, expected "
        f"{hashlib.sha256(b'something else').hexdigest()}: it is another; nothing was kept"
    )
    assert files(path) == []


def test_a_file_of_before_stays_if_the_new_one_is_refused(server: FileServer, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"before")
    with pytest.raises(InputError):
        fetch(server.url, path, expected=checksum(b"something else"))
    assert path.read_bytes() == b"before"


def test_a_file_announced_as_too_large_is_not_begun(server: FileServer, path: Path) -> None:
    with pytest.raises(InputError, match="is larger than 511,999 bytes, the most that is taken here"):
        fetch(server.url, path, max_bytes=len(CONTENT) - 1)
    assert files(path) == []
    fetch(server.url, path, max_bytes=len(CONTENT))
    assert path.read_bytes() == CONTENT


def test_a_file_that_grows_too_large_is_stopped(server: FileServer, path: Path) -> None:
    server.length = False
    with pytest.raises(InputError, match="larger than 1,000 bytes"):
        fetch(server.url, path, max_bytes=1000)
    assert not path.exists()
    assert path.with_name("file.bin.part").stat().st_size <= 1000
    fetch(server.url, path)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (404, "refused with status 404 .*the file has moved"),
        (403, "refused with status 403 .*not for everybody"),
        (429, "refused with status 429 .*run the same command again later"),
        (503, "refused with status 503 .*run the same command again later"),
    ],
)
def test_a_refusal_says_what_to_do(server: FileServer, path: Path, status: int, advice: str) -> None:
    server.status = status
    with pytest.raises(InputError, match=advice) as raised:
        fetch(server.url, path)
    assert "\n" not in str(raised.value)
    assert files(path) == []


def test_out_of_reach_is_one_sentence(path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(InputError) as raised:
        fetch(f"http://127.0.0.1:{port}/file", path)
    assert str(raised.value) == (
        f"http://127.0.0.1:{port}/file cannot be reached (Connection refused): check the connection and run "
        f"the same command again, or put a copy that you have at {path}"
    )


def test_a_server_that_says_nothing_is_given_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "TIMEOUT", 0.05)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(InputError, match=r"cannot be reached \(timed out\)"):
            fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/file", path)


def test_a_folder_that_cannot_be_made_is_said_before_anything_is_asked(
    server: FileServer, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="taken/file cannot be written: .*another folder with --out"):
        fetch(server.url, tmp_path / "taken" / "file")
    assert server.asked == []


def test_the_notes_of_a_part_say_what_it_is_of(server: FileServer, path: Path) -> None:
    stop_after(server, path, 1000)
    notes = json.loads(path.with_name("file.bin.part.json").read_text())
    assert notes == {"url": server.url, "etag": '"state-1"', "size": len(CONTENT)}


def test_the_checksum_is_that_of_the_bytes(tmp_path: Path) -> None:
    # The example of the standard, FIPS 180-2 B.1.
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256_of(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
