"""What docs/specification.md names is there: it describes this project, not one that was planned."""

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

OF_OTHERS = {"max_window_size", "right_indentation", "rotate_half"}
"""Names in the code of others, which the text explains."""


def quoted() -> Iterator[str]:
    """What stands between backticks in a line of text; not the matrices and templates of blocks."""
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
    assert {
        "pcw_right",
        "sp_prefix",
        "pine_input_order",
        "retrieval_qa_numbered",
        "calibration_first",
    } <= names
    for name in names - OF_OTHERS:
        known = name in METHODS or name in TASKS or name in DEBIASERS
        assert known or re.search(rf"\bdef {name}\b|^    {name}: ", SOURCES, re.MULTILINE), name
