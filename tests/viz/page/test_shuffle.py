"""The shuffle of the page: orders, controls, and what it hands on."""

import json
import pickle
import re
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import gradio as gr
import numpy as np
import pytest

import pine_engine as pine
from pine_engine.engine.engine import Engine
from pine_engine.invariance.certificate import Certificate
from pine_engine.methods.table import METHODS
from pine_engine.scheduling.queue import FairQueue
from pine_engine.scheduling.run_state import StopFlag
from pine_engine.scheduling.runs import Runs
from tests.support.running import new_views, sources_of, views_of
from tests.support.runs import THREE, form_of, swapped
from tests.support.viz_reading import read_html
from tests.support.widgets import built
from viz.cards.answers import AnswerCard
from viz.page import shuffle_job
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.order_table import order_table_json
from viz.page.answers.recordings import recorded_of
from viz.page.answers.run import Run
from viz.page.answers.shown import Shown
from viz.page.answers.workspace import Workspace
from viz.page.common.host_settings import DEFAULTS
from viz.page.form.checks import form_layout
from viz.page.form.documents import entries_from, entries_json
from viz.page.form.examples import NO_EXAMPLE, load_examples
from viz.page.form.form import form_request
from viz.page.form.options import DEFAULT_METHODS
from viz.page.form.orders import with_controls
from viz.page.jobs.loader import EngineSource
from viz.page.shuffle import answer_html, orders_to_run, shuffle_tab
from viz.page.shuffle_job import caption_of, orders_for, prepare_shuffle

FIGURES = ("shuffle-matrix", "shuffle-positions", "shuffle-spread")
B_A_C = swapped(THREE, 0)


@pytest.fixture(scope="module")
def views(engine: Engine) -> list[Shown]:
    return list(views_of(prepare_shuffle, engine, form_of(B_A_C), count=6, seed=0, controls=True))


def run_of(view: Shown) -> Run:
    assert view.run is not None
    return view.run


@pytest.fixture(scope="module")
def run(views: list[Shown]) -> Run:
    return run_of(views[-1])


def test_views_can_be_compared_after_pickling(views: list[Shown]) -> None:
    for view, same in zip(views, pickle.loads(pickle.dumps(views)), strict=True):
        assert view == same  # ZeroGPU sends them from another process


def certificate_of(run: Run) -> Certificate:
    assert run.certificate is not None
    return run.certificate


def test_only_orders_without_own_answers_are_run_and_shared_ones_first() -> None:
    form = form_of(entries_from([("", str(number)) for number in range(5)]), methods=("pine",))
    cards = (AnswerCard("pine", text="x"),)
    own, shared, sample = (4, 3, 2, 1, 0), (1, 0, 2, 3, 4), orders_for(5, 6, 0)
    answers = OrderAnswers({"pine": "x"})
    earlier: dict[Order, OrderAnswers] = {own: answers, shared: replace(answers, source="shared")}
    shown, now = Shown(form, cards, earlier=earlier), (form, None)
    orders = orders_to_run(now, form.methods, shown, 4, 0)
    assert orders == (form.order, shared, sample[1])
    assert orders_to_run((replace(form, question="z"), None), form.methods, shown, 3, 0) == tuple(sample[:3])
    whole = Shown(form, cards, earlier={own: earlier[own]})
    assert len(orders_to_run(now, form.methods, whole, 1, 0)) == 1, "all again if none is missing"


def test_controls_follow_selected_methods_and_are_order_dependent() -> None:
    assert with_controls(["pine"]) == ("pine", "vanilla", "nia", "mask_only", "reassignment_only")
    assert not any(METHODS[name].is_order_invariant for name in with_controls([]))


def test_orders_grow_by_one(views: list[Shown], run: Run) -> None:
    grown = [view for view in new_views(views) if view.run]
    for number, view in enumerate(grown, start=1):
        assert len(run_of(view).comparisons) == number == len(certificate_of(run_of(view)).orders)
        assert view.is_complete == (number == 6)
    assert len(grown) == 6 and views[-1].progress == (6 * 5, 6 * 5)
    for order, answers in run.orders.items():
        assert answers.positions is not None and answers.comparison is not None
        assert order == answers.positions.order == answers.comparison.order
        assert answers.texts["pine"] == answers.comparison.comparisons["pine"].text
    assert all(row.comparisons["pine"].bitwise_identical for row in run.comparisons)
    assert not all(row.comparisons["vanilla"].bitwise_identical for row in run.comparisons)
    assert not any(row.result.traces or row.result.logits for row in run.comparisons)


def test_compared_pair_is_shown_in_two_orders_first(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle_job, "REDRAW_S", 0.0)
    form = form_of(B_A_C, methods=("vanilla", "nia", "pine"))
    views = list(views_of(prepare_shuffle, engine, form, count=6, seed=0, controls=False))
    pair, orders = {"vanilla", "pine"}, views[0].planned
    first = next(view for view in views if sum(len(one.texts) for one in view.early.values()) == 4)
    assert {order: set(one.texts) for order, one in first.early.items()} == dict.fromkeys(orders[:2], pair)
    assert first.run is None and not first.finished_orders((form, None), form.methods)
    table = json.loads(order_table_json(first))
    done = {
        one["name"]: [bool(cell and cell["is_done"]) for cell in one["answers"]] for one in table["methods"]
    }
    assert done == {**dict.fromkeys(pair, [True] * 2 + [False] * 4), "nia": [False] * 6}
    assert "Vanilla gave " in table["finding"] and "PINE gave 1 answer" in table["finding"]
    last = views[-1]
    assert not last.early and first.early[orders[1]].texts["pine"] == last.orders[orders[1]].texts["pine"]


def test_status_of_several_orders_has_the_share_that_is_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shuffle_job, "REDRAW_S", 0.0)
    views = list(views_of(prepare_shuffle, engine, form_of(B_A_C), count=6, seed=0, controls=True))
    sentences = [view.sentence for view in views]
    shares = [int(found[1]) for one in sentences if (found := re.search("reading documents, ([0-9]+)%", one))]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] == 100
    assert "6 orders: generating answers" in sentences


def test_without_traces_or_controls_a_run_has_answers_and_a_certificate(engine: Engine) -> None:
    request = form_of(THREE[:2], methods=("pine",))
    *_, last = views_of(prepare_shuffle, engine, request, count=2, seed=0, controls=False, trace=False)
    assert last.is_complete and last.sentence.startswith("Done: 2 orders")
    assert [answers.positions for answers in run_of(last).orders.values()] == [None, None]
    assert [list(row.comparisons) for row in run_of(last).comparisons] == [["pine"]] * 2
    assert certificate_of(run_of(last)).traced is False


def test_cell_shows_its_answer_beside_the_first(run: Run) -> None:
    shown = read_html(answer_html(run, {"tried": 1, "method": "vanilla"}))
    answers = [part.text for part in shown.with_class("pine-answer-text")]
    assert answers == [row.comparisons["vanilla"].text for row in run.comparisons[:2]]


@pytest.mark.parametrize(
    "cell",
    [{}, {"clear": True}, {"tried": 0, "method": []}, {"tried": 0, "method": "pcw"},
     *({"tried": tried, "method": "pine"} for tried in (6, -1, "0", True))],
)  # fmt: skip
def test_invalid_cell_shows_nothing(run: Run, cell: dict[str, Any]) -> None:
    assert answer_html(run, cell) == ""


def test_run_has_the_answers_of_all_orders_token_by_token(run: Run) -> None:
    assert run.order == (1, 0, 2) and run.titles == ("Senna", "Varo", "Orm")
    assert set(run.result.traces) == set(with_controls(("vanilla", "pine")))
    assert run.result.logits == {}
    assert list(run.orders) == [(1, 0, 2), (1, 2, 0), (0, 1, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1)]
    for order, answers in run.other_orders:
        assert answers.records["pine"].text == run.answer_records["pine"].text
        assert np.array_equal(answers.records["pine"].logprobs, run.answer_records["pine"].logprobs)
        assert [segment.document for segment in answers.records["pine"].documents] == list(order)
    vanilla = {answers.records["vanilla"].logprobs for answers in run.orders.values()}
    assert len(vanilla) > 1


# The certificate


def test_certificate_holds_the_request_of_the_form(engine: Engine, run: Run) -> None:
    certificate = certificate_of(run)
    lettered = certificate.request.tokenize(engine)
    assert lettered.reorder(certificate.orders[0]) == form_layout(form_of(B_A_C), engine)
    assert certificate.orders == list(map(list, run.orders))
    assert (certificate.seed, certificate.max_new_tokens, certificate.traced) == (None, 3, True)
    assert certificate.request == form_request(form_of(B_A_C))
    for result in certificate.results:
        cells = [row.comparisons[result.method] for row in run.comparisons]
        assert result.logprobs == [cell.reference_logprob for cell in cells]
        assert max(len(cell.answer.token_ids) for cell in cells) == 3


def test_sampled_orders_have_one_certificate_with_their_seed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Mock(side_effect=pine.create_certificate)
    monkeypatch.setattr(pine, "create_certificate", create)
    five = entries_from([("", f"text {number}") for number in range(5)])
    *_, view = views_of(
        prepare_shuffle, engine, form_of(five, methods=("pine",)), count=2, seed=7, controls=False
    )
    certificate = certificate_of(run_of(view))
    assert create.call_count == 1 and certificate.seed == 7
    assert [tuple(order) for order in certificate.orders] == orders_for(5, 2, 7)


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
def events(source: EngineSource) -> dict[str, Any]:
    """Events of the page's shuffle by the name of their function."""

    def build() -> Any:
        with gr.Blocks() as blocks:
            page = Workspace()
            sources = sources_of(source, runs=Runs(FairQueue(4)))
            shuffle_tab(page, sources, gr.State(None), DEFAULTS)
        return blocks

    return {function.name: function for function in built(build).fns.values()}


def press(
    events: dict[str, Any],
    *,
    stop: StopFlag | None = None,
    entries: Any = B_A_C,
    shown: Shown | None = None,
    accepted: str = "No such answer",
    is_open: bool = True,
) -> Any:
    """Press Shuffle with these documents."""
    form = ("retrieval_qa", "Which?", "Answer.", ["pine"], 3, entries_json(entries))
    inputs = ({"is_open": is_open}, 6, 0, False, shown or Shown(form_of(), ()), None, accepted, "")
    return events["run"].fn(stop or StopFlag(), None, "", *inputs, *form)


def last_values(views: list[dict[Any, Any]]) -> dict[str, Any]:
    """Return the last value of each widget by its id; states by the type of their value."""
    shown: dict[str, Any] = {}
    for view in views:
        for widget, value in view.items():
            shown[getattr(widget, "elem_id", None) or type(value).__name__] = value
    return shown


def test_shuffle_shows_table_figures_and_cards_of_its_run(events: dict[str, Any]) -> None:
    views = list(press(events))
    began, ended = last_values(views[:1]), last_values(views)
    assert not {"order-table", "shuffle-answer"} & began.keys(), "results stay"
    assert began["example"] == NO_EXAMPLE
    assert all(json.loads(ended[name])["data"] for name in FIGURES)
    assert "Done: 6 orders" in ended["shuffle-status"]
    (matrix,) = json.loads(ended["shuffle-matrix"])["data"]
    assert sum(cell.endswith(" ✗</span>") for row in matrix["text"] for cell in row) == 6
    assert set().union(*views) <= set(events["run"].outputs)
    run = ended["Run"]
    table = json.loads(ended["order-table"])
    assert [method["name"] for method in table["methods"]] == list(run.result.answers)
    assert all(answer["is_done"] for method in table["methods"] for answer in method["answers"])
    assert len(table["orders"]) == 6 and "PINE gave 1 answer, correct in 0 of 6 orders." in table["finding"]
    cards = read_html(ended["answers"]).with_class("pine-answer")
    for card, answer in zip(cards, run.result.answers.values(), strict=True):
        assert (card.attributes["data-state"], card.attributes["data-method"]) == ("finished", answer.method)
        assert answer.text.strip() in card.text


def test_figures_are_drawn_while_their_section_is_open(events: dict[str, Any]) -> None:
    ended = last_values(list(press(events, is_open=False)))
    assert not ended.keys() & set(FIGURES)
    panel = {"is_open": False}
    for name in ("draw_again", "open_figures", "draw_again"):
        shown = last_values([events[name].fn(panel, ended["Shown"], ended["Shown"], None)])
        assert (set(FIGURES) <= shown.keys()) == panel["is_open"]
    events["close_figures"].fn(panel)
    assert not panel["is_open"]


def test_answers_cut_off_are_not_counted_as_correct(events: dict[str, Any], views: list[Shown]) -> None:
    run = run_of(views[-1])
    accepted = run.result.answers["pine"].text
    for cut_off, count in ((frozenset[str](), 6), (frozenset({"pine"}), 0)):
        orders = {order: replace(one, cut_off=cut_off) for order, one in run.orders.items()}
        view = replace(views[-1], run=replace(run, orders=orders))
        drawn = last_values([events["draw_again"].fn({"is_open": True}, view, view, accepted)])
        assert f"PINE gave 1 answer, correct in {count} of 6 orders." in drawn["shuffle-verdict"]


def test_orders_finished_before_stop_are_kept_beside_older_answers(events: dict[str, Any]) -> None:
    form = form_of(B_A_C, question="Which?", methods=("pine",))
    older = {order: OrderAnswers({"pine": "old"}) for order in orders_for(3, 6, 0)}
    cards = (AnswerCard("pine", text="old"),)
    stop, views = StopFlag(), []
    for view in press(events, stop=stop, shown=Shown(form, cards, earlier=older)):
        views.append(view)
        stop.requested = stop.requested or "Order 2 done" in str(last_values([view]).get("shuffle-status"))
    ended = last_values(views)
    assert "Stopped. Finished answers are kept." in ended["shuffle-status"]
    assert len(json.loads(ended["shuffle-matrix"])["data"][0]["text"]) == 2
    assert len(certificate_of(ended["Run"]).orders) == 2 == len(ended["Run"].orders)
    answers = json.loads(ended["order-table"])["methods"][0]["answers"]
    assert [answer["text"] == "old" for answer in answers].count(True) == 4


def test_run_after_stop_computes_missing_orders_and_certifies_all(
    events: dict[str, Any], run: Run, engine: Engine
) -> None:
    form = form_of(B_A_C, question="Which?", methods=("pine",))
    others = views_of(prepare_shuffle, engine, form, count=6, seed=0, controls=False)
    stopped = next(view for view in others if view.run and len(view.run.orders) == 2)
    pressed = list(press(events, shown=stopped))
    ended = last_values(pressed)
    assert "Done: 5 orders" in ended["shuffle-status"], "the first order and four that are missing"
    assert list(ended["Run"].orders)[:2] == list(run_of(stopped).orders)
    assert set(ended["Run"].orders) == set(run.orders) == set(map(tuple, ended["Run"].certificate.orders))
    other = replace(run_of(stopped), first_certificate=None)
    assert other.joined(run_of(stopped)) is other


def test_answers_are_not_scored_by_those_of_an_example_for_another_question(events: dict[str, Any]) -> None:
    *during, last = press(events, accepted="\n".join(load_examples()[0].answers))
    assert "accepted" not in last_values(during), "results of the example keep their marks until then"
    table = json.loads(last_values(during)["order-table"])
    answers = [answer["is_correct"] for method in table["methods"] for answer in method["answers"]]
    assert answers == [None] * 6 and last_values([last])["accepted"] == ""


def test_shuffle_without_a_finished_order_hands_on_no_run(events: dict[str, Any]) -> None:
    stop = StopFlag()
    views = press(events, stop=stop)
    shown = [next(views), next(views)]
    stop.requested = True
    ended = last_values([*shown, *views])
    assert "Stopped." in ended["shuffle-status"] and "kept" not in ended["shuffle-status"]
    assert "Run" not in ended
    failed = last_values(list(press(events, entries=entries_from([("", " "), ("", "x")]))))
    assert "Document A is empty" in failed["shuffle-status"] and "Run" not in failed


def test_figures_of_other_inputs_than_the_answers_are_cleared(
    events: dict[str, Any], views: list[Shown]
) -> None:
    clear, form = events["clear_figures"].fn, views[-1].form
    closed, last = {"is_open": False}, views[-1]
    same = clear(closed, last, last, (replace(form, entries=THREE), None))
    assert same == gr.skip() == clear(closed, None, last, (form, None))
    for other in (None, (replace(form, question="Another?"), None)):
        assert set(FIGURES) <= last_values([clear(closed, last, last, other)]).keys()


def test_recorded_answers_have_positions_and_a_run_button(events: dict[str, Any]) -> None:
    recorded = recorded_of(load_examples()[0].form(DEFAULT_METHODS))
    opened = last_values([events["open_figures"].fn({"is_open": False}, None, recorded, None)])
    frames = json.loads(opened["shuffle-positions"])["frames"]
    assert [len(frame["data"]) for frame in frames] == [3] * 6
    assert 'data-click-target="shuffle"' in opened["shuffle-verdict"]
    own = replace(recorded, earlier={})
    cleared = last_values([events["clear_figures"].fn({"is_open": True}, None, own, None)])
    assert cleared["shuffle-positions"] == "" == cleared["shuffle-matrix"]
