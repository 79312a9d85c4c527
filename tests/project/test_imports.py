"""Who may import whom, read from the sources: data flows one way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOW = [
    *("errors", "given", "extras", "architecture", "methods", "prompt", "scoring", "tasks", "layout", "plan"),
    *("rope", "blocks", "kv_cache", "trace", "attention", "rowwise", "forward", "wiring", "state"),
    *("recording", "continuation", "prefill", "promise", "events"),
    *(
        "reuse",
        "checkpoint",
        "probe",
        "embedded",
        "room",
        "hub",
        "models",
        "available",
        "streaming",
        "finite",
        "run",
        "engine",
    ),
    *("batch", "stock", "wrappers", "measured", "catalog", "next_token", "permutation", "calibration"),
    *("invariance", "standing", "profiling", "synthetic", "kernels", "selftest", "report", "inputs"),
    *("csv_table", "pdf", "user_data", "premises"),
    *(
        "certificate",
        "repetition",
        "debias",
        "conformance",
        "memory",
        "benchmark",
        "terminal",
        "threads",
        "options",
    ),
    *("bench_command", "repeat_command", "catalog_command", "cli", "__main__"),
]
"""The modules of pine_engine, each importing only those before it."""

SUB_FLOWS = {
    "evaluation": [
        *("examples", "arrangements", "file_lock", "records", "rewardbench", "settings", "jobs", "reading"),
        *("combining", "priors", "measure"),
        *("method_names", "verdicts", "intervals", "bootstrap", "grid", "results", "view", "slots"),
        *("sections", "published", "published_subsets", "scenarios", "outcome", "cost", "summary"),
        *("processes", "tables", "evaluate_command", "paper_models", "runs", "entries"),
        *("task_tables", "judge_tables", "slot_tables", "findings", "paper_tables"),
        *("molecule_tables", "report_parts"),
        *("report_command", "paper_command"),
    ],
    "molecules": [
        *("chemistry", "rows", "tokenizer", "lessons", "training", "descriptors", "predictor"),
        *("writing", "worth", "card", "saving", "train_command", "molecules_command"),
    ],
    "sources": [
        *("download", "records", "rows", "pairs", "retrieval", "molecule_table", "math_problems"),
        *("public_sets", "provenance", "bring", "data_command"),
    ],
}
"""The same for its sub-packages, which may also import any module above the command line."""

IMPORTERS = {
    "evaluation": {"cli"},
    "molecules": {"cli", "evaluation"},
    "sources": {"cli"},
}
"""Who in pine_engine may import a sub-package, apart from itself."""

DRAWING = "pine_engine/cli/report.py"
"""The one file of pine_engine that may ask for figures, when its command is run."""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """All modules that a file imports, wherever in it, also for types only; relative ones made absolute."""
    package = [*path.relative_to(ROOT).with_suffix("").parts[:-1]]
    return set(modules(ast.parse(path.read_text(encoding="utf-8")), package))


def modules(tree: ast.AST, package: list[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *([node.module] if node.module else [])])
            yield start
            yield from (f"{start}.{name.name}" for name in node.names)


def packages(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_imports_are_read_in_all_their_forms() -> None:
    tree = ast.parse(
        "import a.b, c as d\nfrom e.f import g\nfrom . import h\nfrom ..i import j\n"
        "def late():\n    from k import l\n"
    )
    assert set(modules(tree, ["p", "q"])) == {
        "a.b", "c", "e.f", "e.f.g", "p.q", "p.q.h", "p.i", "p.i.j", "k", "k.l"
    }  # fmt: skip


def test_the_app_composes_engine_and_figures_and_nothing_imports_it() -> None:
    assert packages(ROOT / "app.py") & {"pine_engine", "viz", "tests", "torch", "transformers", "plotly"} == {
        "pine_engine",
        "viz",
    }
    importers = [relative(path) for path in sources("pine_engine", "viz") if "app" in packages(path)]
    assert importers == []


@pytest.mark.parametrize("path", sources("pine_engine"), ids=relative)
def test_the_engine_knows_no_page_and_no_figure(path: Path) -> None:
    figures = set() if relative(path) == DRAWING else {"viz"}
    assert not packages(path) & {"gradio", "plotly", "app", *figures}
    assert not {name for name in imported(path) if name.startswith("viz.page")}


def test_the_engine_computes_with_torch_and_transformers() -> None:
    """The control: a rule about packages would hold for files that were not read."""
    used = set().union(*(packages(path) for path in sources("pine_engine")))
    assert {"torch", "transformers", "pine_engine"} <= used


FIGURES = [path for path in sources("viz") if "page" not in path.relative_to(ROOT).parts]


@pytest.mark.parametrize("path", FIGURES, ids=relative)
def test_figures_know_plain_data_only(path: Path) -> None:
    assert not packages(path) & {"torch", "transformers", "gradio", "pine_engine", "app"}
    assert not {name for name in imported(path) if name.startswith("viz.page")}


def test_only_the_page_and_the_app_import_gradio() -> None:
    files = [ROOT / "app.py", *sources("pine_engine", "viz")]
    importers = {relative(path) for path in files if "gradio" in packages(path)}
    assert importers
    assert {name for name in importers if name != "app.py" and not name.startswith("viz/page/")} == set()


def test_the_flows_name_every_module_of_the_engine() -> None:
    named = [*FLOW, *(f"{package}.{module}" for package, flow in SUB_FLOWS.items() for module in flow)]
    files = [path.relative_to(ROOT / "pine_engine").with_suffix("") for path in sources("pine_engine")]
    assert sorted(".".join(file.parts) for file in files if file.name != "__init__") == sorted(named)


def from_engine(path: Path) -> set[tuple[str, ...]]:
    """What a file imports of pine_engine: (module,) or (sub-package, module), names in them left out."""
    parts = [name.split(".")[1:] for name in imported(path) if name.startswith("pine_engine.")]
    return {tuple(part[: 2 if part[0] in SUB_FLOWS else 1]) for part in parts}


@pytest.mark.parametrize("module", FLOW)
def test_a_module_of_the_engine_imports_only_earlier_ones(module: str) -> None:
    named = {part[0] for part in from_engine(ROOT / "pine_engine" / f"{module}.py")}
    subpackages = {name for name, importers in IMPORTERS.items() if module in importers}
    assert named <= {*FLOW[: FLOW.index(module)], *subpackages}


@pytest.mark.parametrize("path", sources(*(f"pine_engine/{package}" for package in SUB_FLOWS)), ids=relative)
def test_a_module_of_a_subpackage_imports_only_earlier_ones(path: Path) -> None:
    package, flow = path.parent.name, SUB_FLOWS[path.parent.name]
    above = {*FLOW[: FLOW.index("cli")], *(name for name, who in IMPORTERS.items() if package in who)}
    own = {part for part in from_engine(path) if part[0] == package}
    assert {part[0] for part in from_engine(path) - own} <= above
    earlier = flow[: flow.index(path.stem)] if path.stem in flow else []
    assert own - {(package,)} <= {(package, module) for module in earlier}


def test_the_page_brings_no_data() -> None:
    """It measures and draws molecules; data are fetched by the command alone."""
    parts = set().union(*(from_engine(path) for path in [ROOT / "app.py", *sources("viz")]))
    assert "engine" in {part[0] for part in parts}
    assert "sources" not in {part[0] for part in parts}


def test_the_package_itself_imports_nothing_until_it_is_asked() -> None:
    tree = ast.parse((ROOT / "pine_engine" / "__init__.py").read_text(encoding="utf-8"))
    at_once = ast.Module([node for node in tree.body if not isinstance(node, ast.If)], [])
    (for_types,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(for_types.test) == "TYPE_CHECKING"
    assert {name.split(".")[0] for name in modules(at_once, ["pine_engine"])} == {"importlib", "typing"}
