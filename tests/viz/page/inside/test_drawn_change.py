"""The tab "What changed": which answers stand beside each other, and its numbers against the trace."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.table import METHODS
from tests.support.runs import finish, swapped
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html
from viz.figures.answer_attention import NO_TOKENS
from viz.figures.answer_tokens import AnswerTokens, answer_tokens
from viz.figures.importance import normalize
from viz.page.answers.answer_records import TriedOrder
from viz.page.answers.answering import FinishedRun
from viz.page.form.documents import entries_from
from viz.page.inside.drawn_change import chosen_other, draw_change, other_orders
from viz.page.inside.inside_panel import FIGURES
from viz.page.inside.reading import bounds_of, first_selection, query_of_step
from viz.page.inside.selection import Selection

THREE = entries_from([("Varo", "red"), ("Senna", "green"), ("Orm", "white")])
STEPS = 4


def html_of(run: FinishedRun, selection: Selection) -> str:
    return draw_change(run, selection).html


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def run(engine: Engine) -> FinishedRun:
    """A run of the documents B A C, with two other orders tried and its own among them."""
    orders = [THREE, swapped(THREE, 0), swapped(THREE, 1)]
    made = [
        finish(engine, entries, methods=("vanilla", "nia", "pine"), max_new_tokens=STEPS)
        for entries in orders
    ]
    tried = tuple(
        TriedOrder(other.order, label, other.answer_records)
        for other, label in zip(made, ("A B C", "B A C", "A C B"), strict=True)
    )
    return replace(made[1], tried=tried)


@pytest.fixture
def selection(run: FinishedRun) -> Selection:
    return replace(first_selection(run), method="vanilla")


def switches(html: str) -> dict[str, list[Element]]:
    """Buttons of each switch, by its label."""
    return {
        switch.attributes["aria-label"]: switch.all("button")
        for switch in read_html(html).with_class("pine-switch")
    }


def pressed(html: str) -> list[str]:
    return [
        button.text
        for buttons in switches(html).values()
        for button in buttons
        if button.attributes["aria-pressed"] == "true"
    ]


def numbers(html: str) -> dict[str, list[list[object]]]:
    """The rows behind each picture, by its name."""
    record = [json.loads(part.text) for part in read_html(html).with_class("pine-numbers")]
    return {picture["name"]: picture["rows"] for picture in record}


def shares_of(run: FinishedRun, selection: Selection) -> dict[str, dict[str, float]]:
    """Return the shares behind each answer, by answer and row name."""
    figure = draw_change(run, selection).figures["answer-shares"]
    rows = figure.layout.yaxis.ticktext
    return {bars.name: dict(zip(rows, bars.x.tolist(), strict=True)) for bars in figure.data}


def with_answer(run: FinishedRun, method: str, record: AnswerTokens) -> FinishedRun:
    return replace(run, answer_records={**run.answer_records, method: record})


def shortened(record: AnswerTokens, count: int) -> AnswerTokens:
    """The answer as if it had ended after `count` tokens."""
    return replace(
        record,
        text="".join(record.tokens[:count]),
        token_ids=record.token_ids[:count],
        tokens=record.tokens[:count],
        logprobs=record.logprobs[:count],
        alternatives=record.alternatives[:count],
        attention=record.attention[:count],
    )


# What a run tells


@pytest.mark.parametrize("method", ["vanilla", "nia", "pine"])
def test_change_text_matches_run_and_trace(engine: Engine, run: FinishedRun, method: str) -> None:
    record, made, trace = run.answer_records[method], run.result.answers[method], run.result.traces[method]
    assert (record.label, record.text, record.token_ids) == (METHODS[method].label, made.text, made.token_ids)
    assert record.logprobs == made.logprobs and len(record.tokens) == STEPS
    assert list(record.tokens) == [engine.decode_text([token]) for token in made.token_ids]
    for step, alternatives in enumerate(trace.alternatives):
        expected = [(engine.tokenizer.decode([other.token_id]), other.logprob) for other in alternatives]
        assert list(record.alternatives[step]) == expected and len(expected) == 5
        assert record.alternatives[step][0] == (record.tokens[step], record.logprobs[step])
    assert [(document.document, document.slot) for document in record.documents] == [(1, 0), (0, 1), (2, 2)]


def test_attention_of_a_token_is_that_of_the_query_that_writes_it(run: FinishedRun) -> None:
    trace = run.result.traces["pine"]
    assert trace.suffix_attention is not None
    for step in range(STEPS):
        row = query_of_step(run, step).index
        expected = [
            np.mean([[head[row, part] for head in layer] for layer in trace.suffix_attention])
            for part in range(5)
        ]
        np.testing.assert_allclose(run.answer_records["pine"].attention[step], expected, rtol=1e-5)
    np.testing.assert_allclose(run.answer_records["pine"].attention.sum(axis=1), 1, rtol=1e-5)


def test_answer_without_tokens_is_described(engine: Engine, run: FinishedRun) -> None:
    result = engine.run(run.result.layout, methods=["pine"], max_new_tokens=0, trace=True)
    record = answer_tokens(engine.decode_tokens, result, "pine", run.order, "PINE")
    assert record.tokens == () and record.attention.shape == (0, 5)


# What is compared


def test_the_first_method_that_differs_is_the_default(run: FinishedRun, selection: Selection) -> None:
    equal = with_answer(run, "nia", run.answer_records["vanilla"])
    different = with_answer(equal, "pine", shortened(run.answer_records["vanilla"], 1))
    other = chosen_other(different, selection)
    assert other is not None and other.key == "method:pine"
    # Where all methods agree, the first of them; not an order that differs.
    other = chosen_other(with_answer(equal, "pine", run.answer_records["vanilla"]), selection)
    assert other is not None and other.key == "method:nia"


@pytest.mark.parametrize("key", ["method:vanilla", "method:sp", "order:1", "order:7", "nonsense", ""])
def test_what_cannot_be_compared_gives_the_default(run: FinishedRun, selection: Selection, key: str) -> None:
    assert chosen_other(run, replace(selection, other=key)) == chosen_other(run, selection)


def test_a_run_of_one_method_is_compared_with_the_order_that_differs(
    run: FinishedRun, selection: Selection
) -> None:
    vanilla = run.answer_records["vanilla"]
    tried = (TriedOrder((0, 1, 2), "A B C", {"vanilla": vanilla}),
             TriedOrder((0, 2, 1), "A C B", {"vanilla": shortened(vanilla, 2)}))  # fmt: skip
    alone = replace(run, answer_records={"vanilla": vanilla}, tried=tried)
    other = chosen_other(alone, selection)
    assert other is not None and other.key == "order:1"
    assert chosen_other(replace(alone, tried=()), selection) is None


def test_the_switches_offer_other_methods_and_other_orders(run: FinishedRun, selection: Selection) -> None:
    html = html_of(run, replace(selection, other="order:2"))
    methods, orders, prefix = switches(html).values()
    assert [button.text for button in methods] == ["NIA", "PINE"]
    # Its own order is among those tried and is left out.
    assert [button.text for button in orders] == ["1: A B C", "3: A C B"]
    assert [json.loads(button.attributes["data-pick"]) for button in [*methods, *orders]] == [
        {"other": key} for key in ("method:nia", "method:pine", "order:0", "order:2")
    ]
    assert pressed(html) == ["3: A C B", "shown"]
    assert [json.loads(button.attributes["data-pick"]) for button in prefix] == [
        {"with_prefix": True}, {"with_prefix": False},
    ]  # fmt: skip
    assert "Press Shuffle" not in html
    assert pressed(html_of(run, replace(selection, other="method:pine", with_prefix=False))) == [
        "PINE", "left out",
    ]  # fmt: skip


def test_before_a_shuffle_the_tab_says_where_orders_come_from(run: FinishedRun, selection: Selection) -> None:
    assert "Press Shuffle above to compare orders." in html_of(replace(run, tried=()), selection)


def test_a_pick_of_every_button_is_taken(run: FinishedRun, selection: Selection) -> None:
    html = html_of(run, selection)
    for buttons in switches(html).values():
        for button in buttons:
            picked = selection.picked(json.loads(button.attributes["data-pick"]), bounds_of(run))
            assert button.text in pressed(html_of(run, picked))


# What is drawn


def test_an_order_stands_beside_the_run_with_its_numbers(run: FinishedRun, selection: Selection) -> None:
    drawn = numbers(html_of(run, replace(selection, other="order:2")))
    chosen = replace(selection, other="order:2")
    labels = ["Vanilla (as run)", "Vanilla (order 3: A C B)"]
    for figure in draw_change(run, chosen).figures.values():
        assert [bars.name for bars in figure.data] == labels
    assert list(dict.fromkeys(row[0] for row in drawn["answers"])) == labels
    tried = run.tried[2].answer_records["vanilla"]
    assert [row[4] for row in drawn["answers"]] == [*run.answer_records["vanilla"].logprobs, *tried.logprobs]
    # In the order A C B document C stands in the second slot, in B A C in the third.
    carried = shares_of(run, chosen)["Vanilla (order 3: A C B)"]
    assert carried["C, slot 3 → 2"] == pytest.approx(float(tried.attention[:, 2].mean()), rel=1e-5)


def test_what_carried_an_answer_is_the_mean_of_the_trace(run: FinishedRun, selection: Selection) -> None:
    carried = shares_of(run, replace(selection, other="method:pine"))
    first = run.result.layout.suffix_length - 1
    for label, method in (("Vanilla", "vanilla"), ("PINE", "pine")):
        attention = run.result.traces[method].suffix_attention
        assert attention is not None
        expected = attention[:, :, first : first + STEPS].mean(axis=(0, 1, 2))
        np.testing.assert_allclose(list(carried[label].values()), expected, rtol=1e-5)


def test_left_tokens_pick_the_query_that_writes_them(run: FinishedRun, selection: Selection) -> None:
    chosen = replace(selection, query=query_of_step(run, 2))
    left, right = read_html(html_of(run, chosen)).with_class("pine-chips")
    chips = left.all("button")
    picks = [json.loads(chip.attributes["data-pick"]) for chip in chips]
    assert picks == [{"query": str(query_of_step(run, step))} for step in range(STEPS)]
    assert [chip.attributes["aria-pressed"] for chip in chips] == ["false", "false", "true", "false"]
    assert [selection.picked(pick, bounds_of(run)).query for pick in picks] == [
        query_of_step(run, step) for step in range(STEPS)
    ]
    assert not right.all("button")


def test_a_run_of_one_method_shows_its_answer_alone(run: FinishedRun, selection: Selection) -> None:
    alone = replace(run, answer_records={"vanilla": run.answer_records["vanilla"]}, tried=())
    drawn = numbers(html_of(alone, selection))
    assert set(drawn) == {"answers"} and {row[0] for row in drawn["answers"]} == {"Vanilla"}
    assert set(draw_change(alone, selection).figures) == {"answer-shares"}
    assert set(shares_of(alone, selection)) == {"Vanilla"}


def test_the_token_that_is_drawn_is_the_first_that_differs(run: FinishedRun, selection: Selection) -> None:
    vanilla = run.answer_records["vanilla"]
    ids = (*vanilla.token_ids[:2], -1, -1)
    different = with_answer(run, "pine", replace(vanilla, label="PINE", token_ids=ids))
    for with_prefix in (True, False):
        chosen = replace(selection, other="method:pine", with_prefix=with_prefix)
        figures = draw_change(different, chosen).figures
        assert set(figures) == {place for column in FIGURES["change"] for place in column}
        assert "token 3" in figures["likely-tokens"].layout.title.text
        read = figures["token-shares"].data[0].x
        attention = vanilla.attention[2]
        expected = attention if with_prefix else normalize(attention[1:], "share")
        np.testing.assert_array_equal(read, expected)
        carried = figures["answer-shares"].data[0].x
        assert len(carried) == len(read) == (5 if with_prefix else 4)


def test_two_orders_of_pine_differ_nowhere(run: FinishedRun, selection: Selection) -> None:
    """Of an engine that keeps its promise: to the last bit."""
    chosen = replace(selection, method="pine", other="order:2")
    for figure in draw_change(run, chosen).figures.values():
        assert "exactly 0" in figure.layout.meta["caption"]
    unequal = draw_change(run, replace(chosen, method="vanilla")).figures
    assert not any("exactly 0" in figure.layout.meta["caption"] for figure in unequal.values())


def test_of_two_empty_answers_there_is_nothing_to_draw(run: FinishedRun, selection: Selection) -> None:
    empty = {name: shortened(record, 0) for name, record in run.answer_records.items()}
    drawn = draw_change(replace(run, answer_records=empty, tried=()), selection)
    assert not drawn.figures and NO_TOKENS in drawn.html
    some = draw_change(with_answer(run, "pine", shortened(run.answer_records["pine"], 0)), selection)
    assert len(some.figures) == 3 and NO_TOKENS not in some.html


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_stay_texts(run: FinishedRun, selection: Selection, text: str) -> None:
    record = run.answer_records["vanilla"]
    hostile = replace(
        record,
        text=text * 2,
        tokens=(text,) * STEPS,
        alternatives=tuple(((text, logprob), ("b", -9.0)) for logprob in record.logprobs),
    )
    drawn = html_of(with_answer(run, "vanilla", hostile), selection)
    assert_harmless(drawn)
    assert text in read_html(drawn).with_class("pine-answer-text")[0].text.replace("−", "")


def test_orders_of_many_documents_are_cut_on_their_buttons(run: FinishedRun) -> None:
    label = " ".join("ABCDEFGHIJKLMNOPQRST")
    tried = (replace(run.tried[0], label=label), replace(run.tried[2], label=label))
    assert [other.button for other in other_orders(replace(run, tried=tried), "pine")] == [
        "1: A B C D E F G H…", "2: A B C D E F G H…",
    ]  # fmt: skip
