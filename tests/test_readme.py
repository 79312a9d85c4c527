"""The README's library example runs, and its table of methods is the table."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from pine_engine.catalog import write_into
from pine_engine.methods import METHODS, get_methods
from pine_engine.wrappers import WRAPPERS

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.embedded
def test_library_example_runs_and_its_two_scores_are_equal(embedded_folder: Path) -> None:
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
    """If not: python -m pine_engine methods --into README.md."""
    copy = tmp_path / "README.md"
    copy.write_text(README, encoding="utf-8")
    write_into(copy)
    assert copy.read_text(encoding="utf-8") == README
    for row in (*METHODS.values(), *WRAPPERS.values()):
        assert (
            f"| {row.label} | `{row.name}` | {row.meaning} | {row.promise} | {row.cost} | {row.source} |"
            in README
        )


def test_images_and_linked_files_exist() -> None:
    root = Path(__file__).parent.parent
    for target in re.findall(r"\]\((?!https?:|#)([^)]+)\)", README):
        assert (root / target).is_file(), target


def test_what_the_readme_jumps_to_is_there() -> None:
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"^## (.+)$", README, re.MULTILINE)
    }
    jumps = set(re.findall(r"\]\(#([^)]+)\)", README))
    assert jumps and jumps <= headings


def test_space_front_matter_names_the_pinned_gradio() -> None:
    (version,) = re.findall(r"^sdk_version: (\S+)$", README, re.MULTILINE)
    requirements = (Path(__file__).parent.parent / "requirements.txt").read_text(encoding="utf-8")
    assert f"gradio=={version}" in requirements
