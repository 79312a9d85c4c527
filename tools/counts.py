"""Count lines, classes, docstrings and discouraged words; exit with status 1 if a count is beyond its limit.

The limits, in `[tool.pine.counts]` of pyproject.toml, are a ratchet: lower them after each cleanup.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

WORDS = {"told", "said", "asked", "given", "alike", "anew", "whoever", "nobody", "somebody"}
QUESTION = re.compile(r"\s*(What|Whether|How|Who|Where|Which)\b")
PART_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
PACKAGES = ("pine_engine", "tests", "viz")
MINIMUMS = {"functions_with_args_percent"}  # the limit is a lower bound

Trees = dict[str, ast.Module]
Place = tuple[int, str]  # line number, and the text or word that begins there


class Counts(NamedTuple):
    """Values by area and count, and the discouraged words by file."""

    values: dict[str, dict[str, float]]
    words: dict[str, list[Place]]


def count(root: Path) -> Counts:
    """Count the Python files of the application and its tests under a folder."""
    paths = [root / "app.py", *(path for name in PACKAGES for path in (root / name).rglob("*.py"))]
    files = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}
    trees = {name: ast.parse(text) for name, text in files.items()}
    words = {name: sorted(find_words(tree, files[name])) for name, tree in trees.items()}
    values: dict[str, dict[str, float]] = {}
    for area in ("library", "page", "tests"):
        inside = {name: tree for name, tree in trees.items() if area_of(name) == area}
        values[area] = {
            "lines": sum(files[name].count("\n") for name in inside),
            "classes": len(class_names(inside)),
            "question_docstrings_percent": percent(bool(QUESTION.match(text)) for _, text in prose(inside)),
            "words": sum(len(words[name]) for name in inside),
        }
    source = {name: tree for name, tree in trees.items() if area_of(name) != "tests"}
    documented = ("Args:" in (ast.get_docstring(node) or "") for node in public_functions(source))
    values["source"] = {
        "duplicate_class_names": sum(uses > 1 for uses in Counter(class_names(source)).values()),
        "functions_with_args_percent": percent(documented),
    }
    return Counts(values, words)


def area_of(name: str) -> str:
    """Return the area of a file."""
    if name.startswith("tests/"):
        return "tests"
    return "page" if name.startswith(("app.py", "viz/page/")) else "library"


def class_names(trees: Trees) -> list[str]:
    """Return the names of all classes."""
    return [node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def prose(trees: Trees) -> Iterator[Place]:
    """Iterate over the docstrings of modules, classes, functions and attributes."""
    for node in (
        node.value for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Expr)
    ):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def percent(hits: Iterable[bool]) -> float:
    """Return the share of true values, rounded to a tenth of a percent."""
    hits = list(hits)
    return round(100 * sum(hits) / max(1, len(hits)), 1)


def find_words(tree: ast.Module, text: str) -> Iterator[Place]:
    """Iterate over the discouraged words in docstrings, comments and names."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for start, paragraph in [*prose({"": tree}), *comments]:
        for line, sentence in enumerate(paragraph.splitlines(), start):
            yield from ((line, word) for word in re.findall(r"[a-z]+", sentence.lower()) if word in WORDS)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    others = [node for node in imports if (node.module or "").split(".")[0] not in (*PACKAGES, "tools")]
    library_names = {alias.asname or alias.name for node in others for alias in node.names}
    for node in ast.walk(tree):
        names = (getattr(node, field, None) for field in ("id", "arg", "attr", "name", "asname", "module"))
        for name in (name for name in names if isinstance(name, str) and name not in library_names):
            parts = (part.lower() for part in PART_OF_NAME.findall(name))
            yield from ((getattr(node, "lineno", 1), part) for part in parts if part in WORDS)


def public_functions(trees: Trees) -> Iterator[ast.FunctionDef]:
    """Iterate over the functions with parameters of the library API, the command line and the page's API."""
    found: list[ast.AST] = []
    for name in ("pine_engine/__init__.py", "viz/__init__.py", "pine_engine/cli/main.py"):
        public: set[str] = set()
        for node in ast.walk(trees[name]):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                public |= set(ast.literal_eval(node.value))
            if isinstance(node, ast.Call) and ".command(" in ast.unparse(node.func):
                wrapped = node.args[0].args if isinstance(node.args[0], ast.Call) else node.args
                public |= {ast.unparse(name) for name in wrapped}
        for node in ast.walk(trees[name]):
            if isinstance(node, ast.ImportFrom):
                module = trees.get(f"{(node.module or '').replace('.', '/')}.py", ast.Module([], []))
                names = public & {alias.name for alias in node.names}
                found += [one for one in module.body if getattr(one, "name", None) in names]
    for name in (name for name in trees if name.startswith("viz/page/api")):
        registrations = (one for one in trees[name].body if getattr(one, "name", None) == "add_api")
        found += [call for one in registrations for call in ast.iter_child_nodes(one)]
    functions = (one for node in found for one in (node.body if isinstance(node, ast.ClassDef) else [node]))
    for one in functions:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
            parameters = {arg.arg for arg in ast.walk(one.args) if isinstance(arg, ast.arg)}
            yield from [one] if parameters - {"self", "cls"} else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each count with its limit. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(), help="folder of the repository")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="list the words of the N worst files")
    options = parser.parse_args(arguments)
    limits = tomllib.loads((options.root / "pyproject.toml").read_text())["tool"]["pine"]["counts"]
    counts, beyond = count(options.root), 0
    print(f"{'':40}{'value':>10}{'limit':>10}")
    for area, values in counts.values.items():
        for name, value in values.items():
            limit = limits[area][name]
            exceeded = value < limit if name in MINIMUMS else value > limit
            beyond += exceeded
            print(f"{f'{area}.{name}':40}{value:10,}{limit:10,}{'  beyond the limit' if exceeded else ''}")
    for file in sorted(counts.words, key=lambda file: -len(counts.words[file]))[: options.top]:
        print(*(f"{file}:{line}: {word}" for line, word in counts.words[file]), sep="\n")
    return int(beyond > 0)


if __name__ == "__main__":
    sys.exit(main())
