"""The subcommand `reproduce-paper`: run or resume the paper's comparisons, and write their report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli.evaluate import evaluate
from pine_engine.cli.report import make_report
from pine_engine.console import terminal
from pine_engine.console.exit_status import FAILED
from pine_engine.console.options import Device, Dtype, ModelName
from pine_engine.errors import InputError
from pine_engine.evaluation.shards import parse_shard
from pine_engine.input_validation import Registry
from pine_engine.methods.table import METHODS

REPORT = "report"
"""The folder of the report, in that of the runs."""


@dataclass(frozen=True)
class PaperExperiment:
    """What the paper measures of a public set.

    name: the set's, as `download-data` calls it. methods, orders: as `evaluate` takes them.
    """

    name: str
    methods: str
    orders: str


_METHODS = ",".join(row.name for row in METHODS.values() if row.role == "method")
_AROUND_VANILLA = "permutation_full,pride,calibration_labels"
_TEN = "gold-at:0,gold-at:4,gold-at:9,shuffled:1"
_TWENTY = "gold-at:0,gold-at:4,gold-at:9,gold-at:14,gold-at:19,shuffled:1"
_LETTERS = "judge,as-is,segments-swapped,labels-swapped"

STUDIES = Registry(
    "set",
    (
        *(
            PaperExperiment(name, f"{_METHODS},{_AROUND_VANILLA}", _LETTERS)
            for name in ("rewardbench", "llmbar", "mt-bench", "humanevalpack")
        ),
        PaperExperiment("gsm8k", _METHODS, "as-is,reversed,shuffled:1"),
        PaperExperiment("lost-in-the-middle-10", _METHODS, _TEN),
        PaperExperiment("lost-in-the-middle-20", _METHODS, _TWENTY),
        PaperExperiment("key-value-75", _METHODS, "gold-at:0,gold-at:24,gold-at:49,gold-at:74,shuffled:1"),
    ),
)


def reproduce_paper(
    output_dir: Annotated[Path, typer.Option(help="Folder for a run of each set, and for their report.")],
    sets: Annotated[
        list[str] | None,
        typer.Argument(help=f"Of: {', '.join(STUDIES)}; all if none is given.", metavar="SET..."),
    ] = None,
    data: Annotated[
        Path, typer.Option(help="The folder to which `download-data` has brought the sets.")
    ] = Path("data"),
    limit: Annotated[int | None, typer.Option(help="Rows of each set; all if not given.", min=1)] = None,
    sample_seed: Annotated[
        int | None, typer.Option(help="Seed to draw the rows with; the first ones if not given.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Longest answer, in tokens; the task's own if not given.", min=1)
    ] = None,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
) -> None:
    """Measure what the paper measures, in its orders, beside its permutation and calibration; then report.

    A set of which records are missing at the end is left out of the report, and the exit status is 1.
    """
    studies = [STUDIES[name] for name in dict.fromkeys(sets or STUDIES)]
    if missing := [study.name for study in studies if not (data / f"{study.name}.jsonl").is_file()]:
        commands = " && ".join(
            f"python -m pine_engine download-data {name} --output-dir {data}" for name in missing
        )
        raise InputError(
            f"{data} has no {', no '.join(f'{name}.jsonl' for name in missing)}; bring them first: {commands}"
        )
    unfinished = []
    for study in studies:
        terminal.say(f"{study.name}, to {output_dir / study.name}")
        try:
            evaluate(
                data / f"{study.name}.jsonl",
                output_dir / study.name,
                methods=study.methods,
                orders=study.orders,
                limit=limit,
                sample_seed=sample_seed,
                max_new_tokens=max_new_tokens,
                model=model,
                dtype=dtype,
                device=device,
            )
        except typer.Exit as ended:
            if ended.exit_code != FAILED:
                raise
            unfinished.append(study.name)
    finished = [output_dir / study.name for study in studies if study.name not in unfinished]

    if finished and parse_shard().index == 0:
        make_report(output_dir / REPORT, finished)
    if unfinished:
        terminal.say(f"not in the report: {', '.join(unfinished)}; see above why")
        raise typer.Exit(FAILED)
