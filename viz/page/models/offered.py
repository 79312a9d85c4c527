"""Selectable models and their facts."""

from collections.abc import Mapping
from typing import Any

from pine_engine.errors import PineError
from pine_engine.evaluation.report.published import published, tasks_of_model
from pine_engine.models.dtypes import BYTES
from pine_engine.models.listing import LoadableModel, list_models
from pine_engine.models.resources import in_words
from viz.drawing.markup import render
from viz.page.jobs.model_pool import Choice, ModelPool

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
