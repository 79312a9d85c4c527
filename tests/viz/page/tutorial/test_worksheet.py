"""Tests of the worksheet: what it says to expect is true of the recorded answers."""

import json
import re
from collections import Counter

import pytest

from pine_engine.errors import InputError
from tests.support.viz_reading import read_html
from viz.cards.tutorial import CONTENT
from viz.page.answers.recordings import ANSWERS_FILE
from viz.page.form.examples import load_examples
from viz.page.links import linked_session
from viz.page.tutorial.worksheet import worksheet_html

RECORDED = json.loads(ANSWERS_FILE.read_bytes())
EXAMPLES = {example.name: example for example in load_examples()}
TEXTS = CONTENT["worksheet"]
SHEET = read_html(worksheet_html())
LABELS = {"Vanilla": "vanilla", "PINE": "pine"}


def test_worksheet_has_four_experiments() -> None:
    assert [len(SHEET.all(tag)) for tag in ("h4", "ul", "a")] == [4, 4, 4]
    assert {text["switches"] for text in TEXTS} == {True, False}


@pytest.mark.parametrize("place", range(len(TEXTS)), ids=[text["heading"] for text in TEXTS])
def test_expected_observation_is_true_of_the_recording(place: int) -> None:
    text = TEXTS[place]
    recorded, accepted = RECORDED[text["example"]], EXAMPLES[text["example"]].answers
    at = recorded["orders"].index(text["slots"])
    expected = [item.text for item in SHEET.all("ul")[place].all("li")]
    lines = {LABELS[re.split("[:,]", line)[0].strip()]: line for line in expected}
    assert list(lines) == ["vanilla", "pine"]
    for answers in recorded["answers"]:
        if not (line := lines.get(answers["method"])):
            continue
        quoted = re.findall("“(.*?)”", line)
        if text["switches"]:
            assert quoted == [answers["texts"][at], *answers["texts_without"][at]]
            continue
        counts = {answer: int(count) for answer, count in re.findall("“(.*?)” in (\\d+)", line)}
        assert counts == Counter(answers["texts"])
        assert line.split()[1:6:4] == [str(len(counts)), "orders," if accepted else "orders:"]
        correct = re.findall("correct in (\\d+)", line)
        assert correct == [
            str(sum(any(one in answer for one in accepted) for answer in answers["texts"]))
            for _ in accepted[:1]
        ]


@pytest.mark.parametrize("place", range(len(TEXTS)))
def test_link_opens_the_example_in_its_order(place: int) -> None:
    link = SHEET.all("a")[place].attributes["href"]
    text, example = TEXTS[place], EXAMPLES[TEXTS[place]["example"]]
    assert re.fullmatch("#session=[a-z0-9-]+-[A-Z]+", link)
    session = linked_session(link.partition("=")[2])
    assert (session.question, session.accepted) == (example.question, "\n".join(example.answers))
    assert [entry.letter for entry in session.documents] == text["slots"]
    assert [entry.text for entry in session.documents] == [
        example.documents[slot].text for slot in text["slots"]
    ]


def test_link_opens_any_order_and_no_other_one() -> None:
    link = SHEET.all("a")[0].attributes["href"].partition("=")[2]
    assert [entry.letter for entry in linked_session(link.replace("ABC", "CAB")).documents] == [2, 0, 1]
    for wrong in ("ABB", "AB", "abc"):
        with pytest.raises(InputError):
            linked_session(link.replace("ABC", wrong))
