"""Commands of README and docs are valid and run; tests run each page with Python blocks."""

import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from pine_engine.cli import main as cli
from pine_engine.data.registry import PUBLIC_SETS
from pine_engine.extras import VERSIONS
from tests.support.commands import Run
from tests.support.pages import PAGES, ROOT, blocks, commands, put_files

COMMANDS = sorted({command for page in PAGES.values() for command in commands(page)})
RUN_BY = {
    "README.md": ("tests/project/test_packaging.py", "test_readme_blocks_run"),
    "api.md": ("tests/viz/page/api/test_calls.py", "test_the_documented_python_runs"),
    "library.md": ("tests/project/test_library.py", "test_library_blocks_run_in_order"),
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
@pytest.mark.usefixtures("skip_memory_measurement")
@pytest.mark.parametrize(
    "command",
    [
        command
        for command in COMMANDS
        if command.startswith("python -m pine_engine") and not any(word in command for word in NOT_RUN)
    ],
)
def test_documented_command_runs(
    command: str, pine: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.chdir(tmp_path)
    put_files(command, tmp_path, tiny)
    added = next((options for words, options in OPTIONS.items() if f"pine_engine {words}" in command), "")
    outcome = pine(*arguments_of(command), *added.split())
    assert outcome.status == 0, outcome
    assert outcome.stdout.strip()


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if blocks(page)])
def test_python_blocks_of_page_have_a_test(name: str) -> None:
    file, test = RUN_BY[name]
    assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")
    assert name != "api.md" or len(blocks(PAGES[name])) == 1
