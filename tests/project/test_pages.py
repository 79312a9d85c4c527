"""Files, functions, names and links in README and docs exist, and their tables are current."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import pine_engine
from pine_engine import DEBIASERS, METHODS, TASKS, Method
from pine_engine.cli.methods import write_into
from pine_engine.debias.table import Wrapper

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


TOUR = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STOPS = re.findall(r"`((?:pine_engine|viz)/[\w/]+\.py)` `([\w.]+)`", TOUR)
NAMED = re.findall(r"`((?:pine_engine|viz|assets)/[\w/]+(?:\.\w+)?)`", TOUR)


def defined(tree: ast.AST, before: str = "") -> set[str]:
    """Return the functions and classes of a file, methods as Class.method."""
    names = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
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

EXTERNAL = {"max_window_size", "right_indentation", "rotate_half"}
"""Names of other projects."""


def test_options_and_names_of_specification_exist() -> None:
    folder = Path(inspect.getfile(pine_engine)).parent
    sources = "\n".join(path.read_text(encoding="utf-8") for path in folder.rglob("*.py"))
    options = [found[1] for name in QUOTED if (found := re.fullmatch(r"(\w+)=\S+", name))]
    assert options and [option for option in options if not re.search(rf"\b{option}: ", sources)] == []
    names = {name for name in QUOTED if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)}
    assert {"pcw_right", "pine_input_order", "retrieval_qa_numbered", "calibration_first"} <= names
    for name in names - EXTERNAL - {*METHODS, *TASKS, *DEBIASERS}:
        assert re.search(rf"\bdef {name}\b|^    {name}: ", sources, re.MULTILINE), name


def test_docs_have_current_method_tables(tmp_path: Path) -> None:
    """If not: python -m pine_engine methods --into docs/methods.md."""
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    copy = tmp_path / "methods.md"
    copy.write_text(page, encoding="utf-8")
    write_into(copy)
    assert copy.read_text(encoding="utf-8") == page
    rows: list[Method | Wrapper] = [*METHODS.values(), *DEBIASERS.values()]
    for row in rows:
        assert (
            f"| {row.label} | `{row.name}` | {row.description} | {row.invariance} | {row.cost} | "
            f"{row.source} |" in page
        )


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_images_and_linked_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target


def test_readme_is_short_and_its_anchors_exist() -> None:
    assert len(README.split()) < 900
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)
    }
    jumps = set(re.findall(r"\]\(#([^)]+)\)", README))
    assert jumps and jumps <= headings


def test_space_uses_pinned_gradio() -> None:
    (version,) = re.findall(r"^sdk_version: (\S+)$", README, re.MULTILINE)
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert f"gradio=={version}" in requirements
