"""The app on ZeroGPU, for which a module stands in that enforces its rules (tests/support/zerogpu/spaces)."""

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from pine_engine.engine.engine import Engine
from pine_engine.evaluation.examples import Example
from pine_engine.prompts.prompt import as_documents
from tests.support.serving import ServedApp, started_app
from tests.support.tokenizers import letter_tokenizer
from viz.page.api.calls import USUAL_ORDERS, _form
from viz.page.api.works import CallView, compare, measure, shuffle
from viz.page.common.host_settings import DEFAULTS
from viz.page.files.data_sets import DataSet

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
ROWS = [
    {
        "id": "a",
        "task": "retrieval_qa",
        "question": "Who sings?",
        "documents": [{"text": "Ada sings."}, {"text": "Ben rows."}],
        "answers": ["Ada"],
    }
]
PATIENCE_S = 60.0

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


@pytest.fixture(scope="module")
def client(app: ServedApp) -> Iterator[Client]:
    client = Client(app.url, verbose=False)
    yield client
    client.close()


class Visitor:
    """Client that presses buttons of the page. Widgets keep their initial values unless `press` sets them."""

    def __init__(self, app: ServedApp, name: str) -> None:
        self._http = httpx.Client(base_url=app.url, timeout=PATIENCE_S)
        self._name = name
        config = self._http.get("config").json()
        self._events = config["dependencies"]
        self._widgets = {widget["id"]: widget["props"] for widget in config["components"]}
        for event in self._events:
            if event["queue"] and any(kind == "load" for _, kind in event["targets"]):
                list(self._events_of(self._body(event)))

    def close(self) -> None:
        self._http.close()

    def _click_body(self, button: str, **values: Any) -> dict[str, Any]:
        number = next(id for id, props in self._widgets.items() if props.get("elem_id") == button)
        return self._body(next(one for one in self._events if [number, "click"] in one["targets"]), **values)

    def _body(self, event: dict[str, Any], **values: Any) -> dict[str, Any]:
        widgets = [self._widgets[widget] for widget in event["inputs"]]
        data = [values.get(props.get("elem_id"), props.get("value")) for props in widgets]
        return {"data": data, "fn_index": event["id"], "session_hash": self._name}

    def press(self, button: str, **values: Any) -> Generator[str, None, None]:
        """Press a button that queues for the model, and yield the server events until the last."""
        yield from self._events_of(self._click_body(button, **values))

    def _events_of(self, body: dict[str, Any]) -> Generator[str, None, None]:
        self._http.post("gradio_api/queue/join", json=body).raise_for_status()
        path = f"gradio_api/queue/data?session_hash={self._name}"
        with self._http.stream("GET", path) as response:
            for line in response.iter_lines():
                yield line
                if '"process_completed"' in line:
                    return

    def press_at_once(self, button: str) -> None:
        """Presses a button that does not wait for the model."""
        self._http.post("gradio_api/run/predict", json=self._click_body(button)).raise_for_status()


def wait_until(condition: Callable[[], bool]) -> None:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE_S
        time.sleep(0.1)


def message(app: ServedApp) -> list[str]:
    """Return the output of the stand-in so far."""
    return [line for line in app.log.read_text().splitlines() if line.startswith("spaces: ")]


def reported(work: Generator[CallView, None, None]) -> dict[str, Any]:
    *_, last = work
    assert last.answer is not None
    return last.answer()


def texts(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [(result["method"], result["text"], result["tokens"]) for result in report["results"]]


def test_the_public_calls_answer_as_they_do_without(app: ServedApp, client: Client, engine: Engine) -> None:
    form = _form(DEFAULTS, QUESTION, as_documents(DOCUMENTS), METHODS, 4, "")
    compared = client.predict(**ARGUMENTS, api_name="/compare")
    assert (
        texts(compared) == texts(reported(compare(engine, form, (), DEFAULTS)))
        and compared["results"][1]["text"]
    )
    shuffled = client.predict(**ARGUMENTS, orders=6, seed=0, api_name="/shuffle")
    for row, own in zip(
        shuffled["methods"], reported(shuffle(engine, form, 6, 0, (), DEFAULTS))["methods"], strict=True
    ):
        assert row == own | {"max_abs_logit_diff": pytest.approx(own["max_abs_logit_diff"])}
    traced = client.predict(**ARGUMENTS, api_name="/trace")
    assert len(traced["results"]) == 2
    measured = client.predict(rows=ROWS, methods=METHODS, orders=[], max_new_tokens=8, api_name="/measure")
    rows = DataSet("rows.jsonl", "", tuple(map(Example.model_validate, ROWS)))
    expected = reported(measure(engine, rows, tuple(METHODS), USUAL_ORDERS, 8, DEFAULTS))
    assert [one["text"] for one in measured["records"]] == [one["text"] for one in expected["records"]]
    lines = message(app)
    assert sum(line.startswith("spaces: asked for") for line in lines) == 4
    assert lines.count("spaces: process ended with 0") == 4


def test_a_run_of_the_page_is_answered(app: ServedApp) -> None:
    with closing(Visitor(app, "runs")) as visitor:
        record = "".join(visitor.press("run", length=8))
    assert "Done:" in record and "Something went wrong" not in record
    assert message(app)[-2].startswith("spaces: done after")


@pytest.mark.parametrize("how", ["stop", "leave"])
def test_who_stops_or_leaves_ends_the_process_that_has_the_gpu(app: ServedApp, how: str) -> None:
    before = len(message(app))
    with closing(Visitor(app, how)) as visitor:
        record = visitor.press("shuffle", length=64)
        assert any("layer" in line for line in record)
        if how == "stop":
            visitor.press_at_once("stop-shuffle")
            assert "Stopped" in "".join(record)
        else:
            record.close()
    wait_until(lambda: message(app)[-1].startswith("spaces: process ended"))
    request, stopped, ended = message(app)[before:]
    assert request.startswith("spaces: asked for")
    assert re.fullmatch(r"spaces: stopped after \d+ values, in [0-4]\.\d s", stopped)
    assert ended == "spaces: process ended with 0"


def test_zerogpu_refusals_match_other_hosts(app: ServedApp, client: Client) -> None:
    with pytest.raises(AppError, match="^The argument methods: Unknown method 'x'; choose from: vanilla"):
        client.predict(**ARGUMENTS | {"methods": ["x"]}, api_name="/compare")
