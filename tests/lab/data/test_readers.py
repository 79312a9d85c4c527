"""Public data sets, converted to rows that `read_examples` accepts, and the generated benchmarks."""

import gzip
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, strategies as st
from pyarrow import parquet

from pine_engine import TASKS, Document, InputError
from pine_engine.lab.data.facts import KINDS, generate_facts
from pine_engine.lab.data.few_shot import LABEL_SETS, generate_few_shot
from pine_engine.lab.data.judge_sums import generate_judge_sums
from pine_engine.lab.data.registry import PUBLIC_SETS, convert
from pine_engine.prompts.examples import Example, read_examples
from tests.support.errors import has_field

PREFERENCE = {
    "prompt": "Name a river.", "chosen": "The Elbe.", "chosen_model": "model-1",
    "rejected": "A river is water.", "rejected_model": "model-2", "subset": "llmbar-adver-GPTOut", "id": 7,
}  # fmt: skip
COMPARED = {"input": "Say hello in French.", "output_1": "Bonjour.", "output_2": "Hello.", "label": 1}
PROBLEM = {
    "declaration": "def twice(x):\n", "canonical_solution": "    return 2 * x\n",
    "buggy_solution": "    return x ** 2\n", "bug_type": "operator misuse",
    "instruction": "Write a Python function `twice(x)` that doubles.",
}  # fmt: skip
QUESTION: dict[str, Any] = {
    "question": "who built the tower",
    "answers": ["Ann Mason", "Mason"],
    "ctxs": [
        {"title": "Tower", "text": "Ann Mason built it.", "isgold": True},
        {"title": "Hills", "text": "A hill.", "original_retrieval_index": 0, "isgold": False},
        {"title": "Towns", "text": "A town.", "original_retrieval_index": 4, "isgold": False},
    ],
}
PAIRS = {"ordered_kv_records": [["k-1", "v-1"], ["k-2", "v-2"], ["k-3", "v-3"]], "key": "k-2", "value": "v-2"}
TABLE = """\
mol_id,smiles,A,B,C,mu,alpha,homo,lumo,gap,r2,zpve,u0,u298,h298,g298,cv,u0_atom,u298_atom,h298_atom,g298_atom
gdb_6,C=C=O,1,2,3,1.50,20.0,-0.25,0.01,0.26,1,1,1,1,1,1,7.0,1,1,1,1
gdb_21,CCCO,1,2,3,0.0,33.10,-0.3385,-0.0001,0.3384,1,1,1,1,1,1,10.0981,1,1,1,1
gdb_35,C=C=O,1,2,3,9.9,9.9,-0.9,0.9,0.9,1,1,1,1,1,1,9.9,1,1,1,1
"""


def json_lines(*records: Any) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n\n" for record in records).encode()


def json_list(*records: Any) -> bytes:
    return json.dumps(records).encode()


def parquet_table(*records: Any) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(list(records)), buffer)
    return buffer.getvalue()


def compressed(*records: Any) -> bytes:
    return gzip.compress(json_lines(*records), mtime=0)


FORMATS: dict[str, Callable[..., bytes]] = {
    "rewardbench": parquet_table, "llmbar": json_list, "mt-bench": json_list,
    "lost-in-the-middle-10": compressed, "key-value-75": compressed,
}  # fmt: skip

Build = Callable[..., list[Example]]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def run(name: str, *records: Any, content: bytes = b"", limit: int | None = None) -> list[Example]:
        paths = [tmp_path / file["name"] for file in PUBLIC_SETS[name].files]
        write: Callable[..., bytes] = FORMATS.get(name, json_lines)
        for path in paths:
            path.write_bytes(content or write(*records))
        count = convert(PUBLIC_SETS[name], paths, tmp_path, limit=limit)
        examples = read_examples(tmp_path / f"{name}.jsonl")
        assert len(examples) == count
        return examples

    return run


def texts(example: Example) -> list[str]:
    return [document.text for document in example.documents]


def test_rewardbench_places_chosen_answer_by_seeded_draws(build: Build) -> None:
    random_state = np.random.get_state(legacy=False)["state"]["key"]
    examples = build("rewardbench", *[{**PREFERENCE, "id": number} for number in range(40)])
    assert np.array_equal(random_state, np.random.get_state(legacy=False)["state"]["key"])
    draws = np.random.RandomState(1234).rand(40) > 0.5
    # 0.19, 0.62, 0.44, 0.79, 0.78, 0.27: the known start of this generator.
    assert draws[:6].tolist() == [False, True, False, True, True, False]
    assert [example.answers for example in examples] == [["B"] if second else ["A"] for second in draws]
    assert [example.gold_index for example in examples] == draws.astype(int).tolist()
    assert texts(examples[0]) == ["The Elbe.", "A river is water."] == texts(examples[1])[::-1]
    assert examples[7].id == "rewardbench-0007"
    assert examples[7].question == "Name a river."
    assert examples[7].system == TASKS["judge"].instruction
    assert examples[7].meta == {
        "subset": "llmbar-adver-GPTOut", "source_id": 7,
        "chosen_model": "model-1", "rejected_model": "model-2",
    }  # fmt: skip


def test_llmbar_keeps_order_and_names_subset(build: Build, tmp_path: Path) -> None:
    examples = build("llmbar", {**COMPARED, "output_1": "é\u2028"}, {**COMPARED, "label": 2})
    first, second = examples[-2:]
    assert len(examples) == 10  # five subsets
    assert (first.id, second.id) == ("llmbar-adver-manual-000", "llmbar-adver-manual-001")
    assert texts(second) == ["Bonjour.", "Hello."]
    assert [(one.gold_index, one.answers) for one in (first, second)] == [(0, ["A"]), (1, ["B"])]
    assert (first.question, first.meta) == ("Say hello in French.", {"subset": "llmbar-adver-manual"})
    line = (tmp_path / "llmbar.jsonl").read_text(encoding="utf-8").split("\n")[0]
    assert '"documents": [{"text": "é\u2028"}, {"text": "Hello."}]' in line
    assert list(json.loads(line)) == [
        "id", "task", "system", "prefix", "question", "documents",
        "gold_index", "answers", "source", "license", "meta",
    ]  # fmt: skip
    limited = build("llmbar", COMPARED, COMPARED, limit=3)
    assert [one.id[-12:] for one in limited] == ["-natural-000", "-natural-001", "neighbor-000"]


def test_mt_bench_omits_repeated_pairs_in_any_order(build: Build) -> None:
    swapped = {**COMPARED, "output_1": "Hello.", "output_2": "Bonjour.", "label": 2}
    other = {**COMPARED, "output_2": "Salut.", "label": 2}
    examples = build("mt-bench", COMPARED, swapped, COMPARED, other, {**COMPARED, "input": "In Breton?"})
    assert [example.id for example in examples] == ["mtbench-000", "mtbench-003", "mtbench-004"]
    assert [example.answers for example in examples] == [["A"], ["B"], ["A"]]
    assert texts(examples[1]) == ["Bonjour.", "Salut."]


def test_judgebench_keeps_order_and_names_model(build: Build) -> None:
    pair = {"pair_id": "4c", "source": "livebench-math", "question": "1 + 1?", "response_model": "gpt-4o",
            "response_A": "3", "response_B": "2", "label": "B>A"}  # fmt: skip
    first, second = build("judgebench", pair)  # one example per file
    assert (first.id, second.id) == ("judgebench-gpt-000", "judgebench-claude-000")
    assert (texts(first), first.answers, first.gold_index) == (["3", "2"], ["B"], 1)
    assert first.meta == {"subset": "livebench-math", "source_id": "4c", "model": "gpt-4o"}


def test_humanevalpack_appends_bodies_to_declaration(build: Build) -> None:
    examples = build("humanevalpack", PROBLEM)
    correct, buggy = "def twice(x):\n    return 2 * x\n", "def twice(x):\n    return x ** 2\n"
    # One example per language; the draws go on over the files.
    assert [example.answers[0] for example in examples] == ["A", "B", "A", "B", "B", "A"]
    assert (texts(examples[0]), texts(examples[1])) == ([correct, buggy], [buggy, correct])
    assert (examples[4].id, examples[4].question) == ("hep-python-000", PROBLEM["instruction"])
    assert examples[4].meta == {"subset": "hep-python", "bug_type": "operator misuse"}


def test_questions_keep_passages_and_find_gold(build: Build) -> None:
    moved = {**QUESTION, "ctxs": [*QUESTION["ctxs"][1:], QUESTION["ctxs"][0]]}
    first, second = build("lost-in-the-middle-10", QUESTION, moved)
    assert (first.id, first.task, first.question) == ("qa3-0000", "retrieval_qa", "who built the tower")
    assert first.prefix == TASKS["retrieval_qa"].instruction
    assert first.answers == ["Ann Mason", "Mason"]
    assert texts(first) == ["Ann Mason built it.", "A hill.", "A town."]
    assert [document.title for document in first.documents] == ["Tower", "Hills", "Towns"]
    assert (first.gold_index, second.gold_index) == (0, 2)
    assert first.meta == {"retrieval_rank": [None, 0, 4]} and second.meta == {"retrieval_rank": [0, 4, None]}
    assert "gold at 2" in second.source


def test_key_values_become_titled_documents(build: Build) -> None:
    (example,) = build("key-value-75", PAIRS)
    assert (example.id, example.task, example.question) == ("kv3-0000", "kv_retrieval", "k-2")
    assert example.documents == [Document(f"v-{n}", f"k-{n}") for n in (1, 2, 3)]
    assert (example.gold_index, example.answers) == (1, ["v-2"])
    assert example.prefix == TASKS["kv_retrieval"].instruction


def test_qm9_has_energies_in_ev_without_repeats(build: Build) -> None:
    first, second = build("qm9", content=TABLE.encode())
    assert (first.id, second.id) == ("qm9-000006", "qm9-000021")
    assert (first.task, first.question, first.answers) == ("molecule_generation", "", ["C=C=O"])
    assert [document.title for document in first.documents] == ["alpha", "homo", "lumo", "gap", "mu", "cv"]
    # By hand, with 27.211386 eV per Hartree.
    assert texts(first) == ["20", "-6.8028", "0.2721", "7.0750", "1.5", "7"]
    assert texts(second) == ["33.1", "-9.2111", "-0.0027", "9.2083", "0", "10.0981"]
    assert first.meta["properties"] == {
        "alpha": 20.0, "homo": -6.8028, "lumo": 0.2721, "gap": 7.075, "mu": 1.5, "cv": 7.0,
    }  # fmt: skip
    assert first.gold_index is None


@pytest.mark.parametrize(
    ("name", "content", "record"),
    [
        ("mt-bench", json_list(COMPARED, {"input": "x"}), 1),
        ("mt-bench", b"[]", None),
        ("key-value-75", compressed(PAIRS, {**PAIRS, "key": "k-9"}), 1),
        ("key-value-75", compressed(*[PAIRS] * 99)[:-9], None),
        ("lost-in-the-middle-10", compressed({**QUESTION, "ctxs": QUESTION["ctxs"] * 2}), 0),
        ("qm9", TABLE.replace("20.0", "nan").encode(), 0),
        ("qm9", TABLE.replace("alpha", "beta").encode(), 0),
        ("rewardbench", parquet_table(PREFERENCE)[:-9], 0),
    ],
)  # fmt: skip
def test_unreadable_record_keeps_previous_output(
    build: Build, tmp_path: Path, name: str, content: bytes, record: int | None
) -> None:
    output = tmp_path / f"{name}.jsonl"
    output.write_text("previous")
    with pytest.raises(InputError, match=None if record is None else f"record {record} ") as raised:
        build(name, content=content)
    assert "\n" not in str(raised.value)
    assert output.read_text() == "previous" and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("num_documents", [2, 20])
def test_facts_name_their_value_in_one_document(num_documents: int) -> None:
    rows = [Example.model_validate(row) for row in islice(generate_facts(num_documents, seed=1), 60)]
    assert {row.meta["kind"] for row in rows} == {kind["name"] for kind in KINDS}
    for row in rows:
        texts = [document.text for document in row.documents]
        (answer,) = row.answers
        assert [index for index, text in enumerate(texts) if answer in text] == [row.gold_index]
        assert len(row.rejected_answers) == len(texts) - 1 == len(set(texts)) - 1
        assert [row.score(text, row.answers) for text in texts] == [
            float(index == row.gold_index) for index in range(len(texts))
        ]


def test_facts_ask_about_each_document_of_the_same_sets() -> None:
    sets = list(islice(generate_facts(3, seed=1), 6))
    rows = list(islice(generate_facts(3, seed=1, each=True), 18))
    texts = [[[one["text"] for one in row["documents"]] for row in some] for some in (rows[::3], sets)]
    assert texts[0] == texts[1]
    assert [row["gold_index"] for row in rows] == [0, 1, 2] * 6
    assert {row["question"] for row in sets} <= {row["question"] for row in rows}


def test_scores_of_facts_are_those_of_a_search_that_is_right_for_most_questions() -> None:
    rows = [Example.model_validate(row) for row in islice(generate_facts(5, seed=1), 120)]
    scores = [[one.score or 0.0 for one in row.documents] for row in rows]
    assert all(0 <= score <= 1 for of_row in scores for score in of_row)
    best = [of_row.index(max(of_row)) == row.gold_index for row, of_row in zip(rows, scores, strict=True)]
    assert 0.7 < sum(best) / len(best) < 1


@pytest.mark.parametrize("generate", [generate_facts, generate_few_shot, generate_judge_sums])
def test_generated_rows_are_equal_for_equal_seeds(generate: Callable[..., Iterator[Any]]) -> None:
    first, second = (list(islice(generate(4, seed=5), count)) for count in (12, 30))
    assert first == second[:12]
    assert first != list(islice(generate(4, seed=6), 12))
    names = {generate_facts: "facts-3", generate_few_shot: "few-shot-4", generate_judge_sums: "judge-4"}
    name = names[generate]
    rows = list(PUBLIC_SETS[name].convert(()))
    assert len({row["id"] for row in rows}) == len(rows) == PUBLIC_SETS[name].records


def test_label_sets_have_equally_many_distinct_texts() -> None:
    texts = [
        text for label_set in LABEL_SETS for of_label in label_set["texts"].values() for text in of_label
    ]
    assert len(set(texts)) == len(texts) == PUBLIC_SETS["few-shot-4"].records
    for label_set in LABEL_SETS:
        (size,) = set(map(len, label_set["texts"].values()))
        assert size * len(label_set["texts"]) == 60
        assert all(label in label_set["instruction"] for label in label_set["texts"])


@given(st.integers(4, 16), st.integers(0, 99))
def test_demonstrations_are_balanced_without_the_tested_text(num_documents: int, seed: int) -> None:
    label_of = {
        text: label
        for label_set in LABEL_SETS
        for label, texts in label_set["texts"].items()
        for text in texts
    }
    tested = Counter[str]()
    for row in map(Example.model_validate, islice(generate_few_shot(num_documents, seed), 180)):
        texts = [document.text for document in row.documents]
        assert len({*texts, row.question}) == num_documents + 1
        assert row.answers == [label_of[row.question]] and row.gold_index is None
        assert [document.title for document in row.documents] == [label_of[text] for text in texts]
        counts = Counter({choice: 0 for choice in row.choices}) + Counter(label_of[text] for text in texts)
        assert counts.keys() == set(row.choices) and max(counts.values()) - min(counts.values()) <= 1
        tested[row.question] += 1
    assert tested == Counter(list(label_of))


@pytest.mark.parametrize("num_documents", [2, 4, 8])
def test_one_answer_to_a_sum_is_right(num_documents: int) -> None:
    slots = set()
    for row in map(Example.model_validate, islice(generate_judge_sums(num_documents), 60)):
        terms = map(int, row.question.removeprefix("What is ").removesuffix("?").split(" + "))
        totals = [int(document.text.rstrip(".").split()[-1]) for document in row.documents]
        assert len(set(totals)) == num_documents and row.gold_index == totals.index(sum(terms))
        assert row.answers == ["ABCDEFGH"[row.gold_index]]
        slots.add(row.gold_index)
    assert slots == set(range(num_documents))


def test_answer_with_rejected_value_scores_zero() -> None:
    row = Example.model_validate(next(generate_facts(3)))
    (accepted,), rejected = row.answers, row.rejected_answers[0]
    assert row.score(f"It is {accepted}.", row.answers) == 1
    assert row.score(f"It is {accepted}, not {rejected}.", row.answers) == 0
    assert row.score(f"It is {accepted}, un{rejected}like.", row.answers) == 1
    assert row.score(f"It is {accepted}.", ()) is None


@pytest.mark.parametrize(
    ("generate", "num_documents"),
    [
        (generate_facts, 1), (generate_facts, 21), (generate_few_shot, 3), (generate_few_shot, 17),
        (generate_judge_sums, 1), (generate_judge_sums, 9),
    ],
)  # fmt: skip
def test_generator_rejects_number_of_documents(
    generate: Callable[[int], Iterator[Any]], num_documents: int
) -> None:
    with pytest.raises(InputError, check=has_field("documents")):
        next(generate(num_documents))
