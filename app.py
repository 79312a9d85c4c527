"""PINE Explorer: reads the configuration, builds the page and serves it while the model loads."""

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

# Read by gradio when it is imported: the page makes no request to anyone else.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"

import gradio as gr

from pine_engine.tasks import TASKS
from viz.page import gpu
from viz.page.build import build_page
from viz.page.files import MOST_MB
from viz.page.host_settings import HostSettings, read_settings
from viz.page.source import EngineSource
from viz.page.theme import STYLESHEETS, page_head, page_theme

if TYPE_CHECKING:
    from pine_engine.engine import Engine

LAUNCH_OPTIONS = {
    "theme": page_theme(),
    "css_paths": STYLESHEETS,
    "head": page_head(),
    "footer_links": ["api"],
    "run_history": False,
    "mcp_server": True,
    "ssr_mode": False,
    "max_file_size": f"{MOST_MB}mb",
}


THREADS = 40
"""For everything but the runs that wait, each of which keeps a thread."""


def build_app(
    source: EngineSource,
    own: Mapping[str, EngineSource] | None = None,
    settings: HostSettings | None = None,
) -> gr.Blocks:
    """The page's Blocks, for an engine that may still be loading.

    own: engines of tasks with a model of their own, by its name; they are loaded when they are needed.
    settings: what the host allows; the defaults if None.
    """
    return build_page(source, own, settings or HostSettings())


def engine_source(name: str | None, dtype: str, device: str) -> EngineSource:
    """A source that loads the named model, the embedded one for None."""

    def load() -> "Engine":
        from pine_engine.engine import Engine  # torch takes seconds to import; the page does not wait for it

        return Engine.load(name, dtype=dtype, device=device)

    return EngineSource(load, name or "the embedded model")


def own_sources(device: str) -> dict[str, EngineSource]:
    """Sources of the models that tasks bring along."""
    names = {row.model for row in TASKS.values() if row.model}
    return {name: engine_source(name, "float32", device) for name in sorted(names)}


def place_on_lent_gpu(sources: Iterable[EngineSource]) -> None:
    """Loads the models before the page is launched, as ZeroGPU needs it. Raises PineError if one fails."""
    # ZeroGPU stands in for CUDA in this thread alone, and transformers would load weights in others.
    os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
    for source in sources:
        gpu.place(source.load_here())


def main() -> None:
    """Serves the page until interrupted."""
    usual = {"PINE_DEVICE": "cuda"} if gpu.IS_LENT else {}
    settings = read_settings(sys.argv[1:], usual | os.environ, description=__doc__)
    source = engine_source(settings.model, settings.dtype, settings.device)
    own = own_sources(settings.device)
    if gpu.IS_LENT:
        place_on_lent_gpu([source, *own.values()])
    demo = build_app(source, own, settings)
    demo.launch(
        server_name=settings.host,
        server_port=settings.port,
        root_path=settings.root_path or None,
        max_threads=settings.queue_size + THREADS,
        prevent_thread_lock=True,
        **LAUNCH_OPTIONS,
    )
    source.start()
    demo.block_thread()


if __name__ == "__main__":
    main()
