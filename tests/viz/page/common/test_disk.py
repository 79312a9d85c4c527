"""Files of users: quota, removal, the temporary folder of a process, and errors of a full disk."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.serving import Serve, ServedApp
from viz.page.common.disk import DOWNLOAD_AGE_S, FULL, UPLOAD_AGE_S, Disk, DiskFullError, is_disk_full
from viz.page.common.failures import explain
from viz.page.common.temp_folder import PREFIX, START_S, process_temp_dir

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


def test_disk_sweep_removes_expired_files(tmp_path: Path) -> None:
    disk = Disk(tmp_path, MB)
    old, young = uploaded(tmp_path, "old", seconds_ago=UPLOAD_AGE_S + 1), uploaded(tmp_path, "young")
    part = tmp_path / "tmppart"  # of an aborted upload
    part.touch()
    make_older(part, UPLOAD_AGE_S + 1)
    certificate, forgotten = disk.new_folder(), disk.new_folder()
    assert len(forgotten.name) == 32 and certificate.name != forgotten.name, "names are random"
    make_older(certificate, UPLOAD_AGE_S + 1)
    make_older(forgotten, DOWNLOAD_AGE_S + 1)
    disk.sweep()
    left = [path.exists() for path in (old, young, part, certificate, forgotten)]
    assert left == [False, True, False, True, False]


def test_aborted_upload_leaves_no_part(tmp_path: Path) -> None:
    disk, complete = Disk(tmp_path, MB), uploaded(tmp_path, "complete")
    with disk.upload():
        with disk.upload():
            (tmp_path / "tmppart").touch()
        assert (tmp_path / "tmppart").exists()  # may be of the other upload
    assert list(tmp_path.iterdir()) == [complete.parent]


def test_files_and_active_uploads_share_the_quota(tmp_path: Path, clock: list[float]) -> None:
    uploaded(tmp_path, "kept", 500_000)
    disk = Disk(tmp_path, MB)
    for _ in range(4):
        disk.check(100_000)  # has arrived, and is not written yet
    with pytest.raises(DiskFullError):
        disk.check(100_000)
    with pytest.raises(DiskFullError):
        disk.new_folder()
    clock[0] += 3600
    disk.check()  # the uploads have failed, and wrote nothing


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
from viz.page.common.temp_folder import process_temp_dir
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
        for folder in (running, killed):
            make_older(folder, START_S + 1)
        starting = tmp_path / f"{PREFIX}starting"  # not locked yet
        starting.mkdir()
        with process_temp_dir(tmp_path) as own:
            assert not killed.exists() and starting.exists()
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


def upload(app: ServedApp, content: bytes) -> httpx.Response:
    return httpx.post(
        f"{app.url}gradio_api/upload", files={"files": ("notes.txt", content, "text/plain")}, timeout=60
    )


@pytest.mark.slow
def test_files_of_killed_page_are_removed_by_the_next(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    with (
        served_in(serve, folder, tmp_path / "log") as app,
        served_in(serve, folder, tmp_path / "other") as other,
    ):
        upload(app, b"a document of mine")
        (others,) = upload(other, b"of a page that runs").json()
        app.process.kill()
        app.process.wait()
        assert len(files_in(folder)) == 2
        with served_in(serve, folder, tmp_path / "again") as again:
            assert files_in(folder) == [Path(others)]
            upload(again, b"another")
        assert files_in(folder) == [Path(others)]
    assert not files_in(folder)
    assert "Traceback" not in (tmp_path / "log").read_text()
