"""Subcommand `compare`: answers of several methods to one request."""

from pathlib import Path
from typing import Any

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.options import Limit, Methods, ModelOptions, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.prompts.request import read_requests


def compare(
    file: Path,
    methods: Methods = None,
    max_new_tokens: int = 64,
    limit: Limit = None,
    model: ModelOptions = ModelOptions(),
) -> CommandResult:
    """Answer questions over documents with every method.

    Args:
        file: JSON file with "question" and "documents", a list of texts or of {"title", "text"}; JSONL file
            with one such object or example of a dataset per line; or - for either on stdin.
        methods: Names of methods.
        max_new_tokens: Maximum length of an answer, in tokens.
        limit: Maximum number of lines. Default: all.
        model: Model that answers.
    """
    names = method_names(methods)
    requests = read_requests(file, limit)
    engine = model.load(needs_tokenizer=True)
    layouts = [(name, request.tokenize(engine)) for name, request in requests]
    for _, layout in layouts:
        engine.check_length(layout, max_new_tokens)
    results: list[dict[str, Any]] = []
    answers: list[dict[str, Any]] = []
    with output.progress(2 * len(names) * len(layouts)) as advance:
        for name, layout in layouts:
            for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
                if isinstance(event, pine.PrefillDone):
                    advance(f"{event.method}: prefill of {layout.num_tokens} tokens finished")
                elif isinstance(event, pine.GenerationFinished):
                    advance(f"{event.answer.method}: answer finished")
                elif isinstance(event, pine.RunFinished):
                    answers = event.result.to_dict()["results"]
                    results += [{"id": name, **answer} for answer in answers]
                elif text := output.event_text(event):
                    advance(text, 0)
    rows = results if len(layouts) > 1 else answers
    return CommandResult(output.report_header(engine) | {"results": results}, rows)
