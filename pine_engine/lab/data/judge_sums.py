"""Benchmark `judge_sums`: several answers to the sum of two numbers, of which one is right.

All answers of an example have the same words and differ in the sum alone, so that style does not tell them
apart. The right answer is in a random slot.
"""

import random
from collections.abc import Iterator

from pine_engine.lab.data.readers import Row, check_num_documents
from pine_engine.prompts.tasks import TASKS, document_letter

_MISTAKES = (-20, -10, -2, -1, 1, 2, 10, 20)
_STATEMENTS = ("{first} + {second} = {total}.", "The sum is {total}.", "It is {total}.")


def generate_judge_sums(num_documents: int = 2, seed: int = 0) -> Iterator[Row]:
    """Yield judge examples without end; the first N are equal for every N.

    seed: of the numbers, statements, mistakes and of the slot of the right answer. Raises InputError for a
    number of answers that is out of range.
    """
    task = TASKS["judge"]
    check_num_documents(num_documents, task.min_documents, task.max_documents or 0)
    source = random.Random(f"judge_sums {num_documents} {seed}")
    number = 0
    while True:
        number += 1
        first, second = source.randint(21, 79), source.randint(21, 79)
        statement, gold = source.choice(_STATEMENTS), source.randrange(num_documents)
        totals = [first + second + mistake for mistake in source.sample(_MISTAKES, num_documents - 1)]
        totals.insert(gold, first + second)
        texts = [statement.format(first=first, second=second, total=total) for total in totals]
        yield {
            "id": f"judge-{num_documents}-{seed}-{number}",
            "task": "judge",
            "question": f"What is {first} + {second}?",
            "documents": [{"text": text} for text in texts],
            "gold_index": gold,
            "answers": [document_letter(gold)],
            "source": f"judge_sums, seed {seed}",
            "license": "Apache-2.0",
        }
