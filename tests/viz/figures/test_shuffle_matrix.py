"""A shuffle as letters, as dots, and played."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import viz
from pine_engine.engine.orders import ShuffleResult
from viz.figures.shuffle_positions import place_documents


@dataclass(frozen=True)
class Cell:
    text: str
    max_abs_logit_diff: float = 0.0
    bitwise_identical: bool = True
    reference_logprob: float = -1.0


@dataclass(frozen=True)
class Row:
    order: tuple[int, ...]
    cells: dict[str, Cell] = field(default_factory=dict)


ROWS = [
    Row((0, 1), {"vanilla": Cell("Paris."), "pine": Cell("Lyon.")}),
    Row((1, 0), {"vanilla": Cell("Lyon.", 2.5, False, -3.5), "pine": Cell("Lyon.")}),
]

TEXTS = st.sampled_from(["Paris.", "Lyon.", "paris.", "", " Paris.", "<b>Lyon.</b>"])


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_letters_are_alike_exactly_where_answers_are(answers: list[tuple[str, str]]) -> None:
    rows = [Row((0,), {"vanilla": Cell(one), "pine": Cell(other)}) for one, other in answers]
    (heat,) = viz.plot_shuffle(rows).data
    texts = [text for pair in answers for text in pair]
    letters = [letter for line in heat.text for letter in line]
    for values in (letters, heat.z.ravel().tolist()):
        pairs = set(zip(values, texts, strict=True))
        assert len(pairs) == len(set(values)) == len(set(texts))


def test_what_is_still_computed_is_blank() -> None:
    (heat,) = viz.plot_shuffle([*ROWS, Row((0, 1), {"vanilla": Cell("Rome.")}), Row((1, 0))]).data
    np.testing.assert_array_equal(heat.z, [[0, 1], [1, 1], [2, np.nan], [np.nan, np.nan]])
    assert viz.plot_shuffle([]).data[0].z.size == 0


def test_right_and_wrong_are_marked_where_they_are_known() -> None:
    (heat,) = viz.plot_shuffle(ROWS, is_right=lambda text: text == "Lyon.").data
    assert ["✗" in heat.text[0][0], "✓" in heat.text[0][1]] == [True, True]
    assert not set("✓✗") & set(str(viz.plot_shuffle(ROWS).data[0].text))


def test_a_cell_picks_its_order_and_its_method_and_tells_its_answer() -> None:
    figure = viz.plot_shuffle(ROWS, labels={"pine": "PINE"})
    (heat,) = figure.data
    assert (list(heat.meta["x"]), heat.meta["y"][1]) == (
        [{"method": "vanilla"}, {"method": "pine"}],
        {"tried": 1},
    )
    assert list(heat.x) == ["vanilla<br>2 answers", "PINE<br>1 answer"]
    assert list(figure.layout.yaxis.ticktext) == ["A B", "B A"]
    assert [list(row) for row in heat.meta["cells"]] == [["a: Paris.", "b: Lyon."], ["b: Lyon."] * 2]
    assert heat.customdata[1][0] == "Lyon.<br>largest logit difference: 2.5"


def test_dots_are_log_probabilities_and_none_of_an_empty_answer() -> None:
    vanilla, _ = viz.plot_logprob_by_order(ROWS).data
    np.testing.assert_array_equal(vanilla.x, np.array([-1, -3.5], np.float32))
    assert vanilla.meta["x"][1] == {"tried": 1, "method": "vanilla"}
    empty = [Row((0,), {"pine": Cell("")}), Row((1,), {"pine": Cell("x")})]
    assert np.isnan(viz.plot_logprob_by_order(empty).data[0].x).all()


def test_pine_moves_no_document_and_vanilla_does(tiny_shuffle: ShuffleResult) -> None:
    figure = viz.plot_positions_by_order(tiny_shuffle.rows, layer=1, head=2)
    methods = list(figure.data[0].y)
    bases = {
        method: np.array([[bar.base[place] for bar in frame.data] for frame in figure.frames])
        for place, method in enumerate(methods)
    }
    assert bases["pine"].shape == (6, 3)
    assert (bases["pine"] == bases["pine"][0]).all() and (bases["pcw"] == bases["pcw"][0]).all()
    assert len(np.unique(bases["vanilla"], axis=0)) > 3
    for frame in figure.frames:
        assert [bar.x[0] for bar in frame.data] == tiny_shuffle.first.layout.lengths.tolist()


def test_documents_that_share_positions_are_drawn_above_each_other(tiny_shuffle: ShuffleResult) -> None:
    figure = viz.plot_positions_by_order(tiny_shuffle.rows, layer=1, head=2)
    for frame in figure.frames:
        lanes = {
            method: sorted((bar.offset[place], bar.width[place]) for bar in frame.data)
            for place, method in enumerate(figure.data[0].y)
        }
        for (below, width), (above, _) in zip(lanes["pcw"][:-1], lanes["pcw"][1:], strict=True):
            assert above >= below + width - 1e-9
        assert len(set(lanes["pine"])) == len(set(lanes["vanilla"])) == 1


@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_what_is_kept_of_an_order_is_by_document(tiny_shuffle: ShuffleResult, method: str) -> None:
    row = tiny_shuffle.rows[4]
    kept = place_documents(row.order, row.result.traces, 1, 2)
    trace = row.result.traces[method]
    at = (min(1, len(trace.suffix_starts) - 1), 2 % trace.suffix_starts.shape[1])
    for slot, document in enumerate(row.order):
        assert kept.starts[method][document] == trace.suffix_starts[(*at, 2, slot)]
        assert kept.lengths[document] == row.result.layout.lengths[slot]
