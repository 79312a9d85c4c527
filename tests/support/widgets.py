"""Widgets of the page without a server."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import gradio as gr
import pytest

from app import build_app
from viz.page.jobs.sources import EngineSource

Built = TypeVar("Built")


def built(build: Callable[[], Built]) -> Built:
    """Return the result of `build` inside an event loop.

    Without one, gradio creates event loops that it never closes.
    """

    async def in_loop() -> Built:
        return build()

    return asyncio.run(in_loop())


@cache
def whole_page() -> gr.Blocks:
    """Return the Blocks of the app without a model. Tests must not change it."""
    return built(lambda: build_app(EngineSource(lambda: pytest.fail("no model is needed"), "none")))
