"""Subcommand `compare`: answers of several methods to one request."""

from pathlib import Path

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.options import Methods, ModelOptions, method_names
from pine_engine.cli.output import CommandResult
from pine_engine.prompts.request import read_request


def compare(
    file: Path, methods: Methods = None, max_new_tokens: int = 64, model: ModelOptions = ModelOptions()
) -> CommandResult:
    """Answer one question over documents with every method.

    Args:
        file: JSON file with "question" and "documents", a list of texts or of {"title", "text"}.
        methods: Names of methods.
        max_new_tokens: Maximum length of an answer, in tokens.
        model: Model that answers.
    """
    names = method_names(methods)
    request = read_request(file, pine.Request)
    engine = model.load(needs_tokenizer=True)
    layout = request.tokenize(engine)
    with output.progress(2 * len(names)) as advance:
        for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
            if isinstance(event, pine.PrefillDone):
                advance(f"{event.method}: prefill of {layout.num_tokens} tokens finished")
            elif isinstance(event, pine.GenerationFinished):
                advance(f"{event.answer.method}: answer finished")
            elif isinstance(event, pine.RunFinished):
                report = output.report_header(engine) | event.result.to_dict()
    return CommandResult(report, report["results"])
