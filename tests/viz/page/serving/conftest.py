"""Served page with the embedded model, which the tests of this folder share."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.serving import Serve, ServedApp
from tests.support.visiting import ask


@pytest.fixture(scope="package")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    folder = tmp_path_factory.mktemp("app")
    environment = {
        "PINE_ALLOWED_HOSTS": "127.0.0.1,load.test",
        "PINE_MAX_ACTIVE_RUNS": "1",
        "GRADIO_TEMP_DIR": str(folder / "files"),
    }
    with serve(folder / "app.log", environment=environment) as served:
        asyncio.run(ask(served))  # the model is loaded
        yield served
        assert "Traceback" not in served.log.read_text()
