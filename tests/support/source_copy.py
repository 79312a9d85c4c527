"""Run code of another copy of the sources in a forked process."""

import os
import runpy
import sys
from pathlib import Path
from subprocess import CompletedProcess

from tests.support.forks import ROOT, fork

PACKAGES = ("app", "pine_engine", "tests", "tools", "viz")


def run_in_source_copy(
    folder: Path, work: str, arguments: list[str], *, sources: Path, forgotten: tuple[str, ...] = ()
) -> CompletedProcess[str]:
    """Run a module or Python code in a folder, without settings of the project or of pytest.

    Args:
        folder: Current folder.
        work: Name of the module, or code.
        arguments: Command line.
        sources: Folder of the project's packages.
        forgotten: Other packages to import again.
    """
    stdout, stderr = folder / "stdout", folder / "stderr"
    for stream in (stdout, stderr):
        stream.unlink(missing_ok=True)
    names = (*PACKAGES, *forgotten)
    process = fork(_run, str(folder), str(sources), work, arguments, names, stdout=stdout, stderr=stderr)
    process.join()
    assert process.exitcode is not None
    return CompletedProcess(arguments, process.exitcode, stdout.read_text(), stderr.read_text())


def _run(folder: str, sources: str, work: str, arguments: list[str], forgotten: tuple[str, ...]) -> None:
    os.chdir(folder)
    for name in [name for name in os.environ if name.startswith(("PINE", "PYTEST"))]:
        del os.environ[name]
    for name in [name for name in sys.modules if name.partition(".")[0] in forgotten]:
        del sys.modules[name]
    # The environment's editable install would show the repository.
    sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
    sys.path = [sources, *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    sys.argv = [work, *arguments]
    if work.isidentifier():
        runpy.run_module(work, run_name="__main__", alter_sys=True)
    else:
        exec(compile(work, "<code>", "exec"), {"__name__": "__main__"})
