"""Shards of an evaluation: their examples, their devices, and the lock that refuses a second writer."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from pine_engine import InputError
from pine_engine.evaluation.shards import (
    Shard,
    device_of_shard,
    is_main_process,
    is_running,
    lock_shard,
    parse_shard,
)


def test_parse_shard_takes_the_text_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert parse_shard() == Shard(0, 1, is_launched=False)
    assert [Shard(index, 3).select(range(7)) for index in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert parse_shard() == Shard(1, 4, is_launched=True)
    assert parse_shard("2/3") == Shard(2, 3)
    for text in ("3/3", "1", "", "-1/2", "a/b"):
        with pytest.raises(InputError) as refused:
            parse_shard(text)
        assert refused.value.field == "shard"


@pytest.mark.parametrize(
    ("device", "shard", "expected"),
    [
        ("cuda", Shard(5, 8, is_launched=True), "cuda:1"),
        ("cuda", Shard(5, 8), "cuda"),
        ("auto", Shard(5, 8, is_launched=True), "auto"),
    ],
)
def test_device_of_shard_follows_the_launcher(
    monkeypatch: pytest.MonkeyPatch, device: str, shard: Shard, expected: str
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert is_main_process()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not is_main_process() and device_of_shard(device, shard) == expected
    with pytest.raises(InputError):
        device_of_shard("tp", shard)


def test_lock_shard_refuses_only_a_second_writer(tmp_path: Path) -> None:
    with lock_shard(tmp_path, Shard(0, 2)), lock_shard(tmp_path, Shard(1, 2)):
        for index, count in ((0, 1), (0, 2), (1, 2), (0, 3)):
            with pytest.raises(InputError), lock_shard(tmp_path, Shard(index, count)):
                pass
        assert is_running(tmp_path, Shard(0, 2)) and is_running(tmp_path, Shard(1, 2))
        assert not is_running(tmp_path, Shard(0, 1))
    with lock_shard(tmp_path, Shard(0, 2)):
        assert not is_running(tmp_path, Shard(0, 2))
    with lock_shard(tmp_path, Shard(1, 4)), pytest.raises(InputError), lock_shard(tmp_path, Shard()):
        pass  # the first shard of a smaller run


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_lock_shard_without_file_locks_yields_false(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    if code == errno.EIO:
        with pytest.raises(InputError), lock_shard(tmp_path, Shard()):
            pass
        return
    with lock_shard(tmp_path, Shard()) as is_locked:
        assert not is_locked
    assert is_running(tmp_path, Shard(0, 2))
