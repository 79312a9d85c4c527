"""Every command of the docs runs as it is written, and every block of Python is run by a test.

A command runs in a folder that holds nothing but files of the names that it says, on a tiny model where it
names none; tests/support/pages.py says what is added so that it does not take long. Those of the README run
from a wheel, in test_packaging.py.
"""

import shlex
import subprocess
from pathlib import Path

import pytest

from pine_engine.data.registry import PUBLIC_SETS
from pine_engine.extras import VERSIONS
from tests.support.commands import Run
from tests.support.pages import PAGES, ROOT, WAYS, blocks, commands, put_files

RUN_BY = {
    "README.md": ("tests/project/test_packaging.py", "test_the_blocks_of_the_readme_run"),
    "api.md": ("tests/viz/page/api/test_calls.py", "test_the_documented_python_runs"),
    "library.md": ("tests/project/test_library.py", "test_its_blocks_run_in_order"),
}
"""The test that runs the blocks of each page: from a wheel, or against a running page."""

IN_README = set(commands(PAGES["README.md"]))


def test_every_command_has_a_way_to_run_and_no_other_has() -> None:
    assert sorted({each for page in PAGES.values() for each in commands(page)}) == sorted(WAYS)


@pytest.mark.usefixtures("memory_unmeasured")
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=pytest.mark.slow if "--self-test" in name else ())
        for name, way in WAYS.items()
        if way.kind == "here" and name not in IN_README
    ],
)
def test_a_command_does_what_it_says(
    command: str, pine: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINE_MODEL", str(tiny))
    monkeypatch.chdir(tmp_path)
    outcome = pine(*put_files(command, tmp_path, tiny))
    assert outcome.status == 0, outcome
    assert outcome.stdout.strip()


@pytest.mark.parametrize("command", [name for name, way in WAYS.items() if way.kind == "known"])
def test_what_cannot_be_run_here_is_known_to_its_program(command: str, pine: Run) -> None:
    words = shlex.split(command)
    if words[0] == "make":
        subprocess.run([words[0], "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True, timeout=60)
    elif words[0] == "pip":
        pinned = [word for word in words[2:] if not word.startswith("-") and word != "."]
        assert set(pinned) <= {f"{name}=={version}" for name, version in VERSIONS.items()}
    elif words[:2] == ["python", "-m"] and words[2].startswith("tools."):
        script = ROOT / words[2].replace(".", "/")
        assert script.with_suffix(".py").is_file() or (script / "__main__.py").is_file()
    else:
        arguments = shlex.split(command.partition("-m pine_engine ")[2].strip("'"))
        outcome = pine(*arguments, "--help")
        assert outcome.status == 0 and f"pine_engine {arguments[0]}" in outcome.stdout.replace("\n", " ")
        named = [
            word
            for word in arguments[1:]
            if arguments[0] in ("download-data", "reproduce-paper") and "-" in word
        ]
        assert {word for word in named if not word.startswith("-")} <= set(PUBLIC_SETS)


@pytest.mark.parametrize("name", [name for name, page in PAGES.items() if blocks(page)])
def test_the_blocks_of_a_page_are_run(name: str) -> None:
    file, test = RUN_BY[name]
    assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8")
    assert name != "api.md" or len(blocks(PAGES[name])) == 1  # which is the one that it takes
