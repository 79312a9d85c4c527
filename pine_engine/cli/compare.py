"""Subcommand `compare`: answers of several methods."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.endpoint import EndpointOptions
from pine_engine.cli.options import Columns, Limit, Methods, ModelOptions, TemplateKwargs, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.cli.receive import receive
from pine_engine.methods.plan import check_scores
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.prompts.request import read_requests
from pine_engine.rows.columns import parse_columns


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison, without those of its model.

    Attributes:
        methods: Names of methods.
        max_new_tokens: Maximum length of an answer, in tokens.
        limit: Maximum number of lines. Default: all.
        columns: Columns of the file, FIELD=COLUMN.
        chat_template_kwargs: Arguments of the chat template, as JSON.
    """

    methods: Methods = None
    max_new_tokens: Annotated[int, typer.Option(min=0)] = 64
    limit: Limit = None
    columns: Columns = None
    chat_template_kwargs: TemplateKwargs = None


def compare(
    file: Path,
    options: CompareOptions = CompareOptions(),
    model: ModelOptions = ModelOptions(),
    server: EndpointOptions = EndpointOptions(),
) -> CommandResult:
    """Answer questions over documents with every method.

    Args:
        file: JSON file with "question" and "documents", a list of texts or of {"title", "text"}; file of such
            objects or examples of a dataset as in evaluate; or - for JSON or JSONL on stdin.
        options: Methods and answers.
        model: Model that answers.
        server: Server that computes its answers.
    """
    selected, max_new_tokens = method_names(options.methods), options.max_new_tokens
    requests = read_requests(file, pine.Request, options.limit, parse_columns(options.columns))
    backend, kwargs = server.open_backend(model, parse_kwargs(options.chat_template_kwargs))
    chosen = backend.select_methods(selected)
    names = [method.name for method in chosen]
    prompts = [(name, request.with_kwargs(kwargs).tokenize(backend)) for name, request in requests]
    for prompt, layout in prompts:
        backend.check_length(layout, max_new_tokens)
        check_scores(layout, chosen, prompt)
    received = receive(backend, prompts, names, max_new_tokens=max_new_tokens)
    results = [
        {"id": name, **answers[method]}
        for (name, _), answers in zip(prompts, received.answers, strict=True)
        for method in names
        if method in answers
    ]
    unfinished = sum(not answer.get("is_finished", True) for answer in results)
    notes = [output.unfinished_note(unfinished, len(results))] if unfinished else []
    hidden = {"thinking", "is_finished", "error", *(() if len(prompts) > 1 else ("id",))}  # in the JSON only
    rows = [{title: value for title, value in answer.items() if title not in hidden} for answer in results]
    report = output.report_header(backend) | {"results": results}
    return received.finish(backend, CommandResult(report, rows, notes))
