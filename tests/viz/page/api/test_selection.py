"""Model and methods that an API call selects."""

from collections.abc import Callable
from typing import Any

import pytest

from pine_engine.methods.table import METHODS
from pine_engine.prompts.tasks import TASKS
from tests.support.running import sources_of
from tests.support.widgets import built, function_of
from viz.page.api.arguments import Host
from viz.page.api.calls import add_api
from viz.page.common.host_settings import DEFAULTS
from viz.page.files.reading_files import FileReader
from viz.page.gradio_patches.blocks import GuardedBlocks
from viz.page.jobs.loader import EngineSource
from viz.page.jobs.sources import Sources

DOCUMENTS = ["a cat", "a hat"]


def endpoint(sources: Sources, name: str) -> Callable[..., Any]:
    """Return the function of an endpoint."""

    def build() -> GuardedBlocks:
        with GuardedBlocks(analytics_enabled=False) as page:
            add_api(Host(sources, DEFAULTS, FileReader(sources.runs)))
        assert isinstance(page, GuardedBlocks)
        return page

    return function_of(built(build), name)


def test_measure_runs_on_the_model_of_the_task(source: EngineSource) -> None:
    host = EngineSource(lambda: pytest.fail("the task has a model"), "host")
    measure = endpoint(sources_of(host, {str(TASKS["qm9"].model): source}), "measure")
    row = {"task": "qm9", "question": "gap 3", "documents": DOCUMENTS}
    result = measure(rows=[row], methods=["pine"], orders=["as-is"], max_new_tokens=1)
    assert result["model"] == "tiny" and [record["task"] for record in result["records"]] == ["qm9"]


@pytest.mark.parametrize("names", [["all"], ["ALL"]])
def test_method_all_selects_every_method_without_scores(names: list[str], source: EngineSource) -> None:
    compare = endpoint(sources_of(source), "compare")
    result = compare("a?", DOCUMENTS, methods=names, max_new_tokens=1)
    assert [answer["method"] for answer in result["results"]] == [
        name for name, method in METHODS.items() if not method.needs_scores
    ]
