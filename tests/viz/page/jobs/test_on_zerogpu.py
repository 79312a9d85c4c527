"""The app on ZeroGPU, for which a module stands in that enforces its rules (tests/support/zerogpu/spaces)."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client

from pine_engine.engine.engine import Engine
from pine_engine.prompts.examples import Example
from pine_engine.prompts.tasks import USUAL_TASK
from pine_engine.rows.documents import as_documents
from tests.support.api_server import wait_until
from tests.support.page_client import PageSession, Question
from tests.support.running import views_of
from tests.support.serving import ServedApp, started_app
from tests.support.tokenizers import letter_tokenizer
from tests.support.visiting import visiting
from viz.lab.page.api import USUAL_ORDERS
from viz.lab.page.data_sets import DataSet
from viz.lab.page.evaluate_job import MeasureRequest, measure_rows
from viz.page.answers.answering import prepare_answers
from viz.page.api.reports import compared, shuffled
from viz.page.common.host_settings import DEFAULTS
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.shuffle_job import prepare_shuffle

STAND_IN = Path(__file__).parents[3] / "support" / "zerogpu"
QUESTION = "Who has the key to the boat shed?"
DOCUMENTS = ["Ada has the key to the front door.", "Clara has the key to the boat shed.", "Dario has none."]
METHODS = ["vanilla", "pine"]
ARGUMENTS: dict[str, Any] = {
    "question": QUESTION,
    "documents": DOCUMENTS,
    "methods": METHODS,
    "max_new_tokens": 4,
}
SENT = Question(QUESTION, tuple(DOCUMENTS), tuple(METHODS), 8)
LONG = Question(QUESTION, tuple(DOCUMENTS * 3), tuple(METHODS), 64)  # longer than noticing a stop takes
ROWS = [
    {
        "id": "a",
        "task": "retrieval_qa",
        "question": "Who sings?",
        "documents": [{"text": "Ada sings."}, {"text": "Ben rows."}],
        "answers": ["Ada"],
    }
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tiny_llama: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that reads the page's examples, of which each letter is a token."""
    folder = tmp_path_factory.mktemp("models") / "letters"
    tiny_llama(max_context_length=16_384, head_dim=32, layers=4).save_pretrained(folder)
    letter_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def app(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    flags = ("--model", str(model), "--device", "cpu")
    log = tmp_path_factory.mktemp("zerogpu") / "app.log"
    with started_app(log, *flags, environment={"PYTHONPATH": str(STAND_IN)}) as served:
        yield served


@pytest.fixture(scope="module")
def engine(model: Path) -> Engine:
    return Engine.load(str(model))


def message(app: ServedApp) -> list[str]:
    """Return the output of the stand-in so far."""
    return [line for line in app.log.read_text().splitlines() if line.startswith("spaces: ")]


def texts(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(result["method"], result["text"], result["tokens"]) for result in report["results"]]


def test_api_results_match_other_hosts(app: ServedApp, client: Client, engine: Engine) -> None:
    entries = entries_from([(document.title, document.text) for document in as_documents(DOCUMENTS)])
    form = Form(USUAL_TASK, QUESTION, "", tuple(METHODS), 4, entries)
    answers = client.predict(**ARGUMENTS, api_name="/compare")
    *_, run = views_of(prepare_answers, engine, form, DEFAULTS, trace=False)
    expected = compared(run, ())
    assert expected is not None and answers["results"][1]["text"]
    assert texts(answers) == texts(expected)
    orders = client.predict(**ARGUMENTS, orders=6, seed=0, api_name="/shuffle")
    *_, tried = views_of(prepare_shuffle, engine, form, count=6, seed=0, controls=False, trace=False)
    own_orders = shuffled(tried, ())
    assert own_orders is not None
    for row, own in zip(orders["methods"], own_orders["methods"], strict=True):
        assert row == own | {"max_abs_logit_diff": pytest.approx(own["max_abs_logit_diff"])}
    traces = client.predict(**ARGUMENTS, api_name="/trace")
    assert len(traces["results"]) == 2
    measured = client.predict(rows=ROWS, methods=METHODS, orders=[], max_new_tokens=8, api_name="/measure")
    request = MeasureRequest(
        rows=DataSet("rows.jsonl", "", tuple(map(Example.model_validate, ROWS))),
        limit=1,
        methods=tuple(METHODS),
        orders=USUAL_ORDERS,
        generate=True,
        logprobs=True,
        max_new_tokens=8,
    )
    *_, last = measure_rows(engine, request)
    assert [one["text"] for one in measured["records"]] == [one.text for one in last.records]
    lines = message(app)
    assert sum(line.startswith("spaces: asked for") for line in lines) == 4
    assert lines.count("spaces: process ended with 0") == 4


def test_page_run_on_zerogpu_is_answered(app: ServedApp) -> None:
    async def run() -> str:
        async with visiting(app) as (client, page):
            session = PageSession(client, page)
            await session.open()
            return (await session.run(replace(SENT, tokens=8))).status

    assert "Done:" in asyncio.run(run())
    assert message(app)[-2].startswith("spaces: done after")


@pytest.mark.parametrize("how", ["stop", "leave"])
def test_page_stop_or_disconnect_ends_gpu_process(app: ServedApp, how: str) -> None:
    before = len(message(app))

    async def interrupt() -> str:
        async with visiting(app) as (client, page):
            session = PageSession(client, page)
            await session.open()
            status, is_stopped = "", False
            async with aclosing(session.submit("shuffle", LONG)) as shown:
                async for status, _ in shown:
                    if "reading documents" in status and not is_stopped:
                        if how == "leave":
                            break
                        is_stopped = True
                        await session.send(page.click_event("stop-shuffle"))
            return status

    status = asyncio.run(interrupt())
    assert how == "leave" or "Stopped" in status
    wait_until(lambda: message(app)[-1].startswith("spaces: process ended"), 60)
    request, stopped, ended = message(app)[before:]
    assert request.startswith("spaces: asked for")
    assert re.fullmatch(r"spaces: stopped after \d+ values, in [0-4]\.\d s", stopped)
    assert ended == "spaces: process ended with 0"
