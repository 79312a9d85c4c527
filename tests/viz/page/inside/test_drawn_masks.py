"""The tab of masks: what it draws against the engine's own masks and the tables worked by hand."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.plan import build_plan
from pine_engine.methods.positions import MASKED, attention_mask
from pine_engine.methods.table import METHODS, TUTORIAL_METHODS
from tests.support.runs import THREE, finish, swapped, telling_queries
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from tests.support.worked_matrices import EXAMPLES, read_matrix
from viz.figures.masks import mask_states, token_states
from viz.page.answers.answering import FinishedRun
from viz.page.form.documents import entries_from
from viz.page.inside.drawn_masks import draw_masks, segment_mask
from viz.page.inside.reading import bounds_of, first_selection, plan_of
from viz.page.inside.selection import Query, Selection


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, swapped(THREE, 0))


def cards(html: str) -> list[Element]:
    """The masks by document, one per method."""
    return read_html(html).with_class("pine-mask")


def numbers_of(html: str, name: str) -> Any:
    """What the picture of that name says in numbers."""
    pictures = read_html(html).with_class("pine-picture")
    figure = next(figure for figure in pictures if figure.attributes["data-name"] == name)
    return json.loads(figure.with_class("pine-numbers")[0].text)


def row_of(card: Element, label: str) -> Element:
    return next(row for row in card.all("tbody")[0].all("tr") if row.all("th")[0].text == label)


# Documents


def test_the_five_masks_of_the_paper_come_first_and_are_always_drawn(
    engine: Engine, run: FinishedRun
) -> None:
    few = finish(engine, THREE, methods=("pine_reversed", "pine"))
    shown = [card.all("caption")[0].text for card in cards(draw_masks(few, first_selection(few)).html)]
    assert shown == ["Vanilla not run", "NIA not run", "PCW not run", "SP not run", "PINE", "PINE, reversed"]
    every = [card.all("caption")[0].text for card in cards(draw_masks(run, first_selection(run)).html)]
    assert every == [method.label for method in METHODS.values()]
    assert tuple(METHODS.values())[: len(TUTORIAL_METHODS)] == TUTORIAL_METHODS


def test_the_numbers_are_those_of_the_plans(run: FinishedRun) -> None:
    rows = numbers_of(draw_masks(run, first_selection(run)).html, "masks")["rows"]
    assert len(rows) == len(METHODS) * 5
    for index, method in enumerate(METHODS):
        assert [row[0] for row in rows[5 * index : 5 * index + 5]] == [METHODS[method].label] * 5
        visible = plan_of(run, method).visible
        for a, b in np.ndindex(3, 3):
            state = rows[5 * index + 1 + a][2 + 1 + b]
            assert state == ("causal" if a == b else "allowed" if visible[a, b] else "masked"), method
    assert [row[1] for row in rows[:5]] == ["SYS", "B", "A", "C", "SUF"]


@pytest.mark.parametrize(
    ("method", "weighted"),
    [
        ("pcw", []),
        ("sp", ["B", "A", "C"]),
        ("sp_right", ["B", "A", "C"]),
        ("sp_prefix", ["SYS", "B", "A", "C"]),
    ],
)
def test_what_the_method_table_divides_is_noted(method: str, weighted: list[str], run: FinishedRun) -> None:
    mask = segment_mask(run, method)
    numbers = numbers_of(draw_masks(run, first_selection(run)).html, "masks")
    [row] = [row for row in numbers["rows"] if row[:2] == [mask.method, "SUF"]]
    noted = [key for key, state in zip(numbers["columns"][2:], row[2:], strict=True) if "×1/3" in state]
    assert noted == weighted


def test_one_document_weighs_what_it_weighs(engine: Engine) -> None:
    alone = finish(engine, THREE[:1], methods=("sp",))
    assert "×1/" not in draw_masks(alone, first_selection(alone)).html


def test_a_click_on_a_row_chooses_that_query_everywhere(run: FinishedRun) -> None:
    before = first_selection(run)
    last_prompt_token = Query("suffix", run.result.layout.suffix_length - 1)
    queries = {"B": Query("document", 0), "A": Query("document", 1), "C": Query("document", 2)}
    for card in cards(draw_masks(run, before).html):
        assert not row_of(card, "SYS").all("button")
        for label, query in (queries | {"SUF": last_prompt_token}).items():
            [button] = row_of(card, label).all("button")
            what = json.loads(button.attributes["data-pick"])
            assert before.picked(what, bounds_of(run)) == replace(before, query=query)


def test_every_query_marks_its_row_in_every_card(run: FinishedRun) -> None:
    labels = {0: "B", 1: "A", 2: "C"}
    for value in telling_queries(run):
        query = Query.parse(value)
        assert query is not None
        html = draw_masks(run, replace(first_selection(run), query=query)).html
        expected = labels[query.index] if query.kind == "document" else "SUF"
        for card in cards(html):
            chosen = [row.all("th")[0].text for row in card.all("tr") if "pine-selected" in row.classes]
            assert chosen == [expected]


# Single tokens


@pytest.mark.parametrize("section", list(EXAMPLES))
@pytest.mark.parametrize(
    ("method", "title"), [("vanilla", "Vanilla"), ("nia", "NIA"), ("pcw", "PCW (and SP)"), ("pine", "PINE")]
)
def test_token_masks_are_those_worked_by_hand(section: str, method: str, title: str) -> None:
    plan = build_plan(METHODS[method], EXAMPLES[section].layout)
    worked, _ = read_matrix(section, title)
    assert np.array_equal(token_states(mask_states(plan.visible), plan.segments), worked != MASKED)


def test_the_mask_of_every_method_is_drawn_over_the_whole_prompt(run: FinishedRun) -> None:
    figure = draw_masks(run, first_selection(run)).figures["token-masks"]
    tokens = np.arange(run.result.layout.num_tokens)
    for name in METHODS:
        expected = attention_mask(plan_of(run, name), tokens, tokens)
        assert sum(np.array_equal(~np.isnan(trace.z), expected) for trace in figure.data) == 1, name
    assert list(figure.layout.xaxis.ticktext) == ["SYS", "B", "A", "C", "SUF"]


def test_the_chosen_query_is_marked_until_the_answer(run: FinishedRun) -> None:
    layout = run.result.layout

    def marked(query: Query) -> set[int]:
        figure = draw_masks(run, Selection("pine", query)).figures["token-masks"]
        return {int(shape.y0) for shape in figure.layout.shapes if shape.type == "line"}

    for slot in range(3):
        assert marked(Query("document", slot)) == {layout.document_starts[slot] + layout.lengths[slot] - 1}
    assert marked(Query("suffix", 2)) == {layout.documents_end + 2}
    assert marked(Query("suffix", layout.suffix_length)) == set()


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_documents_stay_text(text: str, engine: Engine) -> None:
    hostile = finish(engine, entries_from([(text, text), ("", f"plain {text}")]), methods=("pine",))
    html = draw_masks(hostile, first_selection(hostile)).html
    assert_harmless(html)
    assert len(table_cells(cards(html)[0].all("table")[0])) == 4


def test_a_prompt_without_a_prefix_has_no_row_for_it(run: FinishedRun) -> None:
    layout = replace(run.result.layout, prefix=())
    cut = replace(
        run,
        result=replace(run.result, layout=layout),
        prompt_tokens=run.prompt_tokens[run.result.layout.prefix_length :],
    )
    selection = Selection("pine", Query("document", 1))
    drawn = draw_masks(cut, selection)
    card = cards(drawn.html)[0]
    assert [head.text for head in card.all("tbody")[0].all("th")] == ["B", "A", "C", "SUF"]
    assert row_of(card, "A").classes == {"pine-row", "pine-selected"}
    assert list(drawn.figures["token-masks"].layout.xaxis.ticktext) == ["B", "A", "C", "SUF"]
