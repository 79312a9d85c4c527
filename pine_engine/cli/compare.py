"""Subcommand `compare`: answers of several methods."""

from collections.abc import Sequence
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
    TemplateKwargs,
    method_names,
)
from pine_engine.cli.output import CommandResult
from pine_engine.methods.table import Method
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.prompts.request import read_requests

if TYPE_CHECKING:
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
    from pine_engine.endpoint.requests import text_requests

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
