"""Figures of Internals: their numbers against the trace, and the changes that their buttons select."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import viz
from pine_engine.engine.engine import Engine
from tests.support.runs import THREE, finish, swapped, telling_queries, with_orders
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html
from viz.drawing.text import format_percent
from viz.export.standalone import packed_json
from viz.figures.answer_attention import NO_TOKENS
from viz.figures.answer_tokens import AnswerTokens, comparison_step
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.page.answers.run import Run
from viz.page.form.documents import entries_from
from viz.page.internals.comparison import chosen_other, draw_change, other_answers
from viz.page.internals.importance import draw_importance
from viz.page.internals.masks import draw_masks
from viz.page.internals.positions import draw_positions
from viz.page.internals.tab import summary_html
from viz.page.internals.tabs import DRAWING, FIGURES
from viz.page.queries import Query, query_of_step
from viz.page.selection import Selection, first_selection

NAMES = list(DRAWING)
STEPS = 4
KINDS = (
    *("vanilla", "nia", "pcw", "sp", "sp_right", "sp_prefix", "mspoe", "superposition"),
    *("calibrated_attention", "pine"),
)


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    """The documents B, A, C, in that order, under a method of each kind."""
    return finish(engine, swapped(THREE, 0), methods=KINDS, max_new_tokens=STEPS)


@pytest.fixture(scope="module")
def few(engine: Engine) -> Run:
    """The same documents under the methods that tests choose: many masks take seconds to draw."""
    return finish(engine, swapped(THREE, 0), methods=("vanilla", "pcw", "pine"), max_new_tokens=STEPS)


@pytest.fixture(scope="module")
def tried(engine: Engine) -> Run:
    """A run of the documents B A C, and in two other orders."""
    orders = [THREE, swapped(THREE, 0), swapped(THREE, 1)]
    made = [
        finish(engine, entries, methods=("vanilla", "nia", "pine"), max_new_tokens=STEPS)
        for entries in orders
    ]
    return with_orders(made[1], *((one.order, one.answer_records) for one in (made[0], made[2])))


@pytest.fixture
def selection(run: Run) -> Selection:
    return replace(first_selection(run), method="pine", layer=1, head=2, normalization="raw")


@pytest.fixture
def compared(tried: Run) -> Selection:
    return replace(first_selection(tried), method="vanilla")


def switches(html: str) -> dict[str, list[Element]]:
    """Buttons of each switch, by its label."""
    return {
        switch.attributes["aria-label"]: switch.all("button")
        for switch in read_html(html).with_class("pine-switch")
    }


def pressed(html: str) -> list[str]:
    return [
        button.text
        for buttons in switches(html).values()
        for button in buttons
        if button.attributes["aria-pressed"] == "true"
    ]


def picks(html: str) -> dict[str, dict[str, Any]]:
    """Changes of the selection by the text of their button."""
    return {
        button.text: json.loads(button.attributes["data-pick"])
        for buttons in switches(html).values()
        for button in buttons
    }


# All tabs


def assert_drawn(tab: str, run: Run, selection: Selection) -> None:
    """Something is drawn, and every figure has a place."""
    drawn = DRAWING[tab](run, selection)
    assert drawn.figures or read_html(drawn.html).with_class("pine-picture")
    assert set(drawn.figures) <= {place for column in FIGURES.get(tab, ()) for place in column}
    assert all(figure.layout.meta["name"] == place for place, figure in drawn.figures.items())


@pytest.mark.parametrize("tab", [name for name in NAMES if name != "masks"])  # of every method at once
@pytest.mark.parametrize("method", ["vanilla", "pcw", "pine"])
def test_tab_is_drawn_for_each_selection(tab: str, method: str, few: Run) -> None:
    first = replace(first_selection(few), method=method)
    for value in telling_queries(few, method):
        assert_drawn(tab, few, first.picked({"query": value}, few))
    for layer, head in ((None, first.head), (first.layer, None), (None, None)):
        assert_drawn(tab, few, replace(first, layer=layer, head=head))


def test_hostile_text_is_escaped_in_every_tab(engine: Engine) -> None:
    entries = entries_from([(text, text) for text in HOSTILE])
    run = finish(engine, entries, question=" ".join(HOSTILE), methods=("vanilla", "pcw", "pine"))
    assert_harmless(summary_html(run))
    for draw in DRAWING.values():
        drawn = draw(run, first_selection(run))
        assert_harmless(drawn.html)
        for figure in drawn.figures.values():
            written = json.dumps(json.loads(packed_json(figure)), ensure_ascii=False)
            tags = set(re.findall(r"<[^>]*>", written))
            title_tags = {"<span style='font-size: 0.9em'>", "</span>"}  # of panels
            assert tags <= {"<br>", "<b>", "</b>", "<extra>", "</extra>", *title_tags}


# Masks


def test_remarks_are_on_the_selected_method_alone(engine: Engine, run: Run) -> None:
    few = finish(engine, THREE, methods=("pine_reversed", "pine"))
    assert draw_masks(few, first_selection(few)).html == ""
    figure = draw_masks(few, first_selection(few)).figures["token-masks"]
    assert [trace.name for trace in figure.data][:2] == ["Vanilla", "NIA; PCW; SP"], "drawn without a run"
    alone = finish(engine, THREE[:1], methods=("sp",))
    assert "is scaled" not in draw_masks(alone, first_selection(alone)).html
    sp = draw_masks(run, replace(first_selection(run), method="sp")).html
    assert sp.count("SP: question attention") == sp.count("by 1/3.") == sp.count("<p") == 1


def test_selected_query_is_marked_in_the_prompt(few: Run) -> None:
    layout = few.result.layout
    figure = draw_masks(few, Selection("pine", Query("document", 1))).figures["token-masks"]
    assert list(figure.layout.xaxis.ticktext) == ["<br>prefix", "B", "A", "C", "<br>question"]

    def marked(query: Query) -> set[int]:
        figure = draw_masks(few, Selection("pine", query)).figures["token-masks"]
        return {int(shape.y0) for shape in figure.layout.shapes if shape.type == "line"}

    for slot in range(3):
        assert marked(Query("document", slot)) == {layout.document_starts[slot] + layout.lengths[slot] - 1}
    assert marked(Query("suffix", 2)) == {layout.documents_end + 2}
    assert marked(Query("suffix", layout.suffix_length)) == set()


# Positions


def test_mean_names_its_most_decisive_head(run: Run) -> None:
    last = Query("suffix", run.result.layout.suffix_length - 1)
    assert "Shown:" not in draw_positions(run, Selection("pine", last, 1, 3)).html
    mean = draw_positions(run, Selection("pine", last))
    layer, head = most_decisive(decisiveness(run.result.traces["pine"]))
    assert f"Shown: layer {layer}, head {head}" in mean.html
    assert f"layer {layer}, head {head}" in mean.figures["position-map"].layout.title.text
    vanilla = draw_positions(run, Selection("vanilla", last, 1, 3))
    assert "same document positions in every layer and head. Select PINE" in vanilla.html
    assert "layer" not in vanilla.figures["position-map"].layout.title.text
    assert "From layer 2 on, each head divides" in draw_positions(run, Selection("mspoe", last)).html


# The figures


def assert_equal_but_for_the_method(figures: dict[str, go.Figure], expected: dict[str, go.Figure]) -> None:
    """The figures are those of the library, with the method before their title."""
    for place, figure in expected.items():
        drawn = figures[place]
        title = figure.layout.title.text
        assert drawn.layout.title.text == f"PINE: {title[:1].lower()}{title[1:]}"
        assert packed_json(drawn.update_layout(title_text=title)) == packed_json(figure), place


@pytest.mark.parametrize("query", [Query("document", 1), Query("suffix", 2)])
def test_selection_reaches_every_figure_of_positions(run: Run, query: Query) -> None:
    trace = run.result.traces["pine"]
    options: dict[str, Any] = {"layer": 1, "head": 2, "order": run.order}
    options["document" if query.kind == "document" else "query"] = query.index
    drawn = draw_positions(run, Selection("pine", query, 1, 2, rows="head"))
    expected = {
        "positions": viz.plot_positions(trace, by="head", **options),
        "position-map": viz.plot_position_map(trace, **options),
    }
    assert_equal_but_for_the_method(drawn.figures, expected)
    assert pressed(drawn.html) == ["heads"]


@pytest.mark.parametrize("step", [1, None])
def test_selection_reaches_every_figure_of_importance(
    run: Run, selection: Selection, step: int | None
) -> None:
    """Without a token of the answer, a document is selected."""
    trace = run.result.traces["pine"]
    query = Query("document", 2) if step is None else query_of_step(run, step)
    chosen = replace(selection, query=query, normalization="share", with_prefix=False)
    place: dict[str, Any] = {"layer": 1, "head": 2}
    scale: dict[str, Any] = {"normalization": "share", "order": run.order}
    texts = run.answer_records["pine"].tokens
    expected = {
        "decisive-heads": viz.plot_head_decisiveness(trace, **place),
        "importance": viz.plot_importance(trace, **place, **scale, document=2 if step is None else None),
        "answer-importance": viz.plot_answer_importance(trace, texts, **place, **scale, step=step),
        "attention-shares": viz.plot_attention_shares(
            trace, step=step, steps=len(texts), with_rest=False, **place, order=run.order
        ),
    }
    assert_equal_but_for_the_method(draw_importance(run, chosen).figures, expected)


def test_methods_with_shorter_answers_are_omitted(run: Run) -> None:
    lengths = {name: trace.suffix_starts.shape[2] for name, trace in run.result.traces.items()}
    short = replace(
        run.result.traces["vanilla"], suffix_starts=run.result.traces["vanilla"].suffix_starts[:, :, :-1]
    )
    cut = replace(run, result=replace(run.result, traces=run.result.traces | {"vanilla": short}))
    last = Query("suffix", lengths["vanilla"] - 1)
    whole = draw_positions(run, Selection("pine", last, 0, 0)).figures["method-positions"].data[0].y
    without = draw_positions(cut, Selection("pine", last, 0, 0)).figures["method-positions"].data[0].y
    assert set(whole) - set(without) == {"Vanilla"}
    over = draw_positions(cut, Selection("vanilla", last, 0, 0))
    assert "This answer ended before the selected token" in over.html and set(over.figures) == {
        "method-positions"
    }


# Importance


def suffix_attention(run: Run, method: str) -> np.ndarray:
    found = run.result.traces[method].suffix_attention
    assert found is not None
    return found


def test_method_without_ranking_shows_its_own_attention(run: Run, selection: Selection) -> None:
    drawn = draw_importance(run, replace(selection, method="vanilla"))
    first = run.result.layout.suffix_length - 1
    count = len(run.answer_records["vanilla"].tokens)
    expected = suffix_attention(run, "vanilla")[1, 2, first : first + count, 1:-1]
    np.testing.assert_array_equal(drawn.figures["answer-importance"].data[0].z, expected)
    message = drawn.figures["answer-importance"].layout
    assert "does not rank" in message.meta["caption"] and message.title.text.startswith("Vanilla: ")
    # The importance under another method is not shown as that of vanilla.
    assert set(drawn.figures) == {"answer-importance", "attention-shares"}
    assert "Vanilla computes no importance. Choose PINE" in drawn.html
    assert not any(text.startswith("Most decisive") for text in picks(drawn.html))


def test_switches_select_their_label(run: Run, selection: Selection) -> None:
    layer, head = most_decisive(decisiveness(run.result.traces["pine"]))
    assert picks(draw_importance(run, selection).html) == {
        f"Most decisive head: layer {layer}, head {head}": {"layer": layer, "head": head},
        "Mean over heads": {"head": None},
        "Mean over layers and heads": {"layer": None, "head": None},
        "raw": {"normalization": "raw"},
        "row-normalized": {"normalization": "share"},
        "log scale": {"normalization": "log"},
        "everything": {"with_prefix": True},
        "documents only": {"with_prefix": False},
    }
    for text, what in picks(draw_importance(run, selection).html).items():
        assert text in pressed(draw_importance(run, selection.picked(what, run)).html)


def test_every_selection_of_a_mark_is_valid(run: Run, selection: Selection) -> None:
    found = [
        what
        for figure in draw_importance(run, selection).figures.values()
        for trace in figure.data
        for axis in (trace.meta or {}).values()
        for what in axis
    ]
    assert len(found) > 10
    for what in found:
        chosen = selection.picked(what, run)
        for field, value in what.items():
            shown = getattr(chosen, field)
            assert (str(shown) if field == "query" else shown) == value, what


def test_run_without_ranking_shows_attention(engine: Engine) -> None:
    run = finish(engine, THREE, methods=("vanilla", "nia"))
    drawn = draw_importance(run, first_selection(run))
    assert "None of these methods ranks documents" in drawn.html
    assert set(drawn.figures) == {"attention-shares", "answer-importance"}
    assert not any("decisive" in label for label in pressed(drawn.html))


def test_single_document_is_described_as_unranked(engine: Engine) -> None:
    run = finish(engine, THREE[:1], methods=("pine",))
    drawn = draw_importance(run, first_selection(run))
    assert "at least two documents" in drawn.html and "importance" not in drawn.figures


# What changed


def html_of(run: Run, selection: Selection) -> str:
    return draw_change(run, selection).html


def numbers(html: str) -> dict[str, list[list[object]]]:
    """The rows behind each picture, by its name."""
    record = [json.loads(part.text) for part in read_html(html).with_class("pine-numbers")]
    return {picture["name"]: picture["rows"] for picture in record}


def with_answer(run: Run, method: str, record: AnswerTokens) -> Run:
    others = [(order, answers.records) for order, answers in run.other_orders]
    return with_orders(run, (run.order, {**run.answer_records, method: record}), *others)


def shortened(record: AnswerTokens, count: int) -> AnswerTokens:
    """The answer as if it had ended after `count` tokens."""
    return replace(
        record,
        text="".join(record.tokens[:count]),
        token_ids=record.token_ids[:count],
        tokens=record.tokens[:count],
        logprobs=record.logprobs[:count],
        alternatives=record.alternatives[:count],
        attention=record.attention[:count],
    )


def test_default_is_the_first_answer_that_differs(tried: Run, compared: Selection) -> None:
    vanilla = tried.answer_records["vanilla"]
    equal = with_answer(tried, "nia", vanilla)
    assert chosen_other(with_answer(equal, "pine", shortened(vanilla, 1)), compared) == "method:pine"
    # Where all methods agree, the first of them; not an order that differs.
    assert chosen_other(with_answer(equal, "pine", vanilla), compared) == "method:nia"
    alone = with_orders(tried, (tried.order, {"vanilla": vanilla}))
    orders = [((0, 1, 2), {"vanilla": vanilla}), ((0, 2, 1), {"vanilla": shortened(vanilla, 2)})]
    assert chosen_other(with_orders(alone, *orders), compared) == "order:1"
    assert chosen_other(alone, compared) is None
    for key in ("method:vanilla", "method:sp", "order:7", "nonsense", ""):
        assert chosen_other(tried, replace(compared, other=key)) == chosen_other(tried, compared)


def test_switches_offer_other_methods_and_orders(tried: Run, compared: Selection) -> None:
    html = html_of(tried, replace(compared, other="order:1"))
    assert picks(html) == {
        "NIA": {"other": "method:nia"},
        "PINE": {"other": "method:pine"},
        "1: A B C": {"other": "order:0"},
        "2: A C B": {"other": "order:1"},
        "shown": {"with_prefix": True},
        "hidden": {"with_prefix": False},
    }
    assert pressed(html) == ["2: A C B", "shown"] and "To compare orders" not in html
    other = replace(compared, other="method:pine", with_prefix=False)
    assert pressed(html_of(tried, other)) == ["PINE", "hidden"]
    assert "To compare orders, run all orders" in html_of(with_orders(tried), compared)
    for text, what in picks(html).items():
        assert text in pressed(html_of(tried, compared.picked(what, tried)))


@pytest.mark.parametrize("with_prefix", [True, False])
@pytest.mark.parametrize(
    ("other", "label"), [("order:1", "Vanilla (order 2: A C B)"), ("method:pine", "PINE")]
)
def test_selection_reaches_every_figure_of_change(
    tried: Run, compared: Selection, other: str, label: str, with_prefix: bool
) -> None:
    left = tried.answer_records["vanilla"]
    ids = (*left.token_ids[:2], -1, -1)  # the third token differs
    tried = with_answer(tried, "pine", replace(left, label="PINE", token_ids=ids))
    right = other_answers(tried, "vanilla")[other][1]
    if other == "order:1":
        assert right == replace(tried.orders[0, 2, 1].records["vanilla"], label=label)
        left = replace(left, label="Vanilla (last run)")
    drawn = draw_change(tried, replace(compared, other=other, with_prefix=with_prefix))
    rows = numbers(drawn.html)["answers"]
    assert list(dict.fromkeys(row[0] for row in rows)) == [left.label, label]
    assert [row[4] for row in rows] == [*left.logprobs, *right.logprobs]
    step = comparison_step(left, right)
    expected = {
        "likely-tokens": viz.plot_next_token_candidates(left, right),
        "token-shares": viz.plot_answer_attention([left, right], step=step, with_prefix=with_prefix),
        "answer-shares": viz.plot_answer_attention([left, right], with_prefix=with_prefix),
    }
    assert set(expected) == {place for column in FIGURES["change"] for place in column}
    assert {place: packed_json(figure) for place, figure in drawn.figures.items()} == {
        place: packed_json(figure) for place, figure in expected.items()
    }


def test_tokens_select_the_query_that_generates_them(tried: Run, compared: Selection) -> None:
    html = html_of(tried, replace(compared, query=query_of_step(tried, 2)))
    chips = read_html(html).with_class("pine-chips")[0].all("button")
    whats = [json.loads(chip.attributes["data-pick"]) for chip in chips]
    assert whats == [{"query": str(query_of_step(tried, step))} for step in range(STEPS)]
    assert [chip.attributes["aria-pressed"] for chip in chips] == ["false", "false", "true", "false"]


def test_single_or_empty_answer_has_fewer_figures(tried: Run, compared: Selection) -> None:
    alone = with_orders(tried, (tried.order, {"vanilla": tried.answer_records["vanilla"]}))
    drawn = numbers(html_of(alone, compared))
    assert set(drawn) == {"answers"} and {row[0] for row in drawn["answers"]} == {"Vanilla"}
    assert set(draw_change(alone, compared).figures) == {"answer-shares"}
    empty = {name: shortened(record, 0) for name, record in tried.answer_records.items()}
    nothing = draw_change(with_orders(tried, (tried.order, empty)), compared)
    assert not nothing.figures and NO_TOKENS in nothing.html
    some = draw_change(with_answer(tried, "pine", empty["pine"]), compared)
    assert len(some.figures) == 3 and NO_TOKENS not in some.html


def test_order_of_many_documents_is_shortened(tried: Run) -> None:
    others = other_answers(with_orders(tried, (tuple(range(20)), tried.answer_records)), "pine")
    assert others["order:0"][0] == "1: A B C D E F G H…"


@pytest.mark.parametrize("method", ["superposition", "calibrated_attention"])
def test_weights_of_a_first_pass_are_shown(run: Run, method: str) -> None:
    html = draw_importance(run, replace(first_selection(run), method=method)).html
    weights = run.result.traces[method].document_weights
    assert weights is not None
    assert all(
        f"{name} {format_percent(weight)}" in html for name, weight in zip("BAC", weights, strict=True)
    )
