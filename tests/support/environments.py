"""Virtual environments with the wheel of the package and one client, from a package registry."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "pine_engine", "viz")


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


def create_environment(folder: Path, *packages: str, base: Path | None = None) -> Path:
    """Return the Python of a new environment with packages, and with those of a base environment."""
    venv.create(folder, with_pip=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    if base is not None:
        (shared,) = base.parents[1].glob("lib/python*/site-packages")
        (site_packages / "base.pth").write_text(f"{shared}\n", encoding="utf-8")
    python = folder / "bin" / "python"
    pip(python, "install", *packages)
    return python


def pip(python: Path, *arguments: object) -> None:
    """Run pip, and show its output if it fails.

    In the folder of the sources, pip would take these for the installed package.
    """
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=python.parent, env=clean_variables(), capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr


def clean_variables(**changes: str) -> dict[str, str]:
    """Return the variables of this process without those of Python and of this project."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PINE"))}
    return kept | changes
