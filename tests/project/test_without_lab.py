"""The project without its labs: the library, the commands and the page work in a copy that lacks them."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.source_copy import run_in_source_copy

ROOT = Path(__file__).parents[2]
LABS = ("pine_engine/lab", "viz/lab")

LIBRARY = """
import pine_engine as pine
from pine_engine.benchmark.shapes import load_engine
from pine_engine.prompts.layout import TokenLayout

result = load_engine("random:tiny").shuffle(TokenLayout((1, 2), ((3, 4), (5,)), (6,)), methods=["pine"])
print(result.invariance_held)
"""

PAGE = """
import asyncio
from app import all_sources
from viz.page.build import build_page
from viz.page.common.host_settings import DEFAULTS
from viz.page.jobs.loader import EngineSource

async def build():
    return build_page(all_sources(EngineSource(lambda: None, "none"), None, DEFAULTS), DEFAULTS)

page = asyncio.run(build())
print(sorted(block.label for block in page.blocks.values() if type(block).__name__ == "Tab"))
public = [event for event in page.fns.values() if event.api_visibility == "public"]
print(sorted(str(event.api_name) for event in public))
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for name in ("app.py", "pine_engine", "viz", "assets", "README.md"):
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    for lab in LABS:
        shutil.rmtree(folder / lab)
    return folder


def test_library_works_without_lab(sources: Path, tmp_path: Path) -> None:
    run = run_in_source_copy(tmp_path, LIBRARY, [], sources=sources)
    assert run.stdout == "{'pine': True}\n" and run.returncode == 0, run.stderr


def test_commands_leave_out_those_of_lab(sources: Path, tmp_path: Path) -> None:
    run = run_in_source_copy(tmp_path, "pine_engine", ["--help"], sources=sources)
    assert run.returncode == 0 and "compare" in run.stdout and "evaluate" not in run.stdout, run.stderr
    run = run_in_source_copy(tmp_path, "pine_engine", ["methods", "--json"], sources=sources)
    assert json.loads(run.stdout)["wrappers"] == [], run.stderr


def test_page_leaves_out_tab_and_call_of_lab(sources: Path, tmp_path: Path) -> None:
    run = run_in_source_copy(tmp_path, PAGE, [], sources=sources)
    tabs, calls = run.stdout.splitlines()[-2:]
    assert "'Position sweep'" in tabs and "'Evaluate'" not in tabs, run.stderr
    assert "'compare'" in calls and "'measure'" not in calls
