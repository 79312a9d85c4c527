"""Tokens: what is written for a token, and which of many are shown."""

from viz.drawing.identity import PREFIX, SUFFIX, document_segment
from viz.drawing.tokens import Token, segment_runs, shorten, token_window, visible_text


def test_blanks_and_control_characters_become_visible() -> None:
    assert visible_text(" a\n\tb") == "␣a⏎⇥b"
    assert visible_text("\x00\u202e") == "\\u0000\\u202e"
    assert visible_text("") == "∅"


def test_long_tokens_are_cut_with_a_sign() -> None:
    assert shorten("abcdef", 4) == "abc…" and shorten("abcd", 4) == "abcd"
    assert len(Token("x" * 40, PREFIX, 0).label) == 12


def test_token_names_count_from_one() -> None:
    assert Token(" cat", document_segment(1), 2).name == "token 3 “␣cat” of document B"


def test_a_window_has_the_centre_in_it_and_stays_inside() -> None:
    for count, limit in ((10, 4), (5, 8), (300, 256)):
        for center in range(count):
            window = token_window(count, limit, center)
            assert window.start <= center < window.stop
            assert window.start >= 0 and window.stop <= count
            assert window.stop - window.start == min(count, limit)


def test_runs_join_neighbours_of_one_segment_only() -> None:
    a = document_segment(0)
    tokens = [Token("x", segment, i) for i, segment in enumerate((PREFIX, a, a, SUFFIX, a))]
    assert segment_runs(tokens) == [(PREFIX, 0, 1), (a, 1, 2), (SUFFIX, 3, 1), (a, 4, 1)]
