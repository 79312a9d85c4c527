"""Subcommand `debias`: answers of a debiasing wrapper around a method."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions
from pine_engine.cli.options import Columns, ModelOptions, Positive, TemplateKwargs, split_names
from pine_engine.cli.output import CommandResult
from pine_engine.cli.receive import Received
from pine_engine.errors import EndpointError, InputError
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.prompts.orders import MAX_ORDERS
from pine_engine.prompts.request import read_requests
from pine_engine.rows.columns import parse_columns

if TYPE_CHECKING:  # these import torch
    from pine_engine.backend import Backend
    from pine_engine.lab.debias.combining import DebiasFailure
    from pine_engine.lab.debias.plan import DebiasPlan


@dataclass(frozen=True)
class DebiasOptions:
    """Options of a wrapper.

    Attributes:
        base: Method that the wrapper runs.
        labels: Allowed answers, separated by commas. Overrides the labels of the files. Default of the task
            judge: the letters of the answers.
        columns: Columns of the files, FIELD=COLUMN.
        majority: Take the most frequent generated answer instead of averaging probabilities of labels.
        max_new_tokens: Maximum length of a generated answer, in tokens.
        samples: Number of orders of permutation_sampled.
        seed: Seed of the sampled orders, and of the questions from which pride and calibraeval learn.
        max_orders: Maximum number of orders of permutation_full.
        chat_template_kwargs: Arguments of the chat template, as JSON.
    """

    base: str = "vanilla"
    labels: str | None = None
    columns: Columns = None
    majority: bool = False
    max_new_tokens: Positive = 64
    samples: Positive = 10
    seed: int = 0
    max_orders: Positive = MAX_ORDERS
    chat_template_kwargs: TemplateKwargs = None


def debias(
    files: list[Path],
    wrapper: Annotated[str, typer.Option()],
    options: DebiasOptions = DebiasOptions(),
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Answer questions with a wrapper around a method: permutation, PriDe, calibration or routing.

    Args:
        files: Files as for compare, optionally with "labels". The wrappers pride and calibraeval need several
            questions.
        wrapper: Name of the wrapper; `methods` lists all.
        options: Method, labels and orders of the wrapper.
        model: Model that answers.
        server: Server that computes its answers.
    """
    named = [
        (str(file) if name == str(file) else f"{file}, {name}", request)
        for file in files
        for name, request in read_requests(file, pine.LabeledRequest, columns=parse_columns(options.columns))
    ]
    names, requests = [name for name, _ in named], [request for _, request in named]
    if options.labels is not None:
        update = {"labels": split_names(options.labels)}
        requests = [request.model_copy(update=update) for request in requests]
    plan = pine.plan_debias(
        requests,
        wrapper=wrapper,
        base=options.base,
        majority=options.majority,
        max_new_tokens=options.max_new_tokens,
        samples=options.samples,
        seed=options.seed,
        max_orders=options.max_orders,
    )
    backend, kwargs = server.open_backend(model, parse_kwargs(options.chat_template_kwargs))
    plan = replace(plan, requests=tuple(request.with_kwargs(kwargs) for request in plan.requests))
    received, results = _receive(backend, plan, names)
    result = _debias_result(output.report_header(backend), plan, names, results)
    return received.finish(backend, result)


def _receive(
    backend: "Backend", plan: "DebiasPlan", names: list[str]
) -> "tuple[Received, dict[int, pine.DebiasResult | DebiasFailure]]":
    """Run a plan and show progress; Ctrl-C or a failure of all requests keeps the results before it.

    Returns the results by index of the question.
    """
    from pine_engine.lab.debias.combining import DebiasFailure  # these import torch
    from pine_engine.lab.debias.debias import debias_each

    received = Received(names, {}, [{} for _ in names], [])
    results: dict[int, pine.DebiasResult | DebiasFailure] = {}
    num_missing = list(map(len, plan.orders))
    pairs = debias_each(backend, plan)
    with output.progress(plan.num_prompts) as advance:
        try:
            with closing(pairs):
                for index, event in pairs:
                    match event:
                        case pine.RequestsPlanned() | pine.Repeated():
                            received.take(index, event)
                        case pine.PrefillDone(method=method):
                            advance(f"{method}: prefill finished")
                        case pine.GenerationFinished(answer=answer) if received.has_requests:
                            received.has_answers |= not answer.refusal
                            num_missing[index] -= 1
                            advance(f"{names[index]}: answer finished")
                        case pine.DebiasResult():
                            results[index] = event
                        case DebiasFailure(refusals=refusals):
                            results[index] = event
                            received.refused += [
                                (f"{names[index]}, order {order + 1}", reason)
                                for order, reason in refusals.items()
                            ]
        except (EndpointError, KeyboardInterrupt) as error:
            if not received.has_answers and not results:
                raise
            received.is_stopped = isinstance(error, KeyboardInterrupt)
            if not received.is_stopped:
                for index in set(range(len(names))) - results.keys():
                    results[index] = DebiasFailure(str(error))
                    received.refused += [(names[index], str(error))] * num_missing[index]
    return received, results


def _debias_result(
    report: dict[str, Any],
    plan: "DebiasPlan",
    names: list[str],
    results: "Mapping[int, pine.DebiasResult | DebiasFailure]",
) -> CommandResult:
    """Return report and table of the result of each question, or of the reason why it has none.

    Raises InputError with this reason if no question has a result.
    """
    from pine_engine.lab.debias.combining import DebiasFailure

    by_file = [(names[index], results[index]) for index in sorted(results)]
    failures = [result.reason for _, result in by_file if isinstance(result, DebiasFailure)]
    if failures and len(failures) == len(results):
        raise InputError(failures[0], field="prompt")
    report |= {"wrapper": plan.wrapper.name, "base": plan.base, "prompts": plan.num_prompts}
    report["results"], rows = [], []
    for file, result in by_file:
        if isinstance(result, DebiasFailure):
            report["results"].append({"file": file, "error": result.reason})
            rows.append({"file": file, "answer": f"no result: {result.reason}"})
            continue
        fields = asdict(result)
        if result.clusters is None:
            del fields["clusters"]
        report["results"].append({"file": file, **fields})
        base_answers = [f"{answer or 'none'} {count}x" for answer, count in result.base_answers.items()]
        scores = [f"{label} {score:.3g}" for label, score in result.scores.items()]
        row = {"file": file, "answer": result.answer or "none", "scores": ", ".join(scores)}
        row[f"{pine.METHODS[plan.base].label} alone"] = ", ".join(base_answers)
        if clusters := result.clusters:
            pairs = zip(clusters.answers, clusters.sizes, strict=True)
            row["clusters"] = ", ".join(f"{count} orders: {answer or 'none'}" for answer, count in pairs)
        rows.append({title: text for title, text in row.items() if text})  # some wrappers score no labels
    return CommandResult(report, rows, status=output.FAILED if failures else 0)
