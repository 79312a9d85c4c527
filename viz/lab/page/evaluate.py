"""Tab "Evaluate": a small dataset under several methods and orders, with tables and a curve.

button -> bind_job (queue, model) -> measure_rows(engine, request) yields MeasureView -> show() -> widgets
"""

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from pine_engine.errors import Cancelled, InputError, PineError
from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.scheduling.job import Job
from viz.cards.tutorial import term
from viz.drawing.markup import empty_panel, render
from viz.lab.bias_curve import plot_bias_curve
from viz.lab.page import data_sets
from viz.lab.page.columns import build_columns, chosen_columns, read_preview
from viz.lab.page.evaluate_job import MeasureRequest, prepare_measure, work_sentence
from viz.lab.page.evaluate_view import MeasureView, curves_of, results_html, write_files
from viz.page.common.disk import Disk, remove_folder
from viz.page.common.failures import explain, notice
from viz.page.common.host_settings import HostSettings
from viz.page.common.limits import MAX_ANSWER_TOKENS, MAX_DOCUMENTS, MAX_ROWS
from viz.page.common.widgets import NEWEST_EVENT, PRIVATE_EVENT, STATE_EVENT, bind, build_figure, figure_value
from viz.page.files.reading_files import ROW_ENDINGS, FileReader, encoding_sentence
from viz.page.form.options import build_method_boxes, build_template_kwargs
from viz.page.jobs.job_bar import ButtonJob, JobBar, Updates, bind_job
from viz.page.jobs.sources import Choice, Sources

DEFAULT_LENGTH = 48
SHOWN_SHARE = 0.05  # share of a run's time in which its tables are computed and drawn

WHAT_WILL_BE = (
    "Click “Evaluate” to score all methods and orders with confidence intervals, answer-change rates and a "
    "curve by slot."
)

WHAT = [("Generated answers", "generate"), ("Log-probabilities", "logprob")]


def chosen_rows(name: str, own: data_sets.DataSet | None) -> data_sets.DataSet:
    """Return the dataset of that name, or the uploaded one. Raises InputError if there is none."""
    if name != data_sets.OWN:
        return data_sets.read_built_in(name)
    if own is None:
        raise InputError("No dataset uploaded. Click “Upload dataset” or select another one.")
    return own


def read_request(
    name: str,
    own: data_sets.DataSet | None,
    limit: float,
    methods: Sequence[str],
    wrapped: Sequence[str],
    orders: Sequence[str],
    what: Sequence[str],
    length: float,
    chat_template_kwargs: str | None = None,
) -> MeasureRequest:
    """Return the request of the values of the widgets."""
    if not all(isinstance(name, str) for name in (*(orders or ()), *(wrapped or ()))):
        raise InputError("Invalid order or method: expected a string. Select values from the lists.")
    return MeasureRequest(
        rows=chosen_rows(name, own),
        limit=int(limit),
        methods=(*(name for name in METHODS if name in methods), *dict.fromkeys(wrapped or ())),
        orders=tuple(orders or ()),
        generate="generate" in what,
        logprobs="logprob" in what,
        max_new_tokens=int(length),
        chat_template_kwargs=chat_template_kwargs or "",
    )


@dataclass
class RedrawBudget:
    """Time until which an evaluation draws nothing, so that drawing takes SHOWN_SHARE of its time."""

    due: float = 0.0

    def draw(self, show: Callable[[MeasureView], Updates], view: MeasureView) -> Updates:
        """Return the updates of `show`, or none before the time, or without records."""
        if not view.records or (began := time.monotonic()) < self.due:
            return {}
        updates = show(view)
        self.due = began + (time.monotonic() - began) / SHOWN_SHARE
        return updates


class RequestWidgets:
    """Widgets of a request, for the first built-in dataset and all metrics.

    `inputs` are those of `read_request`, in order.
    """

    def __init__(self, settings: HostSettings) -> None:
        own = [] if settings.read_only else [("My own dataset", data_sets.OWN)]
        sets = data_sets.built_in_choices()
        first = data_sets.read_built_in(sets[0][1])
        num_first, first_orders = len(first.examples), data_sets.orders_for(first)
        with gr.Row(elem_classes="page-row page-measure-rows"):
            self.rows = gr.Dropdown(
                [*sets, *own],
                value=sets[0][1],
                label="Dataset",
                elem_id="measure-rows",
                scale=3,
                min_width=220,
            )
            self.limit = gr.Slider(
                1,
                max(2, num_first),
                value=min(num_first, 6),
                step=1,
                label="Number of examples",
                elem_id="measure-limit",
                scale=2,
                min_width=200,
            )
            self.upload = gr.UploadButton(
                "Upload dataset",
                file_types=list(ROW_ENDINGS),
                visible=not settings.read_only,
                size="sm",
                scale=0,
                min_width=130,
                elem_id="measure-upload",
            )
        self.message = gr.HTML("", elem_id="measure-message")
        self.columns = build_columns()
        gr.HTML(render("measure_schema.html", rows=MAX_ROWS, documents=MAX_DOCUMENTS))
        with gr.Row(elem_classes="page-row"):
            with gr.Column(scale=3, min_width=240, elem_classes="page-tight"):
                self.methods = build_method_boxes("measure-methods")
                self.wrapped = gr.Dropdown(
                    data_sets.wrapped_choices(data_sets.wrapped_for(first, data_sets.WRAPPED)),
                    value=[],
                    multiselect=True,
                    label="Debiasing wrappers",
                    elem_id="measure-wrapped",
                )
            with gr.Column(scale=3, min_width=240, elem_classes="page-tight"):
                self.orders = gr.Dropdown(
                    first_orders,
                    value=data_sets.usual_orders(first_orders),
                    multiselect=True,
                    allow_custom_value=True,
                    label="Orders",
                    elem_id="measure-orders",
                )
                self.meaning = gr.HTML("", elem_id="measure-meaning", elem_classes="page-message")
                terms = f"Terms: {term('gold-all')}, {term('debiasing wrapper')}"
                gr.HTML(terms, elem_classes="page-message")
        with gr.Row(elem_classes="page-row"):
            self.what = gr.CheckboxGroup(
                WHAT,
                value=[name for _, name in WHAT],
                label="Metrics",
                elem_id="measure-what",
                scale=3,
                min_width=240,
            )
            self.length = gr.Slider(
                4,
                MAX_ANSWER_TOKENS,
                value=DEFAULT_LENGTH,
                step=4,
                label="Max new tokens",
                elem_id="measure-length",
                scale=3,
                min_width=240,
            )
        self.chat_template_kwargs = build_template_kwargs("measure-chat-template-kwargs")
        self.own = gr.State(None)  # uploaded dataset; None before
        self.file = gr.State(None)  # path of the uploaded file, and the encoding if it is a guess
        examples: list[Any] = [self.rows, self.own, self.limit, self.methods, self.wrapped, self.orders]
        self.inputs = [*examples, self.what, self.length, self.chat_template_kwargs]


class EvaluateTab:
    """Widgets of the tab; `outputs` are those that an evaluation updates."""

    def __init__(self, settings: HostSettings) -> None:
        with gr.Column(elem_id="measure-section", elem_classes="page-section"):
            gr.HTML(
                "<p class='page-about'>Runs a small dataset with every method in several document orders. "
                "For large datasets: <code>python -m pine_engine evaluate</code>.</p>"
            )
            with gr.Row(elem_classes="page-row"):
                self.bar = JobBar("Evaluate", run_id="measure-run", stop_id="measure-stop")
            self.bar.build_status("", status_id="measure-status")
            self.request = RequestWidgets(settings)
            self.tables = gr.HTML(empty_panel(WHAT_WILL_BE), elem_id="measure-tables")
            self.curve = build_figure("measure-curve", picks_itself=True)
            with gr.Row(visible=False, elem_classes="page-row", elem_id="measure-offer") as self.offer:
                size: dict[str, Any] = {"size": "sm", "scale": 0, "min_width": 160}
                self.records = gr.DownloadButton("Records (JSONL)", elem_id="measure-records", **size)
                self.report = gr.DownloadButton("Report (HTML)", elem_id="measure-report", **size)
                gr.HTML(
                    '<p class="page-caption">One record per example, method and order, with the generated '
                    "answer. The report contains all tables, intervals and curves.</p>"
                )
        self.folder = gr.State(None, delete_callback=remove_folder)  # of the files
        files = [self.records, self.report, self.folder]
        self.outputs: list[Any] = [self.tables, self.curve, self.offer, *files]


def add_tab(
    page: gr.Blocks,
    sources: Sources,
    chosen: gr.State,
    ready: gr.State,
    settings: HostSettings,
    disk: Disk,
    reader: FileReader,
) -> list[gr.CheckboxGroup]:
    """Build the tab that is open, connect its events, and return its boxes of methods.

    The planned work is announced after each change.
    """
    tab = EvaluateTab(settings)
    request, bar = tab.request, tab.bar
    fitted = [request.limit, request.wrapped, request.orders]
    chosen_data, shown = [request.rows, request.own], [request.message, *fitted]
    # The input event of the list also fires when it is left.
    selected = request.rows.change(bind(choose_rows, request), chosen_data, shown, **PRIVATE_EVENT)
    read, read_data = bind(upload_rows, request, reader), [*chosen_data, request.upload, *shown]
    table = [request.columns, request.file]
    uploaded = request.upload.upload(read, request.upload, [*read_data, *table], **STATE_EVENT)
    last: dict[str, Any] = STATE_EVENT | {"trigger_mode": "always_last"}  # of choices in quick succession
    renamed = request.columns.input(bind(read_rows, request, reader), table, read_data, **last)
    triggers = [page.load, ready.change]
    gr.on(triggers, bind(fit_metrics, sources), chosen, request.what, **PRIVATE_EVENT)
    planned = bind(announce, tab, sources, settings)
    announced = [chosen, *request.inputs], [bar.status, bar.estimate, request.meaning]
    changing = [widget for widget in request.inputs if widget not in chosen_data]
    gr.on([page.load, *(widget.change for widget in changing)], planned, *announced, **NEWEST_EVENT)
    for event in (selected, uploaded, renamed):
        event.then(planned, *announced, **PRIVATE_EVENT)
    begin = partial(begin_evaluation, tab, settings, disk)
    bind_job(bar, begin, [tab.folder, *request.inputs], tab.outputs, sources, chosen)
    return [request.methods]


def fit_metrics(sources: Sources, choice: Choice | None) -> Any:
    """Return the usual metrics of a model without log-probabilities of given texts."""
    try:
        engine = sources.now(USUAL_TASK, choice)
    except PineError:  # which the line of the model shows
        engine = None
    return ["generate"] if engine and engine.misfit("logprobs") else gr.skip()


def fit(request: RequestWidgets, data: data_sets.DataSet) -> Updates:
    """Return the updates of the widgets that depend on the dataset."""
    fitting, count = data_sets.orders_for(data), len(data.examples)
    choices = data_sets.wrapped_choices(data_sets.wrapped_for(data, data_sets.WRAPPED))
    return {
        request.limit: gr.update(maximum=max(2, count), value=min(count, 6)),
        request.wrapped: gr.update(choices=choices, value=[]),
        request.orders: gr.update(choices=fitting, value=data_sets.usual_orders(fitting)),
    }


def choose_rows(request: RequestWidgets, name: str, own: data_sets.DataSet | None) -> Updates:
    """Return the updates after the selection of a dataset."""
    try:
        cleared = (
            {} if name == data_sets.OWN else {request.message: ""}
        )  # an upload has shown its own message
        return fit(request, chosen_rows(name, own)) | cleared
    except Exception as error:
        return {request.message: notice(explain(error), kind="error")}


def upload_rows(
    request: RequestWidgets, reader: FileReader, file: str | None
) -> Generator[Updates, None, None]:
    """Show the first rows of an uploaded dataset, read and select it."""
    try:
        if file is None:
            raise InputError("No file selected. Select a dataset file.")
        path, say = Path(file), partial(_say, request)
        columns, encoding = yield from reader.read(
            read_preview, path, what="read columns", files=[path], say=say
        )
    except Cancelled:
        return
    except Exception as error:
        yield {request.message: notice(explain(error), kind="error"), request.upload: None}
        return
    yield {request.columns: columns, request.file: (file, encoding), request.upload: None}
    yield from read_rows(request, reader, columns, (file, encoding))


def read_rows(
    request: RequestWidgets, reader: FileReader, columns: str, file: tuple[str, str] | None
) -> Generator[Updates, None, None]:
    """Read the uploaded dataset with the chosen columns, and select it."""
    try:
        if file is None:
            raise InputError("No file selected. Select a dataset file.")
        path, encoding = Path(file[0]), file[1]
        chosen, say = chosen_columns(columns), partial(_say, request)
        data = yield from data_sets.read_uploaded(reader, path, say=say, columns=chosen)
    except Cancelled:
        return
    except Exception as error:
        yield {request.message: notice(explain(error), kind="error")}
        return
    count = len(data.examples)
    sentence = f"{data.name}: {count} example{'s' if count != 1 else ''} (task: {data.task.label})."
    if count >= MAX_ROWS:
        sentence += f" Only the first {MAX_ROWS} examples are evaluated."
    yield fit(request, data) | {
        request.own: data,
        request.rows: data_sets.OWN,
        request.message: notice(sentence + encoding_sentence([encoding])),
    }


def _say(request: RequestWidgets, sentence: str) -> Updates:
    return {request.message: notice(sentence)}


def announce(
    tab: EvaluateTab, sources: Sources, settings: HostSettings, choice: Choice | None, *values: Any
) -> Updates:
    """Return the updates with the planned work and the meaning of the orders."""
    bar = tab.bar
    try:
        request = read_request(*values)
        sentence = work_sentence(request, settings)
        engine = sources.now(request.rows.task.name, choice)
        estimate = ""
        if engine is not None:
            work = prepare_measure(engine, request, settings).work
            speed = sources.runs.speed(engine.model_name)
            estimate = speed.estimate(work, "", engine.describe_prompts)
    except Exception as error:
        return {bar.status: notice(explain(error), kind="error"), bar.estimate: ""}
    return {
        bar.status: notice(sentence),
        bar.estimate: notice(estimate, kind="count"),
        tab.request.meaning: data_sets.orders_meaning(list(request.orders)),
    }


def show_results(tab: EvaluateTab, view: MeasureView) -> Updates:
    """Return the updates with the tables and the curve of the records so far."""
    run = view.run
    curves = curves_of(view, run)
    return {
        tab.tables: results_html(view, run),
        tab.offer: gr.update(visible=False),
        tab.curve: figure_value(plot_bias_curve(curves) if curves else None),
    }


def offer_files(tab: EvaluateTab, disk: Disk, before: Path | None, view: MeasureView) -> Updates:
    """Write the files of an evaluation that has ended, and return the updates with all results."""
    if not view.records:
        return {}
    remove_folder(before)
    folder = disk.new_folder()
    records_file, report_file = write_files(view, folder)
    return show_results(tab, view) | {
        tab.folder: folder,
        tab.offer: gr.update(visible=True),
        tab.records: str(records_file),
        tab.report: gr.update(value=report_file and str(report_file), visible=report_file is not None),
    }


def begin_evaluation(
    tab: EvaluateTab, settings: HostSettings, disk: Disk, before: Path | None, *values: Any
) -> ButtonJob:
    """Return the job of a request. Raises InputError for an invalid one."""
    request = read_request(*values)
    request.settings(settings)
    arguments = {"request": request, "host": settings}
    return ButtonJob(
        job=Job("measure", request.methods, prepare_measure, arguments),
        show=partial(RedrawBudget().draw, partial(show_results, tab)),
        task=request.rows.task.name,
        cleared={},
        kept="Completed records are kept.",
        end=partial(offer_files, tab, disk, before),
    )
