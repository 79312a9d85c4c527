"""GSM8K: the problems whose wording shows premises that can be exchanged, cut into them."""

import re
from collections.abc import Iterable, Iterator

from pydantic import BaseModel, StrictStr

from pine_engine.data.readers import SourceRecord
from pine_engine.data.schema import ExampleRow
from pine_engine.prompts.math_premises import split_problem
from pine_engine.prompts.prompt import Document

_RESULT = re.compile(r"####\s*(-?[\d,]*\.?\d+)")
"""What the last line of a solution holds."""


class GSM8KRecord(BaseModel):
    """A problem and its solution, the number that is asked for in its last line."""

    question: StrictStr
    answer: StrictStr


def convert_gsm8k(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per problem with at least two premises as split_problem finds them; the others are left out.

    This is in the manner of R-GSM, but not R-GSM, which people cut by hand. Raises InputError if a solution
    gives no number.
    """
    for record in records:
        problem = record.parse(GSM8KRecord)
        results = _RESULT.findall(problem.answer)
        if not results:
            raise record.unexpected("the answer has no #### with a number behind it")
        cut = split_problem(problem.question)
        if not cut.premises:
            continue
        row = cut.row(f"gsm8k-{record.index:04d}")
        yield ExampleRow(
            id=row.id,
            task=row.task,
            prefix=row.prefix,
            question=row.question,
            documents=tuple(Document(document.text) for document in row.documents),
            answers=(results[-1].replace(",", ""),),
            source="GSM8K (test), cut into premises by its wording",
            license="MIT",
        )
