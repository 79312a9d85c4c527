"""A wrapper over whole comparisons, as planned."""

import dataclasses
import re
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from pine_engine.debias.calibration import (
    CalibratedLabels,
    calibrate_labels,
    content_free_prompts,
    generate_calibrated,
)
from pine_engine.debias.orders import Order
from pine_engine.debias.permutation import (
    AnswerRun,
    OptionResult,
    OptionRun,
    Orderable,
    PrideResult,
    VoteResult,
    most_probable,
    permute_answers,
    permute_options,
    pride,
)
from pine_engine.debias.plan import DebiasPlan
from pine_engine.debias.table import TIE
from pine_engine.engine.engine import Engine
from pine_engine.engine.events import Event, RunFinished
from pine_engine.methods.table import METHODS
from pine_engine.prompts.prompt import Document, Prompt
from pine_engine.prompts.request import LabeledRequest, Request


@dataclass(frozen=True)
class DebiasResult:
    """One comparison's answer.

    answer: a label, where documents are permuted the one that the chosen document had as it was given;
        "tie", or "" if no answer named a label; or the generated text.
    scores: of each label: its probability, its votes, or its calibrated score; none for generated text.
    base_answers: how many runs of the base method alone gave which answer; none for generated text.
    """

    answer: str
    scores: dict[str, float]
    base_answers: dict[str, int]


def run_debias(
    engine: Engine, plan: DebiasPlan
) -> Generator[Event | OptionRun | AnswerRun | DebiasResult, None, None]:
    """Runs the plan; yields events as the wrapped functions do, and a DebiasResult for each comparison "
    "in turn.

    Closing the generator stops the computing. Raises InputError for labels of several tokens and, before
    anything is run, for comparisons of which no prompt can be made or whose prompt does not fit.
    """
    for comparison in plan.comparisons:
        engine.check_length(comparison.tokenize(engine), plan.max_new_tokens)
    if plan.wrapper.has_prior:
        yield from _debias_by_prior(engine, plan)
        return
    for comparison, orders in zip(plan.comparisons, plan.orders, strict=True):
        for event in _run(engine, plan, comparison, orders):
            yield _conclude(event, comparison.labels) or event


def content_free(engine: Engine, comparison: Request) -> list[Prompt]:
    """The prompts of a comparison without the content of its documents; their titles stay.

    Raises InputError as content_free_prompts does.
    """
    titles = [given.title for given in comparison.documents]

    def build(contents: list[str]) -> Prompt:
        documents = [Document(text=text, title=title) for text, title in zip(contents, titles, strict=True)]
        return comparison.model_copy(update={"documents": documents}).prompt(engine)

    return content_free_prompts(build, len(titles))


def named_label(text: str, labels: Sequence[str]) -> int | None:
    """Index of the label that an answer names, None if it names none.

    The first label that occurs as [[label]] (specification 9.1); where none does, the label that is the
    whole answer or opens it, followed by one of . : , ) or the end of the line.
    """
    for index, label in enumerate(labels):
        if f"[[{label}]]" in text:
            return index
    for index, label in enumerate(labels):
        if re.match(rf"\W*{re.escape(label)}([.:,)\n]|\s*$)", text):
            return index
    return None


def debias_report(
    engine: Engine, plan: DebiasPlan, names: Sequence[str], results: Sequence[DebiasResult]
) -> dict[str, Any]:
    """Plain JSON: model, dtype, wrapper, base, prompts read, and each comparison's name and DebiasResult."""
    return {
        "model": engine.model_name,
        "dtype": engine.dtype,
        "wrapper": plan.wrapper.name,
        "base": plan.base,
        "prompts": plan.num_prompts,
        "results": [
            {"file": name, **dataclasses.asdict(result)} for name, result in zip(names, results, strict=True)
        ],
    }


def debias_rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The report's results for people, a row each."""
    return [
        {
            "file": result["file"],
            "answer": result["answer"] or "none",
            "scores": ", ".join(f"{label} {score:.3g}" for label, score in result["scores"].items()),
            f"{METHODS[report['base']].label} alone": ", ".join(
                f"{answer or 'none'} {count}x" for answer, count in result["base_answers"].items()
            ),
        }
        for result in report["results"]
    ]


def _run(
    engine: Engine, plan: DebiasPlan, comparison: LabeledRequest, orders: Sequence[Order]
) -> Generator[Any, None, None]:
    labels, wrapper = comparison.labels, plan.wrapper
    if plan.majority:
        return permute_answers(
            engine,
            _orderable(engine, comparison),
            lambda text: named_label(text, labels),
            orders=orders,
            base=plan.base,
            max_new_tokens=plan.max_new_tokens,
        )
    if wrapper.calibrated == "nothing":
        return permute_options(engine, _orderable(engine, comparison), labels, orders=orders, base=plan.base)
    prompt, free = comparison.prompt(engine), content_free(engine, comparison)
    if wrapper.calibrated == "labels":
        return calibrate_labels(engine, prompt, labels, content_free=free, base=plan.base)
    return generate_calibrated(
        engine,
        prompt,
        content_free=free,
        base=plan.base,
        steps=wrapper.calibrated,
        max_new_tokens=plan.max_new_tokens,
    )


def _debias_by_prior(
    engine: Engine, plan: DebiasPlan
) -> Generator[Event | OptionRun | DebiasResult, None, None]:
    labels = plan.comparisons[0].labels
    prompts = [_orderable(engine, comparison) for comparison in plan.comparisons]
    for event in pride(engine, prompts, labels, orders=plan.orders[0], base=plan.base, seed=plan.seed):
        if isinstance(event, PrideResult):
            yield from (_of_options(result, labels) for result in event.results)
        else:
            yield event


def _conclude(event: object, labels: Sequence[str]) -> DebiasResult | None:
    """What a comparison's last event says; None for the others."""
    match event:
        case OptionResult():
            return _of_options(event, labels)
        case VoteResult():
            answers = Counter("" if run.document is None else labels[run.document] for run in event.runs)
            answer = TIE if len(event.winners) > 1 else "".join(labels[index] for index in event.winners)
            return DebiasResult(
                answer, dict(zip(labels, map(float, event.votes), strict=True)), dict(answers)
            )
        case CalibratedLabels():
            base_answer = labels[most_probable(event.probabilities)]
            return DebiasResult(
                labels[event.answer], dict(zip(labels, event.scores, strict=True)), {base_answer: 1}
            )
        case RunFinished():
            (answer_done,) = event.result.answers.values()
            return DebiasResult(answer_done.text, {}, {})
    return None


def _of_options(result: OptionResult, labels: Sequence[str]) -> DebiasResult:
    answers = Counter(labels[run.order[most_probable(run.observed)]] for run in result.runs)
    scores = dict(zip(labels, result.probabilities, strict=True))
    return DebiasResult(labels[result.answer], scores, dict(answers))


def _orderable(engine: Engine, comparison: LabeledRequest) -> Orderable:
    """Builds the prompt anew for each order, so that letters in the task's templates stay at their places."""

    def build(order: Order) -> Prompt:
        documents = [comparison.documents[index] for index in order]
        return comparison.model_copy(update={"documents": documents}).prompt(engine)

    return build
