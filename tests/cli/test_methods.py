"""`methods` and `models`: the tables, and what can be loaded."""

import dataclasses
from pathlib import Path

import pytest
from rich.console import Console

from pine_engine.console import method_tables as catalog
from pine_engine.console import terminal
from pine_engine.debias.table import DEBIASERS, Wrapper
from pine_engine.methods.table import METHODS, Method
from pine_engine.models import listing
from pine_engine.models.listing import LoadableModel
from tests.support.commands import Run, assert_refused, write


def test_methods_prints_every_row_of_both_tables(pine: Run) -> None:
    printed = pine("methods", "--json").json
    assert list(printed) == ["methods", "wrappers"]
    assert [row["name"] for row in printed["methods"]] == list(METHODS)
    assert [row["name"] for row in printed["wrappers"]] == list(DEBIASERS)
    by_name = {row["name"]: row for row in printed["methods"]}
    assert by_name["sp"] == {
        "name": "sp",
        "label": "SP",
        "sees": "none",
        "positions": "all start together",
        "weight": "1/k for documents",
        "invariance": "yes",
        "cost": METHODS["sp"].cost,
        "source": METHODS["sp"].source,
        "description": METHODS["sp"].description,
    }
    assert (by_name["vanilla"]["sees"], by_name["pine"]["sees"]) == ("earlier ones", "all")
    assert (by_name["pine"]["positions"], by_name["vanilla"]["invariance"]) == (
        "important ones closest",
        "no",
    )


def test_methods_without_json_names_and_explains_every_row(
    pine: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "stdout", Console(width=80))
    shown = pine("methods").stdout
    rows: list[Method | Wrapper] = [*METHODS.values(), *DEBIASERS.values()]
    for row in rows:
        assert f"\n{row.name}\n" in f"\n{shown}"
        assert row.description in " ".join(shown.split())
    assert "permutation_full:pine is permutation_full around PINE, and permutation_full alone" in shown


def test_methods_writes_the_tables_between_the_markers_of_a_file(pine: Run, tmp_path: Path) -> None:
    file = write(tmp_path / "page.md", f"# Before\n\n{catalog.BEGIN}\nold\n{catalog.END}\n\nAfter.\n")
    assert (pine("methods", "--into", file).status, pine("methods", "--into", file).stdout) == (0, "")
    markdown = pine("methods", "--markdown").stdout
    assert file.read_text() == f"# Before\n\n{catalog.BEGIN}\n\n{markdown}\n{catalog.END}\n\nAfter.\n"
    assert f"| PINE | `pine` | {METHODS['pine'].description} | yes |" in markdown
    assert f"| PriDe | `pride` | {DEBIASERS['pride'].description} | no: " in markdown


@pytest.mark.parametrize(
    "content", ["no markers", f"{catalog.END}\n{catalog.BEGIN}\n"], ids=["none", "swapped"]
)
def test_methods_refuses_a_file_without_markers(pine: Run, tmp_path: Path, content: str) -> None:
    file = write(tmp_path / "page.md", content)
    assert_refused(
        pine("methods", "--into", file),
        f"{file} has no place for the tables; expected a line {catalog.BEGIN} and later one {catalog.END}",
    )
    assert file.read_text() == content
    assert_refused(
        pine("methods", "--into", tmp_path / "absent.md"),
        f"{tmp_path}/absent.md cannot be read: No such file or directory; give a file that exists",
    )


def test_models_says_what_loads_and_why_others_do_not(pine: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        LoadableModel("Tiny", "embedded", 98_000_000, 8192, "llama", supported=True, reason=""),
        LoadableModel(
            "some/bloom",
            "hub",
            5_000_000,
            None,
            "bloom",
            supported=False,
            reason="it uses ALiBi; use a Llama",
        ),
    ]
    monkeypatch.setattr(listing, "list_models", lambda: found)
    assert pine("models", "--json").json == {"models": [dataclasses.asdict(model) for model in found]}
    shown = " ".join(pine("models").stdout.split())
    assert "98 MB" in shown and "8192" in shown
    assert "some/bloom" in shown and "ALiBi" in shown
