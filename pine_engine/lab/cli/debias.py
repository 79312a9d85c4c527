"""Subcommand `debias`: answers of a debiasing wrapper around a method."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions, send
from pine_engine.cli.options import ModelOptions, Positive, TemplateKwargs, split_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.prompts.orders import MAX_ORDERS
from pine_engine.prompts.request import read_requests

if TYPE_CHECKING:
    from pine_engine.endpoint.client import Endpoint
    from pine_engine.lab.debias.plan import DebiasPlan


def debias(
    files: list[Path],
    wrapper: Annotated[str, typer.Option()],
    base: str = "vanilla",
    labels: str | None = None,
    majority: bool = False,
    max_new_tokens: Positive = 64,
    samples: Positive = 10,
    seed: int = 0,
    max_orders: Positive = MAX_ORDERS,
    chat_template_kwargs: TemplateKwargs = None,
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Answer questions with a wrapper around a method: permutation, PriDe, calibration or routing.

    Args:
        files: Files as for compare, optionally with "labels". The wrappers pride and calibraeval need several
            questions.
        wrapper: Name of the wrapper; `methods` lists all.
        base: Method that the wrapper runs.
        labels: Allowed answers, separated by commas. Overrides the labels of the files. Default of the task
            judge: the letters of the answers.
        majority: Take the most frequent generated answer instead of averaging probabilities of labels.
        max_new_tokens: Maximum length of a generated answer, in tokens.
        samples: Number of orders of permutation_sampled.
        seed: Seed of the sampled orders, and of the questions from which pride and calibraeval learn.
        max_orders: Maximum number of orders of permutation_full.
        chat_template_kwargs: Arguments of the chat template, as JSON.
        model: Model that answers.
        server: Server that computes its answers.
    """
    kwargs = parse_kwargs(chat_template_kwargs)
    endpoint = server.open(model, kwargs)
    template_kwargs = {} if endpoint else kwargs
    named = [
        (str(file) if name == str(file) else f"{file}, {name}", request.with_kwargs(template_kwargs))
        for file in files
        for name, request in read_requests(file, pine.LabeledRequest)
    ]
    names, requests = [name for name, _ in named], [request for _, request in named]
    if labels is not None:
        update = {"labels": split_names(labels)}
        requests = [request.model_copy(update=update) for request in requests]
    plan = pine.plan_debias(
        requests,
        wrapper=wrapper,
        base=base,
        majority=majority,
        max_new_tokens=max_new_tokens,
        samples=samples,
        seed=seed,
        max_orders=max_orders,
    )
    if endpoint:
        return _debias_on_endpoint(endpoint, plan, names)

    engine = model.load(needs_tokenizer=True)
    results: list[pine.DebiasResult] = []
    with output.progress(plan.num_prompts) as advance:
        for event in pine.run_debias(engine, plan):
            if isinstance(event, pine.PrefillDone):
                advance(f"{event.method}: prefill finished")
            elif isinstance(event, pine.DebiasResult):
                results.append(event)
    return _debias_result(output.report_header(engine), plan, names, results)


def _debias_on_endpoint(endpoint: "Endpoint", plan: "DebiasPlan", names: list[str]) -> CommandResult:
    """Run a plan by a server; the first request of each question is repeated."""
    from pine_engine.lab.debias.on_endpoint import debias_replies, plan_requests  # imports torch

    planned = plan_requests(endpoint, plan)
    sent = send(endpoint, [request for each in planned for request in each])
    results: list[pine.DebiasResult | InputError] = []
    for index, each in enumerate(planned):
        try:
            results.append(debias_replies(plan, index, [sent.replies[request] for request in each]))
        except InputError as error:
            results.append(error)
    result = _debias_result(output.report_header(endpoint), plan, names, results)
    places = [
        f"{name}, order {index + 1}"
        for name, each in zip(names, planned, strict=True)
        for index in range(len(each))
    ]
    return sent.finish(result, places)


def _debias_result(
    report: dict[str, Any],
    plan: "DebiasPlan",
    names: list[str],
    results: "Sequence[pine.DebiasResult | InputError]",
) -> CommandResult:
    """Return report and table of the results of each question, or of the reason why it has none.

    Raises the reason if no question has a result.
    """
    failures = [result for result in results if isinstance(result, InputError)]
    if failures and len(failures) == len(results):
        raise failures[0]
    by_file = list(zip(names, results, strict=True))
    report |= {"wrapper": plan.wrapper.name, "base": plan.base, "prompts": plan.num_prompts}
    report["results"] = [
        {"file": file, **({"error": str(result)} if isinstance(result, InputError) else asdict(result))}
        for file, result in by_file
    ]
    rows = []
    for file, result in by_file:
        if isinstance(result, InputError):
            rows.append({"file": file, "answer": f"no result: {result}"})
            continue
        base_answers = [f"{answer or 'none'} {count}x" for answer, count in result.base_answers.items()]
        scores = [f"{label} {score:.3g}" for label, score in result.scores.items()]
        row = {"file": file, "answer": result.answer or "none", "scores": ", ".join(scores)}
        row[f"{pine.METHODS[plan.base].label} alone"] = ", ".join(base_answers)
        rows.append({title: text for title, text in row.items() if text})  # some wrappers score no labels
    return CommandResult(report, rows, status=output.FAILED if failures else 0)
