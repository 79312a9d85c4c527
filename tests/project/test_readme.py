"""Links of README and docs, and the tables of docs/methods.md."""

import re
from pathlib import Path

import pytest

from pine_engine.cli.methods import write_into
from pine_engine.debias.table import DEBIASERS, Wrapper
from pine_engine.methods.table import METHODS, Method

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


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


def test_readme_has_fewer_than_900_words() -> None:
    assert len(README.split()) < 900


def test_readme_anchors_exist() -> None:
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)
    }
    jumps = set(re.findall(r"\]\(#([^)]+)\)", README))
    assert jumps and jumps <= headings


def test_space_uses_pinned_gradio() -> None:
    (version,) = re.findall(r"^sdk_version: (\S+)$", README, re.MULTILINE)
    requirements = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert f"gradio=={version}" in requirements
