"""Model picker: selectable models, requirements, loading progress and reasons for rejection."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import gradio as gr
from markupsafe import escape

from pine_engine.additions import find_addition
from pine_engine.models.dtypes import BYTES, REQUESTED_DTYPES
from pine_engine.models.listing import list_models
from pine_engine.models.resources import in_words
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.scheduling.run_state import StopFlag
from viz.cards.tutorial import TERMS, term
from viz.drawing.markup import render
from viz.page.common.failures import explain, notice
from viz.page.common.widgets import NEWEST_EVENT, PRIVATE_EVENT, STATE_EVENT, bind
from viz.page.jobs.job_bar import JobBar, Updates, end_status
from viz.page.jobs.sources import Choice, Sources

OPEN, CLOSE = "Change model", "Close"

CHECK_S = 0.5  # seconds between two checks of Stop while a model is loaded

SMALL = (
    "HuggingFaceTB/SmolLM2-360M-Instruct",
    "HuggingFaceTB/SmolLM2-1.7B-Instruct",
    "Qwen/Qwen2.5-0.5B-Instruct",
    "Qwen/Qwen2.5-1.5B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
    "meta-llama/Llama-3.2-1B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
)
"""Instruction-tuned models of the hub that fit on one machine."""

PAPER: Mapping[str, Sequence[str]] = find_addition("pine_engine.lab", "paper_models", dict)()
"""Tasks with published results by hub id of the models that the paper evaluates."""


def offered(sources: Sources) -> list[tuple[str, str]]:
    """Return (label, name) of the choices, without requests to the hub."""
    host = sources.host.name
    labels = {host: f"{host} (default)"}
    for model in list_models():
        here = "local" if model.supported else "not supported"
        labels.setdefault(model.name, f"{model.name} ({here})")
    for name in (*SMALL, *PAPER):
        origin = "evaluated in the paper" if name in PAPER else "Hugging Face Hub"
        labels.setdefault(name, f"{name} ({origin})")
    names = labels if sources.allowed is None else sources.allowed
    return [(labels.get(name, name), name) for name in names]


def facts_html(sources: Sources, choice: Choice) -> str:
    """Render the facts of a model before it is loaded, or why it cannot be loaded.

    Requests models that are not on this machine from the hub. Raises PineError if the model is not allowed or
    not found.
    """
    model, free = sources.about(choice), sources.free()
    here = sources.now(USUAL_TASK, choice) is not None
    sizes = {dtype: model.memory_bytes(dtype) for dtype in BYTES}
    facts = {
        "Parameters": "unknown" if model.parameters is None else _counted(model.parameters),
        "Size on disk": in_words(model.size_bytes) if model.size_bytes else "unknown",
        "Download size": in_words(model.missing_bytes) if model.missing_bytes else "nothing",
        "Context length": "not specified" if model.context is None else f"{model.context:,} tokens",
        "Device": sources.device,
    }
    if choice.name in PAPER:
        facts["Paper results"] = ", ".join(PAPER[choice.name])
    return render(
        "model_facts.html",
        name=choice.name,
        facts=facts.items(),
        needs=[(dtype, in_words(size), here or size <= free) for dtype, size in sizes.items()],
        free=f"{in_words(free)} on {sources.device}",
        reason=model.reason.rstrip("."),
        terms={name: term(name) for name in sizes if name in TERMS},
        limits=model.placement_problem.rstrip("."),
    )


def _counted(parameters: int) -> str:
    """Format a number of parameters: "135 million", "8.03 billion"."""
    if parameters < 1e6:
        return f"{parameters:,}"
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e9 else f"{parameters / 1e6:.0f} million"


class ModelPicker:
    """Widgets that select a model, hidden until a click on `toggle`."""

    def __init__(self, toggle: gr.Button, sources: Sources) -> None:
        host, self.toggle = sources.host, toggle
        own = "" if sources.allowed is not None else " or enter a hub id, folder or GGUF file"
        with gr.Column(visible=False, elem_id="model-picker", elem_classes="page-section") as self.body:
            with gr.Row(elem_classes="page-row"):
                self.model = gr.Dropdown(
                    list(sources.allowed or [host.name]),
                    value=host.name,
                    label="Model",
                    info=f"Applies to you only. Select a model{own}.",
                    allow_custom_value=sources.allowed is None,
                    elem_id="model",
                    scale=4,
                    min_width=280,
                )
                self.dtype = gr.Radio(
                    list(REQUESTED_DTYPES),
                    value=host.dtype,
                    label="Precision (dtype)",
                    info="auto: bfloat16 on a GPU; on a CPU the stored dtype (also 4bit), or float32 if "
                    "faster.",
                    elem_id="dtype",
                    scale=2,
                    min_width=260,
                )
            self.facts = gr.HTML("", elem_id="model-facts")
            with gr.Row(elem_classes="page-row"):
                self.bar = JobBar("Load model", run_id="load-model", stop_id="stop-loading")
            self.bar.build_status("", status_id="load-status")
        self.chosen = gr.State(None)  # choice of the user; None for the model of the host


def bind_picker(picker: ModelPicker, sources: Sources, ready: gr.State) -> None:
    """Connect the widgets; `ready` changes when a model is loaded."""
    toggle, facts, bar = picker.toggle, picker.facts, picker.bar
    selected, shown = [picker.model, picker.dtype], [picker.model, facts]
    opened = [toggle, picker.body, *shown]
    toggle.click(bind(open_or_close, picker, sources), [toggle, *selected], opened, **PRIVATE_EVENT)
    ready.change(bind(refresh, picker, sources), [toggle, *selected], shown, **PRIVATE_EVENT)
    gr.on(
        [picker.model.input, picker.dtype.input], bind(show_facts, sources), selected, facts, **NEWEST_EVENT
    )
    inputs, outputs = [bar.stopping, *selected, facts], [bar.status, bar.stop, picker.chosen, facts]
    bar.run.click(bind(load, picker, sources), inputs, outputs, **STATE_EVENT)


def show_facts(sources: Sources, name: str | None, dtype: str) -> str:
    """Return the facts of the selected model, or a notice."""
    if sources.main.status.stage == "loading":
        return notice("Memory requirements appear once the default model is loaded.")
    try:
        return facts_html(sources, sources.choice(name or "", dtype))
    except Exception as error:
        return notice(explain(error), kind="error")


def list_choices(picker: ModelPicker, sources: Sources, name: str | None, dtype: str) -> Updates:
    """Return the updates of the list of models and the facts."""
    is_loading = sources.main.status.stage == "loading"
    choices = {} if is_loading else {picker.model: gr.update(choices=offered(sources))}
    return choices | {picker.facts: show_facts(sources, name, dtype)}


def open_or_close(picker: ModelPicker, sources: Sources, label: str, name: str | None, dtype: str) -> Updates:
    """Return the updates that open or close the picker."""
    if label == CLOSE:
        return {picker.toggle: OPEN, picker.body: gr.update(visible=False)}
    opened = {picker.toggle: CLOSE, picker.body: gr.update(visible=True)}
    return opened | list_choices(picker, sources, name, dtype)


def refresh(picker: ModelPicker, sources: Sources, label: str, name: str | None, dtype: str) -> Any:
    """Return the updates of an open picker."""
    return gr.skip() if label == OPEN else list_choices(picker, sources, name, dtype)


def load(
    picker: ModelPicker, sources: Sources, stop: StopFlag, name: str | None, dtype: str, stated: str
) -> Generator[Updates, None, None]:
    """Load the selected model; `stated` are the facts on the page, whose reason is not repeated."""
    bar = picker.bar
    stop.requested = False
    yield {bar.status: notice("Starting…"), bar.stop: gr.update(interactive=True)}
    try:
        choice = sources.choice(name or "", dtype)
        engine = None
        with sources.lease(USUAL_TASK, choice) as source:
            while not stop.requested and (engine := source.wait(CHECK_S)) is None:
                yield {bar.status: notice(source.status.sentence)}
        if engine is None:
            yield end_status(bar, notice("Loading stopped. Current model unchanged."))
            return
        sentence = f"Model changed to {choice.name} ({engine.dtype}). Earlier results keep their model name."
        yield end_status(bar, notice(sentence)) | {
            picker.chosen: None if choice == sources.host else choice,
            picker.facts: show_facts(sources, choice.name, choice.dtype),
        }
    except Exception as error:
        reason = explain(error).rstrip(".")
        reason = "Model not loaded" if str(escape(reason)) in (stated or "") else reason
        yield end_status(bar, notice(f"{reason}. Current model unchanged.", kind="error"))
