"""The tab of masks: what it draws against the engine's own masks and the tables worked by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from tests.support.runs import THREE, finish, swapped
from tests.support.tokenizers import letter_tokenizer
from viz.page.answers.answering import FinishedRun
from viz.page.inside.drawn_masks import draw_masks
from viz.page.inside.reading import first_selection, plan_of
from viz.page.inside.selection import Query, Selection


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """The documents B, A, C, in that order."""
    return finish(engine, swapped(THREE, 0))


def test_remarks_name_scaled_methods_and_those_not_run(engine: Engine, run: FinishedRun) -> None:
    few = finish(engine, THREE, methods=("pine_reversed", "pine"))
    html = draw_masks(few, first_selection(few)).html
    assert "Not run: Vanilla, NIA, PCW and SP." in html and "SP scales" in html
    every = draw_masks(run, first_selection(run)).html
    assert "Not run" not in every and every.count("by 1/3.") == 3 and "documents and prefix" in every


def test_one_document_is_not_scaled(engine: Engine) -> None:
    alone = finish(engine, THREE[:1], methods=("sp",))
    assert "scales" not in draw_masks(alone, first_selection(alone)).html


def test_masks_of_the_tutorial_are_drawn_without_a_run(engine: Engine) -> None:
    few = finish(engine, THREE, methods=("pine",))
    figure = draw_masks(few, first_selection(few)).figures["token-masks"]
    assert [trace.name for trace in figure.data] == ["Vanilla", "NIA; PCW; SP", "PINE"]


def test_the_mask_of_every_method_is_drawn_over_the_whole_prompt(run: FinishedRun) -> None:
    figure = draw_masks(run, first_selection(run)).figures["token-masks"]
    tokens = np.arange(run.result.layout.num_tokens)
    for name in METHODS:
        expected = plan_of(run, name).attention_mask(tokens, tokens)
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


def test_a_prompt_without_a_prefix_has_no_row_for_it(run: FinishedRun) -> None:
    layout = replace(run.result.layout, prefix=())
    cut = replace(
        run,
        result=replace(run.result, layout=layout),
        prompt_tokens=run.prompt_tokens[run.result.layout.prefix_length :],
    )
    selection = Selection("pine", Query("document", 1))
    drawn = draw_masks(cut, selection)
    assert list(drawn.figures["token-masks"].layout.xaxis.ticktext) == ["B", "A", "C", "SUF"]
