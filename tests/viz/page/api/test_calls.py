"""The public calls, through gradio's own client and as tools of an MCP server, on the embedded model."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

from pine_engine.methods.table import METHODS
from pine_engine.models.dtypes import Dtype
from tests.support.serving import Serve, ServedApp
from viz.page.api.results import RESULTS

DOCS = Path(__file__).parents[4] / "docs" / "api.md"
QUESTION = "Who has the key to the boat shed?"
DOCUMENTS = ["Ada has the key to the front door.", "Clara has the key to the boat shed.", "Dario has none."]


@pytest.fixture(scope="module")
def app(serve: Serve, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedApp]:
    with serve(tmp_path_factory.mktemp("api") / "app.log") as served:
        yield served


def ask(client: Client, name: str, documents: list[str] = DOCUMENTS, **arguments: Any) -> Any:
    options = {"max_new_tokens": 4} | arguments
    report = client.predict(question=QUESTION, documents=documents, api_name=name, **options)
    jsonschema.validate(report, closed(RESULTS[name.removeprefix("/")]))
    return report


def closed(schema: Any) -> Any:
    """Return a schema that allows only the fields that it describes."""
    if isinstance(schema, list):
        return list(map(closed, schema))
    if not isinstance(schema, dict):
        return schema
    only = {"additionalProperties": False} if schema.get("type") == "object" else {}
    return {key: closed(value) for key, value in schema.items()} | only


CALLS = {"compare", "shuffle", "trace", "leave_one_out", "measure"}

DUET = [{"text": "Ada sings."}, {"title": "Boats", "text": "Ben rows."}]
ROWS = [
    {"id": "a", "question": "Who sings?", "documents": DUET, "answers": ["Ada"]},
    {"id": "b", "task": "retrieval_qa", "question": "Who rows?", "documents": DUET, "answers": ["Ben"]},
]


def test_no_other_calls_are_public(client: Client) -> None:
    found = client.view_api(return_format="dict")["named_endpoints"]
    assert set(found) == {f"/{name}" for name in CALLS}


def test_compare_answers_with_the_requested_methods(client: Client) -> None:
    report = ask(client, "/compare", methods=["vanilla", "pine"], instruction="")
    assert set(report) == {"model", "dtype", "results"}
    assert report["model"] == "SmolLM2-135M-Instruct" and report["dtype"] in get_args(Dtype)
    assert [result["method"] for result in report["results"]] == ["vanilla", "pine"]
    for result in report["results"]:
        assert set(result) == {"method", "text", "is_correct", "tokens", "prefill_s", "decode_s_per_token"}
        assert result["is_correct"] is None  # no accepted answer
        assert 1 <= result["tokens"] <= 4 and result["text"] and result["prefill_s"] > 0


def test_a_document_is_a_text_or_has_a_title_that_the_model_reads(client: Client) -> None:
    def lengths(*documents: str | dict[str, str]) -> Any:
        arguments = {"question": QUESTION, "methods": ["vanilla"], "max_new_tokens": 1}
        report = client.predict(documents=list(documents), **arguments, api_name="/trace")
        return [document["tokens"] for document in report["results"][0]["documents"]]

    texts = lengths(*DOCUMENTS)
    assert lengths(*({"text": text} for text in DOCUMENTS)) == texts
    titled = lengths({"text": DOCUMENTS[0], "title": "The keys of the house"}, *DOCUMENTS[1:])
    assert titled[0] > texts[0] and titled[1:] == texts[1:]


def test_the_instruction_reaches_the_model(client: Client) -> None:
    answers = [
        ask(client, "/compare", methods=["pine"], max_new_tokens=8, instruction=instruction)["results"][0]
        for instruction in ("", "Answer in French with a long poem about the sea.")
    ]
    assert answers[0]["text"] != answers[1]["text"]


@pytest.mark.parametrize("name", ["/compare", "/shuffle", "/trace", "/measure"])
def test_template_arguments_reach_the_template(client: Client, name: str) -> None:
    prompts = {"rows": ROWS} if name == "/measure" else {"question": QUESTION, "documents": DOCUMENTS}
    with pytest.raises(AppError, match="enable_thinking"):
        client.predict(**prompts, chat_template_kwargs={"enable_thinking": False}, api_name=name)


def test_shuffle_gives_every_order_with_its_answers_and_pine_keeps_its_promise(client: Client) -> None:
    report = ask(client, "/shuffle", DOCUMENTS[1:], methods=["vanilla", "pine"], answers=["Clara"])
    by_method = {row["method"]: row for row in report["methods"]}
    vanilla, pine = by_method["vanilla"], by_method["pine"]
    assert pine["orders"] == vanilla["orders"] == len(report["orders"]) == 2
    assert (
        pine["bitwise_identical"] and pine["max_abs_logit_diff"] == 0.0 and pine["num_distinct_answers"] == 1
    )
    assert vanilla["max_abs_logit_diff"] > 0.1
    assert (pine["invariance_held"], vanilla["invariance_held"]) == (True, None)
    assert [order["order"] for order in report["orders"]] == [[0, 1], [1, 0]]
    for place, row in enumerate(report["methods"]):
        answers = [order["answers"][place] for order in report["orders"]]
        assert len({answer["text"] for answer in answers}) == row["num_distinct_answers"]
        assert [answer["is_correct"] for answer in answers] == [
            "Clara" in answer["text"] for answer in answers
        ]
        assert row["num_correct"] == sum(answer["is_correct"] for answer in answers)
        assert answers[0]["same_as_first"] and answers[0]["max_abs_logit_diff"] == 0.0


def test_leave_one_out_gives_a_difference_for_each_document(client: Client) -> None:
    report = ask(client, "/leave_one_out", methods=["vanilla", "pine"])
    assert [result["method"] for result in report["results"]] == ["vanilla", "pine"]
    for result in report["results"]:
        assert set(result) == {"method", "text", "logprob", "differences"}
        assert len(result["differences"]) == len(DOCUMENTS) and result["logprob"] < 0 < len(result["text"])


def test_trace_says_where_the_documents_stand_and_what_they_are_worth(client: Client) -> None:
    methods = ["vanilla", "pcw", "pine"]
    short = ask(client, "/trace", methods=methods, max_new_tokens=2)
    report = ask(client, "/trace", methods=methods, max_new_tokens=2, arrays=True)
    vanilla, pcw, pine = report["results"]
    lengths, first = [document["tokens"] for document in pine["documents"]], report["prefix_tokens"]
    assert len(json.dumps(short)) < 3_000 < 20 * len(json.dumps(short)) < len(json.dumps(report))
    assert vanilla["starts"] == [[[first, first + lengths[0], first + lengths[0] + lengths[1]]]]
    assert pcw["starts"] == [[[first] * 3]] and vanilla["importance"] is None
    assert len(pine["starts"]) == len(pine["importance"]) == 30 and len(pine["starts"][0]) == 9
    for starts, importance in zip(pine["starts"][5], pine["importance"][5], strict=True):
        ranked = sorted(range(3), key=importance.__getitem__)  # the most important one stands last
        assert sorted(range(3), key=starts.__getitem__) == ranked
    for method, compact in zip(report["results"], short["results"], strict=True):
        assert sum(method["attention"][0][0]) == pytest.approx(1, abs=1e-5)
        assert compact == method | dict.fromkeys(("starts", "importance", "attention"))
        shares = [document["attention"] for document in method["documents"]]
        assert sum(shares) + method["prefix_attention"] + method["suffix_attention"] == pytest.approx(
            1, abs=1e-5
        )
    for place, document in enumerate(pine["documents"]):
        starts = [head[place] for layer in pine["starts"] for head in layer]
        assert document["starts"] == [min(starts), pytest.approx(sum(starts) / len(starts)), max(starts)]


@pytest.mark.slow
def test_measure_scores_every_row_in_every_order(client: Client) -> None:
    report = client.predict(
        rows=ROWS, methods=["vanilla", "pine"], orders=[], max_new_tokens=8, api_name="/measure"
    )
    (task,) = report["summary"]["tasks"]
    assert (task["task"], task["examples"]) == ("retrieval_qa", 2)
    keys = {(record["example"], record["method"], record["order_name"]) for record in report["records"]}
    assert len(keys) == len(report["records"]) == 2 * 2 * 2
    pine = [record["text"] for record in report["records"] if record["method"] == "pine"]
    assert pine[0] == pine[1] and pine[2] == pine[3]


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "rows.jsonl has no rows"),
        ([ROWS[0], {**ROWS[1], "gold_index": 7}], "line 2"),
        ([ROWS[0], ROWS[0]], "line 2: id 'a' was used in line 1"),
        ([ROWS[0]] * 1000, "Dataset too large: 1,000 examples (limit: 200)"),
    ],
)
def test_rows_that_cannot_be_measured_are_named(rows: list[Any], sentence: str, client: Client) -> None:
    with pytest.raises(AppError) as caught:
        client.predict(rows=rows, methods=["pine"], orders=[], max_new_tokens=4, api_name="/measure")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"methods": ["magic"]}, "Invalid argument methods: Unknown method 'magic'"),
        ({"documents": ["one", " "]}, "Invalid argument documents[1]: Text is empty."),
        ({"question": ""}, "Invalid argument question: Must not be empty."),
        (
            {"documents": ["one", 2, {"id": 3, "score": 0.5}]},
            'Invalid argument documents[1]: got 2, expected a text or {"text": ..., "title": ...}, the '
            "text also as page_content or content",
        ),
        ({"max_new_tokens": 9000}, "Invalid argument max_new_tokens: Max new tokens too high: 9,000"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(change: dict[str, Any], sentence: str, client: Client) -> None:
    arguments = {"question": QUESTION, "documents": DOCUMENTS, "methods": ["pine"], "max_new_tokens": 4}
    with pytest.raises(AppError) as caught:
        client.predict(**(arguments | {"instruction": ""} | change), api_name="/compare")
    assert sentence in str(caught.value)


# as tools of an assistant


def call_tools(
    app: ServedApp, *calls: tuple[str, dict[str, Any]], hear: Any = None
) -> tuple[dict[str, Any], list[Any]]:
    """Tools by the end of their name, and what each call gives; hear: called with the progress."""

    async def talk() -> tuple[dict[str, Any], list[Any]]:
        async with (
            streamable_http_client(f"{app.url}gradio_api/mcp/") as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            listed = (await session.list_tools()).tools
            tools = {next(call for call in CALLS if tool.name.endswith(call)): tool for tool in listed}
            return tools, [
                await session.call_tool(tools[name].name, arguments, progress_callback=hear)
                for name, arguments in calls
            ]

    return asyncio.run(talk())


def untyped(schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the paths of parts of a schema that have not exactly one of a type, choices and a reference."""
    if len({"type", "anyOf", "$ref"} & schema.keys()) != 1 or "oneOf" in schema:
        yield path
    inner = dict(enumerate(schema.get("anyOf", []))) | schema.get("properties", {}) | schema.get("$defs", {})
    inner |= {"items": schema["items"]} if "items" in schema else {}
    for name, part in inner.items():
        yield from untyped(part, f"{path}.{name}")


def test_an_assistant_finds_the_tools_with_schemas(app: ServedApp) -> None:
    tools, _ = call_tools(app)
    assert set(tools) == CALLS
    assert "whether document order changes the answer" in tools["shuffle"].description
    properties = tools["compare"].inputSchema["properties"]
    text, titled = properties["documents"]["items"]["anyOf"]
    assert (properties["documents"]["type"], text["type"]) == ("array", "string")
    assert set(titled["properties"]) == {"text", "title"} and "required" not in titled
    assert "in prompt order" in properties["documents"]["description"]
    for name, tool in tools.items():
        assert {"model", "dtype"} <= set(tool.outputSchema["required"]), name
        if name != "measure":
            assert tool.inputSchema["properties"]["methods"]["anyOf"][1]["items"]["enum"] == list(METHODS)
    assert "order[i] is the index" in json.dumps(tools["shuffle"].outputSchema)
    for name, tool in tools.items():
        for schema in (tool.inputSchema, tool.outputSchema):
            assert schema["type"] == "object" and list(untyped(schema, name)) == []
            assert isinstance(schema["required"], list) and schema["properties"].keys() >= {
                *schema["required"]
            }
        descriptions = [part["description"] for part in tool.inputSchema["properties"].values()]
        assert all(text.endswith(".") for text in descriptions), descriptions  # gradio keeps one line of each


def test_mcp_call_answers_and_reports_mistakes(app: ServedApp) -> None:
    arguments = {"question": QUESTION, "documents": DOCUMENTS, "methods": ["pine"], "max_new_tokens": 4}
    tools, (answered, refused) = call_tools(
        app,
        ("compare", arguments | {"documents": [*DOCUMENTS[:2], {"text": DOCUMENTS[2]}]}),
        ("compare", arguments | {"documents": ["one", " "]}),
    )
    report = json.loads(answered.content[0].text)
    assert not answered.isError and report == answered.structuredContent
    jsonschema.validate(report, tools["compare"].outputSchema)
    assert [(result["method"], result["tokens"]) for result in report["results"]] == [("pine", 4)]
    assert refused.isError and "Invalid argument documents[1]: Text is empty." in refused.content[0].text


@pytest.mark.slow
def test_an_assistant_hears_how_far_a_shuffle_is(app: ServedApp) -> None:
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    arguments = {"question": QUESTION, "documents": DOCUMENTS[:2], "methods": ["pine"], "max_new_tokens": 2}
    _, (answered,) = call_tools(app, ("shuffle", arguments), hear=hear)
    assert len(answered.structuredContent["orders"]) == 2
    # They are answered together, and of what happens within a tenth of a second gradio tells the last only.
    assert any("2 orders: " in message for message in heard), heard


# as the docs say


RIGHT_ANSWER = "Dario has the key to the boat shed."


def documented(language: str) -> list[str]:
    """The blocks of docs/api.md in a language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def test_the_documented_python_runs(app: ServedApp) -> None:
    code = documented("python")[0].replace("http://127.0.0.1:7860/", app.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    _, *lines = done.stdout.splitlines()  # the first one is of the client
    assert lines == [f"{name} {RIGHT_ANSWER}" for name in ("vanilla", "pine")]


def test_the_documented_curl_runs(app: ServedApp) -> None:
    (code,) = documented("sh")
    code = code.replace("http://127.0.0.1:7860/", app.url)
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, timeout=200)
    assert "event: complete" in done.stdout and '"method": "pine"' in done.stdout, done
    assert done.stdout.count(f'"text": "{RIGHT_ANSWER}"') == 2
