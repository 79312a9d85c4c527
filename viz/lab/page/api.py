"""API call /measure: evaluation of a small dataset, and its JSON result."""

import json
import tempfile
from pathlib import Path
from typing import Any

import gradio as gr
from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from pine_engine.lab.debias.measured import measured_methods
from pine_engine.lab.evaluation.estimates import estimate_tasks
from pine_engine.lab.evaluation.record import Record, count_repeats
from pine_engine.lab.evaluation.task_estimates import nested
from pine_engine.prompts.chat_templates import dump_kwargs
from pine_engine.rows.untrusted_json import ListInput
from pine_engine.scheduling.job import Job
from viz.lab.page.data_sets import DataSet, check_rows, read_uploaded
from viz.lab.page.evaluate_job import MeasureRequest, prepare_measure
from viz.lab.page.evaluate_view import MeasureView
from viz.page.api.arguments import NEW_TOKENS, TEMPLATE_KWARGS, Host, name_argument
from viz.page.api.calls import answer_job
from viz.page.api.results import Schema, result_schema
from viz.page.common.failures import explain
from viz.page.files.reading_files import FileReader, without_progress

USUAL_ORDERS = ("as-is", "reversed")  # default orders


class MeasureArguments(BaseModel):
    """Arguments of /measure."""

    rows: ListInput[dict[str, Any]] = Field(
        description='Examples of one task: {"question", "documents", "answers", "gold_index"?, "id"?, '
        '"task"?}.'
    )
    methods: ListInput[str] | None = Field(
        None,
        description="Methods, also wrapped as permutation_full:vanilla. Default: vanilla, nia, pcw, pine.",
    )
    orders: ListInput[str] | None = Field(
        None, description="Any of as-is, reversed, gold-first, gold-last, gold-all, swapped, shuffled:S, all."
    )
    max_new_tokens: int = Field(48, description=NEW_TOKENS)
    chat_template_kwargs: dict[str, Any] | None = TEMPLATE_KWARGS


def measure(host: Host, request: MeasureArguments) -> dict[str, Any]:
    """Evaluate a small dataset: scores, 95% confidence intervals and answer-change rates.

    The default task of rows is retrieval_qa; the default orders are as-is and reversed.

    Returns:
        A summary of all methods and orders, paired over the same examples, and every record.
    """
    data = _data_set(host.reader, request.rows)
    with name_argument("methods"):
        named = measured_methods(request.methods) if request.methods else host.select_methods(None)
        chosen = tuple(method.name for method in named)
    settings = MeasureRequest(
        rows=data,
        limit=len(data.examples),
        methods=chosen,
        orders=tuple(request.orders or USUAL_ORDERS),
        generate=True,
        logprobs=None,
        max_new_tokens=request.max_new_tokens,
        chat_template_kwargs=dump_kwargs(request.chat_template_kwargs),
    )
    job = Job("api measure", chosen, prepare_measure, {"request": settings, "host": host.settings})
    return answer_job(host.sources, job, measured, data.task.name)


def _data_set(reader: FileReader, rows: list[dict[str, Any]]) -> DataSet:
    """Parse the rows like those of a file. Raises gr.Error that names the line, from 1."""
    try:
        check_rows(len(rows))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.jsonl")
            file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            return without_progress(read_uploaded(reader, file, say=str))
    except Exception as error:
        raise gr.Error(explain(error), print_exception=False) from error


def measured(view: MeasureView) -> dict[str, Any] | None:
    """Return the records so far with a summary; None before the first."""
    if not view.records:
        return None
    platform, records = view.info.platform, list(view.records)
    repeats, summary = count_repeats(records), nested(estimate_tasks(records))
    repeated = {"repeated": repeats} if repeats.requests else {}
    result = {"model": platform.model, "dtype": platform.dtype, "summary": summary, "records": records}
    report: dict[str, Any] = to_jsonable_python(result | repeated)
    return report


def measured_schema() -> Schema:
    """Return the JSON schema of the result."""
    summary = {"type": "object", "description": "Estimates with intervals, as in `evaluate --json`."}
    records = {"type": "array", "items": Record.model_json_schema(mode="serialization")}
    return result_schema({"summary": summary, "records": records})
