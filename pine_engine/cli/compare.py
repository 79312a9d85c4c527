"""Subcommands `compare`, answers of several methods, and `debias`, of a debiasing wrapper around one."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions, send
from pine_engine.cli.options import (
    Limit,
    Methods,
    ModelOptions,
    Positive,
    TemplateKwargs,
    method_names,
    split_names,
)
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.methods.table import Method
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.prompts.orders import MAX_ORDERS
from pine_engine.prompts.request import read_requests

if TYPE_CHECKING:
    from pine_engine.debias.table import DebiasPlan
    from pine_engine.endpoint.client import Endpoint


def compare(
    file: Path,
    methods: Methods = None,
    max_new_tokens: Annotated[int, typer.Option(min=0)] = 64,
    limit: Limit = None,
    chat_template_kwargs: TemplateKwargs = None,
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Answer questions over documents with every method.

    Args:
        file: JSON file with "question" and "documents", a list of texts or of {"title", "text"}; file of such
            objects or examples of a dataset as in evaluate; or - for JSON or JSONL on stdin.
        methods: Names of methods.
        max_new_tokens: Maximum length of an answer, in tokens.
        limit: Maximum number of lines. Default: all.
        chat_template_kwargs: Arguments of the chat template, as JSON.
        model: Model that answers.
        server: Server that computes its answers.
    """
    selected = method_names(methods)
    kwargs = parse_kwargs(chat_template_kwargs)
    endpoint = server.open(model, kwargs)
    requests = read_requests(file, pine.Request, limit)
    if endpoint:
        return _compare_on_endpoint(endpoint, endpoint.select_methods(selected), requests, max_new_tokens)
    engine = model.load(needs_tokenizer=True)
    names = [method.name for method in engine.select_methods(selected)]
    layouts = [(name, request.with_kwargs(kwargs).tokenize(engine)) for name, request in requests]
    for _, layout in layouts:
        engine.check_length(layout, max_new_tokens)
    results: list[dict[str, Any]] = []
    with output.progress(2 * len(names) * len(layouts)) as advance:
        for name, layout in layouts:
            for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
                if isinstance(event, pine.PrefillDone):
                    advance(f"{event.method}: prefill of {layout.num_tokens} tokens finished")
                elif isinstance(event, pine.GenerationFinished):
                    advance(f"{event.answer.method}: answer finished")
                elif isinstance(event, pine.RunFinished):
                    results += [{"id": name, **answer} for answer in event.result.to_dict()["results"]]
                elif text := output.event_text(event):
                    advance(text, 0)
    return _compared(output.report_header(engine), results, has_ids=len(layouts) > 1)


def _compare_on_endpoint(
    endpoint: "Endpoint",
    methods: Sequence[Method],
    requests: "list[tuple[str, pine.Request]]",
    max_new_tokens: int,
) -> CommandResult:
    """Answer each question by a server; the request of its first method is repeated."""
    from pine_engine.endpoint.client import text_requests

    planned = [
        (name, text_request)
        for name, request in requests
        for text_request in text_requests(request.tokenize(endpoint), methods, max_new_tokens)
    ]
    sent = send(endpoint, [request for _, request in planned])
    results: list[dict[str, Any]] = []
    for name, request in planned:
        reply = sent.replies[request]
        thinking, text, is_finished = reply.found
        answer: dict[str, Any] = {"text": text, "tokens": reply.num_tokens, "seconds": reply.seconds}
        answer |= {"thinking": thinking} if thinking else {}
        answer |= {"is_finished": is_finished} if thinking or not is_finished else {}
        if reply.error:
            answer = {"text": None, "error": reply.error}
        results.append({"id": name, "method": request.method.name, **answer})
    result = _compared(output.report_header(endpoint), results, has_ids=len(requests) > 1)
    return sent.finish(result, [f"{name}, {request.method.name}" for name, request in planned])


def _compared(header: dict[str, Any], results: list[dict[str, Any]], *, has_ids: bool) -> CommandResult:
    """Return report, table and notes of answers."""
    unfinished = sum(not answer.get("is_finished", True) for answer in results)
    notes = [output.unfinished_note(unfinished, len(results))] if unfinished else []
    hidden = {"thinking", "is_finished", "error", *(() if has_ids else ("id",))}  # in the JSON only
    rows = [{title: value for title, value in answer.items() if title not in hidden} for answer in results]
    return CommandResult(header | {"results": results}, rows, notes)


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
    from pine_engine.debias.on_endpoint import debias_replies, plan_requests  # imports torch

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
