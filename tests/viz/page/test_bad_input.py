"""Bad input at every door: a few hundred of what `python -m tools.fuzz` throws, and what it has found."""

import asyncio
import contextlib
import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

import app
from pine_engine.errors import InputError
from tests.support.widgets import built
from tools.fuzz.over_http import usual_value
from tools.fuzz.served import tiny_engine
from viz.page.common.disk import Disk
from viz.page.form.documents import Entry
from viz.page.form.form import MAX_CHARACTERS, Form
from viz.page.gradio_patches.blocks import NOT_FROM_THE_PAGE, GuardedBlocks, refuse_files
from viz.page.jobs.loading import EngineSource

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_nothing_that_is_thrown_at_the_doors_does_harm() -> None:
    command = [sys.executable, "-m", "tools.fuzz", "--inputs", "200", "--seed", "1", "--json"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert [failure for kind in report["kinds"] for failure in kind["failures"]] == []
    assert (report["tracebacks"], report["touched_outside"], report["control_tokens"]) == ([], [], 0)
    assert done.returncode == 0 and report["inputs"] == 200
    assert all(kind["inputs"] and kind["refused"] for kind in report["kinds"])
    assert report["answered"] > 30


# what no page sends


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
def test_refuse_files_finds_file_object_at_any_depth(value: Any, depth: int) -> None:
    for level in range(depth):
        value = [value, "a"] if level % 2 else {"a": value, "path": 1}
    with pytest.raises(InputError):
        refuse_files(value)


def test_refuse_files_allows_other_objects() -> None:
    refuse_files([{"path": "a.txt", "title": "a"}, {"meta": {"url": "b"}, "path": None}, "path", None, 1])


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


def test_what_a_page_sends_comes_through() -> None:
    assert answer_of(echo, gr.Textbox, "a") == "got a"
    assert answer_of(echo, lambda: gr.Slider(1, 9), 3) == "got 3"


@pytest.mark.parametrize(
    ("widget", "value", "sentence"),
    [
        (lambda: gr.Slider(1, 9), float("nan"), "Invalid number: got nan, expected a finite value."),
        (gr.Number, float("inf"), "Invalid number: got inf, expected a finite value."),
        (gr.Textbox, "a\ud800", "Invalid text: unpaired Unicode surrogate. Remove it."),
        (lambda: gr.Dropdown(["a"], label="Kind"), [], "Kind: got several values, expected one."),
        (lambda: gr.Slider(1, 9), 10, "Value 10 is greater than maximum value 9."),
        (lambda: gr.Slider(1, 9), "x", NOT_FROM_THE_PAGE),
        (lambda: gr.CheckboxGroup(["a"]), None, NOT_FROM_THE_PAGE),
        (
            gr.UploadButton,
            {"path": "https://example.com/x.txt", "meta": {"_type": "gradio.FileData"}},
            "URLs are not supported as files. Upload the file.",
        ),
        (
            lambda: gr.UploadButton(file_types=[".csv", ".jsonl"]),
            {"path": "/tmp/rows.exe", "meta": {"_type": "gradio.FileData"}},
            "Invalid file type: got &#39;rows.exe&#39;, expected .csv, .jsonl.",
        ),
    ],
)
def test_what_no_page_sends_is_refused_without_a_traceback(
    widget: Any, value: Any, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(gr.Error) as raised:
        answer_of(echo, widget, value)
    assert raised.value.message.startswith(sentence)
    assert not raised.value.print_exception
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.slow
def test_every_function_of_the_page_answers_who_calls_it_out_of_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With what the page has at first, and with nothing in any widget."""
    engine = tiny_engine()
    page = built(lambda: app.build_app(EngineSource(lambda: engine, "tiny")))
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


def test_a_value_that_is_refused_is_not_shown_as_html() -> None:
    with pytest.raises(gr.Error) as raised:
        answer_of(echo, lambda: gr.Dropdown(["a"]), "<img src=x>")
    assert "&lt;img src=x&gt;" in raised.value.message and "<" not in raised.value.message


def test_a_path_with_a_nul_among_the_data_of_an_event_is_refused() -> None:
    data = gr.EventData(None, {"path": "a\0", "meta": {"_type": "gradio.FileData"}})
    with pytest.raises(gr.Error, match="NUL byte"):
        answer_of(echo, gr.Textbox, "a", data)


def test_a_mistake_of_ours_is_a_sentence_and_a_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def mistaken(value: str) -> str:
        raise KeyError(value)

    with pytest.raises(gr.Error, match="Internal error .KeyError.") as raised:
        answer_of(mistaken, gr.Textbox, "a")
    assert not raised.value.print_exception
    assert [bool(record.exc_info) for record in caplog.records] == [True]


def test_failure_of_a_widget_is_an_internal_error_with_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(gr.Textbox, "preprocess", fail)
    with pytest.raises(gr.Error, match="Out of memory"):
        answer_of(echo, gr.Textbox, "a")
    assert [bool(record.exc_info) for record in caplog.records] == [True]


# sizes and times


def test_texts_that_take_too_long_to_count_are_refused() -> None:
    half = "x" * (MAX_CHARACTERS // 2)
    entries = (Entry(0, "", half), Entry(1, "", half))
    Form("retrieval_qa", "", "", (), 8, (Entry(0, half, half),))
    with pytest.raises(InputError, match="Input too long: 500,001 characters .limit: 500,000."):
        Form("retrieval_qa", "?", "", ("pine",), 8, entries).check()
    with pytest.raises(InputError, match="No question"):
        Form("retrieval_qa", "", "", ("pine",), 8, entries).check()
