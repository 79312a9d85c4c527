"""`data`: what it lists, brings, checks, remembers and refuses; each set in its source's own form."""

import dataclasses
import gzip
import hashlib
import io
import json
import re
import socket
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from rich.console import Console

from pine_engine.console import terminal
from pine_engine.data import registry as public_sets
from pine_engine.data.build import convert, obtain
from pine_engine.data.provenance import BuiltSet, Provenance, TakenFile, read_provenance
from pine_engine.data.registry import NOT_PUBLIC, PUBLIC_SETS, PublicSet, SourceFile
from pine_engine.errors import InputError
from pine_engine.evaluation.examples import read_examples
from pine_engine.prompts.tasks import TASKS
from tests.data.test_readers_and_sets import (
    ASKED,
    COMPARED,
    PAIRS,
    PREFERENCE,
    PROBLEM,
    PROBLEM_IN_WORDS,
    TABLE,
)
from tests.support.commands import Run
from tests.support.file_server import FileServer, serving


def json_lines(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def hub_table() -> bytes:
    written = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist([PREFERENCE, {**PREFERENCE, "id": 8}]), written)
    return written.getvalue()


SERVED: dict[str, Callable[[], bytes]] = {
    "rewardbench": hub_table,
    "llmbar": lambda: json.dumps([COMPARED]).encode(),
    "mt-bench": lambda: json.dumps([COMPARED]).encode(),
    "humanevalpack": lambda: json_lines(PROBLEM),
    "lost-in-the-middle-10": lambda: gzip.compress(json_lines(ASKED)),
    "lost-in-the-middle-20": lambda: gzip.compress(json_lines(ASKED)),
    "key-value-75": lambda: gzip.compress(json_lines(PAIRS)),
    "gsm8k": lambda: json_lines(PROBLEM_IN_WORDS),
    "qm9": lambda: TABLE.encode(),
}
"""A file of every set, as its source has it."""

EXAMPLES = {"rewardbench": 2, "llmbar": 5, "humanevalpack": 6, "qm9": 2}
"""How many examples these give; the others give one."""


@pytest.fixture
def run(pine: Run) -> Run:
    """Runs `data`."""
    return partial(pine, "data")


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(b"") as served:
        yield served


Serve = Callable[..., PublicSet]


@pytest.fixture
def serve(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Puts a set's files on the server, in the place of where they are."""

    def put(name: str, content: bytes | None = None, sha256: str | None = None) -> PublicSet:
        server.content = SERVED[name]() if content is None else content
        files = tuple(
            dataclasses.replace(file, url=f"{server.url}/{file.name}", sha256=sha256)
            for file in PUBLIC_SETS[name].files
        )
        changed = dataclasses.replace(PUBLIC_SETS[name], files=files)
        monkeypatch.setitem(PUBLIC_SETS, name, changed)
        return changed

    return put


# What there is


def test_all_sets_are_listed_with_task_size_licence_and_source(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = json.loads(run("--json").stdout)["sets"]
    assert [row["set"] for row in listed] == [*PUBLIC_SETS, "r-gsm"]
    for row in listed[:-1]:
        assert row["task"] in TASKS and row["records"] > 0 and row["license"]
        assert row["source"].startswith("https://")
    assert listed[-1] == {
        "set": "r-gsm", "task": "math_reasoning",
        "records": None, "bytes": None, "license": None, "source": None,
    }  # fmt: skip
    monkeypatch.setattr(terminal.stdout, "_width", 220)
    shown = run().stdout
    assert re.search(r"qm9 .*molecule_generation.* 133885 .* 29\.9 MB .*CC0 1\.0", shown)
    assert re.search(r"r-gsm .*no public copy is known", shown)


def test_every_source_is_at_a_state_that_cannot_change() -> None:
    for public in PUBLIC_SETS.values():
        for file in public.files:
            assert file.url.startswith("https://")
            assert re.search(r"/[0-9a-f]{40}/", file.url) or file.sha256
            assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        assert len({file.name for file in public.files}) == len(public.files)
        assert len({file.part for file in public.files}) == len(public.files)


def test_names_that_cannot_be_brought_say_what_can(run: Run) -> None:
    outcome = run("r-gsm")
    assert outcome.status == 2 and outcome.stdout == ""
    assert outcome.stderr.startswith("pine_engine: no public copy of r-gsm is known; take gsm8k")
    outcome = run("rewardbank")
    assert outcome.status == 2
    assert outcome.stderr == f"pine_engine: unknown set 'rewardbank'; choose from: {', '.join(PUBLIC_SETS)}\n"
    assert "r-gsm" in NOT_PUBLIC


# Bringing


@pytest.mark.parametrize("name", PUBLIC_SETS)
def test_every_set_comes_from_its_own_form(name: str, run: Run, serve: Serve, tmp_path: Path) -> None:
    public = serve(name)
    outcome = run(name, "--out", tmp_path, "--json")
    assert outcome.status == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    examples = read_examples(Path(report["file"]))
    assert report["file"] == str(tmp_path / f"{name}.jsonl")
    assert len(examples) == report["examples"] == EXAMPLES.get(name, 1)
    assert {example.task for example in examples} == {public.task} == {report["task"]}
    assert all(example.license and example.source and example.answers for example in examples)
    assert report["license"] == public.license and report["license"] in outcome.stderr
    assert [one["from"] for one in report["downloads"]] == [file.url for file in public.files]


def test_what_was_brought_is_reported_and_remembered_with_checksums(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    public = serve("key-value-75")
    report = json.loads(run("key-value-75", "--out", tmp_path, "--json").stdout)
    sha256 = hashlib.sha256(server.content).hexdigest()
    (file,) = public.files
    path = tmp_path / "downloads" / "key-value-75" / "75-keys.jsonl.gz"
    assert path.read_bytes() == server.content
    assert report["downloads"] == [
        {
            "file": str(path), "bytes": len(server.content), "sha256": sha256, "checked": "first seen",
            "from": file.url,
        }
    ]  # fmt: skip
    written = json.loads((tmp_path / "SOURCES.json").read_text())["sets"]["key-value-75"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", written["files"][0].pop("taken"))
    assert written == {
        "license": public.license, "source": public.source, "file": "key-value-75.jsonl",
        "files": [{"url": file.url, "sha256": sha256, "size": len(server.content)}],
        "sha256": hashlib.sha256((tmp_path / "key-value-75.jsonl").read_bytes()).hexdigest(),
        "examples": 1, "limit": None,
    }  # fmt: skip
    assert report["sha256"] == written["sha256"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "SOURCES.json", "downloads", "key-value-75.jsonl",
    ]  # fmt: skip


def test_a_table_says_where_each_file_came_from(
    run: Run, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = serve("humanevalpack")
    monkeypatch.setattr(terminal.stdout, "_width", 400)
    outcome = run("humanevalpack", "--out", tmp_path)
    assert all(file.url in outcome.stdout for file in public.files)
    assert outcome.stderr == (
        f"6 examples in {tmp_path}/humanevalpack.jsonl; licence: {public.license}; from {public.source}\n"
    )


def test_what_is_here_is_not_downloaded_again(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    serve("llmbar")
    run("llmbar", "--out", tmp_path)
    assert len(server.asked) == 5
    server.status = 503
    report = json.loads(run("llmbar", "--out", tmp_path, "--limit", 3, "--json").stdout)
    assert report["examples"] == 3
    assert {one["checked"] for one in report["downloads"]} == {"as before"}
    assert len(server.asked) == 5


def test_a_limit_gives_the_first_examples(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve("llmbar")
    run("llmbar", "--out", tmp_path / "all")
    run("llmbar", "--out", tmp_path / "two", "--limit", 2)
    whole = (tmp_path / "all" / "llmbar.jsonl").read_text().splitlines()
    assert (tmp_path / "two" / "llmbar.jsonl").read_text().splitlines() == whole[:2]
    assert read_provenance(tmp_path / "two").sets["llmbar"].limit == 2


def test_an_interrupted_download_goes_on_with_the_same_command(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    serve("qm9")
    server.drop_after = 100
    outcome = run("qm9", "--out", tmp_path)
    assert outcome.status == 2
    assert re.fullmatch(
        r"pine_engine: the download of .* stopped after 100 of \d+ bytes .*\n", outcome.stderr
    )
    assert not (tmp_path / "qm9.jsonl").exists()
    server.drop_after = None
    assert run("qm9", "--out", tmp_path).status == 0
    assert server.ranges_asked == [None, "bytes=100-"]
    assert len(read_examples(tmp_path / "qm9.jsonl")) == 2


def test_offline_is_one_sentence(run: Run, serve: Serve, tmp_path: Path, monkeypatch: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    nowhere = (SourceFile("qm9.csv", f"http://127.0.0.1:{port}/qm9.csv"),)
    monkeypatch.setitem(PUBLIC_SETS, "qm9", dataclasses.replace(PUBLIC_SETS["qm9"], files=nowhere))
    outcome = run("qm9", "--out", tmp_path)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr == (
        f"pine_engine: http://127.0.0.1:{port}/qm9.csv cannot be reached (Connection refused): check the "
        "connection and run the same command again, or put a copy that you have at "
        f"{tmp_path}/downloads/qm9/qm9.csv\n"
    )
    assert not (tmp_path / "qm9.jsonl").exists()
    assert not (tmp_path / "SOURCES.json").exists()


def test_a_file_put_there_by_hand_is_used(run: Run, serve: Serve, server: FileServer, tmp_path: Path) -> None:
    serve("qm9", sha256=hashlib.sha256(TABLE.encode()).hexdigest())
    path = tmp_path / "downloads" / "qm9" / "qm9.csv"
    path.parent.mkdir(parents=True)
    path.write_text(TABLE)
    report = json.loads(run("qm9", "--out", tmp_path, "--json").stdout)
    assert [one["checked"] for one in report["downloads"]] == ["as published"]
    assert server.asked == []


# Checking


def test_a_file_that_is_not_the_published_one_is_refused(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    expected = hashlib.sha256(TABLE.encode()).hexdigest()
    serve("qm9", TABLE.replace("1.50", "1.51").encode(), sha256=expected)
    outcome = run("qm9", "--out", tmp_path)
    assert outcome.status == 2
    assert f"expected {expected}: it has changed, or something on the way changes it" in outcome.stderr
    assert not list((tmp_path / "downloads" / "qm9").iterdir())
    server.content = TABLE.encode()
    assert run("qm9", "--out", tmp_path).status == 0


def test_a_source_that_has_changed_is_noticed_and_can_be_accepted(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    serve("mt-bench")
    run("mt-bench", "--out", tmp_path)
    before = (tmp_path / "mt-bench.jsonl").read_bytes()
    (tmp_path / "downloads" / "mt-bench" / "mt-bench.json").unlink()
    server.content, server.etag = json.dumps([{**COMPARED, "label": 2}]).encode(), '"state-2"'
    outcome = run("mt-bench", "--out", tmp_path)
    assert outcome.status == 2
    assert re.search(
        r": it has changed since \d{4}-\d\d-\d\d; to take it as it is now, remove mt-bench from SOURCES",
        outcome.stderr,
    )
    assert (tmp_path / "mt-bench.jsonl").read_bytes() == before
    (tmp_path / "SOURCES.json").unlink()
    assert run("mt-bench", "--out", tmp_path).status == 0
    assert read_examples(tmp_path / "mt-bench.jsonl")[0].answers == ["B"]


def test_a_download_that_was_damaged_since_is_brought_again(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path
) -> None:
    serve("mt-bench")
    run("mt-bench", "--out", tmp_path)
    path = tmp_path / "downloads" / "mt-bench" / "mt-bench.json"
    path.write_bytes(path.read_bytes()[:-5])
    assert run("mt-bench", "--out", tmp_path).status == 0
    assert path.read_bytes() == server.content
    assert len(server.asked) == 2


def test_the_first_sight_of_a_file_keeps_its_day(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve("mt-bench")
    run("mt-bench", "--out", tmp_path)
    sources = tmp_path / "SOURCES.json"
    known = json.loads(sources.read_text())
    known["sets"]["mt-bench"]["files"][0]["taken"] = "2001-02-03"
    sources.write_text(json.dumps(known))
    run("mt-bench", "--out", tmp_path)
    assert read_provenance(tmp_path).sets["mt-bench"].files[0].taken == "2001-02-03"


def test_files_of_a_set_are_known_by_their_addresses() -> None:
    taken = [TakenFile(url=url, sha256=url * 2, size=1, taken="2001-02-03") for url in "ab"]
    built = BuiltSet(
        license="", source="", files=tuple(taken), file="x.jsonl", sha256="", examples=1, limit=None
    )
    known = Provenance(sets={"x": built})
    assert [known.taken("x", url) for url in "ab"] == taken
    assert known.taken("x", "c") is None and known.taken("y", "a") is None


def test_sets_of_a_folder_are_remembered_side_by_side(run: Run, serve: Serve, tmp_path: Path) -> None:
    for name in ("mt-bench", "qm9"):
        serve(name)
        run(name, "--out", tmp_path)
    assert list(read_provenance(tmp_path).sets) == ["mt-bench", "qm9"]


def test_a_damaged_memory_is_not_written_over(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve("qm9")
    (tmp_path / "SOURCES.json").write_text('{"sets": {"qm9": 1}}')
    outcome = run("qm9", "--out", tmp_path)
    assert outcome.status == 2
    assert re.search(r"SOURCES\.json: sets\.qm9: .*; mend it, or delete it", outcome.stderr)
    assert (tmp_path / "SOURCES.json").read_text() == '{"sets": {"qm9": 1}}'


# Writing


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            json.dumps([COMPARED, {"input": "x"}]).encode(),
            "mt-bench.json, record 1: output_1: field required",
        ),
        (b"[]", "the source of mt-bench holds no example; delete "),
        (b"<html>not found</html>", "mt-bench.json is not JSON"),
    ],
)
def test_a_source_of_another_form_leaves_the_file_of_before(
    run: Run, serve: Serve, tmp_path: Path, content: bytes, said: str
) -> None:
    (tmp_path / "mt-bench.jsonl").write_text("of before")
    serve("mt-bench", content)
    outcome = run("mt-bench", "--out", tmp_path)
    assert outcome.status == 2 and said in outcome.stderr and outcome.stderr.count("\n") == 1
    assert (tmp_path / "mt-bench.jsonl").read_text() == "of before"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["downloads", "mt-bench.jsonl"]


def test_two_examples_of_one_id_are_refused(run: Run, serve: Serve, tmp_path: Path) -> None:
    serve("qm9", TABLE.replace("gdb_21", "gdb_6").encode())
    outcome = run("qm9", "--out", tmp_path)
    assert "the source of qm9 gives two examples the id 'qm9-000006'" in outcome.stderr
    assert not (tmp_path / "qm9.jsonl").exists()


def test_progress_tells_bytes_and_examples(serve: Serve, server: FileServer, tmp_path: Path) -> None:
    public = serve("humanevalpack")
    bytes_told: list[tuple[str, int, int | None]] = []
    told: list[str] = []
    obtained = obtain(public, tmp_path, show=lambda *values: bytes_told.append(values))
    convert(public, obtained, tmp_path, advance=told.append)
    assert {words for words, _, _ in bytes_told} == {file.name for file in public.files}
    assert bytes_told[-1] == ("rust.jsonl", len(server.content), len(server.content))
    assert told[0] == "hep-cpp-000" and len(told) == 6


def test_a_terminal_shows_bytes_and_then_examples(
    run: Run, serve: Serve, server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve("llmbar")
    shown = io.StringIO()
    monkeypatch.setattr(terminal, "stderr", Console(file=shown, force_terminal=True, width=150))
    run("llmbar", "--out", tmp_path, "--limit", 3)
    size = len(server.content)
    assert re.search(rf"{size}/{size} bytes.*llmbar-adver-manual\.json", shown.getvalue())
    assert re.search(r"3/3.*llmbar-adver-gptinst-000", shown.getvalue())


def test_what_reading_needs_is_looked_for_before_anything_is_asked(
    serve: Serve, server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = serve("rewardbench")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match="the package datasets is not installed"):
        obtain(public, tmp_path)
    assert server.asked == []
    assert public_sets.get_set("rewardbench") is public
