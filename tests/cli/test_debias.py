"""`debias`: what the wrappers answer, and what they refuse."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import COMPARISON, Run, Steps, assert_refused, write

LABELLED = {**COMPARISON, "task": "judge_pair", "labels": ["A", "B"]}


@pytest.mark.parametrize(
    ("fields", "options", "sentence"),
    [
        ({}, ["--wrapper", "magic"],
         "unknown wrapper 'magic'; choose from: permutation_full, permutation_cyclic, permutation_sampled, "
         "pride, calibration_labels, calibration_first, calibration_every"),
        ({}, ["--wrapper", "permutation_full", "--labels", "A,B,C"],
         "there are 3 labels for 2 documents; give one label per document"),
        ({}, ["--wrapper", "permutation_full", "--labels", " , "],
         "permutation_full needs the labels that the model may answer; give some, such as A and B"),
        ({"documents": ["x"] * 8}, ["--wrapper", "permutation_full", "--labels", "A,B,C,D,E,F,G,H"],
         "all orders of 8 documents are 8! = 4.032e+4 runs, more than the limit of 720; run the 8 cyclic "
         "orders or sampled ones"),
        ({}, ["--wrapper", "permutation_full", "--max-orders", "1"],
         "all orders of 2 documents are 2! = 2 runs, more than the limit of 1; run the 2 cyclic orders or "
         "sampled ones"),
        ({}, ["--wrapper", "permutation_sampled", "--samples", "0"],
         "the number of sampled orders is 0; give 1 or more"),
        ({}, ["--wrapper", "pride", "--majority"],
         "pride takes no majority of answers; choose from: permutation_full, permutation_cyclic, "
         "permutation_sampled"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("no_model")
def test_debias_refuses_what_cannot_be_run(
    pine: Run, tmp_path: Path, fields: dict[str, Any], options: list[str], sentence: str
) -> None:
    path = write(tmp_path / "given.json", {**LABELLED, **fields})
    assert_refused(pine("debias", path, *options), sentence)


@pytest.mark.usefixtures("no_model")
def test_debias_checks_method_and_file_before_a_model_is_loaded(pine: Run, tmp_path: Path) -> None:
    path = write(tmp_path / "given.json", LABELLED)
    outcome = pine("debias", path, "--wrapper", "pride", "--base", "magic")
    assert outcome.stderr.startswith("pine_engine: unknown method 'magic'; choose from: vanilla, ")
    write(path, {**LABELLED, "labels": "AB"})
    outcome = pine("debias", path, "--wrapper", "pride")
    assert_refused(outcome, f"{path}: labels: got the text 'AB', expected a list")
    outcome = pine("debias", path)
    assert (outcome.status, outcome.stdout) == (2, "") and "Missing option '--wrapper'" in outcome.stderr


def test_debias_refuses_labels_of_several_tokens(pine: Run, tmp_path: Path, tiny: Path) -> None:
    path = write(tmp_path / "given.json", {**LABELLED, "instruction": "Judge.", "labels": ["one", "two"]})
    assert_refused(
        pine("debias", path, "--wrapper", "permutation_full", "--model", tiny, "--json"),
        "the label 'one' has 3 tokens; give labels of one token, such as A and B",
    )


@pytest.mark.parametrize(
    ("options", "prompts"),
    [
        (["permutation_full"], 4),
        (["permutation_cyclic", "--majority", "--max-new-tokens", "2", "--base", "pcw"], 4),
        (["pride"], 3),
        (["calibration_labels", "--labels", "x,y"], 8),
        (["calibration_every", "--max-new-tokens", "2"], 8),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_debias_answers_every_file_and_announces_the_prompts_it_reads(
    pine: Run, tmp_path: Path, tiny: Path, steps: Steps, options: list[str], prompts: int
) -> None:
    # The judge's instruction alone is longer than the tiny model reads.
    short = {**LABELLED, "instruction": "Judge."}
    files = [write(tmp_path / name, short) for name in ("one.json", "two.json")]
    outcome = pine("debias", *files, "--wrapper", *options, "--model", tiny, "--json")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert steps.announced == [len(steps.taken)] == [prompts]
    printed = outcome.json
    assert list(printed) == ["model", "dtype", "wrapper", "base", "prompts", "results"]
    assert (printed["model"], printed["wrapper"], printed["prompts"]) == ("tiny", options[0], prompts)
    assert printed["base"] == ("pcw" if "pcw" in options else "vanilla")
    assert [result["file"] for result in printed["results"]] == list(map(str, files))
    for result in printed["results"]:
        assert list(result) == ["file", "answer", "scores", "base_answers"]
        labels = {"calibration_labels": ["x", "y"], "calibration_every": []}.get(options[0], ["A", "B"])
        assert list(result["scores"]) == labels
        if "--majority" not in options and labels:
            assert result["answer"] == max(labels, key=result["scores"].get)


def test_debias_without_json_prints_a_table(pine: Run, tmp_path: Path, tiny: Path) -> None:
    path = write(tmp_path / "a.json", {**LABELLED, "instruction": "Judge."})
    outcome = pine("debias", path, "--wrapper", "permutation_cyclic", "--model", tiny)
    assert outcome.status == 0
    assert "Vanilla alone" in outcome.stdout and "scores" in outcome.stdout
