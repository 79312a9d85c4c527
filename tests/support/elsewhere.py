"""Another copy of the sources, run in a process forked from one that has imported all they build on."""

import os
import runpy
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests.support.forks import ROOT, fork

OURS = ("app", "pine_engine", "tests", "tools", "viz")


def run_elsewhere(
    folder: Path, work: str, words: list[str], *, sources: Path, forgotten: tuple[str, ...] = ()
) -> CompletedProcess[str]:
    """What a module of that name, or else Python code, leaves behind that is run in a folder.

    sources: folder in which our packages are found, and nowhere else. forgotten: packages that are to be
    imported anew, or not at all. No setting of ours or of an outer pytest is known there.
    """
    printed, complaints = folder / "printed", folder / "complaints"
    for stream in (printed, complaints):
        stream.unlink(missing_ok=True)
    told = (str(folder), str(sources), work, words, (*OURS, *forgotten))
    process = fork(_run, *told, stdout=printed, stderr=complaints)
    process.join()
    assert process.exitcode is not None
    return CompletedProcess(words, process.exitcode, printed.read_text(), complaints.read_text())


def _run(folder: str, sources: str, work: str, words: list[str], forgotten: tuple[str, ...]) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("PINE", "PYTEST"))]:
        del os.environ[name]
    for name in [name for name in sys.modules if name.partition(".")[0] in forgotten]:
        del sys.modules[name]
    # The environment's editable install would show the repository.
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
    sys.path = [sources, *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    sys.argv = [work, *words]
    if work.isidentifier():
        runpy.run_module(work, run_name="__main__", alter_sys=True)
    else:
        exec(compile(work, "<given>", "exec"), {"__name__": "__main__"})
