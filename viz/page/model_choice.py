"""Model picker: selectable models, requirements, loading progress and reasons for rejection."""

from collections.abc import Generator, Mapping
from typing import Any

import gradio as gr
from markupsafe import escape

from pine_engine.errors import PineError
from pine_engine.evaluation.report.published import published, tasks_of_model
from pine_engine.models.dtypes import BYTES, REQUESTED_DTYPES
from pine_engine.models.listing import LoadableModel, list_models
from pine_engine.models.resources import in_words
from pine_engine.scheduling.runs import StopFlag
from viz.drawing.markup import render
from viz.page.common.event_options import PRIVATE_EVENT, STATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.jobs.job_bar import Updates, build_bar, build_buttons
from viz.page.jobs.model_pool import WAIT_S, Choice, ModelPool

OPEN, CLOSE = "Change model", "Close"

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

_PAPER = {model["hub_id"]: model for model in published("models")}


def offered(pool: ModelPool) -> list[tuple[str, str]]:
    """Return (label, name) of the choices, without requests to the hub."""
    host = pool.host.name
    labels = {host: f"{host} (default)"}
    for model in list_models():
        here = "local" if model.supported else "not supported"
        labels.setdefault(model.name, f"{model.name} ({here})")
    for name in (*SMALL, *_PAPER):
        origin = "evaluated in the paper" if name in _PAPER else "Hugging Face Hub"
        labels.setdefault(name, f"{name} ({origin})")
    if pool.allowed is None:
        return [(label, name) for name, label in labels.items()]
    return [(labels.get(name, name), name) for name in pool.allowed]


def facts_html(pool: ModelPool, choice: Choice) -> str:
    """Render the facts of a model before it is loaded, or why it cannot be loaded.

    Requests models that are not on this machine from the hub. Raises PineError if the model is not allowed.
    """
    pool.choice(choice.name, choice.dtype)
    paper = _PAPER.get(choice.name)
    try:
        model, reason = pool.about(choice), ""
    except PineError as error:
        if paper is None:
            raise
        model, reason = _of_paper(paper), str(error)
    free = pool.free()
    here = choice == pool.host or pool.loaded(choice) is not None
    sizes = {dtype: model.memory_bytes(dtype) for dtype in BYTES}
    facts = {
        "Parameters": "unknown" if model.parameters is None else _counted(model.parameters),
        "Size on disk": in_words(model.size_bytes) if model.size_bytes else "unknown",
        "Download size": in_words(model.missing_bytes) if model.missing_bytes else "nothing",
        "Context length": "not specified" if model.context is None else f"{model.context:,} tokens",
        "Device": pool.device,
    }
    if reason:
        facts["Download size"] = "full download"
    if paper:
        facts["Paper results"] = ", ".join(tasks_of_model(choice.name))
    return render(
        "model_facts.html",
        name=choice.name,
        facts=facts.items(),
        needs=[(dtype, in_words(size), here or size <= free) for dtype, size in sizes.items()],
        free=f"{in_words(free)} on {pool.device}",
        reason=(reason or model.reason).rstrip("."),
    )


def _of_paper(model: Mapping[str, Any]) -> LoadableModel:
    """Return the known facts of a model of the paper, without requests."""
    name, context, parameters = model["hub_id"], model["context"], model["parameters"]
    return LoadableModel(name, "hub", 0, context, "", False, "", parameters=parameters)


def _counted(parameters: int) -> str:
    """Format a number of parameters: "135 million", "8.03 billion"."""
    if parameters < 1e6:
        return f"{parameters:,}"
    return f"{parameters / 1e9:.2f} billion" if parameters >= 1e9 else f"{parameters / 1e6:.0f} million"


def model_picker(toggle: gr.Button, pool: ModelPool, ready: gr.State) -> gr.State:
    """Build the picker, hidden, and connect its events.

    Args:
        toggle: Button that opens and closes the picker.
        pool: Models of the page.
        ready: State that changes when a model is loaded.

    Returns:
        State with the choice of the user; None for the model of the host.
    """
    host = pool.host
    own = "" if pool.allowed is not None else " or enter a hub id, folder or GGUF file"
    with gr.Column(visible=False, elem_id="model-picker", elem_classes="page-section") as body:
        with gr.Row(elem_classes="page-row"):
            model = gr.Dropdown(
                list(pool.allowed or [host.name]),
                value=host.name,
                label="Model",
                info=f"Applies to you only. Select a model{own}.",
                allow_custom_value=pool.allowed is None,
                elem_id="model",
                scale=4,
                min_width=280,
            )
            dtype = gr.Radio(
                list(REQUESTED_DTYPES),
                value=host.dtype,
                label="Precision (dtype)",
                info="auto: the dtype of the stored weights if the processor supports it, else float32.",
                elem_id="dtype",
                scale=2,
                min_width=260,
            )
        facts = gr.HTML("", elem_id="model-facts")
        with gr.Row(elem_classes="page-row"):
            buttons = build_buttons("Load model", run_id="load-model", stop_id="stop-loading", min_width=120)
        bar = build_bar(buttons, "", status_id="load-status")
    chosen = gr.State(None)
    selected = [model, dtype]

    def show_facts(name: str | None, dtype: str) -> str:
        if not pool.is_open:
            return notice("Memory requirements appear once the default model is loaded.")
        try:
            return facts_html(pool, pool.choice(name or "", dtype))
        except Exception as error:
            return notice(explain(error), kind="error")

    def listed(name: str | None, dtype: str) -> Updates:
        choices = {model: gr.update(choices=offered(pool))} if pool.is_open else {}
        return choices | {facts: show_facts(name, dtype)}

    def open_or_close(label: str, name: str | None, dtype: str) -> Updates:
        if label == CLOSE:
            return {toggle: OPEN, body: gr.update(visible=False)}
        return {toggle: CLOSE, body: gr.update(visible=True)} | listed(name, dtype)

    def refresh(label: str, name: str | None, dtype: str) -> Any:
        return gr.skip() if label == OPEN else listed(name, dtype)

    toggle.click(
        open_or_close, [toggle, *selected], [toggle, body, model, facts], trigger_mode="once", **PRIVATE_EVENT
    )
    ready.change(refresh, [toggle, *selected], [model, facts], **PRIVATE_EVENT)
    gr.on(
        [model.input, dtype.input], show_facts, selected, facts, trigger_mode="always_last", **PRIVATE_EVENT
    )

    def ended(html: str) -> Updates:
        return {bar.status: html, bar.stop: gr.update(interactive=False)}

    def load(stop: StopFlag, name: str | None, dtype: str, stated: str) -> Generator[Updates, None, None]:
        stop.requested = False
        yield {bar.status: notice("Starting…"), bar.stop: gr.update(interactive=True)}
        try:
            choice = pool.choice(name or "", dtype)
            engine = None
            with pool.lease(choice) as source:
                while not stop.requested and (engine := source.wait(WAIT_S)) is None:
                    yield {bar.status: notice(source.status.sentence)}
            if engine is None:
                yield ended(notice("Loading stopped. Current model unchanged."))
                return
            sentence = (
                f"Model changed to {choice.name} ({engine.dtype}). Earlier results keep their model name."
            )
            shown = show_facts(choice.name, choice.dtype)
            yield ended(notice(sentence)) | {chosen: None if choice == host else choice, facts: shown}
        except Exception as error:
            reason = explain(error).rstrip(".")
            reason = "Model not loaded" if str(escape(reason)) in (stated or "") else reason
            yield ended(notice(f"{reason}. Current model unchanged.", kind="error"))

    bar.run.click(
        load,
        [bar.stopping, *selected, facts],
        [bar.status, bar.stop, chosen, facts],
        trigger_mode="once",
        **STATE_EVENT,
    )
    return chosen
