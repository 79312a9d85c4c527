"""The verb `compare`: one question over documents, answered with every method."""

from pathlib import Path
from typing import Annotated, Any

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson, Device, Dtype, Methods, ModelName, method_names


def compare(
    file: Annotated[
        Path, typer.Argument(help='JSON: {"question", "documents": [text or {"title", "text"}], ...}.')
    ],
    methods: Methods = None,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = 64,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Answer one question over documents with every method."""
    from pine_engine.prompts.inputs import Request, read_request

    names = method_names(methods)
    comparison = read_request(file, Request)

    engine = terminal.load(model, dtype, device, reads_text=True)

    from pine_engine.engine.events import GenerationFinished, PrefillDone, RunFinished, answers_report

    layout = comparison.tokenize(engine)
    with terminal.progress(2 * len(names)) as advance:
        for event in engine.generate(layout, methods=names, max_new_tokens=max_new_tokens):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read {layout.num_tokens} tokens")
            elif isinstance(event, GenerationFinished):
                advance(f"{event.answer.method} has answered")
            elif isinstance(event, RunFinished):
                report = {"model": engine.model_name, "dtype": engine.dtype, **answers_report(event.result)}
    terminal.print_report(report, as_json, _rows(report))


def _rows(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "method": result["method"],
            "answer": result["text"],
            "tokens": result["tokens"],
            "prefill, s": result["prefill_s"],
            "decoding, s per token": result["decode_s_per_token"],
        }
        for result in report["results"]
    ]
