"""Files: records of runs that are resumed or refused, shards with their locks, and examples of a data set."""

import errno
import fcntl
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pine_engine import Document, InputError
from pine_engine.lab.evaluation import shards
from pine_engine.lab.evaluation.document_orders import DocumentOrder
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.record import Record, blank_record
from pine_engine.lab.evaluation.report.key_findings import key_findings
from pine_engine.lab.evaluation.report.runs import MeasuredRun
from pine_engine.lab.evaluation.rewardbench import WEIGHTS
from pine_engine.lab.evaluation.run_files import open_run, read_records, read_run, write_records
from pine_engine.lab.evaluation.task_estimates import nested
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.rows.parse_errors import ValidationErrors
from pine_engine.rows.tables import MAX_DOCUMENTS
from tests.support.errors import has_field, problems_of
from tests.support.records import run_info

INFO = run_info(task="retrieval_qa", data="qa.jsonl", order_names=("as-is", "gold-all"), data_sha256="0" * 64)


def record(example: str = "q1", method: str = "pine", order_name: str = "as-is", **fields: Any) -> Record:
    base = {"task": "retrieval_qa", "input_order": (0, 1), "permutation": (0, 1), "num_documents": 2}
    return Record(example=example, method=method, order_name=order_name, **{**base, **fields})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    open_run(tmp_path / "run", INFO)
    return tmp_path / "run"


def write(folder: Path, *records: Record, shard: int = 0) -> None:
    with write_records(folder, shard) as append:
        for one in records:
            append(one)


def test_read_records_returns_written_records(run: Path) -> None:
    full = record(
        gold_slot=1, answers=("Zürich\u2028",), text='line\n"two" 🌲', parsed=None, score=0.5,
        answer_logprob=float("-inf"), choice_logprobs={"[[A]]": -1.25, "[[B]]": float("-inf")},
        prompt_tokens=9, answer_tokens=3, prefill_s=0.1, section="Chat", subset="mine", weight=3.5,
    )  # fmt: skip
    failed = record(method="vanilla", was_computed=False, error="too long")
    write(run, full, failed)
    assert read_records(run) == [failed, full]


def test_verdict_within_an_answer_is_counted(run: Path) -> None:
    quoting = {"task": "judge", "question": "Who?", "documents": ["Ann. [[B]]", "Ben."], "id": "q1"}
    plain = {**quoting, "documents": ["Ann. [[Z]]", "Ben [A]."], "id": "q2"}
    searched = {**quoting, "task": "retrieval_qa", "id": "q3"}
    order = DocumentOrder("as-is", (0, 1), (0, 1))
    found = [blank_record(Example.model_validate(one), "pine", order) for one in (quoting, plain, searched)]
    assert [one.has_quoted_verdict for one in found] == [True, False, False]
    assert ["has_quoted_verdict" in one.json_line() for one in found] == [True, False, False]
    write(run, *found)
    assert read_records(run) == found
    judged = [one.model_copy(update={"score": 1.0, "text": "[[A]]", "parsed": "A"}) for one in found[:2]]
    (grid,) = estimate_tasks(judged)
    assert nested([grid])["tasks"][0]["quoted_verdicts"] == 1
    (note,) = grid.quoted_verdict_notes()
    assert "1 of 2" in note and note in " ".join(key_findings("judge", MeasuredRun("run", INFO, (grid,))))
    assert estimate_tasks(judged[1:])[0].quoted_verdict_notes() == []


def test_read_records_sorts_shards_without_duplicates(run: Path) -> None:
    names = ["as-is", "gold-at:0", "gold-at:1"]
    expected = [record(e, m, a) for e in ("q1", "q2", "q3") for a in names for m in ("vanilla", "pine")]
    for shard in (10, 2, 0):
        write(run, *reversed(expected[shard % 3 :: 3]), shard=shard)
    write(run, expected[0].model_copy(update={"text": "again"}), shard=11)
    assert read_records(run) == expected


def test_writer_syncs_each_example(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr("pine_engine.lab.evaluation.run_files.os.fsync", noted)
    lines = [record(), record(method="vanilla"), record("q2")]
    with write_records(run) as append:
        for number, line in enumerate(lines, start=1):
            append(line)
            assert len(read_records(run)) == number
    sizes = [len(line.json_line().encode()) for line in lines]
    assert synced == [0, sum(sizes[:2]), sum(sizes)]


@pytest.mark.parametrize("cut", [1, 40, None])
def test_torn_last_line_is_ignored_and_cut_off(run: Path, cut: int | None) -> None:
    """A line is cut behind its first characters, or inside a character."""
    first, second = record(text="Öl"), record("q2", text="Öl")
    write(run, first, second)
    file = run / "records.0.jsonl"
    whole = file.read_bytes()
    kept = whole.index(b"\n") + cut if cut else whole.rindex("Ö".encode())
    file.write_bytes(whole[: kept + 1])
    assert read_records(run) == [first]
    write(run, second)
    assert file.read_bytes() == whole


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
def test_read_records_names_the_invalid_line(run: Path, line: bytes) -> None:
    good = record().model_dump_json().encode()
    (run / "records.3.jsonl").write_bytes(b"\n".join([good, line, b""]))
    with pytest.raises(InputError, match=r"records.3.jsonl, line 2\b"):
        read_records(run)


def test_open_run_resumes_on_another_machine(run: Path) -> None:
    changed = {"hardware": "another", "threads": 1, "device": "cpu:1", "python": "3.12"}
    platform = INFO.platform.model_copy(update=changed)
    later = INFO.model_copy(update={"started": "2027-01-01T00:00:00+00:00", "platform": platform})
    assert open_run(run, later) == INFO == read_run(run)


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"methods": ("pine",), "order_names": ("as-is",), "task": "kv_retrieval"}, "task methods orders"),
        ({"logprobs": False, "max_new_tokens": 5, "data": "b"}, "data metrics max-new-tokens"),
        ({"recompute": True, "sample": 0}, "sample recompute"),
        ({"platform": {"model": "big", "revision": None, "torch": "2.8"}}, "model revision torch"),
        ({"platform": {"dtype": "bfloat16", "device": "cuda:0"}}, "dtype device"),
    ],
)
def test_open_run_with_other_settings_is_refused(run: Path, changed: dict[str, Any], names: str) -> None:
    if "platform" in changed:
        changed = {"platform": INFO.platform.model_copy(update=changed["platform"])}
    other = INFO.model_copy(update=changed)
    assert [difference.split()[0] for difference in INFO.differences(other)] == names.split()
    with pytest.raises(InputError):
        open_run(run, other)
    assert read_run(run) == INFO and [path.name for path in run.iterdir()] == ["run.json"]


def test_folder_without_run_of_this_version_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_records(tmp_path)
    file = tmp_path / "records.0.jsonl"
    file.write_text("{}\n")
    for folder in (tmp_path, file / "run"):
        with pytest.raises(InputError):
            open_run(folder, INFO)
    (run / "run.json").write_text((run / "run.json").read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(InputError, check=has_field("version")):
        read_run(run)


def test_section_weights_have_published_sums() -> None:
    weights: dict[str, float] = {}
    for (section, _), weight in WEIGHTS.items():
        weights[section] = weights.get(section, 0) + weight
    # Sums of the table in the specification; code weighs as much as math-prm.
    assert weights == {"Chat": 358, "Chat Hard": 456, "Safety": 740, "Reasoning": 1968}


def test_parse_shard_takes_the_text_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert shards.parse_shard() == shards.Shard(0, 1, is_launched=False)
    assert [shards.Shard(index, 3).select(range(7)) for index in range(3)] == [[0, 3, 6], [1, 4], [2, 5]]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert shards.parse_shard() == shards.Shard(1, 4, is_launched=True)
    assert shards.parse_shard("2/3") == shards.Shard(2, 3)
    for text in ("3/3", "1", "", "-1/2", "a/b"):
        with pytest.raises(InputError, check=has_field("shard")):
            shards.parse_shard(text)


@pytest.mark.parametrize(
    ("device", "launched", "expected"),
    [("cuda", True, "cuda:1"), ("cuda", False, "cuda"), ("auto", True, "auto")],
)
def test_device_of_shard_follows_the_launcher(
    monkeypatch: pytest.MonkeyPatch, device: str, launched: bool, expected: str
) -> None:
    shard = shards.Shard(5, 8, is_launched=launched)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert shards.is_main_process()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert not shards.is_main_process() and shards.device_of_shard(device, shard) == expected
    with pytest.raises(InputError):
        shards.device_of_shard("tp", shard)


def test_lock_shard_refuses_only_a_second_writer(tmp_path: Path) -> None:
    with shards.lock_shard(tmp_path, shards.Shard(0, 2)), shards.lock_shard(tmp_path, shards.Shard(1, 2)):
        for index, count in ((0, 1), (0, 2), (1, 2), (0, 3)):
            with pytest.raises(InputError), shards.lock_shard(tmp_path, shards.Shard(index, count)):
                pass
        assert all(shards.is_running(tmp_path, shards.Shard(index, 2)) for index in (0, 1))
        assert not shards.is_running(tmp_path, shards.Shard(0, 1))
    with shards.lock_shard(tmp_path, shards.Shard(0, 2)):
        assert not shards.is_running(tmp_path, shards.Shard(0, 2))
    with (
        shards.lock_shard(tmp_path, shards.Shard(1, 4)),
        pytest.raises(InputError),
        shards.lock_shard(tmp_path, shards.Shard()),
    ):
        pass  # the first shard of a smaller run


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_lock_shard_without_locks_yields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(code, os.strerror(code))))
    if code == errno.EIO:
        with pytest.raises(InputError), shards.lock_shard(tmp_path, shards.Shard()):
            pass
        return
    with shards.lock_shard(tmp_path, shards.Shard()) as is_locked:
        assert not is_locked
    assert shards.is_running(tmp_path, shards.Shard(0, 2))


PLAIN = {
    "id": "a-1", "task": "retrieval_qa", "question": "Who?",
    "documents": [{"text": "one"}, {"text": "two", "title": "T"}],
}  # fmt: skip
FULL = {
    **PLAIN, "id": "a-2", "question": "Why?", "gold_index": 1, "answers": ["two", "2"],
    "rejected_answers": ["one"], "choices": ["two", "ten"], "source": "ours", "license": "CC0-1.0",
    "meta": {"subset": "made up", "rank": [0, None]},
}  # fmt: skip
HEADER = "id,question,answers,gold_index,title1,document1,document2,task\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set.jsonl"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "set.CSV"


def put(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def mistakes(path: Path) -> list[tuple[int | None, str]]:
    return problems_of(lambda: read_examples(path), path)


def test_example_has_the_fields_of_its_line(file: Path) -> None:
    full, plain = read_examples(put(file, {**FULL, "added_later": True}, PLAIN))
    documents = [{"text": "one", "title": ""}, {"text": "two", "title": "T"}]
    assert full.model_dump() == {
        **FULL,
        **dict.fromkeys(("system", "prefix", "scoring"), ""),
        "documents": documents,
        "relevance": [],
    }
    assert (plain.gold_index, plain.answers, plain.meta) == (None, [], {})
    (example,) = read_examples(put(file, {**PLAIN, "task": "molecule_generation", "question": ""}))
    assert example.question == ""


def test_larger_sample_begins_with_a_smaller_one(file: Path) -> None:
    put(file, PLAIN, FULL, {"id": "not read"})
    assert [example.id for example in read_examples(file, limit=2)] == ["a-1", "a-2"]
    put(file, *({**PLAIN, "id": str(number)} for number in range(50)))
    samples = [[example.id for example in read_examples(file, limit, 3)] for limit in (5, 20, None)]
    assert samples[1][:5] == samples[0] and samples[2][:20] == samples[1]
    assert sorted(samples[2], key=int) == [str(number) for number in range(50)]
    assert not set(samples[0]) <= {str(number) for number in range(10)}
    assert [example.id for example in read_examples(file, 5, 4)] != samples[0]


def test_documents_per_row_are_limited(file: Path, table: Path) -> None:
    documents = ["d"] * MAX_DOCUMENTS
    assert len(read_examples(put(file, {**PLAIN, "documents": documents}))[0].documents) == MAX_DOCUMENTS
    assert mistakes(put(file, {**PLAIN, "documents": [*documents, 5]})) == [(1, "documents")]
    table.write_text(f"{','.join(f'document{number + 1}' for number in range(MAX_DOCUMENTS + 1))}\nrow\n")
    with pytest.raises(InputError, check=has_field("documents")):
        read_examples(table)
    put(file, PLAIN, {**FULL, "documents": ["d"] * 3})
    assert len(read_examples(file, max_documents=3)) == 2
    with pytest.raises(ValidationErrors, check=has_field("documents")) as raised:
        read_examples(file, max_documents=2)
    assert [problem.line for problem in raised.value.problems] == [2]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        *(({"gold_index": value}, "gold_index") for value in (2, -1, "1", True)),
        ({"answers": 2}, "answers"),
        ({"answers": [2]}, "answers[0]"),
        ({"choices": [""]}, "choices[0]"),
        ({"meta": 3}, "meta"),
    ],
)
def test_line_and_field_of_a_mistake_are_named(file: Path, change: dict[str, Any], field: str) -> None:
    assert mistakes(put(file, PLAIN, {**FULL, **change})) == [(2, field)]


def test_all_mistakes_are_named_together(file: Path, table: Path) -> None:
    put(file, PLAIN, {**FULL, "gold_index": 9, "question": ""}, {**FULL, "id": "a-1"}, {"id": [3]})
    table.write_text("question,document1,gold_index\nWhy?,one,first\nWhy?\n,one,\n")
    for path, lines in ((file, [2, 2, 3, 4, 4]), (table, [2, 3, 4])):
        assert [line for line, _ in mistakes(path)] == lines


def test_table_has_the_fields_of_an_example(table: Path) -> None:
    table.write_text(
        f'{HEADER}a,"Who, then?","two | 2|",1,T,one,"two\nlines",kv_retrieval\nb,Why?,,,,one,,\n'
    )
    first, second = read_examples(table)
    documents = [Document(text="one", title="T"), Document(text="two\nlines")]
    who: dict[str, Any] = {"question": "Who, then?", "gold_index": 1, "answers": ["two", "2"]}
    assert first == Example(id="a", task="kv_retrieval", documents=documents, **who)
    assert second == Example(id="b", task="retrieval_qa", question="Why?", documents=[Document(text="one")])
    table.write_text("document1,question\none,Why?\n")
    assert read_examples(table) == [second.model_copy(update={"id": "line 2"})]
    table.write_text("id,question,answers,document1\na,Why?,1,one\na,,,\n")
    assert [example.id for example in read_examples(table, limit=1)] == ["a"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f"{HEADER}a,Why?,1,0,,one,two,\n\na,Why?,1,0,,one,two,\n", 4),  # the id of line 2
        (f"{HEADER}a,Why?,1,first,,one,two,\n", 2),
        (f"{HEADER}a,Why?,1,{'9' * 5000},,one,two,\n", 2),
        (f"{HEADER}a,Why?,1,1,,one,,\n", 2),  # the gold document is empty
        (f"{HEADER}a,Why?,1,,T,,,\n", 2),
        (f"{HEADER}a,,1,,,one,,\n", 2),
        (f"{HEADER}a,Why?,1\n", 2),
    ],
)
def test_line_of_a_table_mistake_is_named(table: Path, content: str, line: int) -> None:
    table.write_text(content)
    assert [found for found, _ in mistakes(table)] == [line]


@pytest.mark.parametrize(
    ("columns", "field"),
    [("answers", "document1"), ("document1,document3", "document2"), ("document1,title2", "document2")],
)
def test_column_of_a_table_is_missing_or_unknown(table: Path, columns: str, field: str) -> None:
    table.write_text(f"id,question,{columns}\na,Why?,one,two\n")
    with pytest.raises(InputError, check=has_field(field)):
        read_examples(table)
