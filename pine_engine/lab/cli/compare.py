"""Subcommand `compare` with limits of its results, in place of that of the core."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pine_engine.cli import compare as core
from pine_engine.cli.compare import CompareOptions
from pine_engine.cli.endpoint import EndpointOptions
from pine_engine.cli.options import ModelOptions, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError, UnknownNameError
from pine_engine.lab.cli.limits import LimitOptions, with_limits
from pine_engine.lab.evaluation.document_orders import AS_IS, arrange
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.grid import Grid, answers_differ
from pine_engine.lab.evaluation.intervals import Estimate, share
from pine_engine.lab.evaluation.record import Record, blank_record
from pine_engine.lab.evaluation.report.limits import ResultLimit
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.rows.columns import parse_columns
from pine_engine.rows.files import STDIN

LIMITED = ("accuracy", "changed")


def compare(
    file: Path,
    options: CompareOptions = CompareOptions(),
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
    limits: LimitOptions = LimitOptions(),
) -> CommandResult:
    """Answer questions over documents with every method.

    Args:
        file: JSON file with "question" and "documents", a list of texts or of {"title", "text"}; file of such
            objects or examples of a dataset as in evaluate; or - for JSON or JSONL on stdin.
        options: Methods and answers.
        model: Model that answers.
        server: Server that computes its answers.
        limits: Limits of accuracy, and of changed: answers that differ from those of the first method.
    """
    parsed = limits.parse()
    examples = _read_examples(file, options, parsed) if parsed else []
    result = core.compare(file, options, model, server)
    if not examples or result.status:
        return result
    answers = result.report["results"]
    methods = [answer["method"] for answer in answers[: len(answers) // len(examples)]]
    records = [_record(examples[index // len(methods)], answer) for index, answer in enumerate(answers)]
    grids = [
        replace(grid, estimates=(*grid.estimates, *_changes(grid, methods[0])))
        for grid in estimate_tasks(records)
    ]
    return with_limits(result, [*_per_method(parsed, methods)], {"": grids})


def _read_examples(file: Path, options: CompareOptions, limits: Sequence[ResultLimit]) -> list[Example]:
    """Return the rows with their accepted answers. Raises InputError for a limit that they cannot have."""
    if unknown := [limit.name for limit in limits if limit.name not in LIMITED]:
        raise UnknownNameError("limit", unknown[0], LIMITED)
    if file == STDIN:
        raise InputError("limits read the data twice: got -, expected a file", field="file")
    if named := method_names(options.methods):
        [*_per_method(limits, named)]
    examples = read_examples(file, options.limit, columns=parse_columns(options.columns))
    if any(limit.name == "accuracy" for limit in limits) and not any(one.answers for one in examples):
        raise InputError(
            f"accuracy needs accepted answers, which {file} lacks. Give another limit", field="accuracy"
        )
    return examples


def _per_method(limits: Sequence[ResultLimit], methods: Sequence[str]) -> Iterator[ResultLimit]:
    """Yield the limits; one of changed for each method after the first. Raises InputError without one."""
    for limit in limits:
        if limit.method and limit.method not in methods:
            raise UnknownNameError("method", limit.method, methods)
        later = [name for name in methods[1:] if limit.method in ("", name)]
        if limit.name == "changed" and not later:
            raise InputError(f"changed compares methods with {methods[0]}: got no other one", field="changed")
        yield from [replace(limit, method=name) for name in later] if limit.name == "changed" else [limit]


def _record(example: Example, answer: dict[str, Any]) -> Record:
    order = arrange(example, AS_IS)
    task, text = order.task(example), answer["text"]
    found = {"text": text, "parsed": task.parse(text), "score": example.score(text, example.answers, task)}
    return blank_record(example, answer["method"], order).model_copy(update=found)


def _changes(grid: Grid, first: str) -> Iterator[Estimate]:
    """Yield how often the answer of each method differs from that of the first one."""
    for method in grid.methods:
        pairs = zip(grid.columns[first], grid.columns[method], strict=True)
        flags = [answers_differ([before[AS_IS], after[AS_IS]], "generated") for before, after in pairs]
        if estimate := share(np.array(flags, dtype=np.float64)):
            yield estimate._replace(task=grid.task, method=method, metric="generated", group="changed")
