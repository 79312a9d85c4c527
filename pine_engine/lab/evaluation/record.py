"""Record of an example under one method in one document order, and what many records say together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pine_engine.endpoint.repeats import Repeats
from pine_engine.lab.evaluation.document_orders import DocumentOrder
from pine_engine.lab.evaluation.rewardbench import SECTION_OF, SUBSETS, WEIGHTS
from pine_engine.prompts.examples import Example
from pine_engine.prompts.orders import Order
from pine_engine.prompts.request import TaskName
from pine_engine.prompts.scoring import named_verdicts
from pine_engine.prompts.tasks import TASKS

Key = tuple[str, str, str]
"""Example, method and order of a record. A run has one record for each."""

MAX_REASONS = 3  # different errors that are quoted
RENAMED_KEYS = {
    "arrangement": "order_name",
    "arrangements": "order_names",
    "entered": "input_order",
    "order": "permutation",
    "computed": "was_computed",
}
"""Keys of version 1 and of version 2."""

Seconds = Annotated[float, Field(ge=0)]


TYPED_NULLS: dict[str, Any] = {
    **{name: "" for name in ("parsed", "error", "section", "subset")},
    **{name: {} for name in ("choice_logprobs", "prior")},
}
"""Values in files for None: `datasets` refuses a column that is null in the first file alone."""


def rename_keys(fields: Any) -> Any:
    """Return the fields of a record or of settings, with the current keys for those of version 1."""
    if not isinstance(fields, dict):
        return fields
    renamed = {RENAMED_KEYS.get(key, key): value for key, value in fields.items()}
    return renamed | {"version": 2} if fields.get("version") == 1 else renamed


class Record(BaseModel):
    """One example under one method in one document order. None: not measured."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")
    _rename_keys = model_validator(mode="before")(rename_keys)

    example: str
    task: TaskName
    method: str
    order_name: str
    input_order: tuple[int, ...]  # as in DocumentOrder
    permutation: tuple[int, ...]
    gold_slot: int | None = None  # slot of the document with the answer
    num_documents: int
    # True if a judged answer contains a verdict, such as [[A]].
    has_quoted_verdict: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    models: tuple[str, ...] = ()  # systems whose answers are the stored documents, if known
    answers: tuple[str, ...] = ()  # accepted answers in this order
    # Of the documents of a ranking, by their letters in this order.
    relevance: Annotated[tuple[float, ...], Field(exclude_if=lambda value: not value)] = ()
    scoring: Annotated[str, Field(exclude_if=lambda value: not value)] = ""  # rule of the score, in `SCORES`
    thinking: str = ""  # generated before the text
    is_finished: bool = True  # False if the tokens end inside the thinking part, or before a verdict
    text: str | None = None
    parsed: str | None = None  # answer that the task parses from the text, None also if the text has none
    score: float | None = None  # of the text
    answer_logprob: float | None = None  # of the first accepted answer, in nats
    choice_logprobs: dict[str, float] | None = None  # of each choice of the task
    choice_score: float | None = None  # 1 if the most likely choice is accepted, else 0; the mean of several
    prior: dict[str, float] | None = None  # of PriDe or CalibraEval: learned from this example, or applied
    prompts: int = 1
    prompt_tokens: int = 0  # of all prompts
    answer_tokens: int | None = None
    prefill_s: Seconds = 0.0  # of all prefills, without reuse
    decode_s: Seconds = 0.0  # share of the decoding steps
    seconds: Seconds = 0.0  # share of all time spent; the sum over records is the time of the run
    was_computed: bool = True  # False if the outcome is that of another order, because it cannot differ
    is_greedy: Annotated[bool, Field(exclude_if=bool)] = True  # False if an endpoint samples the answers
    # True if an endpoint gave the same answer to a repeated request, None if it was not repeated.
    is_repeatable: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    error: str | None = None  # reason why there is no result
    section: str | None = None  # as in RewardBench, with subset and weight
    subset: str | None = None
    weight: float | None = None

    @property
    def key(self) -> Key:
        """Example, method and order; a run has one record for each."""
        return self.example, self.method, self.order_name

    @property
    def slots(self) -> Order:
        """Stored document of each slot."""
        return tuple(self.input_order[place] for place in self.permutation)

    def json_line(self) -> str:
        """Return the record as a line of a file."""
        nulls = {name: value for name, value in TYPED_NULLS.items() if getattr(self, name) is None}
        return self.model_copy(update=nulls).model_dump_json() + "\n"

    @field_validator(*TYPED_NULLS, mode="after")
    @classmethod
    def _restore_null(cls, value: Any) -> Any:
        return value or None


def count_repeats(records: Iterable[Record]) -> Repeats:
    """Count the examples of which a request was repeated, and those whose answer changed then."""
    # Records of one example can share the request.
    found = {record.example: record.is_repeatable for record in records if record.is_repeatable is not None}
    return Repeats.count(found.values())


def describe_errors(records: Sequence[Record]) -> str:
    """Return the number of records without a result and their reasons in a sentence, "" if all have one."""
    failed = [record for record in records if record.error]
    if not failed:
        return ""
    counts = Counter(record.error or "" for record in failed)
    reasons = []
    for reason, count in counts.most_common(MAX_REASONS):
        first = next(record for record in failed if record.error == reason)
        reasons.append(
            f"{count} such as {first.example} ({first.method}, {first.order_name}): {reason.rstrip('.')}"
        )
    others = f"; and {len(counts) - len(reasons)} other reasons" if len(counts) > len(reasons) else ""
    counted = f"{len(failed)} of {len(records)} records have an error and count in no result"
    return f"{counted}: {'; '.join(reasons)}{others}"


def blank_record(example: Example, method: str, order: DocumentOrder) -> Record:
    """Return the record of an example in an order, without results."""
    named = example.meta.get("subset")
    named = named if isinstance(named, str) else None
    subset = named and SUBSETS.get(named.lower())
    section = SECTION_OF[subset] if subset else None
    return Record(
        example=example.id,
        task=example.task,
        method=method,
        order_name=order.name,
        input_order=order.input_order,
        permutation=order.permutation,
        gold_slot=order.gold_slot(example),
        num_documents=len(example.documents),
        has_quoted_verdict=_has_quoted_verdict(example),
        models=_models(example),
        answers=order.answers(example),
        relevance=order.relevance(example),
        scoring=example.sized_task().rule,
        section=section,
        subset=subset or named,
        weight=WEIGHTS[section, subset] if section and subset else None,
    )


def _has_quoted_verdict(example: Example) -> bool:
    count, task = len(example.documents), TASKS[example.task]
    return task.is_judge and any(
        named_verdicts(one.text, count, has_tie=task.has_tie) for one in example.documents
    )


def _models(example: Example) -> tuple[str, ...]:
    """Return the systems of `meta.models`, one per document; nothing for another number of them."""
    models = example.meta.get("models")
    is_complete = isinstance(models, list) and len(models) == len(example.documents)
    return tuple(map(str, models)) if isinstance(models, list) and is_complete else ()
