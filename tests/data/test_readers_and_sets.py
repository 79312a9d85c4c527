"""Every public set, from its source's own form to examples that are read back; the texts are ours."""

import gzip
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pine_engine.data.math_problems import convert_gsm8k
from pine_engine.data.molecule_table import convert_molecules
from pine_engine.data.pairs import (
    convert_humanevalpack,
    convert_llmbar,
    convert_mt_bench,
    convert_rewardbench,
)
from pine_engine.data.readers import (
    SourceRecord,
    read_csv,
    read_json_lines,
    read_json_list,
    read_parquet,
)
from pine_engine.data.retrieval import convert_key_values, convert_questions
from pine_engine.data.schema import ExampleRow
from pine_engine.errors import InputError
from pine_engine.evaluation.examples import Example, read_examples
from pine_engine.extras import how_to_install
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import TASKS

Convert = Callable[[Iterable[SourceRecord]], Iterator[ExampleRow]]


def converted(tmp_path: Path, convert: Convert, contents: Iterable[Any], part: str = "") -> list[Example]:
    """The examples as somebody reads them from the file that is written."""
    records = [SourceRecord("source", index, part, content) for index, content in enumerate(contents)]
    path = tmp_path / "examples.jsonl"
    path.write_text("".join(row.line() for row in convert(records)), encoding="utf-8")
    return read_examples(path)


def texts(example: Example) -> list[str]:
    return [document.text for document in example.documents]


# RewardBench

PREFERENCE = {
    "prompt": "Name a river.",
    "chosen": "The Elbe.",
    "chosen_model": "model-1",
    "rejected": "A river is water.",
    "rejected_model": "model-2",
    "subset": "llmbar-adver-GPTOut",
    "id": 7,
}


def test_a_preference_becomes_a_pair(tmp_path: Path) -> None:
    (example,) = converted(tmp_path, convert_rewardbench, [PREFERENCE])
    assert example.id == "rewardbench-0000"
    assert (example.task, example.question, example.prefix) == ("judge_pair", "Name a river.", "")
    assert example.system == TASKS["judge_pair"].instruction
    assert (example.source, example.license) == ("RewardBench (filtered)", "ODC-BY-1.0")
    assert example.meta == {
        "subset": "llmbar-adver-GPTOut", "source_id": 7,
        "chosen_model": "model-1", "rejected_model": "model-2",
    }  # fmt: skip


def test_the_chosen_answer_stands_where_the_draws_of_the_specification_put_it(tmp_path: Path) -> None:
    examples = converted(tmp_path, convert_rewardbench, [PREFERENCE] * 40)
    np.random.seed(1234)
    drawn = [np.random.rand() > 0.5 for _ in range(40)]
    assert [example.answers for example in examples] == [["B"] if second else ["A"] for second in drawn]
    assert [example.gold_index for example in examples] == [int(second) for second in drawn]
    assert all(texts(example)[example.gold_index or 0] == "The Elbe." for example in examples)
    assert {tuple(sorted(texts(example))) for example in examples} == {("A river is water.", "The Elbe.")}
    assert len(set(drawn)) == 2


def test_the_first_draws_are_these(tmp_path: Path) -> None:
    """0.19, 0.62, 0.44, 0.79, 0.78, 0.27: the well-known start of that generator."""
    examples = converted(tmp_path, convert_rewardbench, [PREFERENCE] * 6)
    assert [example.answers[0] for example in examples] == ["A", "B", "A", "B", "B", "A"]


def test_placing_again_gives_the_same_and_touches_no_generator_of_others(tmp_path: Path) -> None:
    np.random.seed(99)
    first = converted(tmp_path, convert_rewardbench, [PREFERENCE] * 9)
    assert converted(tmp_path, convert_rewardbench, [PREFERENCE] * 9) == first
    assert np.random.rand() == np.random.RandomState(99).rand()


# LLMBar and MT-Bench

COMPARED = {"input": "Say hello in French.", "output_1": "Bonjour.", "output_2": "Hello.", "label": 1}


def test_llmbar_keeps_its_order_and_names_its_subset(tmp_path: Path) -> None:
    other = {**COMPARED, "label": 2}
    first, second = converted(tmp_path, convert_llmbar, [COMPARED, other], part="llmbar-adver-manual")
    assert (first.id, second.id) == ("llmbar-adver-manual-000", "llmbar-adver-manual-001")
    assert texts(first) == texts(second) == ["Bonjour.", "Hello."]
    assert (first.gold_index, first.answers) == (0, ["A"])
    assert (second.gold_index, second.answers) == (1, ["B"])
    assert first.question == "Say hello in French."
    assert first.system == TASKS["judge_pair"].instruction
    assert first.meta == {"subset": "llmbar-adver-manual"}
    assert (first.source, first.license) == ("LLMBar", "MIT")


def test_mt_bench_leaves_out_pairs_that_were_there_in_any_order(tmp_path: Path) -> None:
    turned = {**COMPARED, "output_1": "Hello.", "output_2": "Bonjour.", "label": 2}
    other = {**COMPARED, "output_2": "Salut.", "label": 2}
    again = {**COMPARED, "input": "Say hello in Breton."}
    examples = converted(tmp_path, convert_mt_bench, [COMPARED, turned, COMPARED, other, again])
    assert [example.id for example in examples] == ["mtbench-000", "mtbench-003", "mtbench-004"]
    assert [example.answers for example in examples] == [["A"], ["B"], ["A"]]
    assert texts(examples[1]) == ["Bonjour.", "Salut."]
    assert {example.meta["subset"] for example in examples} == {"mt-bench"}
    assert "CC-BY-4.0" in examples[0].license


@pytest.mark.parametrize("label", [0, 3, "1", None])
def test_a_label_that_names_neither_output_is_refused(tmp_path: Path, label: object) -> None:
    with pytest.raises(InputError) as raised:
        converted(tmp_path, convert_llmbar, [COMPARED, {**COMPARED, "label": label}])
    assert str(raised.value) == (
        "source, record 1: label: input should be 1 or 2; the source has another form than this version of "
        "the program knows"
    )


# HumanEvalPack

PROBLEM = {
    "task_id": "Python/0",
    "prompt": "unused here",
    "declaration": "def twice(x):\n",
    "canonical_solution": "    return 2 * x\n",
    "buggy_solution": "    return x ** 2\n",
    "bug_type": "operator misuse",
    "instruction": "Write a Python function `twice(x)` that doubles.",
}


def test_a_correct_and_a_buggy_body_are_put_behind_the_declaration(tmp_path: Path) -> None:
    examples = converted(tmp_path, convert_humanevalpack, [PROBLEM] * 6, part="python")
    right, wrong = "def twice(x):\n    return 2 * x\n", "def twice(x):\n    return x ** 2\n"
    assert [example.answers[0] for example in examples] == ["A", "B", "A", "B", "B", "A"]
    assert texts(examples[0]) == [right, wrong]
    assert texts(examples[1]) == [wrong, right]
    assert examples[5].id == "hep-python-005"
    assert examples[0].question == "Write a Python function `twice(x)` that doubles."
    assert examples[0].meta == {"subset": "hep-python", "bug_type": "operator misuse"}


# Lost in the Middle

ASKED: dict[str, Any] = {
    "question": "who built the tower",
    "answers": ["Ann Mason", "Mason"],
    "ctxs": [
        {"title": "Tower", "text": "Ann Mason built it.", "hasanswer": True, "isgold": True},
        {
            "id": "12", "title": "Hills", "text": "A hill.", "score": "1.5", "hasanswer": False,
            "original_retrieval_index": 0, "isgold": False,
        },
        {
            "id": "7", "title": "Towns", "text": "A town.", "score": "1.2", "hasanswer": False,
            "original_retrieval_index": 4, "isgold": False,
        },
    ],
    "nq_annotated_gold": {"title": "Tower", "long_answer": "..."},
}  # fmt: skip


def test_a_question_keeps_its_passages_in_their_order(tmp_path: Path) -> None:
    (example,) = converted(tmp_path, convert_questions, [ASKED])
    assert (example.id, example.task) == ("qa3-0000", "retrieval_qa")
    assert example.prefix == TASKS["retrieval_qa"].instruction
    assert example.question == "who built the tower"
    assert example.answers == ["Ann Mason", "Mason"]
    assert texts(example) == ["Ann Mason built it.", "A hill.", "A town."]
    assert [document.title for document in example.documents] == ["Tower", "Hills", "Towns"]
    assert example.gold_index == 0
    assert example.meta == {"retrieval_rank": [None, 0, 4]}
    assert "3 total documents, gold at 0" in example.source
    assert "CC-BY-SA-3.0" in example.license


def test_the_gold_passage_is_found_where_it_is(tmp_path: Path) -> None:
    moved = {**ASKED, "ctxs": [*ASKED["ctxs"][1:], ASKED["ctxs"][0]]}
    (example,) = converted(tmp_path, convert_questions, [moved])
    assert example.gold_index == 2
    assert example.meta == {"retrieval_rank": [0, 4, None]}
    assert "gold at 2" in example.source


@pytest.mark.parametrize("gold", [(), (0, 1)])
def test_a_question_without_the_one_gold_passage_is_refused(tmp_path: Path, gold: tuple[int, ...]) -> None:
    passages = [{**passage, "isgold": index in gold} for index, passage in enumerate(ASKED["ctxs"])]
    with pytest.raises(
        InputError, match=f"source, record 0: {len(gold)} gold passages, expected 1; the source"
    ):
        converted(tmp_path, convert_questions, [{**ASKED, "ctxs": passages}])


def test_a_missing_field_is_named_to_its_depth(tmp_path: Path) -> None:
    broken = {**ASKED, "ctxs": [ASKED["ctxs"][0], {"title": "Hills", "isgold": False}]}
    with pytest.raises(InputError, match=r"source, record 1: ctxs\.1\.text: field required; the source has"):
        converted(tmp_path, convert_questions, [ASKED, broken])


PAIRS = {"ordered_kv_records": [["k-1", "v-1"], ["k-2", "v-2"], ["k-3", "v-3"]], "key": "k-2", "value": "v-2"}


def test_a_key_is_asked_for_among_the_pairs(tmp_path: Path) -> None:
    (example,) = converted(tmp_path, convert_key_values, [PAIRS])
    assert (example.id, example.task, example.question) == ("kv3-0000", "kv_retrieval", "k-2")
    assert [document.title for document in example.documents] == ["k-1", "k-2", "k-3"]
    assert texts(example) == ["v-1", "v-2", "v-3"]
    assert (example.gold_index, example.answers) == (1, ["v-2"])
    assert example.prefix == TASKS["kv_retrieval"].instruction
    assert example.source == "lost-in-the-middle (key-value retrieval, 3 keys)"


@pytest.mark.parametrize("change", [{"key": "k-9"}, {"value": "v-1"}])
def test_a_pair_that_is_not_there_is_refused(tmp_path: Path, change: dict[str, str]) -> None:
    with pytest.raises(InputError, match="record 0: the pair that is asked for is not among"):
        converted(tmp_path, convert_key_values, [{**PAIRS, **change}])


# GSM8K

PROBLEM_IN_WORDS = {
    "question": "A class collects shells. Ann has 3 shells. Bob has 1,200 shells. How many are there?",
    "answer": "3 + 1,200 = <<3+1200=1203>>1,203\n#### 1,203",
}


def test_a_problem_is_cut_into_its_premises(tmp_path: Path) -> None:
    (example,) = converted(tmp_path, convert_gsm8k, [PROBLEM_IN_WORDS])
    assert (example.id, example.task) == ("gsm8k-0000", "math_reasoning")
    assert example.prefix == TASKS["math_reasoning"].instruction + "\n\nA class collects shells."
    assert texts(example) == ["Ann has 3 shells.", "Bob has 1,200 shells."]
    assert example.question == "How many are there?"
    assert (example.answers, example.gold_index) == (["1203"], None)
    assert example.license == "MIT"


@pytest.mark.parametrize(
    ("last_line", "answer"),
    [
        ("#### 18", "18"),
        ("####  -2.5", "-2.5"),
        ("#### .5", ".5"),
        ("#### 70,000 ", "70000"),
        ("#### 5.", "5"),
    ],
)
def test_the_number_stands_behind_the_last_mark(tmp_path: Path, last_line: str, answer: str) -> None:
    solved = {**PROBLEM_IN_WORDS, "answer": f"so #### 7 is wrong\n{last_line}"}
    assert converted(tmp_path, convert_gsm8k, [solved])[0].answers == [answer]


def test_a_problem_without_exchangeable_premises_is_left_out_and_ids_stay(tmp_path: Path) -> None:
    short = {"question": "What is 2 + 2?", "answer": "#### 4"}
    (example,) = converted(tmp_path, convert_gsm8k, [short, PROBLEM_IN_WORDS])
    assert example.id == "gsm8k-0001"


def test_a_solution_without_its_number_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="source, record 0: the answer has no #### with a number behind it"):
        converted(tmp_path, convert_gsm8k, [{**PROBLEM_IN_WORDS, "answer": "It is 4."}])


# QM9

TABLE = """\
mol_id,smiles,A,B,C,mu,alpha,homo,lumo,gap,r2,zpve,u0,u298,h298,g298,cv,u0_atom,u298_atom,h298_atom,g298_atom
gdb_6,C=C=O,1,2,3,1.50,20.0,-0.25,0.01,0.26,1,1,1,1,1,1,7.0,1,1,1,1
gdb_21,CCCO,1,2,3,0.0,33.10,-0.3385,-0.0001,0.3384,1,1,1,1,1,1,10.0981,1,1,1,1
gdb_35,C=C=O,1,2,3,9.9,9.9,-0.9,0.9,0.9,1,1,1,1,1,1,9.9,1,1,1,1
"""


def test_a_molecule_is_asked_for_by_six_properties_in_the_units_of_the_paper(tmp_path: Path) -> None:
    table = tmp_path / "qm9.csv"
    table.write_text(TABLE)
    first, second = converted(tmp_path, convert_molecules, read_csv(table))
    assert (first.id, second.id) == ("qm9-000006", "qm9-000021")
    assert (first.task, first.question, first.answers) == ("molecule_generation", "", ["C=C=O"])
    assert [document.title for document in first.documents] == ["alpha", "homo", "lumo", "gap", "mu", "cv"]
    # By hand, with 27.211386 eV to a Hartree.
    assert texts(first) == ["20", "-6.8028", "0.2721", "7.0750", "1.5", "7"]
    assert texts(second) == ["33.1", "-9.2111", "-0.0027", "9.2083", "0", "10.0981"]
    assert first.meta["properties"] == {
        "alpha": 20.0, "homo": -6.8028, "lumo": 0.2721, "gap": 7.075, "mu": 1.5, "cv": 7.0,
    }  # fmt: skip
    assert first.gold_index is None
    assert first.license == "CC0-1.0"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("20.0", "many"), "alpha: input should be a valid number"),
        (("20.0", "nan"), "alpha: value error, expected a finite number"),
        (("gdb_6", "6"), "mol_id: string should match pattern"),
        (("C=C=O", ""), "smiles: string should have at least 1 character"),
        (("alpha", "polarizability"), "alpha: field required"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    table = tmp_path / "qm9.csv"
    table.write_text(TABLE.replace(*change, 1))
    with pytest.raises(InputError, match=f"source, record 0: {said}"):
        converted(tmp_path, convert_molecules, read_csv(table))


# Reading

LINES = [{"a": "first\u2028line"}, {"a": "zweite Zeile: ü"}]


@pytest.mark.parametrize("packed", [False, True])
def test_json_lines_are_read_packed_or_not(tmp_path: Path, packed: bool) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n\n" for line in LINES).encode()
    path = tmp_path / ("lines.jsonl.gz" if packed else "lines.jsonl")
    path.write_bytes(gzip.compress(text) if packed else text)
    assert list(read_json_lines(path)) == LINES
    assert list(read_json_lines(path, max_bytes=len(text))) == LINES
    with pytest.raises(
        InputError, match=f"holds more than {len(text) - 1:,} bytes, the most that is read here"
    ):
        list(read_json_lines(path, max_bytes=len(text) - 1))


def test_a_small_file_that_unpacks_to_a_huge_one_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "zeros.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(20_000_000)))
    assert path.stat().st_size < 20_000
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="holds more than 1,000,000 bytes"):
            list(read_json_lines(path, max_bytes=1_000_000))
        assert tracemalloc.get_traced_memory()[1] < 5_000_000  # bytes: the rest was not unpacked
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b'{"a": 1}\n' * 1000)[:-9], "is damaged"),
        (b"no gzip at all", "is damaged"),
        (gzip.compress(b'{"a": 1}\n{"a": \n'), "line 2 is not JSON"),
        (gzip.compress(b'"\xff"\n'), "is not UTF-8 text"),
    ],
    ids=["cut off", "not packed", "a line cut off", "not text"],  # of the bytes, a name would hold the time
)
def test_a_damaged_file_says_what_to_do(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"{said}.*; delete (it|the file), and run the same command again"):
        list(read_json_lines(path))


def test_a_list_of_records_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text(json.dumps(LINES, indent=2))
    assert list(read_json_list(path)) == LINES
    path.write_text('{"a": 1}')
    with pytest.raises(InputError, match="holds no list of records"):
        list(read_json_list(path))


def test_parquet_is_read_as_the_hub_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "filtered.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([PREFERENCE, {**PREFERENCE, "id": 8}]), path)
    assert list(read_parquet(path)) == [PREFERENCE, {**PREFERENCE, "id": 8}]
    examples = converted(tmp_path, convert_rewardbench, read_parquet(path))
    assert [example.meta["source_id"] for example in examples] == [7, 8]
    with pytest.raises(InputError, match="holds more than 10 bytes"):
        list(read_parquet(path, max_bytes=10))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="cannot be read as Parquet: .*; delete it, and run") as raised:
        list(read_parquet(path))
    assert "\n" not in str(raised.value)


def test_without_the_extra_the_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(InputError, match=f"datasets is not installed.*{how_to_install('datasets')}"):
        list(read_parquet(tmp_path / "any"))


def test_a_row_has_the_fields_of_the_schema_and_no_empty_titles() -> None:
    documents = (Document("é"), Document("b", "T"))
    row = ExampleRow(
        id="x", task="judge_pair", documents=documents, answers=("A",), source="ours", license="CC0"
    )
    assert '"documents": [{"text": "é"}, {"title": "T", "text": "b"}]' in row.line()
    assert row.line().count("\n") == 1
    assert list(json.loads(row.line())) == [
        "id", "task", "system", "prefix", "question", "documents",
        "gold_index", "answers", "source", "license", "meta",
    ]  # fmt: skip
