"""Widgets of the page without a server."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import gradio as gr
import pytest

from app import all_sources
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


def build_app(
    source: EngineSource, settings: HostSettings = DEFAULTS, *, allowed: Sequence[str] = ()
) -> GuardedBlocks:
    """Return the Blocks of the app, for an engine that may still be loading."""
    return built(lambda: build_page(all_sources(source, None, settings, allowed=allowed), settings))


@cache
def whole_page() -> gr.Blocks:
    """Return the Blocks of the app without a model. Tests must not change it."""
    return build_app(EngineSource(lambda: pytest.fail("no model is needed"), "none"))
