"""A shuffle as letters and as log-probabilities, and a position sweep as lines."""

import numpy as np
from hypothesis import given, strategies as st

import viz
from pine_engine import Score, SlotScored, order_effects
from pine_engine.lab.debias.measured import NUM_MEASURED
from tests.support.figure_records import cell, order_row
from viz.figures.logprob_by_order import _logprob_by_order_info
from viz.figures.position_sweep import sweep_sentence
from viz.figures.shuffle import _shuffle_info, answer_color, answer_letter
from viz.theme import bar_pattern, line_color, line_style

ROWS = [
    order_row([0, 1], {"vanilla": cell("Paris."), "pine": cell("Lyon.")}),
    order_row([1, 0], {"vanilla": cell("Lyon.", 2.5, -3.5), "pine": cell("Lyon.")}),
]
TEXTS = st.sampled_from(["Paris.", "Lyon.", "paris.", "", " Paris.", "<b>Lyon.</b>"])


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=30))
def test_numbers_are_equal_exactly_where_answers_are(answers: list[tuple[str, str]]) -> None:
    z, numbers = _shuffle_info(answers, 2)
    assert [[numbers[text] for text in pair] for pair in answers] == z.tolist()
    assert len({answer_letter(number) for number in numbers.values()}) == len(set(sum(answers, ())))


def test_distinct_answers_have_distinct_colors() -> None:
    assert len({answer_color(number) for number in range(60)}) == 60


def test_missing_answers_are_blank() -> None:
    rows = [*ROWS, order_row([0, 1], {"vanilla": cell("Rome.")}), order_row([1, 0], {})]
    (heat,) = viz.plot_shuffle(rows).data
    np.testing.assert_array_equal(heat.z, [[0, 1], [1, 1], [2, np.nan], [np.nan, np.nan]])
    assert list(heat.text[3]) == ["", ""] and viz.plot_shuffle([]).data[0].z.size == 0
    assert _logprob_by_order_info(rows, "pine")[0] == [0, 1]


def test_cell_selects_its_order_and_method() -> None:
    figure = viz.plot_shuffle(ROWS, labels={"pine": "PINE"}, is_right=lambda text: text == "Lyon.")
    (heat,) = figure.data
    assert list(heat.meta["x"]) == [{"method": "vanilla"}, {"method": "pine"}]
    assert heat.meta["y"][1] == {"tried": 1} and heat.meta["cells"][0][1] == "b: Lyon."
    assert list(heat.x) == ["vanilla<br>2 answers", "PINE<br>1 answer"]
    assert list(figure.layout.yaxis.ticktext) == ["A B", "B A"]
    assert "2.5" in heat.hovertext[1][0] and "0.0" not in heat.hovertext[1][1]
    assert figure.layout.meta["verbatim"] == ["customdata"]  # the answers
    assert ["✗" in heat.text[0][0], "✓" in heat.text[0][1]] == [True, True]
    assert not set("✓✗") & set(str(viz.plot_shuffle(ROWS).data[0].text))
    assert viz.plot_logprob_by_order(ROWS).data[0].meta["x"][1] == {"tried": 1, "method": "vanilla"}


def test_logprobs_are_of_the_first_answer() -> None:
    numbers, logprobs = _logprob_by_order_info(ROWS, "vanilla")
    assert (numbers, logprobs.tolist()) == ([0, 1], [-1, -3.5])
    rows = [order_row([0], {"pine": cell("")}), order_row([1], {"pine": cell("x")})]
    assert np.isnan(_logprob_by_order_info(rows, "pine")[1]).all()


LABELS = {"vanilla": "Vanilla", "nia": "NIA", "pine": "PINE", "pcw": "PCW"}
VALUES: dict[str, tuple[float, ...]] = {
    "vanilla": (-4.0, -6.5, -2.0), "nia": (-5.0, -5.0, -3.5), "pine": (-2.75,) * 3, "pcw": (-3.0,) * 3
}  # fmt: skip


def steps(values: dict[str, tuple[float, ...]], count: int = 3) -> list[SlotScored]:
    return [
        SlotScored(slot, (0, 1, 2), {m: Score(m, "x", (1,), (line[slot],)) for m, line in values.items()})
        for slot in range(count)
    ]


def sentence(values: dict[str, tuple[float, ...]], count: int = 3) -> str:
    slots = steps(values, count)
    return sweep_sentence(slots, slots=3, document=1, answer="Paris  is\nit", setting="tiny", labels=LABELS)


def test_lines_are_the_logprobs_by_slot() -> None:
    figure = viz.plot_position_sweep(steps(VALUES, 2), slots=5, labels=LABELS)
    vanilla, *_, pcw = figure.data
    assert (list(vanilla.x), vanilla.y.tolist()) == ([1, 2], [-4, -6.5])
    assert (pcw.name, pcw.y.tolist()) == ("PCW", [-3, -3])
    assert figure.layout.xaxis.range == (0.5, 5.5)


def test_two_effects_add_up() -> None:
    total, rope, causal = viz.plot_order_effects(order_effects([-1, -3, -2], [-2, -2, -5])).data
    np.testing.assert_allclose(rope.y + causal.y, total.y, rtol=1e-6)


def test_sentence_names_changes_from_large_to_none() -> None:
    text = sentence(VALUES)
    parts = ("“Paris is it”", "document B", "4.5 nats", "slot 3", "slot 2", "NIA: range 1.5", "PINE and PCW")
    positions = [text.index(part) for part in parts]
    assert positions == sorted(positions)
    smallest = sentence({"pine": (-2.75, -2.7500000000000004, -2.75), "pcw": VALUES["pcw"]})
    assert smallest.index("4.4e-16 nats") < smallest.index("PCW: constant")


def test_line_style_is_unique_by_symbol_then_color() -> None:
    styles = [line_style(index) for index in range(NUM_MEASURED + 1)]
    looks = [(style["marker"]["symbol"], style["line"]["color"]) for style in styles]
    assert len(set(looks)) == len(looks)
    assert len({symbol for symbol, _ in looks[:24]}) == 24
    assert len({style["line"]["dash"] for style in styles[:8]}) == 8
    bars = [(bar_pattern(index), line_color(index)) for index in range(24)]
    assert len(set(bars)) == 24 and len({pattern for pattern, _ in bars[:8]}) == 8
