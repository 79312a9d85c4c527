"""Widgets of the page without a server."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

import gradio as gr
import pytest

from app import all_sources
from viz.page.answers.workspace import Workspace
from viz.page.build import build_page
from viz.page.common.host_settings import DEFAULTS, HostSettings
from viz.page.gradio_patches.blocks import GuardedBlocks
from viz.page.jobs.loader import EngineSource

Built = TypeVar("Built")


def built(build: Callable[[], Built]) -> Built:
    """Return the result of `build` inside an event loop.

    Without one, gradio creates event loops that it never closes.
    """

    async def in_loop() -> Built:
        return build()

    return asyncio.run(in_loop())


def function_of(page: gr.Blocks, name: str) -> Callable[..., Any]:
    """Return the function of the first event or API call with this name."""
    found = next(event.fn for event in page.fns.values() if name in (event.api_name, event.name))
    assert found is not None
    return found


def start_of(page: gr.Blocks, name: str) -> Callable[..., Any]:
    """Return the function of a start button."""
    button = next(one for one in page.blocks.values() if getattr(one, "elem_id", "") == f"{name}-run")
    (run,) = [event.fn for event in page.fns.values() if (button._id, "click") in event.targets]
    assert run is not None
    return run


def workspace() -> Workspace:
    """Return the widgets of See it on a page of their own."""

    def build() -> Workspace:
        with gr.Blocks():
            return Workspace()

    return built(build)


def build_app(
    source: EngineSource, settings: HostSettings = DEFAULTS, *, allowed: Sequence[str] = ()
) -> GuardedBlocks:
    """Return the Blocks of the app, for an engine that may still be loading."""
    return built(lambda: build_page(all_sources(source, None, settings, allowed=allowed), settings))


@cache
def whole_page() -> gr.Blocks:
    """Return the Blocks of the app without a model. Tests must not change it."""
    return build_app(EngineSource(lambda: pytest.fail("no model is needed"), "none"))
