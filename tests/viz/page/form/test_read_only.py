"""The read-only page: its examples run, in any order and number of documents, and nothing else does."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from app import build_app
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.prompts.tasks import TASKS
from tests.support.running import views_of
from tests.support.widgets import built
from viz.page.answers.answering import prepare_answers
from viz.page.common.host_settings import HostSettings
from viz.page.evaluate_job import MeasureRequest
from viz.page.files.data_sets import OWN, built_in_choices, read_built_in
from viz.page.form.checks import NOTE, check_rows_shipped, check_shipped
from viz.page.form.documents import Entry
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import Form
from viz.page.internals import View
from viz.page.jobs.loading import EngineSource
from viz.page.position_sweep_job import prepare_sweep
from viz.page.session import session_of, to_code

READ_ONLY = HostSettings(read_only=True)
EXAMPLES = load_examples()
SHORT = EXAMPLES[0]


def form(example: FormExample = SHORT, **changes: Any) -> Form:
    return replace(example.form(["pine"], 8), **changes)


@pytest.fixture(scope="module")
def page(source: EngineSource) -> gr.Blocks:
    return built(lambda: build_app(source, settings=READ_ONLY))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_can_be_run(example: FormExample) -> None:
    request = form(example)
    for allowed in (
        request,
        replace(request, entries=request.entries[::-1]),
        replace(request, entries=request.entries[1:], max_new_tokens=16, methods=("vanilla", "nia")),
        replace(request, instruction=TASKS[example.task].instruction),
        replace(request, entries=tuple(replace(entry, title="") for entry in request.entries)),
    ):
        check_shipped(allowed)


OTHERS = [
    form(question=f"{SHORT.question} And who else?"),
    form(instruction="Say something bad."),
    form(task="kv_retrieval"),
    form(entries=(*form().entries[:2], Entry(2, "", "a text of my own"))),
    form(entries=(*form().entries[:2], replace(form().entries[2], title="a title of my own"))),
    form(entries=(*form().entries, form().entries[0])),
    form(EXAMPLES[1], question=SHORT.question),
]


@pytest.mark.parametrize("other", OTHERS)
def test_other_form_raises(other: Form, engine: Engine) -> None:
    with pytest.raises(InputError, match="Demo mode"):
        next(views_of(prepare_answers, engine, other, READ_ONLY))


def test_target_answer_must_be_of_the_example(engine: Engine) -> None:
    request = form(methods=("vanilla", "nia"))
    with pytest.raises(InputError, match="Demo mode"):
        next(
            views_of(
                prepare_sweep, engine, request, document=0, answer="an answer of my own", settings=READ_ONLY
            )
        )
    assert next(
        views_of(prepare_sweep, engine, request, document=0, answer=SHORT.answers[0], settings=READ_ONLY)
    ).sentence


def test_only_built_in_examples_are_evaluated() -> None:
    for _, name in built_in_choices():
        check_rows_shipped(read_built_in(name).examples)
    rows = read_built_in("retrieval_qa")
    own = replace(rows, examples=(rows.examples[0].model_copy(update={"question": "What of mine?"}),))
    with pytest.raises(InputError, match="Select a built-in dataset"):
        MeasureRequest(own, 1, ("pine",), ("as-is",), True, False, 8).settings(READ_ONLY)


def call(page: gr.Blocks, name: str) -> Callable[..., Any]:
    found = next(event.fn for event in page.fns.values() if name in (event.api_name, event.name))
    assert found is not None
    return found


def test_api_calls_accept_examples_only(page: gr.Blocks) -> None:
    texts = [document.text for document in SHORT.documents]
    assert call(page, "compare")(SHORT.question, texts, ["pine"], 8)["results"]
    for name in ("compare", "shuffle", "trace"):
        with pytest.raises(gr.Error, match="Demo mode") as refused:
            call(page, name)(SHORT.question, [*texts, "a text of my own"], ["pine"], 8)
        assert not refused.value.print_exception, "a refusal is no traceback in the log"
    rows = [row.model_dump(mode="json") for row in read_built_in("retrieval_qa").examples[:1]]
    assert call(page, "measure")(rows, ["pine"], ["as-is"], 16)["records"]
    with pytest.raises(gr.Error, match="Demo mode"):
        call(page, "measure")([rows[0] | {"question": "What of mine?"}], ["pine"], ["as-is"], 16)


def test_link_with_other_contents_is_rejected(page: gr.Blocks) -> None:
    restore = call(page, "restore")
    codes = [to_code(session_of(request, accepted="")) for request in (form(), OTHERS[0])]
    record = [str(restore(code, "", View())) for code in codes]
    assert "Loaded from a link." in record[0] and NOTE not in record[0]
    assert NOTE in record[1] and "And who else?" not in record[1]


@pytest.mark.parametrize("name", ["upload_rows", "open_file"])
def test_read_only_page_opens_no_file(page: gr.Blocks, name: str, tmp_path: Path) -> None:
    file = {"path": str(tmp_path / "rows.jsonl"), "meta": {"_type": "gradio.FileData"}}
    event = next(event for event in page.fns.values() if event.name == name)
    values = [file if isinstance(block, gr.UploadButton) else None for block in event.inputs]
    with pytest.raises(gr.Error, match="File uploads are disabled"):
        asyncio.run(page.preprocess_data(event, values, SessionState(page)))


def test_fields_are_disabled_with_a_note(page: gr.Blocks) -> None:
    blocks = page.blocks.values()
    assert not any(block.interactive for block in blocks if isinstance(block, gr.Textbox))
    widgets: dict[str | None, Any] = {
        block.elem_id: block for block in blocks if getattr(block, "elem_id", None)
    }
    assert widgets["documents"].props["locked"]
    for name in ("paste-panel", "add-files", "open-session", "measure-upload"):
        assert widgets[name].visible is False
    assert widgets["task"].interactive is False and NOTE in widgets["read-only"].value
    assert OWN not in [value for _, value in widgets["measure-rows"].choices]
    assert widgets["run"].visible and widgets["example"].interactive is not False
    config = {props["props"].get("elem_id"): props["props"] for props in page.get_config_file()["components"]}
    assert config["question"]["interactive"] is False and config["paste-panel"]["visible"] is False
