"""The page on a model behind an endpoint, which is the API server of a tiny model."""

import io
import json
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import gradio as gr
import jsonschema
import pytest

import app
from pine_engine import METHODS, Engine, InputError
from pine_engine.endpoint import NO_INTERNALS, client as client_module
from pine_engine.endpoint.client import Endpoint
from pine_engine.endpoint.replies import Reply
from pine_engine.endpoint.requests import TextRequest
from pine_engine.prompts.thinking import SplitAnswer
from pine_engine.scheduling.job import Job
from tests.support.api_server import running_server
from tests.support.running import loaded_source, logged, one_run, run_views, views_of
from tests.support.runs import THREE, form_of
from tests.support.widgets import build_app, built
from viz.cards.shuffle import shuffle_answer, verdict_sentence
from viz.figures.shuffle import plot_shuffle
from viz.lab.page.api import measured
from viz.lab.page.data_sets import read_built_in
from viz.lab.page.evaluate import fit_metrics
from viz.lab.page.evaluate_job import MeasureRequest, prepare_measure
from viz.page.answers.answering import prepare_answers, shown_html
from viz.page.answers.form_state import inspect_form
from viz.page.answers.order_table import order_table_json
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.api.calls import prepare_traces
from viz.page.api.reports import compared, shuffled
from viz.page.api.results import RESULTS
from viz.page.build import look
from viz.page.bundle import bundle
from viz.page.common.host_settings import DEFAULTS, HostSettings, read_settings
from viz.page.form.fitting import show_misfits
from viz.page.form.form import count_tokens, form_request
from viz.page.form.options import DEFAULT_METHODS
from viz.page.internals.left_out_job import prepare_answers_left_out
from viz.page.jobs import zerogpu
from viz.page.position_sweep_job import prepare_sweep
from viz.page.shuffle_job import prepare_shuffle
from viz.page.tutorial.document import tutorial_document
from viz.page.why import why_json
from viz.page.without_job import prepare_without

FITTING = ("vanilla", "reorder_content")
FORM = form_of(THREE, methods=FITTING)
ALL_ORDERS: dict[str, Any] = {"count": 6, "seed": 0, "controls": False}


@pytest.fixture(scope="module")
def endpoint(engine: Engine) -> Iterator[Endpoint]:
    with running_server(engine) as (address, _):
        yield Endpoint(f"{address}/v1", "tiny", model_ref="PINE_ENDPOINT")


@pytest.fixture(scope="module")
def views(endpoint: Endpoint) -> list[Shown]:
    return list(views_of(prepare_shuffle, endpoint, FORM, **ALL_ORDERS))


@pytest.fixture(scope="module")
def run(views: list[Shown]) -> Run:
    assert views[-1].run and views[-1].is_complete
    return views[-1].run


def test_texts_are_those_of_the_model_in_each_order(run: Run, engine: Engine) -> None:
    *_, last = views_of(prepare_shuffle, engine, FORM, **ALL_ORDERS)
    assert last.run and list(run.orders) == list(last.run.orders)
    expected = {order: answers.texts for order, answers in last.run.orders.items()}
    assert {order: answers.texts for order, answers in run.orders.items()} == expected
    assert len({texts["vanilla"] for texts in expected.values()}) > 1  # the control


def test_one_order_needs_one_request_per_method(endpoint: Endpoint, engine: Engine) -> None:
    *_, view = views_of(prepare_answers, endpoint, FORM)
    *_, expected = views_of(prepare_answers, engine, FORM)
    assert view.is_complete and [card.text for card in view.cards] == [card.text for card in expected.cards]
    report = compared(view, ["green"])
    assert report and report["repeated"]["requests"] == 1
    answer = report["results"][0]
    assert answer["tokens"] == 3 and answer["seconds"] and "prefill_s" not in answer
    jsonschema.validate(report, RESULTS["compare"])


def test_answers_without_each_document_are_those_of_the_model(endpoint: Endpoint, engine: Engine) -> None:
    *_, view = views_of(prepare_without, endpoint, FORM, FORM.order)
    *_, expected = views_of(prepare_without, engine, FORM, FORM.order)
    assert view == expected and view.is_complete and view.done.prompts >= 6


def test_orders_appear_as_they_are_complete(views: list[Shown]) -> None:
    numbers = [len(view.run.orders) if view.run else 0 for view in views]
    assert numbers == sorted(numbers) and {0, 6} < set(numbers)
    assert any("requests: 13, of which 1 repeat" in view.sentence for view in views[:2])
    assert views[-1].done.prompts == 12 and views[-1].done.prompt_tokens > 12
    assert "repeated: 0 of 1" in views[-1].sentence


def test_missing_orders_join_those_before(run: Run, endpoint: Endpoint) -> None:
    earlier = replace(run, orders=dict(list(run.orders.items())[:3]))
    missing = (FORM.order, *(order for order in run.orders if order not in earlier.orders))
    *_, view = views_of(prepare_shuffle, endpoint, FORM, **ALL_ORDERS, orders=missing)
    assert view.run and tuple(view.run.orders) == missing
    assert view.run.joined(earlier).orders.keys() == run.orders.keys()
    other = replace(earlier, orders={FORM.order: replace(run.orders[FORM.order], texts={"vanilla": "?"})})
    assert view.run.joined(other) is view.run


def test_texts_are_compared_and_bits_are_not_claimed(run: Run) -> None:
    methods, rows = [METHODS[name] for name in FITTING], run.comparisons
    sentence = verdict_sentence(methods, rows)
    assert "same text in every order: Sorted by content" in sentence and "itwise" not in sentence
    report = shuffled(Shown(FORM, (), run=run), [])
    assert report and [one["bitwise_identical"] for one in report["methods"]] == [None, None]
    assert [one["invariance_held"] for one in report["methods"]] == [None, True]
    vanilla = report["methods"][0]
    assert vanilla["num_distinct_answers"] > 1 and vanilla["max_abs_logit_diff"] is None
    jsonschema.validate(report, RESULTS["shuffle"])
    assert "logit" not in str(plot_shuffle(rows).data[0].hovertext)
    changed = next(row for row in rows if not row.comparisons["vanilla"].same_text)
    html = shuffle_answer(METHODS["vanilla"], changed, rows[0])
    assert "different answer" in html and "logit" not in html
    assert "same answer" in shuffle_answer(METHODS["reorder_content"], rows[1], rows[0])


def test_internals_are_absent_and_recorded_ones_named(run: Run) -> None:
    assert not run.has_internals and run.certificate is None
    shown = json.loads(why_json(run))
    assert "Precomputed" in shown["source"] and not shown["is_replaced"]
    assert "Your run" not in tutorial_document(run)
    state = json.loads(order_table_json(Shown(FORM, (), run=run)))
    assert "endpoint" in state["no_positions"]


def test_download_has_answers_and_the_command(run: Run) -> None:
    run = replace(run, form=replace(run.form, max_new_tokens=8))
    with zipfile.ZipFile(io.BytesIO(bundle(run, None, accepted=""))) as files:
        assert set(files.namelist()) == {"README.txt", "session.json", "input.json"}
        assert "--endpoint PINE_ENDPOINT --model tiny" in files.read("README.txt").decode()
        answers = json.loads(files.read("session.json"))["answers"]
    assert answers[0]["num_tokens"] == 3 and answers[0]["times"]["seconds"] > 0


def test_methods_that_need_more_are_disabled_and_refused(endpoint: Endpoint) -> None:
    sources = app.all_sources(loaded_source(endpoint), None, DEFAULTS)
    assert sources.main.status.sentence == "tiny · endpoint · no methods that change attention"
    misfits, boxes = built(lambda: (gr.HTML(), gr.CheckboxGroup()))
    updates = show_misfits(misfits, [boxes], sources, None, "retrieval_qa", DEFAULT_METHODS)
    assert updates[boxes] == list(FITTING)
    by_score = {"by_score", "by_score_reversed", "ends_by_score"}
    assert set(METHODS) - set(json.loads(updates[misfits])) == {*FITTING, *by_score}
    for name in ("pine", "nbce"):
        with pytest.raises(InputError, match=name):
            prepare_answers(endpoint, replace(FORM, methods=("vanilla", name)))
    with pytest.raises(InputError, match="internals"):
        next(views_of(prepare_sweep, endpoint, FORM, document=0, answer=""))
    for prepare in (prepare_traces, prepare_answers_left_out):
        with pytest.raises(InputError, match="internals"):
            prepare(endpoint, FORM, DEFAULTS)  # type: ignore[arg-type]


def test_missing_internals_are_stated_once_the_model_is_known(endpoint: Endpoint, engine: Engine) -> None:
    for backend, reason in ((endpoint, NO_INTERNALS), (engine, "")):
        sources = app.all_sources(loaded_source(backend), None, DEFAULTS)
        *_, why, sweep = look(sources, None)
        assert why == sweep and (reason in why if reason else why == "")
        assert fit_metrics(sources, None) == (["generate"] if reason else gr.skip())


def test_page_of_an_endpoint_is_drawn_with_what_fits(endpoint: Endpoint) -> None:
    page = build_app(loaded_source(endpoint))
    blocks = [block for block in page.blocks.values() if block.elem_classes == ["page-methods"]]
    boxes = [getattr(block, "value", None) for block in blocks]
    assert boxes == [list(FITTING)] * 2
    sources = app.all_sources(loaded_source(endpoint), None, DEFAULTS)
    problems = [
        inspect_form(replace(FORM, methods=methods), None, sources, DEFAULTS).problem
        for methods in (FITTING, ("vanilla", "pine"))
    ]
    assert problems[0] == "" and problems[1].startswith("Untick PINE")


def test_missing_package_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(SystemExit) as ended:
        app.host_source(HostSettings(endpoint="http://h/v1", model="m"))
    assert ended.value.code == 2 and "pip install" in capsys.readouterr().err


def test_model_of_an_endpoint_is_fixed() -> None:
    settings = HostSettings(endpoint="http://h/v1", model="m")
    source, allowed = app.host_source(settings)
    assert not app.all_sources(source, None, settings, allowed=allowed).is_selectable
    source, allowed = app.host_source(DEFAULTS)
    assert app.all_sources(source, None, DEFAULTS, allowed=allowed).is_selectable


def test_lengths_are_estimated_in_tokens(endpoint: Endpoint) -> None:
    form = replace(FORM, chat_template_kwargs='{"enable_thinking": false}')
    num_tokens = count_tokens(FORM, endpoint).total
    assert count_tokens(form, endpoint).total == num_tokens
    assert num_tokens == pytest.approx(form_request(FORM).tokenize(endpoint).num_tokens / 4, abs=1)


def replying(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Let each endpoint answer with this reply."""

    def send(_: Endpoint, requests: Sequence[TextRequest], check: Any) -> Iterator[Any]:
        for request in requests:
            yield request, Reply(SplitAnswer("", "x", is_finished=True), **fields)

    monkeypatch.setattr(Endpoint, "send", send)


def test_unrepeatable_answers_are_reported(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    replying(monkeypatch, is_repeatable=False)
    *_, view = views_of(prepare_answers, endpoint, replace(FORM, methods=("vanilla",)))
    assert "1 of 1" in view.sentence and "proves nothing" in view.sentence


def refusing(monkeypatch: pytest.MonkeyPatch, places: Sequence[int]) -> None:
    """Let each endpoint refuse the requests at these places, and answer the others."""

    def send(_: Endpoint, requests: Sequence[TextRequest], check: Any) -> Iterator[Any]:
        for place, request in enumerate(requests):
            answered = Reply(SplitAnswer("", f"answer {place}", is_finished=True), is_repeatable=True)
            yield request, Reply(error="flagged: <violence>") if place in places else answered

    monkeypatch.setattr(Endpoint, "send", send)


def test_other_answers_stay_beside_a_refusal(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, [1])
    *_, view = views_of(prepare_answers, endpoint, FORM)
    assert [card.text for card in view.cards] == ["answer 0", ""]
    assert "flagged: <violence>" in view.sentence and "1 of 2 prompts" in view.sentence
    html = shown_html(view)
    assert "answer 0" in html and "flagged: &lt;violence&gt;" in html


def test_refused_first_order_leaves_the_others_compared(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, [0, 1])
    *_, view = views_of(prepare_shuffle, endpoint, FORM, **ALL_ORDERS)
    assert view.run and len(view.run.orders) == 5 and FORM.order not in view.run.orders
    assert view.run.order == next(iter(view.run.orders)) == view.planned[1]
    first, *others = view.run.comparisons
    assert first.comparisons["vanilla"].same_text and not any(
        row.comparisons["vanilla"].same_text for row in others
    )
    assert [card.refusal for card in view.cards] == ["flagged: <violence>"] * 2 and view.has_text
    assert "in order 1: flagged" in view.sentence and "5 of 6 orders" in view.sentence
    table = json.loads(order_table_json(view))
    cells = table["methods"][0]["answers"]
    assert len(cells) == 6 and [cell is None for cell in cells].count(True) == 1
    assert "Sorted by content" in verdict_sentence([METHODS[name] for name in FITTING], view.run.comparisons)


def test_sampled_answers_are_marked(endpoint: Endpoint) -> None:
    arguments = ["--endpoint", endpoint._url, "--model", "tiny", "--extra-body", '{"temperature": null}']
    settings = read_settings(arguments)
    assert settings.endpoint and settings.model
    source = app.endpoint_source(settings.endpoint, settings.model, settings.extra_body)
    source.start()
    sampling = source.wait(5)
    assert isinstance(sampling, Endpoint)
    *_, view = views_of(prepare_answers, sampling, FORM)
    assert "temperature not sent" in view.sentence and "are sampled, not greedy" in view.sentence
    *_, view = views_of(prepare_shuffle, sampling, FORM, **ALL_ORDERS)
    assert view.run and "temperature not sent, not greedy" in view.run.caption


def test_sent_fields_are_reported(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    replying(monkeypatch)
    sending = Endpoint(endpoint._url, "tiny", extra_body={"top_k": 1})
    form = replace(FORM, chat_template_kwargs='{"enable_thinking": false}')
    *_, view = views_of(prepare_answers, sending, form)
    sent = '{"top_k": 1, "chat_template_kwargs": {"enable_thinking": false}}'
    assert sent in view.sentence
    *_, view = views_of(prepare_shuffle, sending, form, **ALL_ORDERS)
    assert view.run and sent in view.run.caption


def test_refused_prompt_is_reported(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    replying(monkeypatch, error="the prompt is too long")
    with pytest.raises(InputError, match="too long"):
        list(views_of(prepare_answers, endpoint, FORM))
    with pytest.raises(InputError, match="too long"):
        list(views_of(prepare_shuffle, endpoint, FORM, **ALL_ORDERS))


def test_unreachable_server_fails_without_its_address(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_RETRIES", 0)
    source = app.endpoint_source("http://127.0.0.1:1/v1", "tiny")
    source.start()
    job = Job("compare", FITTING, prepare_answers, {"form": FORM})
    *_, last = run_views(source, job, **one_run())
    assert last.startswith("failed: PINE_ENDPOINT cannot be reached") and "127.0.0.1" not in last
    assert logged(caplog)["outcome"] == "failed: EndpointError"


def test_evaluation_sends_requests(endpoint: Endpoint) -> None:
    request = MeasureRequest(
        read_built_in("retrieval_qa"),
        limit=1,
        methods=FITTING,
        orders=("as-is", "reversed"),
        generate=True,
        logprobs=False,
        max_new_tokens=3,
    )
    assert prepare_measure(endpoint, request).work.prompts == 3 + 1  # sorted documents have one order
    *_, view = views_of(prepare_measure, endpoint, request)
    assert view.is_complete and not any(record.error for record in view.records)
    report = measured(view)
    assert report and report["repeated"]["requests"] == 1
    assert "127.0.0.1" not in json.dumps(report) and view.info.address == "PINE_ENDPOINT"
    for changes in ({"methods": ("pine",)}, {"logprobs": True}):
        with pytest.raises(InputError):
            prepare_measure(endpoint, replace(request, **changes))


def test_endpoint_on_zerogpu_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(zerogpu, "IS_ZEROGPU", True)
    for name in ("PINE_DEVICE", "PINE_DTYPE"):
        monkeypatch.setenv(name, "cpu" if name == "PINE_DEVICE" else "float32")
    monkeypatch.setattr("sys.argv", ["app.py", "--endpoint", "http://h/v1", "--model", "m"])
    with pytest.raises(SystemExit) as raised:
        app.main()
    error = capsys.readouterr().err
    assert raised.value.code == 2 and "ZeroGPU" in error and error.count("\n") == 1
