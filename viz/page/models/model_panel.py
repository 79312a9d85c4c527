"""Model picker: selectable models, requirements, loading progress and reasons for rejection."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from pine_engine.models.dtypes import REQUESTED_DTYPES
from viz.page.common.event_options import PRIVATE_EVENT, STATE_EVENT
from viz.page.common.failures import explain, notice
from viz.page.jobs.job_bar import JobBar, Updates, build_bar, build_buttons
from viz.page.jobs.model_pool import WAIT_S, ModelPool
from viz.page.jobs.run_log import StopFlag
from viz.page.models.offered import facts_html, offered

OPEN, CLOSE = "Change model", "Close"


@dataclass(frozen=True)
class ModelPanel:
    """Widgets of the picker."""

    toggle: gr.Button
    """Toggles the picker."""

    body: gr.Column
    model: gr.Dropdown
    dtype: gr.Radio
    facts: gr.HTML
    bar: JobBar
    chosen: gr.State
    """Choice of the user; None for the model of the host."""


def build_toggle() -> gr.Button:
    """Build the button that toggles the picker."""
    return gr.Button(OPEN, size="sm", elem_id="choose-model", scale=0, min_width=130)


def build_models(toggle: gr.Button, pool: ModelPool) -> ModelPanel:
    """Build the widgets, hidden."""
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
    return ModelPanel(
        toggle=toggle, body=body, model=model, dtype=dtype, facts=facts, bar=bar, chosen=gr.State(None)
    )


def wire_models(panel: ModelPanel, pool: ModelPool, ready: gr.State) -> None:
    """Connect the widgets; `ready` is a state that changes when a model is loaded."""

    def facts(name: str | None, dtype: str) -> str:
        if not pool.is_open:
            return notice("Memory requirements appear once the default model is loaded.")
        try:
            return facts_html(pool, pool.choice(name or "", dtype))
        except Exception as error:
            return notice(explain(error), kind="error")

    def toggle(label: str, name: str | None, dtype: str) -> dict[Any, Any]:
        if label == CLOSE:
            return {panel.toggle: OPEN, panel.body: gr.update(visible=False)}
        return {panel.toggle: CLOSE, panel.body: gr.update(visible=True)} | listed(name, dtype)

    def listed(name: str | None, dtype: str) -> dict[Any, Any]:
        choices = {panel.model: gr.update(choices=offered(pool))} if pool.is_open else {}
        return choices | {panel.facts: facts(name, dtype)}

    def refresh(label: str, name: str | None, dtype: str) -> Any:
        return gr.skip() if label == OPEN else listed(name, dtype)

    selected = [panel.model, panel.dtype]
    panel.toggle.click(
        toggle,
        [panel.toggle, *selected],
        [panel.toggle, panel.body, panel.model, panel.facts],
        trigger_mode="once",
        **PRIVATE_EVENT,
    )
    ready.change(refresh, [panel.toggle, *selected], [panel.model, panel.facts], **PRIVATE_EVENT)
    gr.on(
        [panel.model.input, panel.dtype.input],
        facts,
        selected,
        panel.facts,
        trigger_mode="always_last",
        **PRIVATE_EVENT,
    )

    def ended(html: str) -> Updates:
        return {panel.bar.status: html, panel.bar.stop: gr.update(interactive=False)}

    def load(stop: StopFlag, name: str | None, dtype: str) -> Generator[Updates, None, None]:
        stop.requested = False
        yield {panel.bar.status: notice("Starting…"), panel.bar.stop: gr.update(interactive=True)}
        try:
            choice = pool.choice(name or "", dtype)
            engine = None
            with pool.lease(choice) as source:
                while not stop.requested and (engine := source.wait(WAIT_S)) is None:
                    yield {panel.bar.status: notice(source.status.sentence)}
            if engine is None:
                yield ended(notice("Loading stopped. Current model unchanged."))
                return
            yield ended(notice(loaded_sentence(choice.name, engine.dtype))) | {
                panel.chosen: choice,
                panel.facts: facts(choice.name, choice.dtype),
            }
        except Exception as error:
            reason = explain(error).rstrip(".")
            yield ended(notice(f"{reason}. Current model unchanged.", kind="error"))

    def stop(flag: StopFlag) -> Any:
        flag.requested = True
        return gr.update(interactive=False)

    panel.bar.stop.click(stop, panel.bar.stopping, panel.bar.stop, **PRIVATE_EVENT)
    panel.bar.run.click(
        load,
        [panel.bar.stopping, *selected],
        [panel.bar.status, panel.bar.stop, panel.chosen, panel.facts],
        trigger_mode="once",
        **STATE_EVENT,
    )


def loaded_sentence(name: str, dtype: str) -> str:
    """Describe the loaded model."""
    return f"Model changed to {name} ({dtype}). Earlier results keep their model name."
