"""Small datasets for the evaluation: built-in ones and uploads."""

import hashlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pine_engine.errors import InputError
from pine_engine.lab.debias.measured import MeasuredMethod
from pine_engine.lab.debias.wrappers import DEBIASERS
from pine_engine.lab.evaluation.document_orders import ORDERS, check_orders
from pine_engine.lab.evaluation.settings import choose, max_visited
from pine_engine.methods.table import METHODS
from pine_engine.prompts.examples import Example, read_examples
from pine_engine.prompts.tasks import TASKS, Task
from viz.page.common.limits import MAX_DOCUMENTS, MAX_ORDERS, MAX_ROWS, check_limit
from viz.page.common.look import ASSETS
from viz.page.files.reading_files import FileReader
from viz.page.form.options import OFFERED
from viz.page.form.read_only import NOTE

Update = TypeVar("Update")

FOLDER = ASSETS / "measure"

OWN = "own"  # name of the uploaded dataset in the dropdown
SINGLE_ORDERS = ("as-is", "reversed", "gold-first", "gold-last", "shuffled:0")
SEVERAL_ORDERS = ("gold-all", "all", "swapped", "segments-swapped", "labels-swapped")


WRAPPED = tuple(MeasuredMethod(METHODS[base], wrapper) for base in OFFERED for wrapper in DEBIASERS.values())
"""Each wrapper around each method."""


@dataclass(frozen=True)
class DataSet:
    """Examples of one task."""

    name: str  # name of the file
    sha256: str  # SHA-256 of the file
    examples: tuple[Example, ...]

    @property
    def task(self) -> Task:
        """Return the task of all examples."""
        return TASKS[self.examples[0].task]


def built_in_choices() -> list[tuple[str, str]]:
    """Return (label, name) of the built-in datasets, in the order of the tasks."""
    files = {file.stem: file for file in FOLDER.glob("*.jsonl")}
    return [
        (f"{row.label} ({len(files[name].read_bytes().splitlines())} examples)", name)
        for name, row in TASKS.items()
        if name in files
    ]


def read_built_in(name: str) -> DataSet:
    """Return the built-in dataset of that name."""
    return read_set(FOLDER / f"{name}.jsonl")


def read_set(file: Path) -> DataSet:
    """Parse a file of rows of one task, at most MAX_ROWS examples.

    Raises InputError that names the file and the line.
    """
    return _data_set(file, read_examples(file, MAX_ROWS))


def read_uploaded(
    reader: FileReader, file: Path, *, say: Callable[[str], Update], columns: Mapping[str, str] | None = None
) -> Generator[Update, None, DataSet]:
    """Parse an uploaded file, in a subprocess; see FileReader.read and read_examples."""
    arguments = (file, MAX_ROWS, None, MAX_DOCUMENTS, "", columns)
    examples = yield from reader.read(read_examples, *arguments, what="read rows", files=[file], say=say)
    return _data_set(file, examples)


def _data_set(file: Path, examples: Sequence[Example]) -> DataSet:
    tasks = list(dict.fromkeys(example.task for example in examples))
    if len(tasks) > 1:
        raise InputError(
            f"{file.name} mixes tasks: {', '.join(tasks)} (expected one). Upload one file per task."
        )
    return DataSet(file.name, hashlib.sha256(file.read_bytes()).hexdigest(), tuple(examples))


def _is_valid(check: Callable[..., object], *arguments: Any, **options: Any) -> bool:
    try:
        check(*arguments, **options)
    except InputError:
        return False
    return True


def orders_for(rows: DataSet) -> list[str]:
    """Return the names of the orders that apply to at least one example."""
    offered = (*SINGLE_ORDERS, *SEVERAL_ORDERS)
    return [name for name in offered if _is_valid(check_orders, [name], rows.examples)]


def wrapped_for(rows: DataSet, offered: Iterable[MeasuredMethod]) -> list[str]:
    """Return the wrapped methods that apply to at least one example within the limit of orders."""
    return [
        method.name
        for method in offered
        if _is_valid(choose, rows.examples, methods=[method.name])
        and max_visited(method, rows.examples) <= MAX_ORDERS
    ]


def usual_orders(fitting: list[str]) -> list[str]:
    """Return the default orders, which show a bias best."""
    if "swapped" in fitting:
        return ["as-is", "swapped"]
    return ["gold-all"] if "gold-all" in fitting else ["as-is", "reversed"]


def orders_meaning(names: list[str]) -> str:
    """Describe the selected orders."""
    return "; ".join(f"{name}: {ORDERS[name]}" for name in names if name in ORDERS)


def wrapped_choices(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return label and name of these wrapped methods."""
    return [(one.label, one.name) for one in WRAPPED if one.name in names]


def check_rows(count: int) -> None:
    """Raise InputError for too many examples."""
    advice = "Upload fewer, or run `python -m pine_engine evaluate` locally."
    check_limit("Dataset too large", count, MAX_ROWS, advice, unit=" examples")


def check_rows_shipped(rows: tuple[Example, ...]) -> None:
    """Raise InputError for examples that are not of a built-in dataset."""
    names = {name for _, name in built_in_choices()}
    shipped = {row.id: row for name in names for row in read_built_in(name).examples}
    if any(shipped.get(row.id) != row for row in rows):
        raise InputError(f"{NOTE} Select a built-in dataset.")
