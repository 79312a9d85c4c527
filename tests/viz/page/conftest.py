"""Engine of a tiny random model, which the tests of this folder share."""

import pytest

import viz.page.gradio_patches  # noqa: F401 - before gradio is imported
from pine_engine.engine.engine import Engine
from tests.scheduling.conftest import clock as clock, log_runs as log_runs
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer
from viz.page.jobs.loader import EngineSource


@pytest.fixture(scope="session")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(max_context_length=2048), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="session")
def source(engine: Engine) -> EngineSource:
    """A source that has loaded the engine."""
    source = EngineSource(lambda: engine, "tiny")
    source.start()
    assert source.wait(60) is engine
    return source
