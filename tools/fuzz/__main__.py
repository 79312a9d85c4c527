"""Send invalid input to all entry points and print the outcomes; the exit status is 1 after a failure."""

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Yield the folder of all temporary files, set before the import of modules that read its path."""
    with tempfile.TemporaryDirectory(prefix="pine-fuzz-") as name:
        os.environ |= {"TMPDIR": name, "GRADIO_TEMP_DIR": f"{name}/gradio", "HF_HUB_OFFLINE": "1"}
        tempfile.tempdir = name
        (Path(name) / "files").mkdir()
        yield Path(name)


def main() -> int:
    """Run all kinds of input; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="number of inputs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs")
    parser.add_argument("--kinds", default="", help="parts of names of kinds, separated by commas")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    sys.dont_write_bytecode = True
    with _temporary_folder() as folder:
        report = _run(folder, arguments.inputs, arguments.seed, arguments.kinds)
    print(json.dumps(report) if arguments.json else _table(report))
    return 0 if report["clean"] else 1


def _run(folder: Path, inputs: int, seed: int, names: str) -> dict[str, Any]:
    from hypothesis.configuration import set_hypothesis_home_dir

    from pine_engine.models.embedded import find_embedded_gguf, prepare_embedded
    from tools.fuzz.kinds import KINDS
    from tools.fuzz.outcomes import Tally
    from tools.fuzz.served import Targets, served_page, tiny_engine
    from tools.fuzz.watch import AccessMonitor, TracebackHandler

    logging.getLogger("viz").setLevel(logging.ERROR)  # rejections are counted here
    began = time.monotonic()
    set_hypothesis_home_dir(folder)
    models = [prepare_embedded().parent] if find_embedded_gguf() else []
    monitor, log = AccessMonitor(folder, models), TracebackHandler()
    engine = tiny_engine()
    tallies = []
    with served_page(engine) as page:
        targets = Targets(engine, page, folder / "files")
        kinds = [kind for kind in KINDS if any(part in kind.name for part in names.split(","))]
        for kind in kinds:  # imports and reads at the first use are not monitored
            kind.run(targets, 8, seed + 1, Tally(kind.name))
        with monitor.active(), log.attached():
            for kind in kinds:
                tally = Tally(kind.name)
                start = time.monotonic()
                kind.run(targets, round(inputs * kind.share), seed, tally)
                tally.seconds = round(time.monotonic() - start, 1)
                tallies.append(tally)
                print(f"{tally.kind}: {tally.inputs} in {tally.seconds} s", file=sys.stderr)
    return {
        "seed": seed,
        "kinds": [vars(tally) for tally in tallies],
        "inputs": sum(tally.inputs for tally in tallies),
        "answered": sum(tally.answered for tally in tallies),
        "refused": sum(tally.refused for tally in tallies),
        "failures": sum(len(tally.failures) for tally in tallies),
        "control_tokens": sum(tally.control_tokens for tally in tallies),
        "tracebacks": log.tracebacks,
        "touched_outside": sorted(monitor.violations),
        "seconds": round(time.monotonic() - began, 1),
        "clean": not (log.tracebacks or monitor.violations or any(tally.failures for tally in tallies)),
    }


def _table(report: dict[str, Any]) -> str:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Invalid input, seed {report['seed']}")
    for name in ("kind", "inputs", "answered", "refused", "failures", "control tokens", "seconds"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for kind in report["kinds"]:
        table.add_row(
            kind["kind"],
            *(f"{kind[name]:,}" for name in ("inputs", "answered", "refused")),
            f"{len(kind['failures']):,}",
            f"{kind['control_tokens']:,}",
            f"{kind['seconds']:.1f}",
        )
    console = Console(width=120)
    with console.capture() as captured:
        console.print(table)
        console.print(
            f"{report['inputs']:,} inputs in {report['seconds']:.0f} s: {report['failures']} failures, "
            f"{len(report['tracebacks'])} tracebacks in the log, {report['control_tokens']} control tokens, "
            f"{len(report['touched_outside'])} accesses outside the folder",
            markup=False,
            highlight=False,
        )
    details = [failure for kind in report["kinds"] for failure in kind["failures"][:20]]
    details += report["touched_outside"][:20] + [text[-1500:] for text in report["tracebacks"][:5]]
    return "\n".join([captured.get(), *details])


if __name__ == "__main__":
    sys.exit(main())
