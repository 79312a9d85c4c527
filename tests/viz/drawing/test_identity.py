"""Identities: one per document, the same everywhere, told apart without colour."""

from viz.drawing.identity import (
    DECODED,
    PREFIX,
    SUFFIX,
    Segment,
    badge,
    document_color,
    document_letter,
    document_pattern,
    document_segment,
    ink_on,
    legend,
    prompt_segments,
    relative_luminance,
)


def test_letters_go_on_after_z() -> None:
    assert [document_letter(i) for i in (0, 1, 25, 26, 27, 51, 52, 701, 702)] == [
        "A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA",
    ]  # fmt: skip


def test_twenty_documents_look_different_and_a_repeated_colour_has_another_border() -> None:
    looks = [(document_color(i), document_pattern(i)) for i in range(20)]
    assert len(set(looks)) == 20
    assert looks[5][0] == looks[0][0] and looks[5][1] != looks[0][1]


def test_no_document_has_the_colour_of_the_prefix_or_the_suffix() -> None:
    colors = {document_color(i) for i in range(30)}
    assert PREFIX.color == "#E69F00" and SUFFIX.color == DECODED.color == "#009E73"
    assert not colors & {PREFIX.color, SUFFIX.color}


def test_badge_text_meets_wcag_aa() -> None:
    for segment in (PREFIX, SUFFIX, *(document_segment(i) for i in range(5))):
        high, low = sorted((relative_luminance(segment.color), relative_luminance(segment.ink)), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, segment


def test_luminance_of_known_colours() -> None:
    # Values from the WCAG definition: white 1, black 0, pure green 0.7152.
    assert [round(relative_luminance(c), 4) for c in ("#FFFFFF", "#000000", "#00FF00")] == [1.0, 0.0, 0.7152]
    assert ink_on("#FFFFFF") == "#000000" and ink_on("#000000") == "#FFFFFF"


def test_the_identity_travels_with_the_document_and_the_slot_does_not() -> None:
    segments = prompt_segments([2, 0, 1])
    assert [segment.label for segment in segments] == ["SYS", "C", "A", "B", "SUF"]
    assert [segment.slot for segment in segments] == [None, 0, 1, 2, None]
    assert [segment.color for segment in segments[1:4]] == [document_color(i) for i in (2, 0, 1)]
    assert [segment.label for segment in prompt_segments([0], has_prefix=False)] == ["A", "SUF"]


def test_a_badge_shows_the_slot_apart_from_the_letter() -> None:
    with_slot, without = badge(2, slot=0), badge(2)
    assert ">C</span>" in with_slot and ">slot 1</span>" in with_slot
    assert with_slot.startswith(without.strip()) and "slot" not in without


def test_a_legend_escapes_the_titles() -> None:
    html = legend([PREFIX, document_segment(0)], ["<b>system</b>", "Cats & dogs"])
    assert "&lt;b&gt;system" in html and "Cats &amp; dogs" in html and "<b>" not in html


def test_names_for_sentences() -> None:
    assert [s.name for s in (PREFIX, document_segment(1), SUFFIX, DECODED)] == [
        "the prefix", "document B", "the suffix", "the answer",
    ]  # fmt: skip
    assert Segment("document", 26).label == "AA"
