"""Limits of the host: the page and the API refuse more, and name the limit and a remedy."""

from typing import Any

import gradio as gr
import pytest

from app import build_app
from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.prompts.prompt import Document
from tests.support.running import views_of
from tests.support.widgets import built
from viz.page.answers import answering
from viz.page.common.host_settings import HostSettings
from viz.page.evaluate_job import MeasureRequest, measure_rows
from viz.page.files.data_sets import read_built_in
from viz.page.form.checks import MAX_TEXT_CHARACTERS, form_layout
from viz.page.form.documents import entries_from, entries_json
from viz.page.form.examples import load_examples
from viz.page.form.form import Form
from viz.page.form.options import number_of_orders, tries_all
from viz.page.jobs.loading import EngineSource
from viz.page.position_sweep_job import prepare_sweep
from viz.page.shuffle_job import orders_for, prepare_shuffle

TEXTS = ["red cat", "green hat", "white mat"]


class FewSettings(HostSettings):
    """Settings with low fixed limits."""

    max_documents = 3
    max_new_tokens = 16
    max_orders = 4
    max_rows = 2


LIMITED = FewSettings(max_prompt_tokens=900, max_seconds=60)


def form(texts: list[str] = TEXTS, *, question: str = "Which is green?", max_new_tokens: int = 3) -> Form:
    entries = entries_from([("", text) for text in texts])
    return Form("retrieval_qa", question, "Answer.", ("pine",), max_new_tokens, entries)


TOO_MUCH = [
    (form([*TEXTS, "black"]), "Too many documents: 4 .limit: 3."),
    (form(max_new_tokens=17), "Max new tokens too high: 17 .limit: 16."),
    (form([*TEXTS[:2], "a" * 1000]), "tokens .limit: 900."),
    (form([*TEXTS[:2], "a" * (MAX_TEXT_CHARACTERS + 1)]), "Document C too long: 200,001 characters"),
    (form(question="a" * (MAX_TEXT_CHARACTERS + 1)), "Question too long: 200,001 characters"),
]


@pytest.mark.parametrize(("large_form", "sentence"), TOO_MUCH)
def test_form_beyond_a_limit_raises(large_form: Form, sentence: str, engine: Engine) -> None:
    with pytest.raises(InputError, match=sentence):
        form_layout(large_form, engine, LIMITED)


def test_number_of_orders_is_limited(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(orders_for(3, 4, 0, LIMITED)) == 4 and len(orders_for(2, 9, 0, LIMITED)) == 2
    with pytest.raises(InputError, match="Too many orders: 5 .limit: 4."):
        orders_for(3, 5, 0, LIMITED)
    *_, done = views_of(
        prepare_shuffle, engine, form(max_new_tokens=16), count=4, seed=1, controls=False, settings=LIMITED
    )
    assert done.sentence.startswith("Done: 4 orders")
    monkeypatch.setattr(HostSettings, "max_orders", 3)
    with pytest.raises(InputError, match="Too many orders: 4 .limit: 3."):
        sweep = form([*TEXTS, "x"])
        next(views_of(prepare_sweep, engine, sweep, document=0, answer="so", settings=HostSettings()))


def test_sample_replaces_all_orders_beyond_the_limit() -> None:
    assert tries_all(3, 6) and not tries_all(3, 5) and not tries_all(5, 120)
    assert number_of_orders(3, 2, 6) == 6 and number_of_orders(3, 2, 5) == 2


def measured(**changes: Any) -> MeasureRequest:
    values: dict[str, Any] = {"orders": ("as-is",), "limit": 2, "max_new_tokens": 3} | changes
    rows = read_built_in("retrieval_qa")
    return MeasureRequest(rows=rows, methods=("pine",), generate=True, logprobs=False, **values)


@pytest.mark.parametrize(
    ("large_request", "sentence"),
    [
        (measured(limit=3), "Dataset too large: 3 examples .limit: 2."),
        (measured(max_new_tokens=17), "Max new tokens too high: 17 .limit: 16."),
        (measured(orders=("gold-all", "reversed")), "Too many orders: 5 .limit: 4."),
    ],
)
def test_evaluation_beyond_a_limit_raises(
    large_request: MeasureRequest, sentence: str, engine: Engine
) -> None:
    with pytest.raises(InputError, match=sentence):
        next(measure_rows(engine, large_request, LIMITED))


def test_example_with_too_long_prompt_is_named(engine: Engine) -> None:
    request = measured()
    with pytest.raises(InputError, match=f"Example {request.examples[0].id}: Prompt too long: .*limit: 10."):
        list(measure_rows(engine, request, HostSettings(max_prompt_tokens=10)))


# the page and the calls as they are built


@pytest.fixture(scope="module")
def page(source: EngineSource) -> gr.Blocks:
    return built(lambda: build_app(source, settings=LIMITED))


def test_paste_and_upload_keep_the_limit_of_documents(page: gr.Blocks) -> None:
    events: dict[str, Any] = {str(event.name): event.fn for event in page.fns.values()}
    two, new = entries_json(form(TEXTS[:2]).entries), (Document("x"),)

    def num_appended(updates: dict[gr.Component, Any]) -> int:
        shown = {widget.elem_id: update for widget, update in updates.items()}
        return len(shown["documents"]["appended"]["documents"]) if "documents" in shown else 0

    assert num_appended(events["paste"]("red\n---\nblue", two)) == 1
    assert num_appended(events["put"]((new, ""), two)) == 1
    assert num_appended(events["put"]((new * 2, ""), two)) == 0
    example = entries_json(load_examples()[0].form(()).entries[::-1])
    for name, value in (("paste", "red\n---\nblue"), ("put", (new * 2, ""))):
        updates = {block.elem_id: update for block, update in events[name](value, example).items()}
        appended = updates["documents"]["appended"]
        assert appended["replaces"] and len(appended["documents"]) == 2, "none is added beside an example's"
        assert "Removed those of the example." in updates["documents-message"]


def test_api_call_has_the_time_limit(source: EngineSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "REDRAW_S", 0.0)
    hurried = built(lambda: build_app(source, settings=HostSettings(max_seconds=1e-9)))
    compare: Any = next(event.fn for event in hurried.fns.values() if event.api_name == "compare")
    with pytest.raises(gr.Error, match="Timeout: the run exceeded 1e-09 s"):
        compare("Which?", TEXTS, ["pine"], 3)


def test_widgets_have_the_limits_of_the_host(page: gr.Blocks) -> None:
    widgets: dict[str | None, Any] = {
        block.elem_id: block for block in page.blocks.values() if getattr(block, "elem_id", None)
    }
    assert widgets["orders"].maximum == 4 and widgets["orders"].value == 4
    assert widgets["measure-limit"].maximum == 2 and widgets["measure-length"].maximum == 16
    assert widgets["length"].maximum == widgets["length"].value == 16
    assert all("10 documents" not in label for label, _ in widgets["example"].choices)
    assert "3 documents in total" in "".join(
        block.value for block in page.blocks.values() if isinstance(block, gr.HTML) and block.value
    )
