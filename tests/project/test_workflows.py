"""Actions of the GitHub workflows are pinned to commits, which cannot move as tags can."""

import re
from pathlib import Path

import pytest

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.y*ml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_actions_are_pinned_to_commits(path: Path) -> None:
    used = re.findall(r"^\s*(?:-\s*)?uses:\s*(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []
