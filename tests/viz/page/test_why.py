"""Tab "Why": words by document, figures of both methods, and the runs that it can explain."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.support.runs import with_orders
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from viz.page.answers.recordings import tutorial_recording
from viz.page.answers.run import Run
from viz.page.internals import summary_html
from viz.page.selection import first_selection, shown_place
from viz.page.why import (
    METHODS,
    MIN_SHARE,
    STEPS,
    answer_words,
    can_explain,
    colored_words,
    decisive_step,
    head_attention,
    why_figures,
    why_html,
)

RUN = tutorial_recording().run
PLACE = shown_place(RUN, first_selection(RUN))
DATA = re.compile(r"<data hidden>.*?</data>", re.DOTALL)  # figure that assets draw; its JSON has no "<"
AT = (PLACE.layer, PLACE.head)


def with_tokens(method: str, tokens: tuple[str, ...]) -> Run:
    answer = replace(RUN.answer_records[method], tokens=tokens)
    return with_orders(RUN, (RUN.order, {**RUN.answer_records, method: answer}))


@given(st.lists(st.text(max_size=3), max_size=8), st.integers(0, 99))
def test_words_keep_all_text_and_the_largest_share(tokens: list[str], seed: int) -> None:
    shares = np.random.default_rng(seed).random((len(tokens), 3), dtype=np.float32)
    words = answer_words(tokens, shares)
    assert "".join(text for text, _, _ in words) == "".join(tokens)
    assert all(share in shares[:, slot] for _, slot, share in words)
    assert max((share for _, _, share in words), default=0) == max(shares.flat, default=0)


def test_a_word_starts_at_a_blank_and_has_the_document_of_its_strongest_token() -> None:
    shares = np.array([[0.1, 0.2], [0.7, 0.1], [0.3, 0.9], [0.4, 0.2]], dtype=np.float32)
    words = answer_words([" Be", "rta", " at", "\n"], shares)
    assert [(text, slot) for text, slot, _ in words] == [(" Berta", 0), (" at", 1), ("\n", 0)]


@pytest.mark.parametrize("method", METHODS)
def test_colored_words_have_most_of_the_attention_of_the_head(method: str) -> None:
    shares = head_attention(RUN, method, *AT)[:, 1:-1]
    colored = [(document, share) for _, document, share in colored_words(RUN, method, *AT) if document]
    assert colored and (shares.max() >= MIN_SHARE)
    assert max(share for _, share in colored) == f"{shares.max():.2f}"
    assert colored[-1][0].document == RUN.order[int(shares.max(axis=0).argmax())]


def test_positions_are_those_of_the_query_of_the_decisive_token() -> None:
    step = decisive_step(RUN)
    assert RUN.answer_tokens["pine"][step] == RUN.origins["pine"].token
    query = RUN.result.layout.suffix_length - 1 + step
    vanilla, both = why_figures(RUN, *AT)["Positions"].values()
    for row, method in enumerate(METHODS):
        starts = RUN.result.traces[method].suffix_starts[:, :, query]
        starts = starts[*np.minimum(AT, np.subtract(starts.shape[:2], 1))]
        assert [bar.base[row] for bar in both.data[:3]] == starts.tolist()
    assert [len(bar.x) for bar in vanilla.data[:3]] == [1, 1, 1]
    assert vanilla.layout.xaxis.range == both.layout.xaxis.range


def test_importance_is_that_of_pine_and_vanilla_has_none() -> None:
    vanilla, ranked = (figure.data[0].z for figure in why_figures(RUN, *AT)["Importance"].values())
    assert np.nansum(vanilla) == 0
    np.testing.assert_allclose(np.nansum(ranked, axis=1), 1, rtol=1e-5)


def test_each_step_has_at_most_25_words_and_one_switch_of_both_methods() -> None:
    assert all(len(text.split()) <= 25 for text in STEPS.values())
    html = read_html(why_html(None))
    assert len([one for one in html.all("button") if "data-show" in one.attributes]) == 2 * len(STEPS)
    assert f"layer {PLACE.layer}, head {PLACE.head}" in html.text


def test_a_run_without_a_method_or_with_one_document_is_replaced() -> None:
    answers = {name: answer for name, answer in RUN.answer_records.items() if name != "vanilla"}
    alone = replace(RUN, form=replace(RUN.form, entries=RUN.form.entries[:1]))
    for run in (with_orders(RUN, (RUN.order, answers)), replace(alone, orders={(0,): RUN.orders[RUN.order]})):
        assert not can_explain(run)
        assert "The last run lacks" in why_html(run)
    assert can_explain(RUN) and "The last run lacks" not in why_html(RUN)
    assert all(RUN.form.question in html for html in (why_html(RUN), summary_html(RUN)))


def test_hostile_text_stays_text() -> None:
    count = len(RUN.answer_tokens["pine"])
    tokens = tuple(HOSTILE[index % len(HOSTILE)] for index in range(count))
    html = why_html(replace(with_tokens("pine", tokens), recorded=HOSTILE[0]))
    assert_harmless(DATA.sub("", html))
    assert HOSTILE[0] in read_html(html).text
