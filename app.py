"""PINE Explorer: read the configuration, build the page and serve it while the model loads."""

import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

# Read by gradio: no requests to other hosts, and no statistics of the last ten thousand events, which take
# longer than an event. /metrics has other statistics.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
os.environ["GRADIO_ANALYTICS_MAX_EVENTS"] = "1"
os.environ["GRADIO_ANALYTICS_CACHE_FREQUENCY"] = str(sys.maxsize)
# Read by uvicorn: our own middleware knows the trusted proxies.
os.environ["FORWARDED_ALLOW_IPS"] = ""

import viz.page.gradio_patches  # noqa: F401 - before gradio is imported

# isort: split
from gradio import I18n
from gradio.routes import App
from starlette.middleware import Middleware
from starlette_compress import CompressMiddleware, remove_compress_type
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

import pine_engine as pine
from pine_engine.additions import find_addition
from pine_engine.errors import PineError
from pine_engine.models.embedded import EMBEDDED_NAME, Progress
from pine_engine.models.resources import free_memory
from pine_engine.prompts.tasks import TASKS
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.runs import Runs
from pine_engine.web.connections import limit_connections
from pine_engine.web.middleware import http_middleware
from viz.page.api.results import RESULTS
from viz.page.build import build_page
from viz.page.common.host_settings import HostSettings, read_settings
from viz.page.common.limits import MAX_UPLOAD_MB
from viz.page.common.look import page_css, page_head, page_theme
from viz.page.common.temp_folder import process_temp_dir, write_all_into
from viz.page.gradio_patches.blocks import GuardedBlocks
from viz.page.gradio_patches.mcp_tools import describe_results
from viz.page.jobs import zerogpu
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Choice, Sources, shown
from viz.page.serving.address_limits import AddressLimits
from viz.page.serving.escaped_output import escape_output
from viz.page.serving.mcp_messages import check_mcp_message
from viz.page.serving.middleware import RequestFilter, add_headers
from viz.page.serving.page_head import PageHead
from viz.page.serving.request_limits import limit_request, limit_uploads
from viz.page.serving.routes import add_routes
from viz.page.serving.sessions import Sessions
from viz.page.serving.shutdown import end_process, end_signal, shut_down, wait_for_end

LOOK: dict[str, Any] = {
    "theme": page_theme(),
    "css": page_css(),
    "head": page_head(),
    "footer_links": ["api"],
    "run_history": False,
    "ssr_mode": False,
    "i18n": I18n(en={"common.complete": "Done"}),  # spoken after an event, and missing in gradio
}

QUEUE_SIZE = 32  # runs that wait for the model
MAX_RUNS_PER_CLIENT = 4  # waiting and active runs of an open page, or of the scripts of one address
MAX_CONNECTIONS = 800
SHUTDOWN_S = 5.0  # seconds that active runs have to finish at shutdown

THREADS = 40
"""Threads for all requests except runs, which each have a thread of their own."""

SWITCH_S = 1e-4
"""Switch interval of the interpreter, in seconds; the default of 5 ms slows the model under load."""

COMPRESSION: dict[str, Any] = {"zstd": False, "brotli_quality": 5, "gzip_level": 6}
"""Compression of responses; higher levels save 1% of the bytes of the page in more than twice the time."""

SESSIONS = 500  # maximum number of sessions in memory: about 50 KB each, and some megabytes with a run


def all_sources(
    source: EngineSource,
    own: Mapping[str, EngineSource] | None,
    settings: HostSettings,
    *,
    allowed: Sequence[str] | None = (),
) -> Sources:
    """Build the engine registry, with the owner of its runs."""
    return Sources(
        Choice(settings.model or EMBEDDED_NAME, settings.dtype),
        source,
        own,
        device=settings.device,
        allowed=allowed,
        runs=Runs(
            FairQueue(
                QUEUE_SIZE,
                MAX_RUNS_PER_CLIENT,
                max_active=settings.max_active_runs,
                free_memory=partial(free_memory, settings.device),
            ),
            max_seconds=settings.time_limit_s,
            shares_equal_runs=settings.share_equal_runs and not zerogpu.IS_ZEROGPU,
            compute=zerogpu.compute,
        ),
    )


def load_engine(name: str | None, dtype: str, device: str, progress: Progress) -> "pine.Engine":
    """Load the engine of a model; see Engine.load."""
    return pine.Engine.load(name, dtype=dtype, device=device, progress=progress)


def engine_source(name: str | None, dtype: str, device: str) -> EngineSource:
    """Return an engine source of the named model; None is the embedded one."""
    label = shown(name) if name else "the embedded model"
    source = EngineSource(lambda: load_engine(name, dtype, device, source.report), label)
    return source


def host_source(settings: HostSettings) -> tuple[EngineSource, Sequence[str] | None]:
    """Return the source of the model of the host, and the models that visitors may select; None for any.

    Exit with status 2 for an endpoint on ZeroGPU, and for one that cannot be opened.
    """
    if not (settings.endpoint and settings.model):
        # On ZeroGPU a model can only be used if it was there before the page was launched.
        allowed = () if zerogpu.IS_ZEROGPU else settings.selectable_models
        return engine_source(settings.model, settings.dtype, settings.device), allowed
    if zerogpu.IS_ZEROGPU:
        message = "PINE_ENDPOINT does not run on ZeroGPU: an endpoint needs no GPU. Remove it, or select CPU."
        print(message, file=sys.stderr)
        sys.exit(2)
    try:
        return endpoint_source(settings.endpoint, settings.model, settings.extra_body), ()
    except PineError as error:
        print(f"Cannot open PINE_ENDPOINT: {error}.", file=sys.stderr)
        sys.exit(2)


def endpoint_source(url: str, model: str, extra_body: str = "") -> EngineSource:
    """Return a loaded engine source of a model behind an address, which visitors do not see.

    Raises PineError for a package that is missing, and for an invalid address, key or field. Nothing is sent.

    extra_body: further fields of each request, as a JSON object.
    """
    from pine_engine.endpoint.client import Endpoint  # imports torch

    key, fields = os.environ.get("OPENAI_API_KEY"), json.loads(extra_body or "{}")
    endpoint = Endpoint(url, model, api_key=key, extra_body=fields, model_ref="PINE_ENDPOINT")
    source = EngineSource(lambda: endpoint, model)
    source.load_here()  # the page is drawn with its methods
    return source


def own_sources(device: str) -> dict[str, EngineSource]:
    """Return the engine sources of tasks with a model of their own."""
    names = {row.model for row in TASKS.values() if row.model}
    return {name: engine_source(name, "float32", device) for name in sorted(names)}


def log_to_stderr() -> None:
    """Send the log to stderr, escaped: one JSON object per run, without user text."""
    escape_output()
    log = logging.getLogger("pine_explorer")
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler())
    log.propagate = False
    # The package behind the tools for assistants quotes what it is sent.
    for name in ("viz", "pine_engine"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def middleware(page: GuardedBlocks, settings: HostSettings) -> list[Middleware]:
    """Return the middleware of every request, the outermost first."""
    return [
        Middleware(http_middleware(add_headers)),
        Middleware(http_middleware(RequestFilter(settings))),
        Middleware(ProxyHeadersMiddleware, [str(network) for network in settings.proxies]),
        Middleware(http_middleware(PageHead(settings.root_path))),
        Middleware(http_middleware(page.connections)),
        Middleware(http_middleware(limit_request)),
        Middleware(http_middleware(AddressLimits())),
        Middleware(http_middleware(limit_uploads)),
        Middleware(http_middleware(check_mcp_message)),
    ]


def launch(page: GuardedBlocks, settings: HostSettings, **options: Any) -> App:
    """Launch the page in background threads."""
    name, _, password = settings.auth.partition(":")

    @asynccontextmanager
    async def lifespan(_: App) -> AsyncIterator[None]:
        results = RESULTS | find_addition("viz.lab.page", "api_results", dict)()
        describe_results(page, results)  # before the first request, whose arguments it checks
        yield

    served, _, _ = page.launch(
        server_name=settings.host,
        server_port=settings.port,
        root_path=settings.root_path or None,
        auth=[(name, password)] if settings.auth else None,
        state_session_capacity=SESSIONS,
        max_threads=2 * QUEUE_SIZE + THREADS,
        max_file_size=f"{MAX_UPLOAD_MB}mb",
        prevent_thread_lock=True,
        app_kwargs={"middleware": middleware(page, settings), "lifespan": lifespan},
        **LOOK | {"mcp_server": not settings.auth} | options,
    )
    assert served.middleware_stack is not None  # gradio has sent its first request
    # Around gradio's own compression, which is around all other middleware, and compresses for gzip;q=0, too.
    remove_compress_type("text/event-stream")  # of which each would take megabytes
    served.middleware_stack = CompressMiddleware(
        served.middleware_stack, remove_accept_encoding=True, **COMPRESSION
    )
    served.state_holder = Sessions(page.connections)
    served.state_holder.set_blocks(page)
    limit_connections(page.server, MAX_CONNECTIONS, settings.proxies)
    return served


def main() -> None:
    """Serve the page until SIGTERM or SIGINT, then exit."""
    sys.setswitchinterval(SWITCH_S)
    if zerogpu.IS_ZEROGPU:
        os.environ.setdefault("PINE_DEVICE", "cuda")
        # There is no GPU at startup from which to select a dtype.
        os.environ.setdefault("PINE_DTYPE", "float32")
    settings = read_settings(sys.argv[1:])
    source, allowed = host_source(settings)
    with process_temp_dir(Path(os.environ.get("GRADIO_TEMP_DIR") or tempfile.gettempdir())) as folder:
        write_all_into(folder)
        serve(settings, source, allowed)
    end_process()


def serve(settings: HostSettings, source: EngineSource, allowed: Sequence[str] | None) -> None:
    """Serve the page until SIGTERM or SIGINT. source, allowed: see `host_source`."""
    own = own_sources(settings.device)
    if zerogpu.IS_ZEROGPU:
        # ZeroGPU replaces CUDA in this thread only, and transformers would load weights in others.
        os.environ["HF_DEACTIVATE_ASYNC_LOAD"] = "1"
        for each in (source, *own.values()):
            zerogpu.place(each.load_here())
    sources = all_sources(source, own, settings, allowed=allowed)
    page = build_page(sources, settings)
    log_to_stderr()
    signals = end_signal()
    try:
        served = launch(page, settings)
    except OSError:  # gradio's, which names variables of its own
        ports = f"port {settings.port}" if settings.port else "a port from 7860 to 7959"
        print(
            f"Cannot listen on {ports} of {settings.host or 'localhost'}: expected a free port and an "
            "address of this machine. Choose another port with --port or PINE_PORT.",
            file=sys.stderr,
        )
        sys.exit(2)
    add_routes(served, sources, lambda: len(page.state_holder.session_data))
    threading.Thread(target=page.disk.sweep_forever, name="sweep", daemon=True).start()
    source.start()
    received_at = wait_for_end(signals)
    shut_down(page, sources.runs, SHUTDOWN_S, since=received_at)


if __name__ == "__main__":
    main()
