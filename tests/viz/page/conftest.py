"""Engine of a tiny random model, which the tests of this folder share."""

from collections.abc import Iterator

import pytest
from gradio_client import Client

import viz.page.gradio_patches  # noqa: F401 - before gradio is imported
from pine_engine.engine.engine import Engine
from tests.scheduling.conftest import clock as clock, log_runs as log_runs
from tests.support.families import TinyLlama
from tests.support.running import loaded_source
from tests.support.serving import ServedApp
from tests.support.tokenizers import letter_tokenizer
from viz.page.jobs.loader import EngineSource


@pytest.fixture(scope="session")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(max_context_length=2048), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="session")
def source(engine: Engine) -> EngineSource:
    return loaded_source(engine)


@pytest.fixture(scope="module")
def client(app: ServedApp) -> Iterator[Client]:
    """Return gradio's client of the app that a module serves."""
    client = Client(app.url, verbose=False)
    yield client
    client.close()
