"""Commands of README and docs are valid and run; tests run each page with Python blocks."""

import contextlib
import io
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

import pine_engine
from pine_engine import Engine
from pine_engine.benchmark import throughput
from pine_engine.cli import main as cli
from pine_engine.data.registry import PUBLIC_SETS
from pine_engine.extras import VERSIONS
from tests.support.commands import Run
from tests.support.families import TinyLlama
from tests.support.pages import PAGES, ROOT, blocks, commands, put_files
from tests.support.tokenizers import letter_tokenizer

COMMANDS = sorted({command for page in PAGES.values() for command in commands(page)})
RUN_BY = {
    "README.md": ("tests/project/test_packaging.py", "test_readme_blocks_run"),
    "api.md": ("tests/viz/page/api/test_calls.py", "test_the_documented_python_runs"),
    "library.md": ("tests/project/test_documentation.py", "test_library_blocks_run_in_order"),
}
"""Test that runs the blocks of each page."""

BENCH = "--model random:tiny --documents 2 --document-tokens 5 --max-new-tokens 2 --repeats 1"
OPTIONS = {
    "verify --self-test": "--model random:tiny --threads 1 --num-orders 1",
    "verify": "--limit 1 --num-orders 1",
    "evaluate": "--limit 1 --max-new-tokens 4",
    "molecules": "--limit 1 --orders 1 --methods pine",
    "bench": BENCH,
}
"""Options added to commands, so that they take seconds."""

NOT_RUN = ("reproduce-paper", "train-molecules", "download-data ", "--output-dir 4bit")
GENERATED = "facts-3"
"""Data set that commands use without a download."""


def arguments_of(command: str) -> list[str]:
    """Return the subcommand and its options, also of commands that torchrun or srun start."""
    return shlex.split(command.partition("-m pine_engine ")[2].strip("'"))


@pytest.mark.parametrize("command", COMMANDS)
def test_documented_command_is_valid(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True, timeout=60)
    elif words[0] == "pip":
        pinned = {word for word in words[2:] if not word.startswith("-") and word != "."}
        assert pinned <= {f"{name}=={version}" for name, version in VERSIONS.items()}
    elif words[:2] == ["python", "-m"] and words[2].startswith("tools."):
        script = ROOT / words[2].replace(".", "/")
        assert script.with_suffix(".py").is_file() or (script / "__main__.py").is_file()
    else:
        name, *options = arguments_of(command)
        context = typer.main.get_group(cli.app).commands[name].make_context(name, options)
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
        and (GENERATED in command or not any(word in command for word in NOT_RUN))
    ],
)
def test_documented_command_runs(
    command: str, pine: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.setattr(throughput, "peak_memory", lambda *_: 123.4)
    monkeypatch.chdir(tmp_path)
    put_files(command, tmp_path, tiny)
    if f"{GENERATED}.jsonl" in command:
        assert pine("download-data", GENERATED).status == 0
    added = next((options for words, options in OPTIONS.items() if f"pine_engine {words}" in command), "")
    outcome = pine(*arguments_of(command), *added.split())
    assert outcome.status == 0, outcome
    assert outcome.stdout.strip()


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if blocks(page)])
def test_python_blocks_of_page_have_a_test(name: str) -> None:
    file, test = RUN_BY[name]
    assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")
    assert name != "api.md" or len(blocks(PAGES[name])) == 1


LIBRARY = blocks(PAGES["library.md"])


def test_library_blocks_run_in_order(tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the blocks on a tiny model instead of the embedded one."""
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
    assert lines.endswith("True\n")


def test_page_and_blocks_have_public_names_only() -> None:
    assert set(pine_engine.__all__) <= set(re.findall(r"\w+", PAGES["library.md"].read_text("utf-8")))
    imported = re.findall(r"^from pine_engine import (.*)$", "\n".join(LIBRARY), re.MULTILINE)
    assert {name for line in imported for name in line.split(", ")} <= set(pine_engine.__all__)
    assert "pine_engine." not in "".join(LIBRARY)
