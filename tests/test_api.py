"""The two public calls, through gradio's own client, on the embedded model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.serving import served_app

pytestmark = pytest.mark.embedded

QUESTION = "Who has the key to the boat shed?"
DOCUMENTS = ["Ada has the key to the front door.", "Clara has the key to the boat shed.", "Dario has none."]


@pytest.fixture(scope="module")
def client(embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with served_app(tmp_path_factory.mktemp("api") / "app.log") as app:
        client = Client(app.url, verbose=False)
        yield client
        client.close()


def ask(client: Client, name: str, **arguments: Any) -> Any:
    return client.predict(question=QUESTION, documents=DOCUMENTS, api_name=name, **arguments)


def test_only_the_two_calls_are_public(client: Client) -> None:
    assert set(client.view_api(return_format="dict")["named_endpoints"]) == {"/compare", "/shuffle"}


def test_compare_answers_with_the_methods_asked_for(client: Client) -> None:
    report = ask(client, "/compare", methods=["vanilla", "pine"], max_new_tokens=4, instruction="")
    assert set(report) == {"model", "dtype", "results"}
    assert report["model"] == "SmolLM2-135M-Instruct" and report["dtype"] == "float32"
    assert [result["method"] for result in report["results"]] == ["vanilla", "pine"]
    for result in report["results"]:
        assert set(result) == {"method", "text", "tokens", "prefill_s", "decode_s_per_token"}
        assert 1 <= result["tokens"] <= 4 and result["text"] and result["prefill_s"] > 0


def test_the_instruction_reaches_the_model(client: Client) -> None:
    answers = [
        ask(client, "/compare", methods=["pine"], max_new_tokens=8, instruction=instruction)["results"][0]
        for instruction in ("", "Answer in French with a long poem about the sea.")
    ]
    assert answers[0]["text"] != answers[1]["text"]


def test_shuffle_reports_every_order_and_pine_keeps_its_promise(client: Client) -> None:
    report = ask(client, "/shuffle", methods=["vanilla", "pine"], max_new_tokens=4, orders=6, seed=0)
    rows = {row["method"]: row for row in report["rows"]}
    assert rows["pine"]["orders"] == rows["vanilla"]["orders"] == 6
    assert rows["pine"]["bitwise_equal"] and rows["pine"]["max_abs_logit_diff"] == 0.0
    assert rows["vanilla"]["max_abs_logit_diff"] > 0.1
    assert report["summary"]["pine"]["kept_promise"] is True
    assert report["summary"]["vanilla"]["kept_promise"] is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": ["magic"]}, "Unknown method 'magic'"),
        ({"documents": ["one", " "]}, "Document B is empty"),
        ({"documents": []}, "There are no documents"),
        ({"question": ""}, "There is no question"),
        ({"max_new_tokens": 9000}, "shorten or remove documents"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(change: dict, sentence: str, client: Client) -> None:
    arguments = {"question": QUESTION, "documents": DOCUMENTS, "methods": ["pine"], "max_new_tokens": 4}
    with pytest.raises(AppError) as caught:
        client.predict(**(arguments | {"instruction": ""} | change), api_name="/compare")
    assert sentence in str(caught.value)
