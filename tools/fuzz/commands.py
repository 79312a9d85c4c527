"""Invalid input for the command line: files and arguments of its subcommands."""

import contextlib
import io
import random
import sys
from collections.abc import Callable
from unittest.mock import patch

from hypothesis import strategies as st

from tools.fuzz import corpus
from tools.fuzz.outcomes import FailureError, Tally
from tools.fuzz.served import Targets

COMPARE_FILES = corpus.REQUESTS.map(corpus.as_json)
EVALUATE_FILES = st.lists(corpus.ROWS, min_size=1, max_size=2).map(
    lambda rows: b"\n".join(map(corpus.as_json, rows))
)

SUBCOMMANDS: tuple[tuple[tuple[str, ...], st.SearchStrategy[bytes]], ...] = (
    (("compare", "FILE", "--methods", "vanilla,pine", "--max-new-tokens", "2"), COMPARE_FILES),
    (("verify", "FILE", "--methods", "pine", "--num-orders", "1", "--max-new-tokens", "1"), EVALUATE_FILES),
    (
        ("debias", "FILE", "--wrapper", "permutation_sampled", "--labels", "A,B", "--max-new-tokens", "2"),
        COMPARE_FILES,
    ),
    (
        ("evaluate", "FILE", "--methods", "pine", "--max-new-tokens", "2", "--output-dir", "RUN"),
        EVALUATE_FILES,
    ),
    (
        (
            *("evaluate", "FILE", "--methods", "permutation_cyclic:nia,calibration_first"),
            *("--max-new-tokens", "2", "--output-dir", "RUN"),
        ),
        EVALUATE_FILES,
    ),
    (("report", "FILE", "--output-dir", "RUN"), corpus.CONTENTS),
    (("reproduce", "FILE"), corpus.CONTENTS),
    (("download-data", "FILE"), corpus.CONTENTS),
)
"""Subcommands with valid arguments, and strategies of nearly valid files for them."""

OPTIONS = ("--methods", "--max-new-tokens", "--dtype", "--labels", "--seed", "--limit", "--orders", "--json")


def fuzz_commands(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Run subcommands: every third with any file, and every fourth with an additional option."""
    from pine_engine.cli import main as cli

    each = -(-count // len(SUBCOMMANDS))
    cases = [
        (subcommand, *contents)
        for subcommand, strategy in SUBCOMMANDS
        for contents in corpus.samples(st.tuples(strategy, corpus.CONTENTS, corpus.TEXTS), each, seed)
    ]
    random.Random(seed).shuffle(cases)
    for number, (subcommand, expected, other, value) in enumerate(cases[:count]):
        path = targets.folder / f"input{number}.jsonl"
        path.write_bytes(expected if number % 3 else other)
        names = {"FILE": path.name, "RUN": f"run{seed}-{number}"}
        arguments = [names.get(argument, argument) for argument in subcommand]
        if number % 4 == 0:
            arguments += [OPTIONS[number // 4 % len(OPTIONS)], value]
        # Arguments of a process have no NUL, and no surrogate that does not represent a byte.
        arguments = [one.replace("\0", "").encode("utf-8", "replace").decode() for one in arguments]

        def run(arguments: list[str] = arguments) -> bool:
            status, errors = _run_subcommand(cli.main, targets, arguments)
            if "Traceback" in errors or status not in (0, 1, 2):
                raise FailureError(f"status {status}: {errors[-200:]}")
            if status == 2 and not errors.strip():
                raise FailureError("rejected without a message")
            return status != 2

        tally.run(arguments, run)
        path.unlink()


def _run_subcommand(main: Callable[[], None], targets: Targets, arguments: list[str]) -> tuple[int, str]:
    """Return exit status and stderr of a subcommand, with the tiny model in place of all others."""
    from pine_engine.cli import output

    errors = io.StringIO()
    with (
        patch.object(output, "load", lambda *_, **__: targets.engine),
        patch.object(sys, "argv", ["pine_engine", *arguments]),
        contextlib.chdir(targets.folder),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
    ):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()
    return 0, errors.getvalue()
