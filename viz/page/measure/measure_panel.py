"""Evaluate: a small dataset under several methods and orders, with tables and a curve."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from pine_engine.errors import Cancelled, InputError
from pine_engine.methods.table import METHODS
from viz.cards.measured import measured_tables
from viz.drawing.markup import empty_panel, render
from viz.figures.bias_curve import plot_bias_curve
from viz.page.common.disk import Disk
from viz.page.common.event_options import PRIVATE_EVENT, STATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.common.figure_box import build_figure, figure_value
from viz.page.common.host_settings import HostSettings
from viz.page.files.data_sets import (
    OWN,
    DataSet,
    built_in_choices,
    orders_for,
    orders_meaning,
    read_brought,
    read_built_in,
    usual_orders,
    wrapped_for,
)
from viz.page.files.reading_files import FileReader
from viz.page.form.method_boxes import WRAPPED, build_method_boxes, build_wrapped, wrapped_choices
from viz.page.jobs.cost import Work
from viz.page.jobs.job_bar import Job, JobBar, Updates, Views, build_bar, build_buttons, wire_job
from viz.page.jobs.sources import Sources

if TYPE_CHECKING:  # these import torch, which would keep the page waiting
    from pine_engine.engine.engine import Engine
    from viz.page.jobs.model_pool import Choice
    from viz.page.measure.measured_files import MeasuredFiles
    from viz.page.measure.measuring import MeasuredRecords, MeasureRequest, MeasureView

FIRST_ORDERS = ["as-is", "reversed"]
"""Orders shown until torch is imported, which knows all of them."""

DEFAULT_LENGTH = 48

WHAT_WILL_BE = (
    "Here will be the score of every method in every order with its interval, how often the order changes an "
    "answer, and a curve over the slots."
)

WHAT = [("Write answers", "generate"), ("Log-probabilities", "logprob")]


@dataclass(frozen=True)
class MeasurePanel:
    """Widgets of the tab."""

    rows: gr.Dropdown
    upload: gr.UploadButton
    message: gr.HTML
    limit: gr.Slider
    methods: gr.CheckboxGroup
    wrapped: gr.Dropdown
    orders: gr.Dropdown
    meaning: gr.HTML
    what: gr.CheckboxGroup
    length: gr.Slider
    bar: JobBar
    tables: gr.HTML
    curve: gr.HTML
    findings: gr.HTML
    offer: gr.Row
    records: gr.DownloadButton
    report: gr.DownloadButton
    own: gr.State
    """Uploaded dataset, or None."""

    kept: gr.State
    """Files for download, or None."""

    @property
    def inputs(self) -> list[Any]:
        """Return the inputs of read_request, in order."""
        chosen = [self.methods, self.wrapped, self.orders]
        return [self.rows, self.own, self.limit, *chosen, self.what, self.length]


def chosen_rows(name: str, own: DataSet | None) -> DataSet:
    """Return the dataset of that name, or the uploaded one. Raises InputError if there is none."""
    if name != OWN:
        return read_built_in(name)
    if own is None:
        raise InputError("You have not brought any rows yet; press “Upload rows”, or choose another set.")
    return own


def read_request(
    name: str,
    own: DataSet | None,
    limit: float,
    methods: Sequence[str],
    wrapped: Sequence[str],
    orders: Sequence[str],
    what: Sequence[str],
    length: float,
) -> "MeasureRequest":
    """Return the request of these widget values, in the order of MeasurePanel.inputs."""
    from viz.page.measure.measuring import MeasureRequest  # imports torch

    if not all(isinstance(name, str) for name in (*(orders or ()), *(wrapped or ()))):
        raise InputError("an order or a method that is not in words was given; choose those of the lists")
    return MeasureRequest(
        rows=chosen_rows(name, own),
        limit=int(limit),
        methods=selected_methods(methods, wrapped),
        orders=tuple(orders or ()),
        generate="generate" in what,
        logprobs="logprob" in what,
        max_new_tokens=int(length),
    )


def selected_methods(methods: Sequence[str], wrapped: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the ticked methods and of the selected wrappers."""
    return (*(name for name in METHODS if name in methods), *dict.fromkeys(wrapped or ()))


def build_measure(settings: HostSettings) -> MeasurePanel:
    """Build the widgets within the limits of the host."""
    sets = built_in_choices()
    with gr.Column(elem_id="measure-section", elem_classes="page-section"):
        gr.HTML(
            "<p class='page-about'>Every row of a small set, answered by every method in several orders. For "
            "large sets: <code>python -m pine_engine evaluate</code>.</p>"
        )
        with gr.Row(elem_classes="page-row page-measure-rows"):
            rows = gr.Dropdown(
                [*sets, ("Rows of my own", OWN)],
                value=sets[0][1],
                label="Rows",
                elem_id="measure-rows",
                scale=3,
                min_width=220,
            )
            limit = gr.Slider(
                1,
                settings.max_rows,
                value=min(6, settings.max_rows),
                step=1,
                label="How many",
                elem_id="measure-limit",
                scale=2,
                min_width=200,
            )
            upload = gr.UploadButton(
                "Upload rows",
                file_types=[".jsonl", ".csv"],
                size="sm",
                scale=0,
                min_width=130,
                elem_id="measure-upload",
            )
        message = gr.HTML("", elem_id="measure-message")
        gr.HTML(render("measure_schema.html", most=settings.max_rows))
        with gr.Row(elem_classes="page-row"):
            with gr.Column(scale=3, min_width=240, elem_classes="page-tight"):
                methods = build_method_boxes("measure-methods")
                wrapped = build_wrapped("measure-wrapped")
            with gr.Column(scale=3, min_width=240, elem_classes="page-tight"):
                orders = gr.Dropdown(
                    FIRST_ORDERS,
                    value=FIRST_ORDERS,
                    multiselect=True,
                    allow_custom_value=True,
                    label="Orders",
                    elem_id="measure-orders",
                )
                meaning = gr.HTML("", elem_id="measure-meaning", elem_classes="page-message")
        with gr.Row(elem_classes="page-row"):
            what = gr.CheckboxGroup(
                WHAT,
                value=[name for _, name in WHAT],
                label="What to measure",
                elem_id="measure-what",
                scale=3,
                min_width=240,
            )
            length = gr.Slider(
                4,
                settings.max_new_tokens,
                value=min(DEFAULT_LENGTH, settings.max_new_tokens),
                step=4,
                label="Longest answer (tokens)",
                elem_id="measure-length",
                scale=3,
                min_width=240,
            )
        with gr.Row(elem_classes="page-row"):
            buttons = build_buttons("Measure", run_id="measure-run", stop_id="measure-stop")
        bar = build_bar(buttons, "Press Measure.", status_id="measure-status")
        with gr.Row(elem_classes="page-row page-measured"):
            tables = gr.HTML(
                empty_panel(WHAT_WILL_BE),
                elem_id="measure-tables",
                min_width=300,
            )
            curve = build_figure("measure-curve", picks_itself=True, min_width=300)
        findings = gr.HTML("", elem_id="measure-findings")
        with gr.Row(visible=False, elem_classes="page-row", elem_id="measure-offer") as offer:
            records = gr.DownloadButton(
                "Records (JSONL)", elem_id="measure-records", size="sm", scale=0, min_width=160
            )
            report = gr.DownloadButton(
                "Report (HTML)", elem_id="measure-report", size="sm", scale=0, min_width=160
            )
            gr.HTML(
                '<p class="page-caption">A record is one row under one method in one order, with the answer '
                "that was written. The report has all tables with their intervals, and the curves.</p>"
            )
    return MeasurePanel(
        rows=rows,
        upload=upload,
        message=message,
        limit=limit,
        methods=methods,
        wrapped=wrapped,
        orders=orders,
        meaning=meaning,
        what=what,
        length=length,
        bar=bar,
        tables=tables,
        curve=curve,
        findings=findings,
        offer=offer,
        records=records,
        report=report,
        own=gr.State(None),
        kept=gr.State(None, delete_callback=_forget),
    )


def wire_measure(
    panel: MeasurePanel,
    page: gr.Blocks,
    sources: Sources,
    chosen: gr.State,
    settings: HostSettings,
    disk: Disk,
    reader: FileReader,
) -> None:
    """Connect the widgets; the load event of the page fills in orders and methods."""
    _wire_announcement(panel, _wire_rows(panel, page, settings, reader), sources, chosen, settings)
    _wire_run(panel, sources, chosen, settings, disk)


def _wire_rows(panel: MeasurePanel, page: gr.Blocks, settings: HostSettings, reader: FileReader) -> list[Any]:
    """Connect the widgets that select the dataset; return their events."""
    chosen = [panel.limit, panel.wrapped, panel.orders]

    def fit(rows: DataSet) -> dict[Any, Any]:
        fitting, count = orders_for(rows), min(settings.max_rows, len(rows.examples))
        wrapped = wrapped_for(rows, WRAPPED, settings.max_orders)
        return {
            panel.limit: gr.update(maximum=max(2, count), value=min(count, 6)),
            panel.wrapped: gr.update(choices=wrapped_choices(wrapped), value=[]),
            panel.orders: gr.update(choices=fitting, value=usual_orders(fitting)),
        }

    def choose(name: str, own: DataSet | None) -> dict[Any, Any]:
        try:
            message = {} if name == OWN else {panel.message: ""}  # an upload has shown its own message
            return fit(chosen_rows(name, own)) | message
        except Exception as error:
            return {panel.message: notice(explain(error), kind="error")}

    picked = gr.on(
        [page.load, panel.rows.change],  # its input event also fires when the list is left
        choose,
        [panel.rows, panel.own],
        [panel.message, *chosen],
        **PRIVATE_EVENT,
    )

    def bring(file: str | None) -> Generator[dict[Any, Any], None, None]:
        try:
            if file is None:
                raise InputError("no file was given; choose one with rows")
            rows = yield from read_brought(
                reader, Path(file), what="read rows", say=lambda sentence: {panel.message: notice(sentence)}
            )
        except Cancelled:
            return
        except Exception as error:
            yield {panel.message: notice(explain(error), kind="error"), panel.upload: None}
            return
        count = len(rows.examples)
        sentence = f"{rows.name}: {count} row{'s' if count != 1 else ''} of “{rows.task.label}”."
        if count >= settings.max_rows:
            sentence += f" Only the first {settings.max_rows} rows are measured here."
        updates = {panel.own: rows, panel.rows: OWN, panel.message: notice(sentence), panel.upload: None}
        yield fit(rows) | updates

    brought = panel.upload.upload(
        bring, panel.upload, [panel.own, panel.rows, panel.message, panel.upload, *chosen], **STATE_EVENT
    )
    return [picked, brought]


def _wire_announcement(
    panel: MeasurePanel,
    choices: Sequence[Any],
    sources: Sources,
    chosen: gr.State,
    settings: HostSettings,
) -> None:
    def announce(choice: "Choice | None", *values: Any) -> dict[Any, Any]:
        from viz.page.measure.measuring import work_sentence  # imports torch

        try:
            request = read_request(*values)
            sentence = notice(work_sentence(request, settings))
            guess = notice(estimate(request, choice), kind="count")
        except Exception as error:
            return {panel.bar.status: notice(explain(error), kind="error"), panel.bar.estimate: ""}
        meaning = orders_meaning(list(request.orders))
        return {panel.bar.status: sentence, panel.bar.estimate: guess, panel.meaning: meaning}

    def estimate(request: "MeasureRequest", choice: "Choice | None") -> str:
        from viz.page.measure.measuring import planned_work  # imports torch, as above

        engine = sources.now(request.rows.task.name, choice)
        if engine is None:
            return ""
        return sources.runs.speed(engine.model_name).estimate(planned_work(engine, request, settings))

    changing: list[Any] = [panel.limit, panel.methods, panel.wrapped, panel.orders, panel.what, panel.length]
    inputs = [chosen, *panel.inputs]
    outputs = [panel.bar.status, panel.bar.estimate, panel.meaning]
    gr.on(
        [widget.change for widget in changing],
        announce,
        inputs,
        outputs,
        trigger_mode="always_last",
        **PRIVATE_EVENT,
    )
    for event in choices:
        event.then(announce, inputs, outputs, **PRIVATE_EVENT)


def _wire_run(
    panel: MeasurePanel, sources: Sources, chosen: gr.State, settings: HostSettings, disk: Disk
) -> None:
    def hand_over(measured: "MeasuredRecords") -> dict[Any, Any]:
        from viz.page.measure.measured_files import write_measured  # imports torch, which is there by now

        files = write_measured(measured, disk.new_folder())
        report = (
            gr.update(value=str(files.report), visible=True) if files.has_report else gr.update(visible=False)
        )
        return {
            panel.kept: files,
            panel.offer: gr.update(visible=True),
            panel.records: str(files.records),
            panel.report: report,
        }

    def begin(kept: "MeasuredFiles | None", *values: Any) -> Job:
        measured: MeasuredRecords | None = None
        _forget(kept)

        def show_view(view: "MeasureView") -> Updates:
            shown = {panel.tables: view.tables, panel.findings: view.findings}
            if view.curves is not None:
                shown[panel.curve] = figure_value(plot_bias_curve(view.curves) if view.curves else None)
            return {widget: html for widget, html in shown.items() if html is not None}

        def keep(view: "MeasureView") -> None:
            nonlocal measured
            measured = view.measured or measured

        return Job(
            what="measure",
            methods=selected_methods(values[3], values[4]),
            work=partial(_measure, values=values, settings=settings),
            plan=partial(_plan, values=values, settings=settings),
            show=show_view,
            keep=keep,
            task=lambda: chosen_rows(values[0], values[1]).task.name,
            cleared={
                panel.tables: measured_tables([], done=0, planned=0),
                panel.curve: "",
                panel.findings: "",
                panel.offer: gr.update(visible=False),
                panel.kept: None,
            },
            kept="The records so far are kept.",
            end=lambda: hand_over(measured) if measured else {},
        )

    shown = [panel.tables, panel.curve, panel.findings, panel.offer, panel.records, panel.report, panel.kept]
    wire_job(panel.bar, begin, [panel.kept, *panel.inputs], shown, sources, chosen)


def _measure(engine: "Engine", values: tuple[Any, ...], settings: HostSettings) -> Views:
    from viz.page.measure.measuring import measure_rows  # imports torch, which is there by now

    return measure_rows(engine, read_request(*values), settings)


def _plan(engine: "Engine", values: tuple[Any, ...], settings: HostSettings) -> Work:
    from viz.page.measure.measuring import plan_measurement  # imports torch, as above

    request = read_request(*values)
    return plan_measurement(engine, request.examples, request.settings(settings))


def _forget(files: "MeasuredFiles | None") -> None:
    """Remove the files of an earlier evaluation, also when the page is closed."""
    if files is not None:
        from viz.page.measure.measured_files import remove_measured  # imports torch, which has made them

        remove_measured(files)
