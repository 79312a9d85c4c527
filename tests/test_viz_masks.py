"""Masks: what is drawn is what the states say, at segment and at token level."""

import numpy as np
import plotly.graph_objects as go
import pytest

from tests.viz_reading import HOSTILE, assert_harmless, read_html, table_cells
from viz.identity import PREFIX, SUFFIX, document_segment, prompt_segments
from viz.masks import (
    ALLOWED,
    CAUSAL,
    FIGURE_LIMIT,
    MASKED,
    SegmentMask,
    fits_table,
    mask_cards,
    mask_sentence,
    mask_states,
    token_mask,
    token_mask_caption,
    token_mask_figure,
)
from viz.tokens import Token

SEGMENTS = prompt_segments([0, 1, 2])
CLASSES = {MASKED: "pine-masked", ALLOWED: "pine-allowed", CAUSAL: "pine-causal"}
EARLIER = np.tril(np.ones((3, 3), dtype=bool))
NONE = np.eye(3, dtype=bool)
ALL = np.ones((3, 3), dtype=bool)


def mask(name: str, visible: np.ndarray, scale: str = "") -> SegmentMask:
    return SegmentMask(name, SEGMENTS, mask_states(visible), scale)


def tokens(count: int) -> list[Token]:
    return [Token(f"t{i}", PREFIX if i < 2 else document_segment(0), i) for i in range(count)]


def test_states_of_the_three_kinds_of_mask() -> None:
    # Worked by hand from specification 6.1: SYS, D1, D2, D3, X; 0 masked, 1 allowed, 2 causal inside.
    expected = {
        "earlier": [[2, 0, 0, 0, 0], [1, 2, 0, 0, 0], [1, 1, 2, 0, 0], [1, 1, 1, 2, 0], [1, 1, 1, 1, 2]],
        "none": [[2, 0, 0, 0, 0], [1, 2, 0, 0, 0], [1, 0, 2, 0, 0], [1, 0, 0, 2, 0], [1, 1, 1, 1, 2]],
        "all": [[2, 0, 0, 0, 0], [1, 2, 1, 1, 0], [1, 1, 2, 1, 0], [1, 1, 1, 2, 0], [1, 1, 1, 1, 2]],
    }
    for name, visible in (("earlier", EARLIER), ("none", NONE), ("all", ALL)):
        states = mask_states(visible)
        assert states.dtype == np.uint8 and states.tolist() == expected[name], name
        assert mask_states(visible, has_prefix=False).tolist() == states[1:, 1:].tolist()


def test_every_cell_of_a_card_has_its_state_and_says_so() -> None:
    drawn = mask("PINE", ALL)
    table = read_html(mask_cards([drawn])).all("table")[0]
    cells = table_cells(table)
    for q in range(5):
        for k in range(5):
            state = int(drawn.states[q, k])
            assert cells[q][k].classes == {CLASSES[state]}
            assert ("masked" in cells[q][k].text) == (state == MASKED)
    assert cells[2][1].attributes["title"] == "tokens of B may read A: yes"
    assert cells[0][1].attributes["title"] == "tokens of SYS may read A: no – masked"
    assert [head.attributes["scope"] for head in table.all("th")] == ["col"] * 5 + ["row"] * 5
    assert table.all("caption")[0].text == "PINE"


def test_letters_travel_with_reordered_documents() -> None:
    reordered = SegmentMask("Vanilla", prompt_segments([2, 0, 1]), mask_states(EARLIER))
    table = read_html(mask_cards([reordered])).all("table")[0]
    assert [head.text for head in table.all("th")] == ["SYS", "C", "A", "B", "SUF"] * 2
    assert table_cells(table)[2][1].attributes["title"] == "tokens of A may read C: yes"


def test_cells_that_differ_from_the_reference_are_outlined() -> None:
    vanilla, pine = mask("Vanilla", EARLIER), mask("PINE", ALL)
    root = read_html(mask_cards([vanilla, pine], reference=vanilla))
    first, second = (table_cells(table) for table in root.all("table"))
    assert not any("pine-differs" in cell.classes for row in first for cell in row)
    outlined = [(q, k) for q in range(5) for k in range(5) if "pine-differs" in second[q][k].classes]
    assert outlined == [(1, 2), (1, 3), (2, 3)]
    assert "differs from Vanilla" in second[1][2].attributes["title"]


def test_a_scaled_weight_is_written_on_suffix_to_document_cells_only() -> None:
    cells = table_cells(read_html(mask_cards([mask("SP", NONE, "×1/3")])).all("table")[0])
    noted = [(q, k) for q in range(5) for k in range(5) if "×1/3" in cells[q][k].text]
    assert noted == [(4, 1), (4, 2), (4, 3)]
    assert "pine-allowed" in cells[4][1].classes


@pytest.mark.parametrize(
    ("visible", "sentence"),
    [
        (EARLIER, "Each document reads only those before it in the input."),
        (NONE, "No document reads another."),
        (ALL, "Every document reads all the others, in both directions."),
        (np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1]], dtype=bool), "1 of 6 pairs of documents may be read."),
        (EARLIER.T, "3 of 6 pairs of documents may be read."),
    ],
)
def test_the_sentence_is_worked_out_from_the_states(visible: np.ndarray, sentence: str) -> None:
    assert mask_sentence(mask("any", visible)) == sentence
    assert read_html(mask_cards([mask("any", visible)])).all("figcaption")[0].text == sentence


def test_the_sentence_for_one_document_and_for_a_scale() -> None:
    one = SegmentMask("PINE", prompt_segments([0]), mask_states(np.ones((1, 1), dtype=bool)))
    assert mask_sentence(one) == "There is one document; it reads itself from left to right."
    assert mask_sentence(mask("SP", NONE, "×1/3")).endswith("is weighted ×1/3.")


def test_a_small_token_mask_is_a_table_of_the_same_cells() -> None:
    allowed = np.random.default_rng(0).random((3, 4)) < 0.5
    html = token_mask(allowed, tokens(3), tokens(4), method="NIA")
    assert isinstance(html, str)
    cells = table_cells(read_html(html).all("table")[0])
    assert [["pine-allowed" in cell.classes for cell in row] for row in cells] == allowed.tolist()
    assert [["pine-masked" in cell.classes for cell in row] for row in cells] == (~allowed).tolist()


def test_a_large_token_mask_is_a_uint8_heatmap_with_unique_labels() -> None:
    assert fits_table(40, 40) and not fits_table(41, 3)
    allowed = np.tril(np.ones((60, 60), dtype=bool))
    figure = token_mask(allowed, tokens(60), tokens(60), method="NIA")
    assert isinstance(figure, go.Figure)
    heatmap = figure.data[0]
    assert heatmap.z.dtype == np.uint8
    np.testing.assert_array_equal(heatmap.z, allowed)
    assert len(set(heatmap.x)) == len(set(heatmap.y)) == 60
    assert heatmap.text is None and heatmap.customdata is None
    assert figure.layout.xaxis.title.text == "key token" and figure.layout.yaxis.title.text == "query token"
    assert figure.layout.yaxis.autorange == "reversed" and figure.layout.height == 640


def test_above_the_limit_the_window_is_drawn_and_the_caption_says_so() -> None:
    allowed = np.tril(np.ones((400, 400), dtype=bool))
    figure = token_mask_figure(allowed, tokens(400), tokens(400), method="PINE", center=200)
    assert figure.data[0].z.shape == (FIGURE_LIMIT, FIGURE_LIMIT)
    np.testing.assert_array_equal(figure.data[0].z, allowed[72:328, 72:328])
    caption = token_mask_caption(400, 400, method="PINE", center=200)
    assert "query tokens 73–328 of 400 and key tokens 73–328 of 400" in caption
    assert "Cut" not in token_mask_caption(256, 256, method="PINE")


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_come_out_as_text(text: str) -> None:
    rows = [Token(text, PREFIX, 0), Token(text, SUFFIX, 0)]
    html = token_mask(np.eye(2, dtype=bool), rows, rows, method=text)
    assert isinstance(html, str)
    assert_harmless(html)
    assert_harmless(mask_cards([SegmentMask(text, SEGMENTS, mask_states(ALL), text)]))
    assert text in read_html(html).all("figcaption")[0].text
    large = [Token(text, PREFIX, i) for i in range(41)]
    figure = token_mask_figure(np.eye(41, dtype=bool), large, large, method=text)
    assert "<img" not in " ".join(figure.data[0].x) and "<script" not in figure.data[0].hovertemplate


def test_the_same_data_gives_the_same_html() -> None:
    assert mask_cards([mask("PINE", ALL)]) == mask_cards([mask("PINE", ALL)])
