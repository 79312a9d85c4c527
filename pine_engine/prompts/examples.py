"""Examples of a data set, with accepted answers and the document that has the answer."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, FiniteFloat, StrictInt

from pine_engine.errors import InputError
from pine_engine.prompts.answer_words import contains_words
from pine_engine.prompts.request import DataRow, as_whole, read_row
from pine_engine.prompts.scoring import SCORES, TIE, SubstringRule, Verdict
from pine_engine.prompts.tasks import TASKS, Task, document_letter
from pine_engine.rows.columns import Columns
from pine_engine.rows.files import parse_rows
from pine_engine.rows.parse_errors import Problem, ValidationErrors
from pine_engine.rows.untrusted_json import ListInput


class Example(DataRow):
    """One example; unknown fields are ignored."""

    # Number from 0 of the document with the answer, as stored; None for none or several.
    gold_index: Annotated[StrictInt | None, BeforeValidator(as_whole)] = None
    answers: ListInput[str] = Field(
        default_factory=list
    )  # all that are accepted, for the documents as they are stored
    # Of each document as stored, for the task ranking; none: 1 for the gold document, 0 for others.
    relevance: ListInput[FiniteFloat] = Field(default_factory=list)
    # Texts that a correct answer does not contain.
    rejected_answers: ListInput[str] = Field(default_factory=list)
    scoring: Literal[""] | SubstringRule = ""  # rule in place of "words" that a published data set has
    choices: ListInput[Annotated[str, Field(min_length=1)]] = Field(
        default_factory=list
    )  # compared by log-probability; none: those of the task
    source: str = ""
    license: str = ""
    meta: dict[str, Any] = Field(default_factory=dict)

    @property
    def scored_choices(self) -> tuple[str, ...]:
        """Texts compared by log-probability."""
        return tuple(self.choices) or self.sized_task().choices

    @property
    def grades(self) -> tuple[float, ...]:
        """Relevance of each document as stored; () for a task that does not rank."""
        if not TASKS[self.task].ranks:
            return ()
        places = range(len(self.documents))
        if self.relevance:
            return tuple(self.relevance)
        if self.gold_index is not None:
            return tuple(float(place == self.gold_index) for place in places)
        return tuple(float(document_letter(place) in self.answers) for place in places)

    @property
    def accepted(self) -> tuple[str, ...]:
        """Accepted answers for the documents as stored; of a ranking, letters, the most relevant first."""
        if not TASKS[self.task].ranks:
            return tuple(self.answers)
        grades = self.grades
        relevant = [place for place, grade in enumerate(grades) if grade > 0]
        return tuple(map(document_letter, sorted(relevant, key=lambda place: -grades[place])))

    def sized_task(self, verdict: Verdict = "last") -> Task:
        """Return the task for the number of documents, with the rule of the row. verdict: as of Settings."""
        task = TASKS[self.task].sized(len(self.documents), verdict)
        return replace(task, rule=self.scoring, score=SCORES[self.scoring][0]) if self.scoring else task

    def score(self, text: str, accepted: Sequence[str], task: Task | None = None) -> float | None:
        """Return the score by the rule of the task, 0 with a rejected answer, None without accepted ones.

        A rejected answer inside an accepted one, such as "York" in "New York", does not reject.
        """
        if not accepted:
            return None
        is_rejected = contains_words(text, self.rejected_answers, besides=accepted)
        return 0.0 if is_rejected else (task or self.sized_task()).score(text, accepted)

    def _problems(self) -> Iterator[Problem]:
        yield from super()._problems()
        gold, last = self.gold_index, len(self.documents) - 1
        if gold is not None and not 0 <= gold <= last:
            message = f"gold_index is {gold}, but documents are counted from 0 to {last}; give one of these, "
            yield Problem(f"{message}or null", "gold_index")
        if self.relevance and len(self.relevance) != last + 1:
            message = f"wrong number of relevance grades: got {len(self.relevance)}, expected {last + 1}"
            yield Problem(f"{message}, one per document", "relevance")
        if self.task in TASKS:
            yield from self._unreachable_answers(TASKS[self.task])

    def _unreachable_answers(self, task: Task) -> Iterator[Problem]:
        """Yield why no answer of a model can be an accepted one, or be scored by the rule of the row."""
        if self.scoring and task.rule != "words":
            message = f"scoring does not fit: got {self.scoring}, but {task.name} is scored by {task.rule}"
            yield Problem(f"{message}; remove it", "scoring")
        if not task.choice or any(self.grades):
            return
        letters = [document_letter(index) for index in range(len(self.documents))]
        for answer in self.answers:
            if answer == TIE and not task.has_tie:
                message = f"answer 'tie' cannot be given: the prompt of the task {task.name} offers no tie"
                yield Problem(f"{message}; use the task {task.name}_tie, or leave the row out", "answers")
            elif answer != TIE and answer not in letters:
                expected = f"{', '.join(letters)}{f' or {TIE}' if task.has_tie else ''}"
                yield Problem(f"unknown answer: got {answer!r:.40}, expected {expected}", "answers")


def read_examples(
    path: Path,
    limit: int | None = None,
    sample: int | None = None,
    max_documents: int | None = None,
    task: str = "",
    columns: Columns | None = None,
) -> list[Example]:
    """Return the examples of a file of rows (docs/data.md) or a saved dataset, at most `limit`.

    Args:
        path: File or folder.
        limit: Maximum number of examples. None: all.
        sample: Seed with which the examples are drawn at random; None for the first ones. A larger limit adds
            examples behind those of a smaller one.
        max_documents: Limit of the documents of a row.
        task: Task in place of that of each row.
        columns: Columns that have the names of fields.

    Raises:
        InputError: For an unknown task; or with the file and every invalid row, also for an id that was used
            before.
    """
    task = task and TASKS[task].name
    first_line: dict[str, int] = {}

    def read_once(number: int, content: Any) -> Example:
        example = read_row(Example, number, content, task)
        if max_documents is not None and (count := len(example.documents)) > max_documents:
            message = f"too many documents: got {count:,}, expected at most {max_documents:,} in a row"
            raise ValidationErrors([Problem(f"{message}; use the subcommand evaluate", "documents")])
        if (first := first_line.setdefault(example.id, number)) != number:
            raise InputError(f"id {example.id!r} was used in line {first}", field="id")
        return example

    rows = islice(parse_rows(path, read_once, columns=columns), limit if sample is None else None)
    examples = [example for _, example in rows]
    if sample is not None:
        random.Random(sample).shuffle(examples)
    return examples[:limit]
