"""The subcommand `download-data`: list, download, checksum and offline behavior."""

import hashlib
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
import requests

from pine_engine import TASKS
from pine_engine.lab.data.registry import NUM_RETRIES, PUBLIC_SETS, PublicSet
from pine_engine.prompts.examples import read_examples
from tests.lab.data.test_readers import COMPARED, TABLE
from tests.support.commands import Run

Publish = Callable[..., PublicSet]


@pytest.fixture
def run(pine: Run) -> Run:
    return partial(pine, "download-data")


@pytest.fixture
def requested() -> list[str]:
    return []


@pytest.fixture
def publish(requested: list[str], monkeypatch: pytest.MonkeyPatch) -> Publish:
    """Replace the files of a set, all by the same content; without content they are missing."""
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between retries

    def replace_files(name: str, content: str | None, sha256: str | None = None) -> PublicSet:
        def get(url: str, **_: object) -> requests.Response:
            requested.append(url)
            response = requests.Response()
            response.status_code = 404 if content is None else 200
            response.raw = BytesIO((content or "").encode())
            return response

        pinned = {"sha256": sha256} if sha256 else {}
        files = [
            {"name": file["name"], "part": file.get("part", ""), "url": file["url"], **pinned}
            for file in PUBLIC_SETS[name].files
        ]
        monkeypatch.setattr(requests, "get", get)
        monkeypatch.setitem(PUBLIC_SETS, name, replace(PUBLIC_SETS[name], files=tuple(files)))
        return PUBLIC_SETS[name]

    return replace_files


def sha256(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def test_data_lists_all_sets(run: Run) -> None:
    listed = run("--json").json["sets"]
    assert [row["set"] for row in listed] == [*PUBLIC_SETS, "r-gsm"]
    for row in listed[:-1]:
        assert row["task"] in TASKS and row["records"] > 0 and row["license"]
        is_generated = not PUBLIC_SETS[row["set"]].files
        assert row["source"].startswith("pine_engine/" if is_generated else "https://")
    assert set(listed[-1].values()) == {"r-gsm", "math_reasoning", None}


def test_sources_are_pinned() -> None:
    for public in PUBLIC_SETS.values():
        for file in public.files:
            assert file["url"].startswith("https://") and file.keys() <= {"name", "url", "part", "sha256"}
            assert re.search(r"/[0-9a-f]{40}/", file["url"]) or "sha256" in file
            assert re.fullmatch(r"[0-9a-f]{64}|", file.get("sha256", ""))
        assert len({file["name"] for file in public.files}) == len(public.files)
        assert len({file.get("part") for file in public.files}) == len(public.files)


def test_set_is_converted_once(run: Run, publish: Publish, requested: list[str], tmp_path: Path) -> None:
    content = json.dumps([COMPARED])
    public = publish("llmbar", content)
    output = tmp_path / "out"
    report = run("llmbar", "--output-dir", output, "--json").json
    path = output / "llmbar.jsonl"
    downloads = [output / "downloads" / "llmbar" / file["name"] for file in public.files]
    assert [one.read_text() for one in downloads] == [content] * 5
    assert (report["set"], report["task"], report["examples"]) == ("llmbar", "judge", 5)
    assert (report["file"], report["sha256"]) == (str(path), sha256(path.read_text()))
    assert report["downloads"] == [
        {"file": str(download), "bytes": len(content), "sha256": sha256(content)}
        | {"checked": "no published checksum", "from": file["url"]}
        for file, download in zip(public.files, downloads, strict=True)
    ]
    publish("llmbar", None)
    outcome = run("llmbar", "--output-dir", output, "--limit", 2)
    assert outcome.status == 0 and public.license in outcome.stderr
    assert len(read_examples(path)) == 2 and len(requested) == 5
    assert sorted(entry.name for entry in output.iterdir()) == ["downloads", "llmbar.jsonl"]


def test_hash_mismatch_is_refused_and_file_replaced(run: Run, publish: Publish, tmp_path: Path) -> None:
    publish("qm9", TABLE.replace("1.50", "1.51"), sha256=sha256(TABLE))
    output = tmp_path / "out"
    outcome = run("qm9", "--output-dir", output)
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert sha256(TABLE) in outcome.stderr
    folder = output / "downloads" / "qm9"
    assert not list(folder.iterdir()) and not (output / "qm9.jsonl").exists()
    (folder / "qm9.csv").write_text(TABLE[:-9])
    publish("qm9", TABLE, sha256=sha256(TABLE))
    report = run("qm9", "--output-dir", output, "--json").json
    assert [one["checked"] for one in report["downloads"]] == ["as published"]
    assert (folder / "qm9.csv").read_text() == TABLE
    outcome = run("qm9", "--output-dir", folder / "qm9.csv")  # a file
    assert outcome.status == 2 and "--output-dir" in outcome.stderr


def test_missing_download_names_its_path(
    run: Run, publish: Publish, requested: list[str], tmp_path: Path
) -> None:
    publish("qm9", None)
    outcome = run("qm9", "--output-dir", tmp_path)
    assert (outcome.status, outcome.stdout, outcome.stderr.count("\n")) == (2, "", 1)
    assert str(tmp_path / "downloads" / "qm9" / "qm9.csv") in outcome.stderr
    assert len(requested) == 1 + NUM_RETRIES


@pytest.mark.parametrize(("module", "name"), [("pooch", "llmbar"), ("pyarrow", "rewardbench")])
def test_missing_package_is_refused_with_install_command(
    module: str, name: str, run: Run, publish: Publish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(name, "")
    for imported in (module, "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, imported, None)
    outcome = run(name, "--output-dir", tmp_path)
    assert outcome.status == 2 and f"pip install {module}==" in outcome.stderr
