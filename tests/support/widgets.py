"""Widgets of the page without a server."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import gradio as gr
import pytest

from app import build_app
from viz.page.jobs.loading import EngineSource

Built = TypeVar("Built")


def built(build: Callable[[], Built]) -> Built:
    """What `build` makes with gradio.

    Outside a running loop gradio makes loops that it never closes, so it is given one.
    """

    async def in_loop() -> Built:
        return build()

    return asyncio.run(in_loop())


@cache
def whole_page() -> gr.Blocks:
    """The Blocks of the app, to be looked at only; no model is loaded."""
    return built(lambda: build_app(EngineSource(lambda: pytest.fail("no model is needed"), "none")))
