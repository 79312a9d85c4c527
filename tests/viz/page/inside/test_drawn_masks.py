"""The tab of masks: what it draws against the engine's own masks and the tables worked by hand."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.plan import build_plan
from pine_engine.methods.positions import MASKED, position_matrix, who_sees_whom
from pine_engine.methods.table import METHODS, TAUGHT
from tests.support.runs import THREE, finish
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html, table_cells
from tests.support.worked_matrices import EXAMPLES, read_matrix
from viz.figures.masks import mask_states
from viz.figures.token_masks import TOKEN_LIMIT, token_states
from viz.page.answers.answering import FinishedRun
from viz.page.form import documents
from viz.page.form.documents import entries_from
from viz.page.inside.drawn_masks import draw_masks, segment_mask, token_mask
from viz.page.inside.reading import bounds_of, first_selection, longest_suffix, plan_of, query_choices
from viz.page.inside.selection import Query, Selection


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, documents.move(THREE, 0, 1))


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
    shown = [card.all("caption")[0].text for card in cards(draw_masks(few, first_selection(few)))]
    assert shown == ["Vanilla not run", "NIA not run", "PCW not run", "SP not run", "PINE", "PINE, reversed"]
    every = [card.all("caption")[0].text for card in cards(draw_masks(run, first_selection(run)))]
    assert every == [method.label for method in METHODS.values()]
    assert tuple(METHODS.values())[: len(TAUGHT)] == TAUGHT


def test_the_numbers_are_those_of_the_plans(run: FinishedRun) -> None:
    rows = numbers_of(draw_masks(run, first_selection(run)), "masks")["rows"]
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
    numbers = numbers_of(draw_masks(run, first_selection(run)), "masks")
    [row] = [row for row in numbers["rows"] if row[:2] == [mask.method, "SUF"]]
    noted = [key for key, state in zip(numbers["columns"][2:], row[2:], strict=True) if "×1/3" in state]
    assert noted == weighted


def test_one_document_weighs_what_it_weighs(engine: Engine) -> None:
    alone = finish(engine, THREE[:1], methods=("sp",))
    assert "×1/" not in draw_masks(alone, first_selection(alone))


def test_a_click_on_a_row_chooses_that_query_everywhere(run: FinishedRun) -> None:
    before = first_selection(run)
    last_prompt_token = Query("suffix", run.result.layout.suffix_length - 1)
    queries = {"B": Query("document", 0), "A": Query("document", 1), "C": Query("document", 2)}
    for card in cards(draw_masks(run, before)):
        assert not row_of(card, "SYS").all("button")
        for label, query in (queries | {"SUF": last_prompt_token}).items():
            [button] = row_of(card, label).all("button")
            what = json.loads(button.attributes["data-pick"])
            assert before.picked(what, bounds_of(run)) == replace(before, query=query)


def test_every_query_marks_its_row_in_every_card_and_its_token(run: FinishedRun) -> None:
    labels = {0: "B", 1: "A", 2: "C"}
    for _, value in query_choices(run):
        query = Query.parse(value)
        assert query is not None
        html = draw_masks(run, replace(first_selection(run), query=query))
        expected = labels[query.index] if query.kind == "document" else "SUF"
        for card in cards(html):
            chosen = [row.all("th")[0].text for row in card.all("tr") if "pine-selected" in row.classes]
            assert chosen == [expected]
        marked = read_html(html).with_class("pine-token-mask")[0].all("table")[0].with_class("pine-selected")
        assert len(marked) == 1


# Single tokens


@pytest.mark.parametrize("section", list(EXAMPLES))
@pytest.mark.parametrize(
    ("method", "title"), [("vanilla", "Vanilla"), ("nia", "NIA"), ("pcw", "PCW (and SP)"), ("pine", "PINE")]
)
def test_token_masks_are_those_worked_by_hand(section: str, method: str, title: str) -> None:
    layout = EXAMPLES[section].layout
    plan = build_plan(METHODS[method], layout)
    whole = slice(0, layout.num_tokens)
    drawn = token_states(mask_states(plan.visible), plan.segments, whole, whole)
    worked, _ = read_matrix(section, title)
    assert np.array_equal(drawn, worked != MASKED)


def test_token_masks_are_those_of_the_position_matrices(run: FinishedRun) -> None:
    layout = run.result.layout
    for method in run.result.traces:
        plan = plan_of(run, method)
        starts = np.tile(plan.query_starts, (layout.num_documents, 1))
        rows = np.tile(plan.query_starts, (layout.suffix_length, 1))
        expected = position_matrix(plan, starts, rows) != MASKED
        for query in (Query("document", 0), Query("document", 2), Query("suffix", 0)):
            for window in (None, 0, 15, 10_000):
                shown = token_mask(run, Selection(method, query, window=window))
                prompt = shown.allowed[: layout.num_tokens - shown.queries.start]
                prompt = prompt[:, : layout.num_tokens - shown.keys.start]
                assert np.array_equal(prompt, expected[shown.queries, shown.keys]), method


def test_answer_tokens_read_all_before_them(run: FinishedRun) -> None:
    trace = run.result.traces["pine"]
    answered = trace.suffix_starts.shape[2] - run.result.layout.suffix_length
    assert answered > 0
    tokens = np.arange(run.result.layout.num_tokens + answered)
    whole = who_sees_whom(plan_of(run, "pine"), tokens, tokens)
    shown = token_mask(run, Selection("pine", Query("suffix", trace.suffix_starts.shape[2] - 1)))
    assert np.array_equal(shown.allowed, whole[shown.queries, shown.keys])
    assert shown.tokens[shown.queries][-1].segment.label == "OUT" and shown.queries.stop == len(whole)


def test_the_window_follows_the_query_until_one_is_chosen(run: FinishedRun) -> None:
    layout = run.result.layout
    count = layout.num_tokens
    assert count > 2 * TOKEN_LIMIT, "nothing would be cut"
    for slot in range(3):
        last_token = int(layout.document_starts[slot] + layout.lengths[slot]) - 1
        follows = token_mask(run, Selection("nia", Query("document", slot)))
        assert follows.selected == last_token and follows.queries == follows.keys
        assert follows.queries.start <= last_token < follows.queries.stop
        chosen = token_mask(run, Selection("nia", Query("document", slot), window=5))
        assert chosen.queries == follows.queries and chosen.keys == slice(5, 5 + TOKEN_LIMIT)
    html = draw_masks(run, Selection("nia", Query("suffix", 0), window=5))
    assert f"and key tokens 6–{5 + TOKEN_LIMIT} of" in numbers_of(html, "token-mask")["caption"]
    assert "NIA, single tokens" in numbers_of(html, "token-mask")["caption"]


def test_a_token_that_the_method_never_read_gives_its_last_one(run: FinishedRun) -> None:
    shown = token_mask(run, Selection("pine", Query("suffix", longest_suffix(run) + 5)))
    assert shown.selected == len(shown.tokens) - 1


def test_a_row_of_a_token_picks_it_if_it_is_a_query(run: FinishedRun) -> None:
    layout = run.result.layout
    shown = token_mask(run, Selection("vanilla", Query("suffix", 0)))
    assert len(shown.picks) == shown.queries.stop - shown.queries.start
    ends = (layout.document_starts + layout.lengths - 1).tolist()
    found = 0
    for index, what in zip(range(shown.queries.start, shown.queries.stop), shown.picks, strict=True):
        query = Query.parse(json.loads(what)["query"]) if what else None
        if index >= layout.documents_end:
            assert query == Query("suffix", index - layout.documents_end)
        else:
            assert query == (Query("document", ends.index(index)) if index in ends else None)
            found += query is not None
    assert found


def test_tokens_are_open_only_when_a_window_was_chosen(run: FinishedRun) -> None:
    for window in (None, 3):
        html = draw_masks(run, replace(first_selection(run), window=window))
        [details] = read_html(html).with_class("pine-more")
        assert ("open" in details.attributes) == (window is not None)
        assert len(details.with_class("pine-picture")) == 1
        assert len(html.encode()) - html.encode().index(b"pine-more") < 250_000


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_documents_stay_text(text: str, engine: Engine) -> None:
    hostile = finish(engine, entries_from([(text, text), ("", f"plain {text}")]), methods=("pine",))
    html = draw_masks(hostile, first_selection(hostile))
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
    card = cards(draw_masks(cut, selection))[0]
    assert [head.text for head in card.all("tbody")[0].all("th")] == ["B", "A", "C", "SUF"]
    assert row_of(card, "A").classes == {"pine-row", "pine-selected"}
    shown = token_mask(cut, selection)
    tokens = np.arange(cut.result.layout.num_tokens + 10)
    expected = who_sees_whom(plan_of(cut, "pine"), tokens[shown.queries], tokens[shown.keys])
    assert np.array_equal(shown.allowed, expected)
