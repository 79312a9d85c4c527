"""Bad input for the command line: files and arguments of its verbs."""

import contextlib
import io
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hypothesis import strategies as st

from tools.fuzz import corpus
from tools.fuzz.outcomes import FailureError, Tally
from tools.fuzz.served import Doors

COMPARING = corpus.COMPARISONS.map(corpus.as_json)
MEASURING = st.lists(corpus.ROWS, min_size=1, max_size=2).map(
    lambda rows: b"\n".join(map(corpus.as_json, rows))
)

VERBS: tuple[tuple[tuple[str, ...], st.SearchStrategy[bytes]], ...] = (
    (("compare", "FILE", "--methods", "vanilla,pine", "--max-new-tokens", "2"), COMPARING),
    (("verify", "FILE", "--methods", "pine", "--num-orders", "1", "--max-new-tokens", "1"), MEASURING),
    (
        ("debias", "FILE", "--wrapper", "permutation_sampled", "--labels", "A,B", "--max-new-tokens", "2"),
        COMPARING,
    ),
    (("evaluate", "FILE", "--methods", "pine", "--max-new-tokens", "2", "--output-dir", "RUN"), MEASURING),
    (
        (
            *("evaluate", "FILE", "--methods", "permutation_cyclic:nia,calibration_first"),
            *("--max-new-tokens", "2", "--output-dir", "RUN"),
        ),
        MEASURING,
    ),
    (("report", "FILE", "--output-dir", "RUN"), corpus.CONTENTS),
    (("reproduce", "FILE"), corpus.CONTENTS),
    (("conformance", "FILE"), corpus.CONTENTS),
    (("download-data", "FILE"), corpus.CONTENTS),
)
"""Verbs with arguments that are right, and files that are nearly right for them."""

OPTIONS = ("--methods", "--max-new-tokens", "--dtype", "--labels", "--seed", "--limit", "--orders", "--json")


def throw_commands(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Verbs with files: every third file is any, and every fourth call has one option more."""
    from pine_engine.cli import main as cli

    each = -(-count // len(VERBS))
    throws = [
        (verb, right, other, value)
        for verb, contents in VERBS
        for right, other, value in corpus.draws(
            st.tuples(contents, corpus.CONTENTS, corpus.TEXTS), each, seed
        )
    ]
    random.Random(seed).shuffle(throws)
    for number, (verb, right, other, value) in enumerate(throws[:count]):
        path = doors.folder / f"input{number}.jsonl"
        path.write_bytes(right if number % 3 else other)
        names = {"FILE": path.name, "RUN": f"run{seed}-{number}"}
        arguments = [names.get(argument, argument) for argument in verb]
        if number % 4 == 0:
            arguments += [OPTIONS[number // 4 % len(OPTIONS)], value]
        # The system passes no NUL, and no surrogate that stands for no byte.
        arguments = [one.replace("\0", "").encode("utf-8", "replace").decode() for one in arguments]

        def run(arguments: list[str] = arguments) -> bool:
            status, errors = _run_verb(cli.main, doors, arguments)
            if "Traceback" in errors or status not in (0, 1, 2):
                raise FailureError(f"status {status}: {errors[-200:]}")
            if status == 2 and not errors.strip():
                raise FailureError("refused without a sentence")
            return status != 2

        tally.judge(arguments, run)
        path.unlink()


def _run_verb(main: Callable[[], None], doors: Doors, arguments: list[str]) -> tuple[int, str]:
    with _stand_ins(doors), contextlib.chdir(doors.folder):
        out, errors = io.StringIO(), io.StringIO()
        argv, sys.argv = sys.argv, ["pine_engine", *arguments]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
                main()
        except SystemExit as end:
            return int(end.code or 0), errors.getvalue()
        finally:
            sys.argv = argv
        return 0, errors.getvalue()


@contextmanager
def _stand_ins(doors: Doors) -> Iterator[None]:
    """The tiny model in place of any other, without loading it anew for each input."""
    from pine_engine.cli import output

    load = output.load
    output.load = lambda *_, **__: doors.engine
    try:
        yield
    finally:
        output.load = load
