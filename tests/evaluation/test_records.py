"""Files of records: those of an interrupted run are read, and those of another run are refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pine_engine.errors import InputError
from pine_engine.evaluation.records import (
    Record,
    RunInfo,
    Writer,
    open_run,
    read_records,
    read_run,
)
from pine_engine.invariance.platform_facts import Platform

PLATFORM = Platform(
    model="tiny", revision=None, dtype="float32", device="cpu", hardware="a CPU", threads=2, python="3.11",
    torch="2.13", transformers="5.23", pine_explorer="0.1.0",
)  # fmt: skip
INFO = RunInfo(
    started="2025-01-01T00:00:00+00:00",
    data="qa.jsonl",
    data_sha256="0" * 64,
    task="retrieval_qa",
    methods=("vanilla", "pine"),
    order_names=("as-is", "gold-all"),
    generate=True,
    logprobs=True,
    sample=None,
    max_new_tokens=None,
    recompute=False,
    address="tiny",
    platform=PLATFORM,
)


def record(example: str = "q1", method: str = "pine", order_name: str = "as-is", **fields: Any) -> Record:
    base = {"task": "retrieval_qa", "input_order": (0, 1), "permutation": (0, 1), "num_documents": 2}
    return Record(example=example, method=method, order_name=order_name, **{**base, **fields})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    open_run(tmp_path / "run", INFO)
    return tmp_path / "run"


def write(folder: Path, *records: Record, process: int = 0) -> None:
    with Writer(folder, process) as writer:
        for one in records:
            writer.append(one)


def test_records_are_read_as_written(run: Path) -> None:
    full = record(
        gold_slot=1, answers=("Zürich\u2028",), text='line\n"two" 🌲', parsed=None, score=0.5,
        answer_logprob=float("-inf"), choice_logprobs={"[[A]]": -1.25, "[[B]]": float("-inf")},
        choice_score=1.0, prompt_tokens=9, answer_tokens=3, prefill_s=0.1, decode_s=0.2, seconds=0.3,
        section="Chat", subset="mine", weight=3.5,
    )  # fmt: skip
    failed = record(method="vanilla", was_computed=False, error="too long")
    write(run, full, failed)
    assert read_records(run) == [failed, full]


def test_records_of_all_shards_are_sorted(run: Path) -> None:
    names = ["as-is", "gold-at:0", "gold-at:1"]
    expected = [record(e, m, a) for e in ("q1", "q2", "q3") for a in names for m in ("vanilla", "pine")]
    for process in (10, 2, 0):
        write(run, *reversed(expected[process % 3 :: 3]), process=process)
    assert read_records(run) == expected


def test_record_is_written_at_once_and_example_synced(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr("pine_engine.evaluation.records.os.fsync", noted)
    one, two, other = record(), record(method="vanilla"), record("q2")
    with Writer(run) as writer:
        for number, line in enumerate((one, two, other), start=1):
            writer.append(line)
            assert len(read_records(run)) == number
        before_second_example = synced[-1]
    sizes = [len(line.model_dump_json().encode()) + 1 for line in (one, two, other)]
    assert before_second_example == sum(sizes[:2])
    assert synced[-1] == sum(sizes)


@pytest.mark.parametrize("cut", [1, 40, -3])
def test_torn_last_line_is_ignored_and_cut_off(run: Path, cut: int) -> None:
    first, second = record(text="Öl"), record("q2", text="Öl")
    write(run, first, second)
    file = run / "records.0.jsonl"
    whole = file.read_bytes()
    begins = whole.index(b"\n") + 1
    file.write_bytes(whole[: begins + cut if cut > 0 else cut])
    assert read_records(run) == [first]
    file.write_bytes(whole[: whole.rindex("Ö".encode()) + 1])  # inside a character
    assert read_records(run) == [first]
    write(run, second)
    assert file.read_bytes() == whole


def test_first_of_two_records_with_one_key_counts(run: Path) -> None:
    write(run, record(text="first"))
    write(run, record(text="second"), process=1)
    assert [one.text for one in read_records(run)] == ["first"]


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"no",
        record(method="nia").model_dump_json().encode(),
        record(order_name="reversed").model_dump_json().encode(),
        record(text="x~").model_dump_json().encode().replace(b"~", b"\xff"),
    ],
)
def test_invalid_line_is_named(run: Path, line: bytes) -> None:
    good = record().model_dump_json().encode()
    (run / "records.3.jsonl").write_bytes(b"\n".join([good, line, b""]))
    with pytest.raises(InputError, match=r"records.3.jsonl, line 2\b"):
        read_records(run)


def test_run_resumes_on_another_machine(run: Path) -> None:
    changed = {"hardware": "another", "threads": 1, "device": "cpu:1", "python": "3.12"}
    elsewhere = PLATFORM.model_copy(update=changed)
    later = INFO.model_copy(update={"started": "2026-01-01T00:00:00+00:00", "platform": elsewhere})
    assert open_run(run, later) == INFO == read_run(run)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"methods": ("pine",)}, "methods vanilla,pine, not pine"),
        ({"order_names": ("as-is",)}, "orders as-is,gold-all, not as-is"),
        ({"task": "kv_retrieval"}, "task retrieval_qa, not kv_retrieval"),
        ({"logprobs": False}, "metrics generate,logprob, not generate"),
        ({"max_new_tokens": 5}, "max-new-tokens of the task, not 5"),
        ({"recompute": True}, "recompute no, not yes"),
        ({"sample": 0}, "sample none, not 0"),
        ({"data_sha256": "f" * 64}, "data qa.jsonl (SHA-256 000000000000), not qa.jsonl (SHA-256 ffff"),
        ({"platform": {"model": "big"}}, "model tiny, not big"),
        ({"platform": {"revision": "a"}}, "revision unknown, not a"),
        ({"platform": {"dtype": "bfloat16"}}, "dtype float32, not bfloat16"),
        ({"platform": {"device": "cuda:0"}}, "device cpu, not cuda"),
        ({"platform": {"torch": "2.8"}}, "torch 2.13, not 2.8"),
        ({"methods": ("pine",), "recompute": True}, "methods vanilla,pine, not pine; recompute no, not yes"),
    ],
)
def test_folder_of_other_settings_is_refused(run: Path, changed: dict[str, Any], words: str) -> None:
    if "platform" in changed:
        changed = {"platform": PLATFORM.model_copy(update=changed["platform"])}
    with pytest.raises(InputError) as raised:
        open_run(run, INFO.model_copy(update=changed))
    assert words in str(raised.value)
    assert read_run(run) == INFO


def test_folder_without_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_records(tmp_path)
    (tmp_path / "records.0.jsonl").write_text("{}\n")
    with pytest.raises(InputError):
        open_run(tmp_path, INFO)
    with pytest.raises(InputError):
        open_run(tmp_path / "records.0.jsonl" / "run", INFO)


def test_settings_are_written_atomically(run: Path) -> None:
    assert [path.name for path in run.iterdir()] == ["run.json"]
    text = (run / "run.json").read_text()
    assert RunInfo.model_validate(json.loads(text)) == INFO
    (run / "run.json").write_text(text.replace('"version": 2', '"version": 3'))
    with pytest.raises(InputError, match="version"):
        read_run(run)
