"""Position sweep: lines, the two effects, and the sentence."""

import numpy as np

import viz
from pine_engine import Score, SlotScored, order_effects
from pine_engine.debias.table import NUM_MEASURED
from viz.figures.position_sweep import sweep_sentence
from viz.theme import bar_pattern, line_color, line_style

LABELS = {"vanilla": "Vanilla", "nia": "NIA", "pine": "PINE", "pcw": "PCW"}
VALUES: dict[str, tuple[float, ...]] = {
    "vanilla": (-4.0, -6.5, -2.0),
    "nia": (-5.0, -5.0, -3.5),
    "pine": (-2.75, -2.75, -2.75),
    "pcw": (-3.0, -3.0, -3.0),
}


def steps(values: dict[str, tuple[float, ...]], count: int = 3) -> list[SlotScored]:
    """Return scores of an answer of one token in each slot."""
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
