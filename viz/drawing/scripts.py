"""Scripts of a page: ES modules, joined into one classic script.

A page has one global object, `pine`, with the exports of each module, such as `pine.why.mount`. Scripts of
the type "module" would run too late on the page, because gradio does not wait for those of its head, and a
standalone document cannot load files.
"""

import re
from collections.abc import Iterable
from pathlib import Path

FIGURE_SCRIPTS = (Path(__file__).with_name("figures.js"),)
"""Modules of a document with figures and pictures."""

_IMPORT = re.compile(r'^import (?:\{ (.+) \}|\* as (\w+)) from "(.+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|class) (\w+))", re.MULTILINE)


def join_modules(paths: Iterable[Path]) -> str:
    """Return one script of these modules and of those that they import, each after its imports.

    An import is one line, of names or `* as name`; constants and classes are exported where they are defined.
    """
    joined: dict[Path, str] = {}
    for path in paths:
        _add_module(path.resolve(), joined)
    return "".join(('"use strict";\nconst pine = {};\n', *joined.values()))


def _add_module(path: Path, joined: dict[Path, str]) -> None:
    """Add a module after its imports, unless it was added before."""
    if path in joined:
        return
    source = path.read_text(encoding="utf-8")
    for *_, file in _IMPORT.findall(source):
        _add_module((path.parent / file).resolve(), joined)
    exports = ", ".join(_EXPORT.findall(source))
    body = _EXPORT.sub("", _IMPORT.sub(_assignment, source))
    assert not re.search(r"^(import|export) ", body, re.MULTILINE), path
    joined[path] = f"pine.{path.stem} = (() => {{\n{body}return {{ {exports} }};\n}})();\n"


def _assignment(match: re.Match[str]) -> str:
    """Return the statement that replaces an import."""
    names, module, file = match.groups()
    names = f"{{ {names.replace(' as ', ': ')} }}" if names else module
    return f"const {names} = pine.{Path(file).stem};"
