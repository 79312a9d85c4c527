"""The README's library example runs, what it and docs/ link to is there, and docs/methods.md is the table."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from pine_engine.console.method_tables import write_into
from pine_engine.debias.table import WRAPPERS
from pine_engine.methods.table import METHODS, get_methods

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("loaded_once")
def test_library_example_runs_and_its_two_scores_are_equal() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    *answers, as_is, shuffled = printed.getvalue().strip().splitlines()
    text = "\n".join(answers)
    answered = re.findall(r"^(\w+): \S", text, re.MULTILINE)
    assert answered == [method.name for method in get_methods()]
    assert as_is.startswith("{'pine': [Score(")
    assert as_is == shuffled


def test_tables_of_methods_are_the_tables(tmp_path: Path) -> None:
    """If not: python -m pine_engine methods --into docs/methods.md."""
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    copy = tmp_path / "methods.md"
    copy.write_text(page, encoding="utf-8")
    write_into(copy)
    assert copy.read_text(encoding="utf-8") == page
    for row in (*METHODS.values(), *WRAPPERS.values()):
        assert (
            f"| {row.label} | `{row.name}` | {row.meaning} | {row.promise} | {row.cost} | {row.source} |"
            in page
        )


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: p.name
)
def test_images_and_linked_files_exist(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), target


def test_a_reader_is_through_the_readme_in_five_minutes() -> None:
    assert len(README.split()) < 1200


def test_what_the_readme_jumps_to_is_there() -> None:
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)
    }
    jumps = set(re.findall(r"\]\(#([^)]+)\)", README))
    assert jumps and jumps <= headings


def test_space_front_matter_names_the_pinned_gradio() -> None:
    (version,) = re.findall(r"^sdk_version: (\S+)$", README, re.MULTILINE)
    requirements = (Path(__file__).parents[2] / "requirements.txt").read_text(encoding="utf-8")
    assert f"gradio=={version}" in requirements
