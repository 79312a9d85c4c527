"""Invalid and hostile input: files, values, events and requests are answered or refused, and do no harm."""

import asyncio
import contextlib
import gc
import gzip
import inspect
import itertools
import json
import math
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest
from hypothesis import Phase, given, settings, strategies as st

import app
from pine_engine.errors import InputError
from pine_engine.rows.document_files import read_documents
from tests.support.harm import no_harm
from tests.support.junk import CONTENTS, JUNK, NONEMPTY, PATHS, ROWS, TEXTS
from tests.support.widgets import build_app, built
from viz.lab.page.data_sets import read_set
from viz.page.common.disk import Disk
from viz.page.common.host_settings import DEFAULTS
from viz.page.common.limits import MAX_VALUES
from viz.page.gradio_patches.blocks import NOT_FROM_THE_PAGE, GuardedBlocks
from viz.page.gradio_patches.values import refuse_values
from viz.page.jobs.loader import EngineSource
from viz.page.serving import address_limits
from viz.page.session import from_file

# files

SUFFIXES = (
    ".txt", ".md", ".pdf", ".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".jsonl.gz", ".gz", "", ".PDF"
)  # fmt: skip


@given(content=CONTENTS, suffix=st.sampled_from(SUFFIXES), is_packed=st.booleans())
def test_any_file_is_read_or_refused(
    content: bytes, suffix: str, is_packed: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"input{suffix}"
    path.write_bytes(gzip.compress(content) if is_packed else content)
    for read in (lambda path: read_documents([path]), read_set, from_file):
        with no_harm():
            try:
                assert read(path)
            except InputError as error:
                assert str(error).strip()


# functions and requests of a served page

JSON_BODY = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INTERNAL = ("Internal error", "Internal Server", "Traceback", "root:")


@contextlib.contextmanager
def unclosed_sockets() -> Iterator[None]:
    """Allow sockets that gradio leaves to the garbage collector."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


class PageClient(httpx.Client):
    blocks: GuardedBlocks


@pytest.fixture(scope="module")
def served(source: EngineSource, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageClient]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("uploads")))
        patch.setattr(address_limits, "MAX_REQUESTS", 10**6)
        blocks = build_app(source)
        with unclosed_sockets():
            built(lambda: app.launch(blocks, DEFAULTS, quiet=True))
        with PageClient(base_url=f"{blocks.local_url}gradio_api/", timeout=120, headers=JSON_BODY) as http:
            http.blocks = blocks
            yield http
        with unclosed_sockets():
            blocks.close(verbose=False)


def usual_value(block: Any) -> Any:
    """Return the value that the page sends for a widget, shortened to reduce the work of the model."""
    if block.stateful:
        return None
    value = getattr(block, "value", None)
    short = getattr(block, "minimum", None)
    return value[:9] if isinstance(value, str) and type(block).__name__ == "Textbox" else short or value


VALID: dict[str, st.SearchStrategy[Any]] = {
    "question": NONEMPTY, "documents": st.lists(NONEMPTY, min_size=1, max_size=3), "instruction": TEXTS,
    "methods": st.sampled_from([["pine"], ["nia", "vanilla"]]), "max_new_tokens": st.integers(1, 3),
    "rows": st.lists(ROWS, min_size=1, max_size=2),
}  # fmt: skip
"""Arguments of public functions, with hostile texts."""


def respond(http: httpx.Client, body: dict[str, Any], *, is_queued: bool) -> str:
    """Return all that the page sends in response to an event."""
    response = http.post("queue/join" if is_queued else "run/predict", content=json.dumps(body))
    if not is_queued or response.status_code != 200:
        return response.text
    lines = []
    with http.stream("GET", "queue/data", params={"session_hash": body["session_hash"]}) as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if "process_completed" in line:
                break
    return "\n".join(lines)


@pytest.mark.slow
@settings(phases=[Phase.reuse, Phase.generate])  # smaller examples would take minutes
@given(
    number=st.integers(0, 10**6),
    arguments=st.fixed_dictionaries(VALID),
    junk=st.lists(JUNK, max_size=2),
    event_data=st.none() | JUNK,
    trigger=st.sampled_from([None, 99_999]),
)
def test_any_event_is_answered_or_refused(
    served: PageClient, number: int, arguments: dict[str, Any], junk: list[Any], event_data: Any, trigger: Any
) -> None:
    """Up to two values are junk; others are those of the page, or arguments of a public function."""
    functions: list[Any] = [one for one in served.blocks.fns.values() if one.fn is not None]
    function = functions[number % len(functions)]
    values = list(map(usual_value, function.inputs))
    if function.api_visibility == "public":
        names = inspect.signature(function.fn).parameters
        values = [arguments.get(name, value) for name, value in zip(names, values, strict=False)]
    for shift, value in enumerate(junk):
        place = (number // len(functions) + shift) % (len(values) + 1)  # after the last one: too many values
        values[place : place + 1] = [value]
    body = {"fn_index": function._id, "data": values, "event_data": event_data, "trigger_id": trigger}
    with no_harm():
        text = respond(served, body | {"session_hash": uuid.uuid4().hex}, is_queued=function.queue)
    assert text and not any(word in text for word in INTERNAL)


EVIL = "evil.example"
FORGED = st.dictionaries(
    st.sampled_from(["Host", "Origin", "X-Forwarded-Host", "X-Forwarded-For", "X-Gradio-Server", "Cookie"]),
    st.sampled_from([EVIL, f"https://{EVIL}", f"{EVIL}:80, 127.0.0.1", "null", "[", "a" * 999]),
    max_size=2,
)
POSTS = (
    "mcp/",
    "mcp/",
    "queue/join",
    "run/predict",
    "call/compare",
    "call/nope",
    "cancel",
    "component_server",
)
GETS = [
    address + path
    for address in ("file=", "file/", "proxy=", "stream/", "call/compare/", "static/", "custom_component/")
    for path in (*PATHS, "..%2f..%2fetc%2fpasswd", "a" * 999)
]
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers() | JUNK, "method": st.just("tools/call") | TEXTS},
    optional={"params": JUNK | st.fixed_dictionaries({"name": st.just("compare"), "arguments": JUNK})},
)
"""Messages of MCP clients."""


@pytest.mark.slow
@given(
    url=st.sampled_from(POSTS) | st.sampled_from(GETS),
    headers=st.just({}) | FORGED,
    content=MESSAGES.map(json.dumps) | JUNK.map(json.dumps) | CONTENTS,
)
def test_any_request_is_answered_or_refused(
    served: PageClient, url: str, headers: dict[str, str], content: str | bytes
) -> None:
    method = "POST" if url in POSTS else "GET"
    with no_harm(), contextlib.suppress(httpx.InvalidURL, httpx.RemoteProtocolError):
        response = served.request(method, url, headers=headers, content=content, follow_redirects=True)
        assert response.is_success or response.text
        assert not any(word in response.text for word in INTERNAL)
        assert response.status_code != 200 or EVIL not in response.text


@pytest.mark.slow
@given(name=TEXTS, content=st.binary(max_size=50))
def test_upload_of_any_name_stays_in_folder(served: PageClient, name: str, content: bytes) -> None:
    name = name.encode("utf-8", "replace").decode() or "a"
    with no_harm():
        response = served.post("upload", files={"files": (name, content)}, headers={"Content-Type": ""})
    for path in response.json() if response.status_code == 200 else ():
        assert Path(path).resolve().is_relative_to(Path(served.blocks.GRADIO_CACHE).resolve())


# values that no page sends


@pytest.mark.parametrize(
    "value",
    [
        {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}},
        {"path": "/etc/passwd", "meta": None, "title": "a"},
        {"path": "x", "url": "http://127.0.0.1/"},
        {"_type": "gradio.FileData"},
    ],
)
@pytest.mark.parametrize("depth", [0, 3, 10_000])
def test_file_object_at_any_depth_is_refused(value: Any, depth: int) -> None:
    for level in range(depth):
        value = [value, "a"] if level % 2 else {"a": value, "path": 1}
    with pytest.raises(InputError):
        refuse_values(value)


def test_other_objects_are_not_refused() -> None:
    refuse_values([{"path": "a.txt", "title": "a"}, {"meta": {"url": "b"}, "path": None}, "path", None, 1])


def answer_of(function: Any, widget: Any, value: Any, event_data: Any = None) -> Any:
    """Return the response of a page with one widget and one function to a value."""

    def page() -> GuardedBlocks:
        with GuardedBlocks() as blocks:
            shown = widget()
            shown.change(function, shown, gr.HTML())
        assert isinstance(blocks, GuardedBlocks)
        blocks.disk = Disk(Path(blocks.GRADIO_CACHE), math.inf)
        return blocks

    blocks = built(page)
    state = gr.state_holder.SessionState(blocks)
    called = blocks.process_api(0, [value], state=state, event_data=event_data)
    return asyncio.run(called)["data"][0]


def echo(value: Any) -> str:
    return f"got {value}"


def test_valid_values_reach_the_function() -> None:
    assert answer_of(echo, gr.Textbox, "a") == "got a"
    assert answer_of(echo, lambda: gr.Slider(1, 9), 3) == "got 3"


FILE = {"path": "/tmp/rows.exe", "meta": {"_type": "gradio.FileData"}}
REFUSED: list[tuple[Any, Any, str]] = [
    (lambda: gr.Slider(1, 9), float("nan"), "Invalid number: got nan, expected a finite value."),
    (gr.Number, float("inf"), "Invalid number: got inf, expected a finite value."),
    (gr.Textbox, "a\ud800", "Invalid text: unpaired Unicode surrogate. Remove it."),
    (gr.HTML, [{}] * MAX_VALUES, "Too many values"),
    (gr.HTML, {"a": [[0] * 1000] * 101}, "Too many values"),
    (lambda: gr.Dropdown(["a"], label="Kind"), [], "Kind: got several values, expected one."),
    (lambda: gr.Slider(1, 9), 10, "Value 10 is greater than maximum value 9."),
    (lambda: gr.Slider(1, 9), "x", NOT_FROM_THE_PAGE),
    (lambda: gr.CheckboxGroup(["a"]), None, NOT_FROM_THE_PAGE),
    (lambda: gr.Dropdown(["a"]), "<img src=x>", "Value: &lt;img src=x&gt; is not in"),
    (gr.UploadButton, FILE | {"path": "https://example.com/x.txt"}, "URLs are not supported as files."),
    (lambda: gr.UploadButton(file_types=[".csv"]), FILE, "Invalid file type: got &#39;rows.exe&#39;"),
]


@pytest.mark.parametrize(("widget", "value", "sentence"), REFUSED)
def test_invalid_value_is_refused_without_a_traceback(
    widget: Any, value: Any, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(gr.Error) as raised:
        answer_of(echo, widget, value)
    assert raised.value.message.startswith(sentence) and "<" not in raised.value.message
    assert not raised.value.print_exception
    assert not any(record.exc_info for record in caplog.records)


def test_path_with_nul_in_event_data_is_refused() -> None:
    data = gr.EventData(None, {"path": "a\0", "meta": {"_type": "gradio.FileData"}})
    with pytest.raises(gr.Error, match="NUL byte"):
        answer_of(echo, gr.Textbox, "a", data)


@pytest.mark.parametrize(
    ("is_widget", "error", "sentence"),
    [(False, KeyError("a"), "Internal error .KeyError."), (True, MemoryError(), "Out of memory")],
)
def test_internal_error_is_a_sentence_with_traceback_in_the_log(
    is_widget: bool,
    error: Exception,
    sentence: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise error

    if is_widget:
        monkeypatch.setattr(gr.Textbox, "preprocess", fail)
    with pytest.raises(gr.Error, match=sentence) as raised:
        answer_of(echo if is_widget else fail, gr.Textbox, "a")
    assert not raised.value.print_exception
    assert [bool(record.exc_info) for record in caplog.records] == [True]


@pytest.mark.slow
def test_every_function_answers_calls_out_of_turn(
    source: EngineSource, caplog: pytest.LogCaptureFixture
) -> None:
    """With the initial values of the page, and with nothing in any widget."""
    page = build_app(source)
    called = [
        index for index, one in page.fns.items() if one.fn is not None and one.api_visibility == "private"
    ]
    assert len(called) > 40

    async def call(index: int, *, empty: bool) -> None:
        data = [None if empty else usual_value(widget) for widget in page.fns[index].inputs]
        state = gr.state_holder.SessionState(page)
        with contextlib.suppress(gr.Error):
            await page.process_api(
                index,
                data,
                state=state,
                event_data=gr.EventData(None, None),
                request=gr.Request(query_params={}),
            )

    for index, empty in itertools.product(called, (False, True)):
        caplog.clear()
        asyncio.run(call(index, empty=empty))
        assert not [record.exc_info for record in caplog.records if record.exc_info], page.fns[index].name
