"""Changes and commands of docs/recipes.md work in a copy of the sources."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.source_copy import run_in_source_copy

ROOT = Path(__file__).parents[2]
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
TREE = ("app.py", "pyproject.toml", "pine_engine", "viz", "tests", "tools", "assets", "docs")

RECIPES = dict(
    re.findall(
        r"^## (.+?)$(.+?)(?=^## |\Z)",
        (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a copy of the sources."""
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_recipe_works(name: str, tree: Path) -> None:
    changes = re.findall(r"^```diff\n(.+?)^```", RECIPES[name], re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^ {4}(\S.*)$", RECIPES[name], re.MULTILINE)
    assert changes and commands
    for change in changes:
        command = ["git", "apply", "--recount", "--whitespace=nowarn", "-"]
        subprocess.run(command, cwd=tree, input=change, text=True, check=True)
    for command in commands:
        run = run_in_source_copy(tree, *module_and_arguments(command), sources=tree)
        assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}"


def module_and_arguments(command: str) -> tuple[str, list[str]]:
    """Return the module that a command runs, and its arguments."""
    program, *words = shlex.split(command)
    if program == "make":
        target, arguments = words
        assert target == "test"
        pytest_arguments = shlex.split(arguments[len("ARGS=") :])
        # Plugins are imported already, and pytest would warn that it cannot rewrite their assertions.
        return "pytest", ["-q", "-p", "no:cacheprovider", "-W", IMPORTED, *pytest_arguments]
    assert (program, words[:2]) == ("python", ["-m", "pine_engine"])
    return "pine_engine", words[2:]
