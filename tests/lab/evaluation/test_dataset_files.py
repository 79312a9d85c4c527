"""Examples from Parquet files and folders of `datasets`, and records as a dataset."""

import math
from pathlib import Path
from typing import Any

import datasets
import pytest

from pine_engine import InputError
from pine_engine.lab.evaluation.dataset_features import record_features
from pine_engine.lab.evaluation.record import Record
from pine_engine.lab.evaluation.run_files import open_run, read_records, write_records
from pine_engine.prompts.examples import read_examples
from tests.support.commands import Run
from tests.support.errors import has_field
from tests.support.records import run_info

ROWS: list[dict[str, Any]] = [
    {
        "id": "a-1", "task": "retrieval_qa", "question": "Who?", "answers": ["Ann"], "gold_index": 0,
        "documents": [{"text": "Ann.", "title": None}, {"text": "Ben.", "title": "T"}],
    },
    {
        "id": None, "task": None, "question": "Why?", "answers": None, "gold_index": None,
        "documents": [{"text": "Cy.", "title": None}],
    },
]  # fmt: skip


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> datasets.Dataset:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets.Dataset.from_list(ROWS)


@pytest.mark.parametrize("save", [datasets.Dataset.save_to_disk, datasets.Dataset.to_parquet])
def test_rows_of_a_dataset_are_examples(save: Any, dataset: datasets.Dataset, tmp_path: Path) -> None:
    save(dataset, path := tmp_path / "set.parquet")
    first, second = read_examples(path)
    assert (first.id, first.answers, first.gold_index) == ("a-1", ["Ann"], 0)
    assert [(document.text, document.title) for document in first.documents] == [("Ann.", ""), ("Ben.", "T")]
    assert (second.id, second.task, second.answers, second.gold_index) == ("line 2", "retrieval_qa", [], None)
    assert read_examples(path, limit=1) == [first]


def test_splits_and_other_folders_are_named(dataset: datasets.Dataset, tmp_path: Path) -> None:
    datasets.DatasetDict(train=dataset, test=dataset).save_to_disk(tmp_path / "both")
    with pytest.raises(InputError, match="test", check=has_field(str(tmp_path / "both"))):
        read_examples(tmp_path / "both")
    assert len(read_examples(tmp_path / "both" / "test")) == 2
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("a")
    dataset.select([]).to_parquet(tmp_path / "none.parquet")
    for name in ("empty", "text.parquet", "none.parquet"):
        with pytest.raises(InputError, check=has_field(str(tmp_path / name))):
            read_examples(tmp_path / name)


def test_records_are_a_dataset(
    dataset: datasets.Dataset, pine: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset.save_to_disk(path := tmp_path / "set")
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    options = ["--output-dir", tmp_path / "run", "--methods", "vanilla,pine", "--max-new-tokens", 2]
    outcome = pine("evaluate", path, *options)
    assert outcome.status == 0, outcome
    files = str(tmp_path / "run" / "records.*.jsonl")
    records = datasets.load_dataset(
        "json", data_files=files, split="train", cache_dir=str(tmp_path / "cache")
    )
    assert sorted(zip(records["example"], records["method"], strict=True)) == [
        (example, method) for example in ("a-1", "line 2") for method in ("pine", "vanilla")
    ]
    assert pine("evaluate", path, *options).status == 0  # the same data


@pytest.mark.parametrize("number", range(3))
def test_records_of_shards_are_one_dataset(dataset: datasets.Dataset, tmp_path: Path, number: int) -> None:
    """One of three shards has only errors; another alone has a section, or an answer that is parsed.

    The shards have other choices, and one of them alone has slots of the answer.
    """
    run, order = tmp_path / "run", {"input_order": (0, 1), "permutation": (0, 1), "num_documents": 2}
    open_run(run, run_info(task="retrieval_qa", methods=("pine",)))
    base = {"task": "retrieval_qa", "method": "pine", "order_name": "as-is", **order}
    measured = {"text": "A", "score": 1.0, "choice_logprobs": {"A": -1.0, "B": -2.0}, "answer_logprob": -1.0}
    fields: list[dict[str, Any]] = [
        {"error": "too long"},
        measured | {"section": "Chat", "choice_logprobs": {"C": -1.0, "D": -math.inf}},
        measured | {"parsed": "A", "gold_slot": 1},
    ]
    for shard in range(3):
        with write_records(run, shard) as append:
            for example in "qr":
                one = {"example": f"{example}{shard}", **base, **fields[shard - number]}
                append(Record.model_validate(one))
    files = str(run / "records.*.jsonl")
    options = {"split": "train", "cache_dir": str(tmp_path / "cache")}
    loaded = datasets.load_dataset("json", data_files=files, features=record_features(), **options)
    assert loaded.column_names == list(Record.model_fields)
    assert sorted(map(str, loaded["gold_slot"])) == ["1", "1", *["None"] * 4]
    assert [list(one) for one in loaded["choice_logprobs"] if one].count(["C", "D"]) == 2
    assert sorted(loaded["error"]) == ["", "", "", "", "too long", "too long"]
    assert sorted(loaded["section"]) == ["", "", "", "", "Chat", "Chat"]
    records = read_records(run)
    assert [one.example for one in records if one.error] == [f"{example}{number}" for example in "qr"]
    assert {(one.error, one.section, one.parsed) for one in records} == {
        ("too long", None, None), (None, "Chat", None), (None, None, "A")
    }  # fmt: skip
    assert all((one.choice_logprobs is None) == (one.error is not None) for one in records)
