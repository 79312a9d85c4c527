"""Commands and Python blocks of README and docs, and the files that the commands name."""

import itertools
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

from pine_engine import Document, Engine, Request, create_certificate, hash_logits
from tests.support.commands import write
from tests.support.measured_rows import QUESTION, pairs
from tests.support.molecule_rows import SMILES, row, write_rows
from tests.support.records import judged, run_info, write_run

ROOT = Path(__file__).parents[2]
PAGES = {
    page.name: page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if page.name != "recipes.md"  # tests/project/test_documentation.py follows the recipes
}
PROGRAMS = ("python", "make", "pip", "accelerate", "srun", "torchrun")


def commands(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"^```(?!sh$).*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = re.sub(r" +\\\n +", " ", text).splitlines()
    found = (" ".join(line.partition("#")[0].split()) for line in lines if line.startswith("    "))
    return [command for command in found if command.split(" ")[0] in PROGRAMS]


def blocks(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(?:python|py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_certificate(path: Path, model: Path) -> None:
    engine = Engine.load(str(model))
    request = Request(question="Who?", documents=[Document(text="Ann."), Document(text="Ben.")])
    shuffled = engine.shuffle(request.tokenize(engine), methods="pine", max_new_tokens=2, return_logits=True)
    certificate = create_certificate(
        engine, request, orders=shuffled.orders, comparisons=shuffled.comparisons,
        hashes=hash_logits(shuffled.first), seed=None, max_new_tokens=2, traced=False,
    )  # fmt: skip
    write(path, certificate.model_copy(update={"model_ref": str(model)}).model_dump_json())


def write_judge_run(path: Path, _: Path) -> None:
    keys = itertools.product(("vanilla", "pine"), ("as-is", "swapped"))
    write_run(path, run_info(), [judged("p-0", method, order, "A") for method, order in keys])


def write_retrieval_folder(folder: Path, _: Path) -> None:
    """Write a corpus, a query, its hits and their relevance, as BEIR and Pyserini do."""
    ids = ("d1", "d2", "d3")
    corpus = [{"_id": one, "title": "", "text": f"Text {one}."} for one in ids]
    run = [f"q1 Q0 {one} {rank} {9 - rank} bm25\n" for rank, one in enumerate(ids, start=1)]
    for name, text in {
        "corpus.jsonl": "".join(json.dumps(one) + "\n" for one in corpus),
        "queries.jsonl": json.dumps({"_id": "q1", "text": "Which?"}) + "\n",
        "run.trec": "".join(run),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td2\t2\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, text)


FILES: dict[str, Callable[[Path, Path], object]] = {
    "FILE.json": lambda path, _: write(path, {"question": "Who?", "documents": ["Ann.", "Ben."]}),
    "DATA.jsonl": lambda path, _: write(path, json.dumps(QUESTION.model_dump())),
    "DATA.csv": lambda path, _: write(path, "prompt,passage_a,passage_b\nWho?,Ann.,Ben.\n"),
    "PAIRS.jsonl": lambda path, _: write_rows(path, pairs(2)),
    "QUESTIONS.jsonl": lambda path, _: write_rows(path, [{"question": "?", "options": ["a", "b"]}]),
    "data/rewardbench.jsonl": lambda path, _: write_rows(path, pairs(1)),
    "BEIR": write_retrieval_folder,
    "TRAIN.jsonl": lambda path, _: write_rows(path, [row(smiles) for smiles in SMILES[1:]]),
    "MOLECULES.jsonl": lambda path, _: write_rows(path, [row(SMILES[0])]),
    "CERTIFICATE.json": write_certificate,
    "VERDICTS.csv": lambda path, _: write(path, "pair,order,verdict\n1,AB,A\n1,BA,B\n"),
    "RUN": write_judge_run, "RUN2": write_judge_run,
    "RUNS/lost-in-the-middle-10": write_judge_run, "RUNS/llmbar": write_judge_run,
}  # fmt: skip
"""Writers of the files that commands name; they take the path, and the folder of a model."""


def put_files(command: str, folder: Path, model: Path) -> None:
    for before, word in itertools.pairwise(shlex.split(command)):
        if word in FILES and before != "--output-dir":
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            FILES[word](folder / word, model)
