"""Virtual environments with the wheel of the package and one client, from a package registry."""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from filelock import FileLock

from tests.support.pages import PAGES, commands

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "pine_engine", "viz")
PACKAGE = "pine-explorer"


def published_environment(folder: Path, *packages: str) -> Path:
    """Return the Python of an environment with packages on top of the installation of README.md.

    The processes of a test run share the environments in a folder: the first makes them. `pine-explorer` is
    the wheel of the sources.
    """
    name = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12] if packages else "published"
    python = folder / name / "bin" / "python"
    with FileLock(folder / f"{name}.lock"):
        if (folder / name / "complete").exists():
            return python
        base = published_environment(folder) if packages else None
        wheel = next(folder.glob("*.whl"), None) or build_wheel(folder)
        create_environment(folder / name, base)
        installations = [shlex.split(line)[2:] for line in commands(PAGES["README.md"]) if line[:4] == "pip "]
        for words in [list(packages)] if packages else installations:
            # Python compiles the few modules that are imported.
            pip(python, "install", "--no-compile", *(word.replace(PACKAGE, str(wheel)) for word in words))
        (folder / name / "complete").touch()
    return python


def build_wheel(folder: Path) -> Path:
    """Return a wheel, built from a copy of the sources."""
    source = folder / "source"
    for name in SOURCES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, source)
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder]
    pip(Path(sys.executable), "wheel", *options, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


def create_environment(folder: Path, base: Path | None) -> None:
    """Create an environment without pip, which has the packages of a base environment."""
    venv.create(folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    if base is not None:
        (shared,) = base.parents[1].glob("lib/python*/site-packages")
        (site_packages / "base.pth").write_text(f"{shared}\n", encoding="utf-8")


def pip(python: Path, *arguments: object) -> None:
    """Run the pip of the tests for another Python, and show its output if it fails.

    In the folder of the sources, pip would take these for the installed package.
    """
    options = ["--python", python, "--disable-pip-version-check", "--quiet"]
    run_apart(Path(sys.executable), python.parent, "-m", "pip", *options, *arguments)


def run_apart(python: Path, folder: Path, *arguments: object, **variables: str) -> str:
    """Return what a Python prints that runs arguments in a folder, without the variables of the tests."""
    done = subprocess.run(
        list(map(str, [python, *arguments])), cwd=folder, env=clean_variables(**variables), text=True,
        capture_output=True, timeout=1500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def clean_variables(**changes: str) -> dict[str, str]:
    """Return the variables of this process without those of Python and of this project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PINE"))}
    return kept | changes
