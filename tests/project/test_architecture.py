"""Files and functions that docs/architecture.md names exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(("path", "name"), STOPS)
def test_functions_of_tour_exist(path: str, name: str) -> None:
    assert name in defined(ast.parse((ROOT / path).read_text(encoding="utf-8")))


def test_files_of_tour_exist() -> None:
    assert len(STOPS) > 25
    assert [path for path in NAMED if not (ROOT / path).exists()] == []
