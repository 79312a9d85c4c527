"""Lost in the Middle: questions over passages of which one holds the answer, and values of random keys."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr

from pine_engine.data.readers import SourceRecord
from pine_engine.data.schema import ExampleRow
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.tasks import get_task


class Passage(BaseModel):
    """A passage. The gold one comes from the annotation and has no rank; the others were retrieved."""

    title: StrictStr
    text: StrictStr
    isgold: StrictBool
    original_retrieval_index: StrictInt | None = None


class QuestionRecord(BaseModel):
    """A question with all its passages, in the order of the source."""

    question: StrictStr
    answers: list[StrictStr] = Field(min_length=1)
    ctxs: list[Passage]


class KeyValueRecord(BaseModel):
    """Pairs of a key and a value, and the pair that is asked for."""

    ordered_kv_records: list[tuple[StrictStr, StrictStr]]
    key: StrictStr
    value: StrictStr


def convert_questions(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per question, its passages in the order of the source.

    Raises InputError if a question has not exactly one gold passage.
    """
    for record in records:
        asked = record.parse(QuestionRecord)
        gold = [index for index, passage in enumerate(asked.ctxs) if passage.isgold]
        if len(gold) != 1:
            raise record.unexpected(f"{len(gold)} gold passages, expected 1")
        count = len(asked.ctxs)
        yield ExampleRow(
            id=f"qa{count}-{record.index:04d}",
            task="retrieval_qa",
            prefix=get_task("retrieval_qa").instruction,
            question=asked.question,
            documents=tuple(Document(passage.text, passage.title) for passage in asked.ctxs),
            gold_index=gold[0],
            answers=tuple(asked.answers),
            source=(
                f"lost-in-the-middle (NaturalQuestions-Open, {count} total documents, gold at {gold[0]})"
            ),
            license=(
                "MIT (lost-in-the-middle data) and CC-BY-SA-3.0 (Wikipedia passages, NaturalQuestions "
                "annotations)"
            ),
            meta={"retrieval_rank": [passage.original_retrieval_index for passage in asked.ctxs]},
        )


def convert_key_values(records: Iterable[SourceRecord]) -> Iterator[ExampleRow]:
    """One row per record, its pairs in the order of the source; a title is a key, a text its value.

    Raises InputError if the pair that is asked for is not among them.
    """
    for record in records:
        asked = record.parse(KeyValueRecord)
        pairs = asked.ordered_kv_records
        if (asked.key, asked.value) not in pairs:
            raise record.unexpected("the pair that is asked for is not among ordered_kv_records")
        yield ExampleRow(
            id=f"kv{len(pairs)}-{record.index:04d}",
            task="kv_retrieval",
            prefix=get_task("kv_retrieval").instruction,
            question=asked.key,
            documents=tuple(Document(value, key) for key, value in pairs),
            gold_index=pairs.index((asked.key, asked.value)),
            answers=(asked.value,),
            source=f"lost-in-the-middle (key-value retrieval, {len(pairs)} keys)",
            license="MIT",
        )
