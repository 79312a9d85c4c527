"""Names and options in docs/specification.md exist in the project."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pine_engine
from pine_engine.debias.table import DEBIASERS
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8")

SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for path in Path(inspect.getfile(pine_engine)).parent.rglob("*.py")
)

EXTERNAL = {"max_window_size", "right_indentation", "rotate_half"}
"""Names of other projects."""


def quoted() -> Iterator[str]:
    """Iterate over the inline code, without blocks."""
    blocks = re.split(r"^```.*$", TEXT, flags=re.MULTILINE)
    for block in blocks[::2]:
        yield from re.findall(r"`([^`\n]+)`", block)


def test_every_option_is_a_parameter() -> None:
    options = [found[1] for name in quoted() if (found := re.fullmatch(r"(\w+)=\S+", name))]
    assert options
    for option in options:
        assert re.search(rf"\b{option}: ", SOURCES), option


def test_every_name_is_one_of_the_project() -> None:
    names = {name for name in quoted() if re.fullmatch(r"[a-z]+(_[a-z]+)+", name)}
    assert {"pcw_right", "pine_input_order", "retrieval_qa_numbered", "calibration_first"} <= names
    for name in names - EXTERNAL:
        known = name in METHODS or name in TASKS or name in DEBIASERS
        assert known or re.search(rf"\bdef {name}\b|^    {name}: ", SOURCES, re.MULTILINE), name
