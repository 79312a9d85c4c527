"""Where the answer stands, as a picture and on the page: lines, sentences, and what the panel says."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, Element, assert_harmless, read_html
from viz.figures.position_sweep import (
    Effects,
    Standing,
    Sweep,
    effects_caption,
    effects_picture,
    standing_caption,
    standing_picture,
)
from viz.page.form.checks import form_layout
from viz.page.form.documents import entries_from, move
from viz.page.form.form import Form
from viz.page.sweep.sweep_panel import compared_methods, document_choices, work_sentence
from viz.page.sweep.sweeping import StandingView, stand

SWEEP = Sweep(
    1,
    "Paris  is\nit",
    "tiny, float32 on cpu",
    (
        Standing("vanilla", "Vanilla", (-4.0, -6.5, -2.0), 0),
        Standing("nia", "NIA", (-5.0, -5.0, -3.5), 1),
        Standing("pine", "PINE", (-2.75, -2.75, -2.75), 4),
        Standing("pcw", "PCW", (-3.0, -3.0, -3.0), 2),
    ),
)
EFFECTS = Effects((0.0, -2.5, 2.0), (-0.5, -0.5, 1.0), (0.5, -2.0, 1.0))


def numbers(html: str) -> Any:
    return json.loads(read_html(html).with_class("pine-numbers")[0].text)


def said(html: str) -> list[str]:
    return [point.attributes["data-readout"] for point in read_html(html).with_class("pine-point")]


# The picture


def test_the_caption_says_who_moves_by_how_much_and_who_does_not() -> None:
    assert standing_caption(SWEEP) == (
        "As document B goes through all 3 slots, the log-probability of “Paris is it” moves by 4.5 nats "
        "under Vanilla (most likely in slot 3, least likely in slot 2) and by 1.5 under NIA; it does not "
        "move at all (0.0) under PINE and PCW (tiny, float32 on cpu)."
    )


def test_the_smallest_movement_is_a_movement() -> None:
    close = Standing("pine", "PINE", (-2.75, -2.7500000000000004, -2.75), 4)
    caption = standing_caption(replace(SWEEP, standings=(close, SWEEP.standings[3])))
    assert "moves by 4.4e-16 nats under PINE" in caption
    assert "it does not move at all (0.0) under PCW (" in caption


def test_a_caption_without_movement_and_one_of_a_sweep_that_was_stopped() -> None:
    still = replace(SWEEP, standings=SWEEP.standings[2:])
    assert "slots, the log-probability of “Paris is it” does not move at all (0.0) under PINE and PCW" in (
        standing_caption(still)
    )
    begun = [replace(one, values=(one.values[0], None, None)) for one in SWEEP.standings]
    caption = standing_caption(replace(SWEEP, standings=tuple(begun)))
    assert caption == "So far document B has been in 1 of 3 slots (tiny, float32 on cpu)."
    begun = [replace(one, values=(*one.values[:2], None)) for one in SWEEP.standings]
    assert "goes through 2 of 3 slots, " in standing_caption(replace(SWEEP, standings=tuple(begun)))


def test_effects_are_told_by_their_ranges() -> None:
    caption = effects_caption(SWEEP, EFFECTS)
    assert re.findall(r"by ([\d.]+)", caption) == ["4.5", "1.5", "3"]


def test_every_number_is_in_the_picture_and_in_its_table() -> None:
    html = standing_picture(SWEEP)
    rows = numbers(html)["rows"]
    standings: list[Any] = list(SWEEP.standings)
    assert rows == [
        [one.label, slot, value, value - one.values[0]]
        for one in standings
        for slot, value in enumerate(one.values, 1)
    ]
    assert said(html)[1] == "Vanilla, slot 2: -6.50 (log-probability, nats)" and len(said(html)) == 12
    html = effects_picture(SWEEP, EFFECTS)
    rows = zip(EFFECTS.total, EFFECTS.rope, EFFECTS.causal, strict=True)
    assert numbers(html)["rows"] == [[slot, *values] for slot, values in enumerate(rows, 1)]
    assert len(said(html)) == 9


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_come_out_as_text(text: str) -> None:
    hostile = replace(SWEEP, answer=text, setting=text)
    for html in (standing_picture(hostile), effects_picture(hostile, EFFECTS)):
        assert_harmless(html)
        assert f"({text})" in read_html(html).all("figcaption")[0].text


# The page


THREE = entries_from([("Varo", "red"), ("Senna", "green"), ("Orm", "white")])


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., Any]) -> Engine:
    return Engine(tiny_llama(max_context=1024, layers=1), letter_tokenizer(), name="tiny")


def form(*methods: str) -> Form:
    return Form("retrieval_qa", "Which is green?", "Answer.", methods, 3, move(THREE, 0, 1))


def pictures(views: list[StandingView]) -> list[Element]:
    return [read_html(view.pictures) for view in views if view.pictures is not None]


def test_a_letter_is_followed_and_every_value_is_the_engines(engine: Engine) -> None:
    asked = form("vanilla", "nia", "pine")
    views = list(stand(engine, asked, document=0, answer=" so "))
    drawn = pictures(views)
    assert [len(root.with_class("pine-point")) for root in drawn] == [3, 6, 9, 9 + 9]
    first, second = (json.loads(one.text) for one in drawn[-1].with_class("pine-numbers"))
    layout = form_layout(asked, engine)  # B, A, C: the letters in the slots
    for slot, order in enumerate([(1, 0, 2), (0, 1, 2), (0, 2, 1)]):
        expected = engine.score(layout.reorder(order), ["so"], methods=asked.methods)
        values = [row[2] for row in first["rows"] if row[1] == slot + 1]
        assert values == [expected[method][0].total for method in asked.methods]
    assert "As document A goes through all 3 slots" in first["caption"]
    assert "it does not move at all (0.0) under PINE" in first["caption"]
    for _, total, rope, causal in second["rows"]:
        assert total == pytest.approx(rope + causal, abs=1e-9)
    assert views[-1].sentence.startswith("Done: 3 slots in ") and "“so”" in views[-1].sentence


def test_left_empty_the_answer_is_that_of_pine(engine: Engine) -> None:
    asked = form("vanilla", "nia")
    written = engine.run(form_layout(asked, engine), methods=["pine"], max_new_tokens=3).answers["pine"].text
    assert written.strip()
    *_, last = stand(engine, asked, document=2, answer="  ")
    assert last.sentence.endswith(f"Reference answer: “{written.strip()}”")


def test_what_cannot_be_moved_is_said(engine: Engine) -> None:
    alone = replace(form("vanilla", "nia"), entries=THREE[:1])
    with pytest.raises(InputError, match="There is one document only; add another"):
        next(stand(engine, alone, document=0, answer="so"))
    with pytest.raises(InputError, match="There is no document D any more; choose another"):
        next(stand(engine, form("vanilla", "nia"), document=3, answer="so"))
    silent = Engine(engine.model, engine.tokenizer, stop_ids=frozenset(range(97)))
    with pytest.raises(InputError, match="PINE answers with nothing; write a reference answer"):
        list(stand(silent, form("vanilla", "nia"), document=0, answer=""))


def test_vanilla_and_nia_are_always_compared_and_that_is_said() -> None:
    assert compared_methods(["pine"]) == ("vanilla", "nia", "pine")
    assert compared_methods(["pcw", "vanilla", "nia"]) == ("vanilla", "nia", "pcw")
    assert work_sentence(4, ["vanilla", "nia", "pine"]) == "4 slots × 3 methods: 12 prompts to read."
    assert work_sentence(2, ["nia"]) == (
        "2 slots × 2 methods (Vanilla added to the ticked ones): 4 prompts to read."
    )
    assert work_sentence(1, ["nia"]) == "There is one slot only; add a document."


def test_documents_are_offered_by_letter() -> None:
    assert document_choices([1, 0]) == [("Document A", 0), ("Document B", 1)]
