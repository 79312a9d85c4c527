"""Pinned versions: requirements of the image with hashes, and actions of workflows with commits."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
LOCK = "requirements-lock.txt"
TORCH = {"cpu": "requirements-torch-cpu.txt", "cuda": "requirements-torch-cuda.txt"}
FILES = (LOCK, *TORCH.values(), "requirements-model.txt")


def lines(name: str) -> list[str]:
    """Return the lines of a requirements file, without comments; continued lines are joined."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Return the requirements of a file with their hashes."""
    split = [line.split("--hash=") for line in lines(name) if not line.startswith("-")]
    return [(Requirement(named), [each.strip() for each in hashes]) for named, *hashes in split]


def pins(name: str) -> dict[str, set[str]]:
    """Return versions by package; a package has several if they depend on Python or the system."""
    found: dict[str, set[str]] = {}
    for requirement, _ in entries(name):
        version = str(requirement.specifier).removeprefix("==")
        found.setdefault(canonicalize_name(requirement.name), set()).add(version)
    return found


@pytest.mark.parametrize("name", FILES)
def test_every_package_is_pinned_and_hashed(name: str) -> None:
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
    assert {
        name: versions for name, versions in cuda.items() if name not in only_cuda
    }.items() <= locked.items()


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


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "workflows").glob("*.y*ml")), ids=lambda path: path.name
)
def test_workflow_actions_are_pinned_to_commits(path: Path) -> None:
    used = re.findall(r"^\s*(?:-\s*)?uses:\s*(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []
