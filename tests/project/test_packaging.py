"""The wheel with the blocks and the notebook that run from it, lazy imports, and pinned versions."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import pine_engine
import viz
from pine_engine import METHODS
from pine_engine.optional_packages import VERSIONS
from tests.support.commands import write
from tests.support.environments import run_apart
from tests.support.families import TinyLlama
from tests.support.pages import PAGES, blocks
from tests.support.tokenizers import letter_tokenizer

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PACKAGES = ("pine_engine", "viz")
REQUIREMENTS = {
    line.split()[0]
    for name in ("requirements.txt", "requirements-model.txt")
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
}


PLACE = """
import importlib.util, pine_engine, viz
print(pine_engine.__file__, viz.__file__)
print(importlib.util.find_spec("gradio"), importlib.util.find_spec("viz.page"))
"""


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.timeout(2400)
def test_readme_blocks_run_from_the_wheel(
    published: Callable[..., Path], embedded_folder: Path, tmp_path: Path
) -> None:
    python = published()
    (site_packages,) = python.parents[1].glob("lib/python*/site-packages")
    assert_wheel_has_engine_and_figures_without_page(site_packages)
    (path,) = site_packages.glob("pine_explorer-*.dist-info/METADATA")
    assert_description_has_absolute_links(path.read_text(encoding="utf-8"))
    printed = run_apart(python, tmp_path, python.with_name("pine-engine"), "methods", "--json")
    assert [row["name"] for row in json.loads(printed)["methods"]] == list(METHODS)

    script = write(tmp_path / "readme.py", "\n".join([*blocks(PAGES["README.md"]), PLACE]))
    *lines, files, others = run_apart(python, tmp_path, script).strip().splitlines()
    scores = next(index for index, line in enumerate(lines) if line.startswith("{'pine': [Score("))
    assert lines[scores] == lines[scores + 1]
    right = "Dario has the key to the boat shed."
    assert [line for line in lines[:scores] if right in line] == [f"vanilla: {right}", f"pine: {right}"]
    assert {*lines[scores + 2 :]} >= {f"0 {right}", f"1 {right}"}  # answers of the batch, by index
    assert all("site-packages" in file for file in files.split())
    assert others == "None None"


def assert_wheel_has_engine_and_figures_without_page(site_packages: Path) -> None:
    assert {path.relative_to(site_packages).as_posix() for path in package_files(site_packages)} == {
        path.relative_to(ROOT).as_posix() for path in package_files(ROOT) if "page" not in path.parts
    }


def package_files(folder: Path) -> list[Path]:
    paths = (path for package in PACKAGES for path in (folder / package).rglob("*"))
    return [path for path in paths if path.is_file() and "__pycache__" not in path.parts]


def assert_description_has_absolute_links(metadata: str) -> None:
    """The settings of the Space at the top of the README are not in the description."""
    fields, _, description = metadata.partition("\n\n")
    required = re.findall(r"^Requires-Dist: ([\w-]+)(?!.*extra ==)", fields, re.MULTILINE)
    assert {"torch", "transformers"} <= {*required} and not {"gradio", "pytest"} & {*required}
    repository = PROJECT["urls"]["Repository"]
    assert description.startswith("# PINE Explorer\n") and "sdk_version" not in description
    targets = re.findall(r"\]\((?!#)([^)]+)\)", description)
    relative = re.findall(r"\]\((?!https?:|#)([^)]+)\)", README)
    assert relative and len(targets) > len(relative)
    assert all(target.startswith("https://") for target in targets)
    for target in relative:
        ending = f"v{pine_engine.__version__}/{target}"
        (found,) = {target for target in targets if target.endswith(ending)}
        assert found.split("/")[3:5] == repository.split("/")[3:5]
        assert (ROOT / target.partition("#")[0]).exists()
    assert f"\nVersion: {pine_engine.__version__}\n" in fields
    assert all(f"Project-URL: {name}, {url}\n" in f"{fields}\n" for name, url in PROJECT["urls"].items())


@pytest.mark.slow
@pytest.mark.embedded
@pytest.mark.timeout(2400)
def test_notebook_and_library_blocks_run_from_the_wheel(
    published: Callable[..., Path], embedded_folder: Path, tiny_llama: TinyLlama, tmp_path: Path
) -> None:
    python = published("ipykernel", "nbconvert", f"pandas=={metadata.version('pandas')}")
    model = tmp_path / "model"
    tiny_llama(max_context_length=4096).save_pretrained(model)
    letter_tokenizer().save_pretrained(model)
    library = "\n".join(blocks(PAGES["library.md"])).replace("Engine.load()", f"Engine.load({str(model)!r})")
    script = write(tmp_path / "library.py", library)
    assert "{'vanilla': None, 'pine': True}\n" in run_apart(python, tmp_path, script)
    notebook = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))
    notebook["cells"] = [cell for cell in notebook["cells"] if "%pip" not in "".join(cell["source"])]
    write(tmp_path / "notebook.ipynb", notebook)
    command = "-m nbconvert --to html --execute notebook.ipynb"
    run_apart(python, tmp_path, *command.split(), PYDEVD_DISABLE_FILE_VALIDATION="1")
    page = (tmp_path / "notebook.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot(") >= len(viz.__all__)
    assert ">held</td>" in page


def test_advised_versions_are_tested_versions() -> None:
    extras = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    ranges = {each.name: each.specifier for each in map(Requirement, [*extras, *REQUIREMENTS])}
    assert all(version in ranges[name] for name, version in VERSIONS.items())


def test_library_has_ranges_that_contain_the_pins_of_the_app() -> None:
    pinned = {each.name: each.specifier for each in map(Requirement, REQUIREMENTS) if each.name != "torch"}
    for each in map(Requirement, PROJECT["dependencies"]):
        assert {"==", "==="}.isdisjoint(one.operator for one in each.specifier), each
        if each.name != "torch":
            (pin,) = pinned[each.name]
            assert pin.version in each.specifier


def test_address_and_version_are_the_same_everywhere() -> None:
    owner, repository = PROJECT["urls"]["Repository"].split("/")[3:]
    hosts = r"(?:github\.com|raw\.githubusercontent\.com|colab\.research\.google\.com/github)"
    for name in ("README.md", "pyproject.toml", "docs/notebook.ipynb", "mkdocs.yml"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert set(re.findall(rf"{hosts}/([\w.-]+)/([\w.-]+)", text)) == {(owner, repository)}, name
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {pine_engine.__version__}\n" in citation


@pytest.mark.slow
def test_documented_calls_pass_strict_type_checkers(tmp_path: Path) -> None:
    pages = ("README.md", "library.md", "faq.md")
    files = [tmp_path / f"{name.partition('.')[0].lower()}_blocks.py" for name in pages]
    for name, file in zip(pages, files, strict=True):
        file.write_text("\n".join(blocks(PAGES[name])), encoding="utf-8")
    pyright = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT)], "reportMissingTypeStubs": False}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(pyright))
    # transformers takes most of the time of mypy; pyright follows its imports.
    write(tmp_path / "mypy.ini", "[mypy]\n[mypy-transformers.*]\nfollow_imports = skip\n")
    mypy = "-m mypy --strict --follow-imports silent --ignore-missing-imports"
    for command in (mypy, f"-m pyright --pythonpath {sys.executable}"):
        done = subprocess.run(
            [sys.executable, *command.split(), *map(str, files)], cwd=tmp_path, text=True, check=False,
            env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, timeout=280,
        )  # fmt: skip
        if "pyright" in command and " errors, " not in done.stdout:
            pytest.skip(f"pyright, which downloads itself from npm, did not run: {done.stderr}")
        assert done.returncode == 0, done.stdout + done.stderr


def test_messages_advise_only_installable_packages() -> None:
    """Messages name no files of the repository, and no extras, which pip knows of published packages only."""
    for path in (path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                assert not re.search(r"`make |requirements[\w-]*\.txt|pine-explorer\[", node.value), path
                for packages in re.findall(r"pip install ([^`{]+)`", node.value):
                    pins = dict(package.split("==") for package in packages.split())
                    assert pins.items() <= VERSIONS.items(), path


def test_engine_names_no_module_of_the_page_in_strings() -> None:
    """An import by a string, such as import_module("viz"), is invisible to import-linter."""
    named = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
        for path in (ROOT / "pine_engine").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"(viz|gradio|plotly)(\.\w+)*", node.value)
    ]
    assert named == []


def test_public_names_are_those_of_their_modules() -> None:
    tree = ast.parse(Path(pine_engine.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    typed = {
        alias.name: f"pine_engine.{node.module}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(typed) == sorted(pine_engine.__all__)
    for name, module in typed.items():
        offered = getattr(pine_engine, name)
        assert offered is getattr(sys.modules[module], name)
        assert name in dir(pine_engine)
    with pytest.raises(AttributeError):
        pine_engine.__getattr__("Motor")


WITHOUT_TORCH = (
    *("viz.page.gradio_patches", "pine_engine.methods.plan", "pine_engine.attention.trace"),
    *("pine_engine.engine.events", "viz.page.tutorial.steps", "viz.page.internals.tabs"),
)
"""Records of figures, and page modules that draw them."""

LISTS_SUBCOMMANDS = """
from pine_engine.cli.main import SUBCOMMANDS, Subcommands
assert all(Subcommands(name="all").get_command(None, name).help for name in SUBCOMMANDS)"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import pine_engine\npine_engine.__version__", {"torch", "transformers", "numpy", "pydantic"}),
        (LISTS_SUBCOMMANDS, {"torch", "transformers", "numpy", "pydantic", "jinja2", "psutil"}),
        (f"import {', '.join(WITHOUT_TORCH)}", {"torch", "transformers"}),
        ("import viz", {"numpy", "plotly"}),
        ("import viz\nfor name in viz.__all__: getattr(viz, name)", {"torch", "transformers", "gradio"}),
    ],
)
def test_import_is_lazy(code: str, heavy: set[str]) -> None:
    code += f"\nimport sys\nprint({heavy} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


LOCK = "requirements-lock.txt"
TORCH = {"cpu": "requirements-torch-cpu.txt", "cuda": "requirements-torch-cuda.txt"}
FILES = (LOCK, *TORCH.values(), "requirements-model.txt")


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    split = [line.split("--hash=") for line in lines(name) if not line.startswith("-")]
    return [(Requirement(named), [each.strip() for each in hashes]) for named, *hashes in split]


def pins(name: str) -> dict[str, set[str]]:
    """Return versions by package; a package has several if they depend on Python or the system."""
    found: dict[str, set[str]] = {}
    for requirement, _ in entries(name):
        version = str(requirement.specifier).removeprefix("==")
        found.setdefault(canonicalize_name(requirement.name), set()).add(version)
    return found


def test_every_package_is_pinned_and_hashed() -> None:
    for name in FILES:
        assert entries(name)
        for requirement, hashes in entries(name):
            assert re.fullmatch(r"==[\w.+]+", str(requirement.specifier)), requirement
            assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


def test_torch_builds_are_newest_and_share_the_lock() -> None:
    options = [(name, line) for name in FILES for line in lines(name) if line.startswith("-")]
    assert options == [(TORCH["cpu"], "--index-url https://download.pytorch.org/whl/cpu")]
    (taken,) = [each.specifier for each, _ in entries("requirements.txt") if each.name == "torch"]
    locked, cuda, cpu = pins(LOCK), pins(TORCH["cuda"]), pins(TORCH["cpu"])
    (version,) = cuda.pop("torch")
    assert version in taken and f"<={version}" in str(taken).split(",")
    assert cpu == {"torch": {f"{version}+cpu"}}
    only_cuda = {name for name in cuda if re.match(r"cuda|nvidia|triton", name)}
    assert only_cuda and not locked.keys() & (only_cuda | {"torch"})
    assert all(locked[name] == versions for name, versions in cuda.items() if name not in only_cuda)


def test_requirements_of_app_and_their_dependencies_are_locked() -> None:
    """Dependencies are those of installed packages of the locked version. If not: make lock."""
    locked = pins(LOCK) | pins(TORCH["cuda"])
    needed = [requirement for requirement, _ in entries("requirements.txt")]
    for requirement in needed:
        if requirement.name != "torch":
            versions = locked[canonicalize_name(requirement.name)]
            assert {f"=={version}" for version in versions} == {str(requirement.specifier)}
    seen = set()
    while needed:
        requirement = needed.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        assert name in locked, f"{requirement} is not locked"
        installed = metadata.distribution(name)
        if Version(installed.version).public not in locked[name]:
            continue
        for each in map(Requirement, installed.requires or ()):
            wanted = ("", *requirement.extras)
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted):
                needed.append(each)
    assert len(seen) > len(entries("requirements.txt"))


def test_workflow_actions_are_pinned_to_commits() -> None:
    workflows = [*(ROOT / ".github" / "workflows").glob("*.y*ml")]
    assert workflows
    for path in workflows:
        used = re.findall(r"^\s*(?:-\s*)?uses:\s*(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        pinned = r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+"
        assert used and [action for action in used if not re.fullmatch(pinned, action)] == [], path.name
