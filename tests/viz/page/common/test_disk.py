"""Files of users: quota, removal, the temporary folder of a process, and errors of a full disk."""

import asyncio
import errno
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.serving import Serve, ServedApp
from tools.load_clients import Page, PageSession
from viz.page.common.disk import (
    CLOCK_S,
    DOWNLOAD_AGE_S,
    FULL,
    UPLOAD_AGE_S,
    Disk,
    DiskFullError,
    is_disk_full,
)
from viz.page.common.failures import explain
from viz.page.common.process_temp_dir import PREFIX, process_temp_dir

ROOT = Path(__file__).parents[4]
MB = 1_000_000


def uploaded(folder: Path, name: str, size: int = 10, *, seconds_ago: float = 0) -> Path:
    """A file as gradio leaves it after an upload, in a folder of its content's."""
    file = folder / name / "notes.txt"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * size)
    make_older(file.parent, seconds_ago)
    return file


def make_older(path: Path, seconds: float) -> None:
    changed = time.time() - seconds
    os.utime(path, (changed, changed))


# what stays


def test_upload_is_removed_after_last_reader(tmp_path: Path) -> None:
    disk = Disk(tmp_path, MB)
    file, other = uploaded(tmp_path, "a"), uploaded(tmp_path, "b")
    disk.arrived([str(file)])
    disk.arrived([str(file), str(other)])
    disk.was_read([str(file)])
    assert file.exists()
    disk.was_read([str(file), str(tmp_path / "nothing"), __file__])
    assert not file.parent.exists() and other.exists() and Path(__file__).exists()


def test_aborted_upload_leaves_no_part(tmp_path: Path) -> None:
    disk = Disk(tmp_path, MB)
    left, written = tmp_path / "tmpleft", tmp_path / "tmpwritten"
    left.touch()
    make_older(left, 2 * CLOCK_S)
    with disk.upload(10):
        with disk.upload(10):
            written.touch()
        assert not left.exists() and written.exists()
    assert list(tmp_path.iterdir()) == []


def test_disk_sweep_removes_expired_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path, MB)
    old, young = uploaded(tmp_path, "old", seconds_ago=UPLOAD_AGE_S + 1), uploaded(tmp_path, "young")
    certificate, forgotten = disk.new_folder(), disk.new_folder()
    assert len(forgotten.name) == 32 and certificate.name != forgotten.name, "names are random"
    make_older(certificate, UPLOAD_AGE_S + 1)
    make_older(forgotten, DOWNLOAD_AGE_S + 1)
    disk.sweep()
    assert [path.exists() for path in (old, young, certificate, forgotten)] == [False, True, True, False]


# how much


def test_disk_active_uploads_share_the_quota(tmp_path: Path) -> None:
    uploaded(tmp_path, "kept", 500_000)
    disk = Disk(tmp_path, MB)
    with disk.upload(300_000):
        disk.check()
        with disk.upload(300_000) as second:
            with pytest.raises(DiskFullError):
                disk.check()
            second.coming = 100_000  # most of it arrived, and counts at the end of the upload
            disk.check()
    with disk.upload(400_000), pytest.raises(DiskFullError):
        disk.check()


def test_small_files_count_as_whole_blocks(tmp_path: Path) -> None:
    for number in range(20):
        uploaded(tmp_path, str(number), 1)
    with pytest.raises(DiskFullError):
        Disk(tmp_path, 100_000).check()


def test_full_disk_error_is_explained() -> None:
    assert explain(OSError(errno.ENOSPC, "No space left on device")) == FULL
    assert not is_disk_full(FileNotFoundError(errno.ENOENT, "no"))


# the folder of a process

HOLDS = """
import sys, time
from pathlib import Path
from viz.page.common.process_temp_dir import process_temp_dir
with process_temp_dir(Path(sys.argv[1])) as folder:
    (folder / "upload").write_text("a secret")
    print(folder, flush=True)
    time.sleep(60)
"""


@contextmanager
def holder(parent: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process with such a folder, which is killed at the end."""
    command = [sys.executable, "-c", HOLDS, str(parent)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_temp_dir_of_killed_process_is_removed(tmp_path: Path) -> None:
    foreign = tmp_path / f"{PREFIX}foreign"
    (tmp_path / "elsewhere").mkdir()
    foreign.symlink_to(tmp_path / "elsewhere")
    with holder(tmp_path) as (_, running):
        with holder(tmp_path) as (_, killed):
            assert (killed / "upload").exists() and killed.stat().st_mode & 0o777 == 0o700
        assert (killed / "upload").exists()
        with process_temp_dir(tmp_path) as own:
            assert not killed.exists()
            assert (running / "upload").exists()
        assert not own.exists()
    assert foreign.is_symlink() and list((tmp_path / "elsewhere").iterdir()) == []


# a served page


@contextmanager
def served_in(serve: Serve, folder: Path, log: Path, *flags: str) -> Iterator[ServedApp]:
    """The app, without a model, with its files in a folder."""
    environment = {"GRADIO_TEMP_DIR": str(folder)}
    with serve(log, "--model", "/nowhere", *flags, environment=environment) as app:
        yield app


def files_in(folder: Path) -> list[Path]:
    """Its files that hold something."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


def gone(folder: Path) -> bool:
    """Return whether all files are removed within a few seconds."""
    deadline = time.monotonic() + 20
    while files_in(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not files_in(folder)


def upload(app: ServedApp, content: bytes) -> httpx.Response:
    return httpx.post(
        f"{app.url}gradio_api/upload", files={"files": ("notes.txt", content, "text/plain")}, timeout=60
    )


def break_off(app: ServedApp) -> None:
    """Send half of an upload and close the connection."""
    port = httpx.URL(app.url).port
    half = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.txt"\r\n\r\n' + b"a" * 200_000
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            b"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 400000\r\n"
            b"Content-Type: multipart/form-data; boundary=x\r\n\r\n" + half
        )
        time.sleep(1)


async def read_by_the_page(app: ServedApp, path: str) -> None:
    """Add an uploaded file as a document, as a browser does."""
    async with httpx.AsyncClient(base_url=app.url, timeout=60) as client:
        page = await Page.fetch(client)
        session = PageSession(client, page)
        await session.open()
        event = page.event("upload")
        file = {"path": path, "orig_name": "notes.txt", "meta": {"_type": "gradio.FileData"}}
        values = [[file], *page.values(event)[1:]]
        await session.send(event, values)
        for follower in page.events_after(event):
            await session.send(follower)
        assert any("notes.txt" in message for message in session.messages)


@pytest.mark.slow
def test_uploads_of_users_are_removed(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    with (
        served_in(serve, folder, tmp_path / "log") as app,
        served_in(serve, folder, tmp_path / "other") as other,
    ):
        (path,) = upload(app, b"a document of mine").json()
        assert len(files_in(folder)) == 1
        asyncio.run(read_by_the_page(app, path))
        assert gone(folder), "what was read stays"
        break_off(app)
        assert gone(folder), "what was broken off stays"
        upload(app, b"never read")
        (others,) = upload(other, b"of a page that runs").json()
        app.process.kill()
        app.process.wait()
        assert len(files_in(folder)) == 2
        with served_in(serve, folder, tmp_path / "again") as again:
            assert files_in(folder) == [Path(others)]
            upload(again, b"never read either")
        assert files_in(folder) == [Path(others)]
    assert not files_in(folder)
    assert "Traceback" not in (tmp_path / "log").read_text()
