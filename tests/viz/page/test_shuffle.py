"""The shuffle of the page: orders, controls, what it hands on, and the files it offers."""

import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import pytest

import pine_engine as pine
from pine_engine.engine.engine import Engine
from pine_engine.invariance.certificate import Certificate, read_certificate
from pine_engine.methods.table import METHODS
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.runs import Runs, StopFlag
from tests.support.running import new_views, sources_of, views_of
from tests.support.runs import THREE, form_of, swapped
from tests.support.viz_reading import read_html
from tests.support.widgets import built
from viz.cards.shuffle import InOrders
from viz.page.answers.answering import FinishedRun
from viz.page.answers.cards import Shown
from viz.page.answers.stale import Origin
from viz.page.answers.workspace import Workspace
from viz.page.common.disk import Disk
from viz.page.common.host_settings import DEFAULTS
from viz.page.form.checks import form_layout
from viz.page.form.documents import entries_from, entries_json
from viz.page.form.examples import NO_EXAMPLE, load_examples
from viz.page.form.form import form_request
from viz.page.form.options import with_controls
from viz.page.jobs.loading import EngineSource
from viz.page.shuffle import answer_behind, shuffle_tab
from viz.page.shuffle_job import OrdersTried, caption_of, orders_for, prepare_shuffle

FIGURES = ("shuffle-matrix", "shuffle-positions", "shuffle-spread")
B_A_C = swapped(THREE, 0)
PANEL = {"is_open": True}  # section of the figures
NOTHING = (Shown((), "retrieval_qa"), None)  # answers on the page, and their origin


@pytest.fixture(scope="module")
def views(engine: Engine) -> list[OrdersTried]:
    return list(views_of(prepare_shuffle, engine, form_of(B_A_C), count=6, seed=0, controls=True))


@pytest.fixture(scope="module")
def last(views: list[OrdersTried]) -> OrdersTried:
    return views[-1]


def test_views_can_be_compared_after_pickling(views: list[OrdersTried]) -> None:
    for view, same in zip(views, pickle.loads(pickle.dumps(views)), strict=True):
        assert view == same  # ZeroGPU sends them from another process


def certificate_of(tried: OrdersTried) -> Certificate:
    assert tried.certificate is not None
    return tried.certificate


def test_orders_are_all_of_few_documents_or_a_seeded_sample() -> None:
    assert len(orders_for(3, 2, 0)) == math.factorial(3)
    assert len(orders_for(8, 6, 0)) == 6 and orders_for(8, 6, 0)[0] == tuple(range(8))
    assert orders_for(8, 6, 0) == orders_for(8, 6, 0) != orders_for(8, 6, 1)


def test_controls_follow_what_was_chosen_and_promise_nothing() -> None:
    assert with_controls(["pine"]) == ("pine", "vanilla", "nia", "mask_only", "reassignment_only")
    assert with_controls(["mask_only", "vanilla"]) == ("mask_only", "vanilla", "nia", "reassignment_only")
    assert not any(METHODS[name].is_order_invariant for name in with_controls([]))


def test_without_controls_only_selected_methods_run(engine: Engine) -> None:
    *_, last = views_of(
        prepare_shuffle, engine, form_of(THREE[:2], methods=("pine",)), count=2, seed=0, controls=False
    )
    assert last.sentence.startswith("Done: 2 orders")
    assert [method.name for method in last.methods] == ["pine"]
    assert [list(row.comparisons) for row in last.rows] == [["pine"]] * 2


def test_orders_grow_by_one(views: list[OrdersTried], last: OrdersTried) -> None:
    grown = [view for view in new_views(views) if view.rows]
    for number, view in enumerate(grown, start=1):
        assert len(view.rows) == len(view.placed) == number == len(certificate_of(view).orders)
        assert view.finished is not None and len(view.finished.tried) == number - 1
        assert view.is_complete == (number == 6)
    assert len(grown) == 6
    assert [row.order for row in last.rows] == [placed.order for placed in last.placed] == list(last.orders)
    assert last.rows[0].order == (1, 0, 2)
    assert all(row.comparisons["pine"].bitwise_identical for row in last.rows)
    assert not all(row.comparisons["vanilla"].bitwise_identical for row in last.rows)
    assert [method.name for method in last.methods] == list(with_controls(("vanilla", "pine")))
    assert not any(row.result.traces or row.result.logits for row in last.rows)


def test_without_traces_there_is_no_run(engine: Engine) -> None:
    request = form_of(THREE[:2], methods=("pine",))
    *_, last = views_of(prepare_shuffle, engine, request, count=2, seed=0, controls=False, trace=False)
    assert last.is_complete and last.finished is None and last.placed == ()
    assert certificate_of(last).traced is False


def test_cell_shows_its_answer_beside_the_first(last: OrdersTried) -> None:
    number = next(place for place, row in enumerate(last.rows) if not row.comparisons["vanilla"].same_text)
    shown = read_html(answer_behind(last, {"tried": number, "method": "vanilla"}))
    answers = [part.text for part in shown.with_class("pine-answer-text")]
    assert answers == [last.rows[place].comparisons["vanilla"].text for place in (0, number)]
    assert shown.all("mark") and "First difference at" in shown.text
    same = read_html(answer_behind(last, {"tried": 0, "method": "pine"}))
    assert len(same.with_class("pine-answer-text")) == 1 and not same.all("mark")


@pytest.mark.parametrize(
    "what",
    [{}, {"clear": True}, {"tried": 0, "method": []},
     *({"tried": tried, "method": "pine"} for tried in (6, -1, "0", True))],
)  # fmt: skip
def test_invalid_cell_shows_nothing(last: OrdersTried, what: dict[str, Any]) -> None:
    assert answer_behind(last, what) == ""


def test_it_ends_as_a_run_with_the_other_orders_tried(last: OrdersTried) -> None:
    run = last.finished
    assert isinstance(run, FinishedRun)
    assert run.order == (1, 0, 2) and run.titles == ("Senna", "Varo", "Orm")
    assert set(run.result.traces) == set(with_controls(("vanilla", "pine")))
    assert run.result.logits == {}
    assert [tried.order for tried in run.tried] == [(1, 2, 0), (0, 1, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1)]
    assert run.tried[0].label == "B C A"
    for tried in run.tried:
        assert tried.answer_records["pine"].text == run.answer_records["pine"].text
        assert np.array_equal(tried.answer_records["pine"].logprobs, run.answer_records["pine"].logprobs)
        assert [segment.label for segment in tried.answer_records["pine"].documents] == tried.label.split()
    assert any(
        tried.answer_records["vanilla"].logprobs != run.answer_records["vanilla"].logprobs
        for tried in run.tried
    )


# The certificate


def test_certificate_holds_the_request_of_the_form(engine: Engine, last: OrdersTried) -> None:
    certificate = certificate_of(last)
    lettered = certificate.request.tokenize(engine)
    assert lettered.reorder(certificate.orders[0]) == form_layout(form_of(B_A_C), engine)
    assert certificate.orders[0] == [1, 0, 2] and len(certificate.orders) == 6
    assert (certificate.seed, certificate.max_new_tokens, certificate.traced) == (None, 3, True)
    assert certificate.request == form_request(form_of(B_A_C))
    for result in certificate.results:
        cells = [row.comparisons[result.method] for row in last.rows]
        assert result.logprobs == [cell.reference_logprob for cell in cells]
        assert max(len(cell.answer.token_ids) for cell in cells) == 3


def test_certificate_is_not_created_again_for_each_order(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, create = [], pine.create_certificate

    def count(*values: Any, **options: Any) -> Certificate:
        calls.append(options["orders"])
        return create(*values, **options)

    monkeypatch.setattr(pine, "create_certificate", count)
    *_, view = views_of(prepare_shuffle, engine, form_of(), count=6, seed=0, controls=False, trace=False)
    assert len(calls) == 1 and len(certificate_of(view).orders) == 6


def test_the_seed_is_certified_where_orders_were_drawn(engine: Engine) -> None:
    five = entries_from([("", f"text {number}") for number in range(5)])
    *_, view, _ = views_of(
        prepare_shuffle, engine, form_of(five, methods=("pine",)), count=2, seed=7, controls=False
    )
    assert certificate_of(view).seed == 7
    assert [tuple(order) for order in certificate_of(view).orders] == orders_for(5, 2, 7)


# The page


def test_status_caption_and_log_show_invariance_warning(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Engine, "invariance_warning", "Not guaranteed.")
    source = EngineSource(lambda: engine, "tiny")
    source.load_here()
    assert source.status.sentence.endswith(" · not bitwise order-invariant on this machine")
    assert caption_of(engine, form_of()).startswith("Not guaranteed. ")
    assert caplog.messages == ["Not guaranteed."]


@pytest.fixture(scope="module")
def events(source: EngineSource, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Events of the page's shuffle by the name of their function."""
    disk = Disk(tmp_path_factory.mktemp("disk"), 1e6)

    def build() -> Any:
        with gr.Blocks() as blocks:
            page = Workspace(load_examples())
            sources = sources_of(source, runs=Runs(FairQueue(4)))
            pressed, *_ = shuffle_tab(page, sources, gr.State(None), DEFAULTS, disk)
        return blocks, pressed, page

    blocks, pressed, page = built(build)
    found = {function.name: function for function in blocks.fns.values()}
    assert page.finished in found["run"].outputs and callable(pressed.then)
    assert (page.shuffle_bar.run._id, "click") in found["run"].targets
    return found


@pytest.fixture(scope="module")
def event(events: dict[str, Any]) -> Any:
    """The page's shuffle: the function behind its button, and the widgets that it writes."""
    return events["run"]


def press(
    event: Any,
    stop: StopFlag,
    kept: Any,
    controls: bool,
    entries: Any = B_A_C,
    *,
    shown: Any = NOTHING,
    accepted: str = "No such answer",
) -> Any:
    """Presses Shuffle with these documents."""
    values = ("retrieval_qa", "Which?", "Answer.", ["pine"], 3, entries_json(entries))
    return event.fn(stop, None, PANEL, kept, *shown, None, accepted, 6, 0, controls, *values)


def last_values(views: list[dict[Any, Any]]) -> dict[str, Any]:
    """Return the last value of each widget by its id; states by the type of their value."""
    shown: dict[str, Any] = {}
    for view in views:
        for widget, value in view.items():
            shown[getattr(widget, "elem_id", None) or type(value).__name__] = value
    return shown


def test_the_page_offers_certificate_and_pictures_after_a_shuffle(event: Any) -> None:
    views = list(press(event, StopFlag(), None, True))
    began, ended = last_values(views[:1]), last_values(views)
    assert not {"certificate-offer", "order-table", "shuffle-answer"} & began.keys(), "results stay"
    assert began["example"] == NO_EXAMPLE
    assert all(json.loads(ended[name])["data"] for name in FIGURES)
    assert ended["certificate-offer"]["visible"] is True
    assert "Done: 6 orders" in ended["shuffle-status"]
    (matrix,) = json.loads(ended["shuffle-matrix"])["data"]
    assert sum(cell.endswith(" ✗</span>") for row in matrix["text"] for cell in row) == 6 * 5
    assert set(views[-1]) <= set(event.outputs)
    folder = ended["PosixPath"]
    assert Path(ended["certificate"]).parent == Path(ended["certificate-page"]).parent == folder
    assert len(read_certificate(Path(ended["certificate"])).methods) == 5
    assert len(ended["FinishedRun"].tried) == 5
    table = json.loads(ended["order-table"])
    assert [method["name"] for method in table["methods"]] == list(ended["FinishedRun"].result.answers)
    assert all(answer["is_done"] for method in table["methods"] for answer in method["answers"])
    assert len(table["orders"]) == 6 and "PINE gave 1 answer, correct in 0 of 6 orders." in table["finding"]
    # The cards show the run that the pictures are drawn from.
    cards = read_html(ended["answers"]).with_class("pine-answer")
    assert [card.attributes["data-state"] for card in cards] == ["finished"] * 5
    for card, answer in zip(cards, ended["FinishedRun"].result.answers.values(), strict=True):
        assert card.attributes["data-method"] == answer.method
        assert answer.text.strip() in card.text
    # The next shuffle removes what this one offered, once it offers as much.
    again = press(event, StopFlag(), folder, False)
    next(again)
    assert folder.exists()
    assert last_values(list(again))["certificate-offer"]["visible"] and not folder.exists()


def test_figures_are_drawn_while_their_section_is_open(
    events: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PANEL, "is_open", False)
    ended = last_values(list(press(events["run"], StopFlag(), None, False)))
    assert not ended.keys() & set(FIGURES) and len(ended["OrdersTried"].rows) == 6
    for name in ("judge", "expand", "judge"):
        shown = last_values([events[name].fn(PANEL, ended["OrdersTried"], "retrieval_qa", None)])
        assert (set(FIGURES) <= shown.keys()) == PANEL["is_open"]
    events["collapse"].fn(PANEL)
    assert not PANEL["is_open"]


def test_shuffle_joined_late_shows_all_orders(event: Any) -> None:
    first, second = (press(event, StopFlag(), None, False) for _ in range(2))
    shown: list[dict[Any, Any]] = []
    while "Order 2 done" not in str(last_values(shown).get("shuffle-status")):
        shown.append(next(first))
    joined, late = [next(second), next(second)], list(second)
    matrix = json.loads(last_values(joined)["shuffle-matrix"])
    assert len(matrix["data"][0]["text"]) == 2
    expected, ended = last_values([*shown, *first]), last_values([*joined, *late])
    assert {name: expected[name] for name in FIGURES} == {name: ended[name] for name in FIGURES}
    assert expected["order-table"] == ended["order-table"]


def test_what_was_tried_before_stop_is_handed_on_beside_older_answers(event: Any) -> None:
    request = form_of(B_A_C, question="Which?", methods=("pine",))
    before = InOrders(tuple(orders_for(3, 6, 0)), {"pine": ("old",) * 6})
    shown = (Shown((), request.task, in_orders=before), Origin(request, is_for_all_orders=True))
    stop, views = StopFlag(), []
    for view in press(event, stop, None, False, shown=shown):
        views.append(view)
        stop.requested = stop.requested or "Order 2 done" in str(last_values([view]).get("shuffle-status"))
    ended = last_values(views)
    assert "Stopped. Completed orders are kept." in ended["shuffle-status"]
    assert len(json.loads(ended["shuffle-matrix"])["data"][0]["text"]) == 2
    assert len(read_certificate(Path(ended["certificate"])).orders) == 2
    assert len(ended["FinishedRun"].tried) == 1
    table = ended["Shown"].in_orders
    texts = dict(zip(table.orders, table.answers["pine"], strict=True))
    assert len(texts) == 6 and {order for order in texts if texts[order] != "old"} == {(1, 0, 2), (1, 2, 0)}


def test_answers_are_not_scored_by_those_of_an_example_for_another_question(event: Any) -> None:
    accepted = "\n".join(load_examples()[0].answers)
    *during, last = press(event, StopFlag(), None, False, accepted=accepted)
    assert "accepted" not in last_values(during), "results of the example keep their marks until then"
    table = json.loads(last_values(during)["order-table"])
    answers = [answer["is_correct"] for method in table["methods"] for answer in method["answers"]]
    assert answers == [None] * 6 and table["legend"] and last_values([last])["accepted"] == ""


def test_a_shuffle_stopped_before_its_first_order_hands_on_nothing(event: Any) -> None:
    stop = StopFlag()
    views = press(event, stop, None, False)
    shown = [next(views), next(views)]
    stop.requested = True
    ended = last_values([*shown, *views])
    assert "Stopped." in ended["shuffle-status"] and "kept" not in ended["shuffle-status"]
    assert not {"FinishedRun", "certificate", "certificate-offer"} & ended.keys()


def test_a_shuffle_that_fails_says_so_and_offers_nothing(event: Any) -> None:
    ended = last_values(list(press(event, StopFlag(), None, True, entries_from([("", " "), ("", "x")]))))
    assert "Document A is empty" in ended["shuffle-status"]
    assert not {"certificate", "certificate-offer"} & ended.keys()


def test_figures_of_other_inputs_than_the_answers_are_cleared(events: dict[str, Any], tmp_path: Path) -> None:
    origin = Origin(form_of(), is_for_all_orders=True)
    reordered = replace(origin, form=form_of(B_A_C))
    assert events["forget"].fn(None, origin, reordered) == gr.skip()
    for other in (None, replace(origin, form=form_of(question="Another?"))):
        cleared = last_values([events["forget"].fn(tmp_path / "gone", origin, other)])
        assert cleared["certificate-offer"]["visible"] is False and set(FIGURES) <= cleared.keys()
