"""Golden outputs: results of the program, recorded before its structure changes, compared afterwards.

`python tools/golden.py record FOLDER` computes and writes them. `python tools/golden.py compare FOLDER`
computes them again, prints each difference, and exits with status 1 if there is one. Names after FOLDER
select parts or single cases, such as `a/llama b c`. A case computes when it is called, in an empty current
folder, and uses few names of the program, because names change. The parts:

- a: logits and answers of all methods, 12 model families, 3 orders, 2 dtypes, 3 batch sizes, as hashes
- b: exit status and `--json` of all subcommands on fixed inputs, and the Markdown of reports
- c: OpenAPI and MCP schemas of the page, without their texts
- e: the figures, as hashes and a summary

The numbers of a, b and e depend on the processor. On another platform than the recorded one these parts are
not compared, and the exit status is 2.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))  # import this working tree, from any current folder
    os.environ |= {
        "OMP_NUM_THREADS": "1",
        "HF_HUB_CACHE": "/nonexistent",
        "HF_HUB_OFFLINE": "1",
        "GRADIO_ANALYTICS_ENABLED": "False",
    }

import argparse
import asyncio
import contextlib
import hashlib
import io
import json
import re
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
import transformers
from plotly.graph_objects import Figure

import pine_engine as pine
from pine_engine.cli.main import main as run_cli
from pine_engine.invariance.platform_facts import hardware_of
from pine_engine.prompts.request import Request
from tests.support import families
from tests.support.measured_rows import PAIR, QUESTION, pairs
from tests.support.molecule_rows import SMILES, row, write_rows
from tests.support.tokenizers import letter_tokenizer

DEPENDS_ON_PLATFORM = ("a", "b", "e")

Cases = dict[str, Callable[[], Any]]

FAMILIES = (
    *("llama", "qwen3", "qwen2_5_vl", "gemma2", "gemma3_text", "glm4", "cohere", "gpt_neox", "falcon"),
    *("mixtral", "nemotron", "longrope, a long prompt"),
)
"""Names of tests/support/families.py; each has its attention patched in another way."""

ORDERS = ((0, 1, 2), (2, 1, 0), (1, 2, 0))
BATCH_SIZES = (1, 2, 5)

VARIABLE_KEYS = re.compile(
    r"\w+_s|\w+_s_per_\w+|seconds|started|made|hardware|threads|python|torch|transformers|pine_explorer|"
    r"\w*ratio|\w+_mb"
)
"""JSON keys of seconds, dates, versions, and properties of the machine."""

VARIABLE_TEXT = re.compile(
    r"\d{4}-\d\d-\d\dT[\d:+]+|PINE Explorer \d.* Python [\d.]+|(?<=\| )[\d.e-]+( s|x) \([^|]*(?= \|)"
)
"""Dates, versions, and cells of seconds and of their ratios, in a line of a report."""


def platform() -> dict[str, str | int]:
    """Return the properties of the platform that logits may depend on."""
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    return {"hardware": hardware_of("cpu"), "threads": torch.get_num_threads(), **versions}


def short_hash(text: str) -> str:
    """Return the first 16 digits of the SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def logit_cases() -> Cases:
    """Return the cases of part a: one per model family."""
    return {name: partial(hash_family, families.FAMILIES[name]) for name in FAMILIES}


def hash_family(family: families.Family) -> dict[str, dict[str, list[str]]]:
    """Return for each dtype and method one string per order.

    A string holds hashes: of all logits of `Engine.run`, then of the answer with each batch size.
    """
    layouts = [families.LAYOUT.reorder(order) for order in ORDERS]
    found = {}
    for dtype in (torch.float32, torch.bfloat16):
        engine = pine.Engine(families.make(family.kind, dtype, **family.options))
        methods = [method for method in pine.METHODS if supports(engine, method)]
        prompts = [(order, method) for order in range(len(ORDERS)) for method in methods]
        runs = [
            engine.run(layout, methods=methods, max_new_tokens=4, return_logits=True) for layout in layouts
        ]
        logits = [pine.hash_logits(run) for run in runs]
        hashes = {prompt: [logits[prompt[0]][prompt[1]][:16]] for prompt in prompts}
        for batch_size in BATCH_SIZES:
            answers = pine.generate_batch(
                engine,
                [layouts[order] for order, _ in prompts],
                method=[method for _, method in prompts],
                max_new_tokens=4,
                batch_size=batch_size,
            )
            for index, answer in answers:
                hashes[prompts[index]].append(short_hash(repr((answer.token_ids, answer.logprobs))))
        found[engine.dtype] = {
            method: [" ".join(hashes[order, method]) for order in range(len(ORDERS))] for method in methods
        }
    return found


def supports(engine: pine.Engine, method: str) -> bool:
    """Check whether the model of an engine can run a method; scaled RoPE has no other base."""
    try:
        engine.run(families.LAYOUT, methods=method, max_new_tokens=0)
    except pine.ModelError:
        return False
    return True


def command_cases() -> Cases:
    """Return the cases of part b: one per subcommand, a list of the outputs of its runs."""
    load_tiny()
    Path("certificate.json").write_text(certificate(load_tiny()), encoding="utf-8")
    pair_request = {
        "question": "Who?",
        "documents": ["Me.", {"title": "He", "text": "You."}],
        "task": "judge",
    }
    Path("one.json").write_text(json.dumps(pair_request), encoding="utf-8")
    labeled = [f"labeled{number}.json" for number in range(3)]
    for number, name in enumerate(labeled):
        labels = {"question": f"Who is {number}?", "labels": ["A", "B"]}
        Path(name).write_text(json.dumps(pair_request | labels), encoding="utf-8")
    question, pair = (each.model_dump(mode="json", exclude_none=True) for each in (QUESTION, PAIR))
    enough = range(12)  # for intervals
    varied = [
        {"id": f"q{n}", "question": f"Where {n}?", "gold_index": n % 4, "answers": ["2"]} for n in enough
    ]
    write_rows(Path("questions.jsonl"), [question | one for one in varied])
    write_rows(Path("llmbar.jsonl"), [pair, *pairs(len(enough))])
    write_rows(Path("train.jsonl"), map(row, SMILES[:60]))
    write_rows(Path("requests.jsonl"), map(row, SMILES[90:92]))

    model = "--model tiny --dtype float32"
    answer = f"{model} --max-new-tokens 4"
    wrappers = ",".join(pine.DEBIASERS)
    gold = f"evaluate questions.jsonl --output-dir gold {answer} --orders gold-all,reversed"
    judge = (
        f"evaluate llmbar.jsonl --output-dir judged {answer} --methods vanilla,pine,{wrappers} --orders judge"
    )
    commands = {
        "compare": [f"compare one.json {answer} --methods all"],
        "verify": [f"verify questions.jsonl --limit 2 {model} --methods all --max-new-tokens 3"],
        "debias": [f"debias {' '.join(labeled)} {answer} --wrapper {name}" for name in pine.DEBIASERS]
        + [f"debias labeled0.json {answer} --wrapper permutation_full --majority"],
        "repeat": ["reproduce certificate.json"],
        "bench": [f"bench {model} --document-tokens 20 --max-new-tokens 2 --repeats 1"],
        "evaluate": [gold, judge],
        "data": ["download-data"],
        "report": ["report gold judged --output-dir report"],
        "paper": [f"reproduce-paper llmbar --limit 4 --output-dir paper --data . {answer}"],
        "molecules": ["molecules requests.jsonl --predictor-data train.jsonl --orders 2"],
        "methods": ["methods"],
        "models": ["models"],
    }
    cases: Cases = {name: partial(run_commands, lines) for name, lines in commands.items()}
    evaluate, report = cases["evaluate"], cases["report"]
    return cases | {"report": lambda: evaluate() and report()}


def run_commands(lines: list[str]) -> list[dict[str, Any]]:
    """Run subcommands in order; return the outputs of each."""
    return list(map(run_command, lines))


def run_command(line: str) -> dict[str, Any]:
    """Run a subcommand in this process; return its status, its JSON and the report that it wrote."""
    has_json = not line.startswith("reproduce-paper")
    printed = io.StringIO()
    argv = ["pine_engine", *line.split(), *(["--json"] if has_json else [])]
    with contextlib.redirect_stdout(printed), patch.object(sys, "argv", argv):
        try:
            run_cli()
            status: Any = 0
        except SystemExit as end:
            status = end.code
    output: dict[str, Any] = {"status": status}
    if has_json:
        output["json"] = constant(json.loads(printed.getvalue()))
    for report in Path().glob("**/report.md"):
        lines = report.read_text(encoding="utf-8").splitlines()
        output["report"] = [VARIABLE_TEXT.sub("(varies)", line) for line in lines]
        report.unlink()
    return output


def constant(value: Any) -> Any:
    """Return JSON with a mark in place of the values that vary between two runs of the same code."""
    if isinstance(value, dict):
        return {
            key: "(varies)" if VARIABLE_KEYS.fullmatch(key) else constant(one) for key, one in value.items()
        }
    return list(map(constant, value)) if isinstance(value, list) else value


def load_tiny() -> pine.Engine:
    """Return an engine of a tiny Llama with random weights whose tokens are letters, saved as `tiny`."""
    if not Path("tiny").exists():
        families.make("llama", max_position_embeddings=2048).save_pretrained("tiny")
        letter_tokenizer().save_pretrained("tiny")
    return pine.Engine.load("tiny", dtype="float32")


def certificate(engine: pine.Engine) -> str:
    """Return the certificate of a shuffle of three documents."""
    comparison = Request.model_validate({"question": "Where?", "documents": ["Red cat.", "Green.", "No."]})
    shuffled = engine.shuffle(
        comparison.tokenize(engine), methods=["vanilla", "pine"], max_new_tokens=8, return_logits=True
    )
    certified = pine.create_certificate(
        engine,
        comparison,
        orders=shuffled.orders,
        comparisons=shuffled.comparisons,
        hashes=pine.hash_logits(shuffled.first),
        seed=None,
        max_new_tokens=8,
        traced=False,
    )
    return certified.model_dump_json(indent=2) + "\n"


def schema_cases() -> Cases:
    """Return the cases of part c: the schemas of the page, which is served without a model."""
    return {"schemas": read_schemas}


def read_schemas() -> dict[str, Any]:
    """Return the OpenAPI schema of the page and the schemas of its MCP tools."""
    import httpx
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    import app
    from viz.page.build import build_page
    from viz.page.common.host_settings import DEFAULTS
    from viz.page.jobs.loader import EngineSource

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/gradio_api"

    async def list_tools() -> list[dict[str, Any]]:
        async with (
            streamable_http_client(f"{url}/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return [tool.model_dump(mode="json") for tool in (await session.list_tools()).tools]

    page = build_page(app.all_sources(EngineSource(load_tiny, "tiny"), None, DEFAULTS), DEFAULTS)
    app.launch(page, DEFAULTS.model_copy(update={"port": port}), quiet=True)
    try:
        openapi = httpx.get(f"{url}/openapi.json").raise_for_status().json()
        del openapi["info"]  # the version of gradio
        schemas: dict[str, Any] = without_texts({"openapi": openapi, "tools": asyncio.run(list_tools())})
    finally:
        page.close(verbose=False)
    return schemas


def without_texts(value: Any) -> Any:
    """Return a schema with a mark in place of each text for people."""
    if isinstance(value, list):
        return list(map(without_texts, value))
    if not isinstance(value, dict):
        return value
    return {
        key: "text"
        if key in ("title", "description", "summary") and isinstance(one, str)
        else without_texts(one)
        for key, one in value.items()
    }


def figure_cases() -> Cases:
    """Return the cases of part e: one per `plot_` function, of one shuffle of a tiny model."""
    from tests.viz.test_functions import draw_all

    shuffled = pine.Engine(families.make("llama")).shuffle(
        families.LAYOUT, methods=["vanilla", "pcw", "pine"], max_new_tokens=3, stop_at_eos=False, trace=True
    )
    drawings = draw_all(shuffled, "Paris")
    return {name: partial(summarize_figure, draw) for name, draw in drawings.items()}


def summarize_figure(draw: Callable[[], Figure]) -> dict[str, Any]:
    """Return hashes of a figure's JSON and of its numbers alone, its titles, and its traces in words."""
    text = draw().to_json()
    figure = json.loads(text)
    layout = figure["layout"]
    return {
        "json": short_hash(text),
        "numbers": short_hash(json.dumps(numbers_of(figure["data"]))),
        "title": layout["title"]["text"],
        "axes": [
            axis["title"].get("text") for key, axis in layout.items() if "axis" in key and "title" in axis
        ],
        "traces": [
            {"type": trace["type"]}
            | {key: shape(trace[key]) for key in ("x", "y", "z", "base") if key in trace}
            for trace in figure["data"]
        ],
        "frames": len(figure.get("frames", [])),
    }


def numbers_of(value: Any) -> Any:
    """Return JSON without its texts, apart from `bdata`: arrays, encoded by plotly."""
    if isinstance(value, dict):
        return {key: one if key == "bdata" else numbers_of(one) for key, one in value.items()}
    if isinstance(value, list):
        return list(map(numbers_of, value))
    return None if isinstance(value, str) else value


def shape(array: Any) -> str:
    """Return the shape of an array in a figure's JSON, or its length."""
    if isinstance(array, dict):
        return str(array.get("shape", len(array["bdata"])))
    return str(len(array)) if isinstance(array, list) else "1"


PARTS = {"a": logit_cases, "b": command_cases, "c": schema_cases, "e": figure_cases}
"""The parts that are compared, by their letter."""


def main(words: Sequence[str] | None = None) -> int:
    """Record or compare; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("folder", type=lambda path: Path(path).resolve())
    parser.add_argument("only", nargs="*", help="parts and cases, such as a/llama b; all if none is named")
    options = parser.parse_args(words)
    status = 0
    for part, cases_in in PARTS.items():
        if options.only and part not in {name.partition("/")[0] for name in options.only}:
            continue
        file = options.folder / f"{part}.json"
        recorded = None if options.action == "record" else json.loads(file.read_text(encoding="utf-8"))
        if recorded and part in DEPENDS_ON_PLATFORM and recorded["platform"] != platform():
            print(
                f"{part}: recorded on {recorded['platform']}, and this platform is {platform()}. To compare "
                f"here, check out the commit that `git log -1 --format=%h -- {file}` prints, record into a "
                "folder outside the repository, and compare with that folder."
            )
            status = status or 2
            continue
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.chdir(scratch),
            contextlib.redirect_stdout(sys.stderr),
        ):
            computed = {}
            for name, case in cases_in().items():
                if not options.only or part in options.only or f"{part}/{name}" in options.only:
                    print(f"{part}/{name}", file=sys.stderr)
                    computed[name] = json.loads(json.dumps(case()))
        if recorded is None:
            file.parent.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"platform": platform(), "cases": computed}, indent=1, ensure_ascii=False)
            file.write_text(content + "\n", encoding="utf-8")
            continue
        expected = recorded["cases"]
        if options.only and part not in options.only:
            expected = {name: value for name, value in expected.items() if name in computed}
        for line in differences(expected, computed, part):
            print(line)
            status = 1
    return status


def differences(old: Any, new: Any, path: str) -> Iterator[str]:
    """Yield one line for each place at which two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            if key in old and key in new:
                yield from differences(old[key], new[key], f"{path}/{key}")
            else:
                yield f"{path}/{key}: only {'recorded' if key in old else 'computed'}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif old != new or type(old) is not type(new):
        yield f"{path}: {json.dumps(old)[:200]} -> {json.dumps(new)[:200]}"


if __name__ == "__main__":
    raise SystemExit(main())
