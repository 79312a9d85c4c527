"""Tests of joined scripts."""

import re
from pathlib import Path

import pytest

from tests.support.forks import ROOT
from viz.drawing.scripts import join_modules

MODULES = sorted([*(ROOT / "assets").glob("*.js"), *(ROOT / "viz" / "drawing").glob("*.js")])


def test_modules_export_what_others_import() -> None:
    for path in MODULES:
        for names, file in re.findall(r'^import \{ (.+) \} from "(.+)";$', path.read_text(), re.MULTILINE):
            source = (path.parent / file).read_text()
            for name in (each.split(" as ")[0] for each in names.split(", ")):
                assert re.search(rf"^export (const|class) {name}\b", source, re.MULTILINE), (path, name)


def test_module_is_joined_once_after_its_imports(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("export const one = 1;\n")
    (tmp_path / "b.js").write_text('import { one as two } from "./a.js";\nexport const both = () => two;\n')
    (tmp_path / "c.js").write_text('import * as b from "./b.js";\nb.both();\n')
    joined = join_modules([tmp_path / "c.js", tmp_path / "a.js"])
    assert re.findall(r"^pine\.(\w+) =", joined, re.MULTILINE) == ["a", "b", "c"]
    assert "const { one: two } = pine.a;" in joined and "const b = pine.b;" in joined
    assert "return { both };" in joined


def test_other_form_of_export_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("export default 1;\n")
    with pytest.raises(AssertionError):
        join_modules([tmp_path / "a.js"])
