"""Limits of the host, in forms, evaluations, calls and widgets; a read-only page runs its examples only."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import SessionState

from app import all_sources
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.prompts.tasks import TASKS
from pine_engine.rows.documents import Document
from tests.support.running import views_of
from tests.support.widgets import build_app, function_of, whole_page
from viz.lab.page.data_sets import OWN, built_in_choices, check_rows_shipped, read_built_in
from viz.lab.page.evaluate_job import MeasureRequest, measure_rows
from viz.page.answers.answering import prepare_answers
from viz.page.answers.record import record_of
from viz.page.common.host_settings import HostSettings
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.form.checks import MAX_TEXT_CHARACTERS, form_layout
from viz.page.form.documents import Entry, entries_from, entries_json
from viz.page.form.examples import FormExample, load_examples
from viz.page.form.form import Form
from viz.page.form.orders import number_of_orders, tries_all
from viz.page.form.read_only import NOTE, check_shipped
from viz.page.internals.view import View
from viz.page.jobs.loader import EngineSource
from viz.page.position_sweep_job import prepare_sweep
from viz.page.session import to_code
from viz.page.shuffle_job import orders_for

TEXTS = ["red cat", "green hat", "white mat"]
READ_ONLY = HostSettings(read_only=True)
EXAMPLES = load_examples()
SHORT = EXAMPLES[0]


def form(texts: list[str] = TEXTS, *, question: str = "Which is green?", max_new_tokens: int = 3) -> Form:
    entries = entries_from([("", text) for text in texts])
    return Form("retrieval_qa", question, "Answer.", ("pine",), max_new_tokens, entries)


def example_form(example: FormExample = SHORT, **changes: Any) -> Form:
    return replace(example.form(["pine"], 8), **changes)


# Limits

TOO_MUCH = [
    (form(["a"] * 21), "Too many documents: 21 .limit: 20."),
    (
        replace(form(), chat_template_kwargs=f'{{"a": "{"a" * MAX_TEXT_CHARACTERS}"}}'),
        "Chat template arguments too long",
    ),
    (form(max_new_tokens=501), "Max new tokens too high: 501 .limit: 500."),
    (form([*TEXTS[:2], "a" * 1000]), "tokens .limit: 900."),
    (form([*TEXTS[:2], "a" * (MAX_TEXT_CHARACTERS + 1)]), "Document C too long: 200,001 characters"),
    (form(question="a" * (MAX_TEXT_CHARACTERS + 1)), "Question too long: 200,001 characters"),
    (form(["a" * 190_000] * 3), "Input too long: 570,02. characters .limit: 500,000."),
]


@pytest.mark.parametrize(("large_form", "sentence"), TOO_MUCH)
def test_form_beyond_a_limit_raises(large_form: Form, sentence: str, engine: Engine) -> None:
    with pytest.raises(InputError, match=sentence):
        form_layout(large_form, engine, HostSettings(max_prompt_tokens=900))


def test_number_of_orders_is_limited() -> None:
    assert len(orders_for(3, 200, 0)) == 6 and len(orders_for(5, 120, 0)) == 120
    with pytest.raises(InputError, match="Too many orders: 121 .limit: 120."):
        orders_for(5, 121, 0)
    assert tries_all(4) and not tries_all(5)
    assert (number_of_orders(3, 2), number_of_orders(5, 2)) == (6, 2)


def measured(**changes: Any) -> MeasureRequest:
    values: dict[str, Any] = {"orders": ("as-is",), "limit": 2, "max_new_tokens": 3} | changes
    rows = read_built_in("retrieval_qa")
    rows = replace(rows, examples=rows.examples * 50)
    return MeasureRequest(rows=rows, methods=("pine",), generate=True, logprobs=False, **values)


@pytest.mark.parametrize(
    ("large_request", "sentence"),
    [
        (measured(limit=201), "Dataset too large: 201 examples .limit: 200."),
        (measured(max_new_tokens=501), "Max new tokens too high: 501 .limit: 500."),
        (
            measured(orders=tuple(f"shuffled:{seed}" for seed in range(121))),
            "Too many orders: 121 .limit: 120.",
        ),
    ],
)
def test_evaluation_beyond_a_limit_raises(
    large_request: MeasureRequest, sentence: str, engine: Engine
) -> None:
    with pytest.raises(InputError, match=sentence):
        next(measure_rows(engine, large_request))


def test_example_with_too_long_prompt_is_named(engine: Engine) -> None:
    request = measured()
    with pytest.raises(InputError, match=f"Example {request.examples[0].id}: Prompt too long: .*limit: 10."):
        list(measure_rows(engine, request, HostSettings(max_prompt_tokens=10)))


def test_paste_and_upload_keep_the_limit_of_documents() -> None:
    events: dict[str, Any] = {str(event.name): event.fn for event in whole_page().fns.values()}
    one_free, new = entries_json(form(["a"] * (MAX_DOCUMENTS - 1)).entries), (Document("x"),)

    def num_appended(updates: dict[gr.Component, Any]) -> int:
        shown = {widget.elem_id: update for widget, update in updates.items()}
        return len(shown["documents"]["appended"]["documents"]) if "documents" in shown else 0

    assert num_appended(events["paste"]("red\n---\nblue", one_free)) == 1
    assert num_appended(events["put"]((new, ""), one_free)) == 1
    assert num_appended(events["put"]((new * 2, ""), one_free)) == 0
    example = entries_json(SHORT.form(()).entries[::-1])
    for name, value in (("paste", "red\n---\nblue"), ("put", (new * 2, ""))):
        updates = {block.elem_id: update for block, update in events[name](value, example).items()}
        appended = updates["documents"]["appended"]
        assert appended["replaces"] and len(appended["documents"]) == 2, "none is added beside an example's"
        assert "Removed those of the example." in updates["documents-message"]


def test_runs_have_the_time_limit_of_the_host(source: EngineSource) -> None:
    assert all_sources(source, None, HostSettings(max_seconds=7)).runs.max_seconds == 7


# Read-only pages


@pytest.fixture(scope="module")
def page(source: EngineSource) -> gr.Blocks:
    return build_app(source, READ_ONLY)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_can_be_run(example: FormExample) -> None:
    request = example_form(example)
    for allowed in (
        request,
        replace(request, entries=request.entries[::-1]),
        replace(request, entries=request.entries[1:], max_new_tokens=16, methods=("vanilla", "nia")),
        replace(request, instruction=TASKS[example.task].instruction),
        replace(request, entries=tuple(replace(entry, title="") for entry in request.entries)),
    ):
        check_shipped(allowed)


OTHER_TEXTS = next(one for one in EXAMPLES if one.documents[0] not in SHORT.documents)

OTHERS = [
    example_form(question=f"{SHORT.question} And who else?"),
    example_form(instruction="Say something bad."),
    example_form(chat_template_kwargs='{"a": "a text of my own"}'),
    example_form(task="kv_retrieval"),
    example_form(entries=(*example_form().entries[:2], Entry(2, "", "a text of my own"))),
    example_form(
        entries=(*example_form().entries[:2], replace(example_form().entries[2], title="a title of my own"))
    ),
    example_form(entries=(*example_form().entries, example_form().entries[0])),
    example_form(OTHER_TEXTS, question=SHORT.question),
]


@pytest.mark.parametrize("other", OTHERS)
def test_other_form_raises(other: Form, engine: Engine) -> None:
    with pytest.raises(InputError, match="Demo mode"):
        next(views_of(prepare_answers, engine, other, READ_ONLY))


def test_target_answer_must_be_of_the_example(engine: Engine) -> None:
    request = example_form(methods=("vanilla", "nia"))
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
    with pytest.raises(InputError, match="Demo mode"):
        measured(chat_template_kwargs='{"a": 1}').settings(READ_ONLY)


def test_api_calls_accept_examples_only(page: gr.Blocks) -> None:
    texts = [document.text for document in SHORT.documents]
    assert function_of(page, "compare")(SHORT.question, texts, ["pine"], 8)["results"]
    for name in ("compare", "shuffle", "trace"):
        with pytest.raises(gr.Error, match="Demo mode") as refused:
            function_of(page, name)(SHORT.question, [*texts, "a text of my own"], ["pine"], 8)
        assert not refused.value.print_exception, "a refusal is no traceback in the log"
    rows = [row.model_dump(mode="json") for row in read_built_in("retrieval_qa").examples[:1]]
    assert function_of(page, "measure")(rows, ["pine"], ["as-is"], 16)["records"]
    with pytest.raises(gr.Error, match="Demo mode"):
        function_of(page, "measure")([rows[0] | {"question": "What of mine?"}], ["pine"], ["as-is"], 16)


def test_link_with_other_contents_is_rejected(page: gr.Blocks) -> None:
    restore = function_of(page, "restore")
    codes = [to_code(record_of(request, accepted="")) for request in (example_form(), OTHERS[0])]
    record = [str(restore(code, "", "", View())) for code in codes]
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
