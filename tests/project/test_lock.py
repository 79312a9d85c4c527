"""What the image installs: every package pinned with its hashes, none missing, each file from one index."""

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
MODEL = "requirements-model.txt"


def lines(name: str) -> list[str]:
    """Those of a requirements file that say something; continued lines are one."""
    text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Its requirements, each with its hashes."""
    split = [line.split("--hash=") for line in lines(name) if not line.startswith("-")]
    return [(Requirement(named), [each.strip() for each in hashes]) for named, *hashes in split]


def pins(name: str) -> dict[str, set[str]]:
    """Versions by package; a package has several where Pythons or systems differ."""
    found: dict[str, set[str]] = {}
    for requirement, _ in entries(name):
        version = str(requirement.specifier).removeprefix("==")
        found.setdefault(canonicalize_name(requirement.name), set()).add(version)
    return found


@pytest.mark.parametrize("name", [LOCK, *TORCH.values(), MODEL])
def test_every_package_is_pinned_and_hashed(name: str) -> None:
    assert entries(name)
    for requirement, hashes in entries(name):
        assert re.fullmatch(r"==[\w.+]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement


@pytest.mark.parametrize("name", [LOCK, TORCH["cuda"], MODEL])
def test_what_comes_from_pypi_names_no_other_index(name: str) -> None:
    assert not [line for line in lines(name) if line.startswith("-")]


def test_torch_for_the_cpu_comes_alone_and_from_the_index_that_has_it() -> None:
    options = [line for line in lines(TORCH["cpu"]) if line.startswith("-")]
    assert options == ["--index-url https://download.pytorch.org/whl/cpu"]
    assert pins(TORCH["cpu"]).keys() == {"torch"}


def test_what_the_app_names_is_locked_at_that_version() -> None:
    """If not: make lock."""
    locked = pins(LOCK)
    for requirement, _ in entries("requirements.txt"):
        if requirement.name != "torch":
            assert {f"=={version}" for version in locked[canonicalize_name(requirement.name)]} == {
                str(requirement.specifier)
            }


def test_both_builds_of_torch_are_the_newest_that_the_app_takes() -> None:
    (taken,) = [each.specifier for each, _ in entries("requirements.txt") if each.name == "torch"]
    (cpu,), (cuda,) = pins(TORCH["cpu"])["torch"], pins(TORCH["cuda"])["torch"]
    assert cpu == f"{cuda}+cpu"
    assert cuda in taken and f"<={cuda}" in str(taken).split(",")


def test_the_lock_holds_what_both_builds_of_torch_need_and_nothing_of_cuda() -> None:
    locked, cuda = pins(LOCK), pins(TORCH["cuda"])
    only_cuda = {name for name in cuda if re.match(r"cuda|nvidia|triton", name)}
    assert only_cuda
    shared = {name: versions for name, versions in cuda.items() if name not in only_cuda | {"torch"}}
    assert shared.items() <= locked.items()
    assert not locked.keys() & (only_cuda | {"torch"})


def test_all_that_the_app_and_its_packages_need_is_locked() -> None:
    """Asked of the installed packages, where they are of the locked version; of others nothing is known."""
    locked = pins(LOCK) | pins(TORCH["cuda"])
    needed = [(requirement, "requirements.txt") for requirement, _ in entries("requirements.txt")]
    seen = set()
    while needed:
        requirement, by = needed.pop()
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        assert name in locked, f"{by} needs {requirement}, which is not locked; run `make lock`"
        installed = metadata.distribution(name)
        if Version(installed.version).public not in locked[name]:
            continue
        for each in map(Requirement, installed.requires or ()):
            wanted = ("", *requirement.extras)
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted):
                needed.append((each, name))
    assert len(seen) > len(entries("requirements.txt"))
