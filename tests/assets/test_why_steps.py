"""Tests of the steps of the tab "Why" as plain data, of the recorded run."""

import json
from typing import Any

import pytest

from tests.support.javascript import Call, scripts
from viz.page.why import why_json


@pytest.fixture(scope="module")
def call() -> Call:
    return scripts("why_steps")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(why_json(None))
    lengths = [len(one[method]["tokens"]) for one in record["orders"] for method in ("vanilla", "pine")]
    return record | {"num_tokens": max(lengths)}


@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_mask_has_the_visible_documents_in_every_order(
    call: Call, record: dict[str, Any], method: str
) -> None:
    for each in record["orders"]:
        mask = call("why_steps.maskOf", record, {"method": method, "order": each["order"]})
        count = len(each["order"])
        for row in range(count):
            cells = [kind is not None for kind in mask["rows"][row + 1]["cells"]]
            assert cells[1:-1] == record["visible"][method][row]
            assert cells[0] and not cells[-1]  # the start, and no question
        assert all(mask["rows"][-1]["cells"])


def test_mask_of_pine_adds_what_vanilla_lacks_in_any_order(call: Call, record: dict[str, Any]) -> None:
    masks = [
        call("why_steps.maskOf", record, {"method": "pine", "order": each["order"]})
        for each in record["orders"]
    ]
    assert all(mask == masks[0] for mask in masks)
    added = [[kind == "added" for kind in row["cells"]] for row in masks[0]["rows"]]
    count = len(masks[0]["documents"])
    assert sum(map(sum, added)) == count * (count - 1) // 2
    assert masks[0]["caption"] == "Every document attends to every other, in any order."


def test_importance_columns_slide_into_the_order_of_the_scores(call: Call, record: dict[str, Any]) -> None:
    order, answer = record["orders"][0]["order"], record["orders"][0]["pine"]
    given = {"answer": answer, "order": order, "token": answer["token"]}
    before = call("why_steps.importanceOf", record, given | {"isSorted": False})["columns"]
    after = call("why_steps.importanceOf", record, given | {"isSorted": True})["columns"]
    assert [column["place"] for column in before] == [order.index(one) for one in range(len(order))]
    assert {(column["share"], column["number"]) for column in before} == {(0, "")}
    scores = answer["scores"][answer["token"]]
    assert sorted(range(len(scores)), key=lambda one: after[one]["place"]) == sorted(
        range(len(scores)), key=lambda one: scores[one]
    )


def test_importance_of_vanilla_is_a_distance(call: Call, record: dict[str, Any]) -> None:
    order, answer = record["orders"][0]["order"], record["orders"][0]["vanilla"]
    given = {"answer": answer, "order": order, "token": 0, "isSorted": True}
    found = call("why_steps.importanceOf", record, given)
    assert {column["share"] for column in found["columns"]} == {None}
    nearest = record["documents"][order[-1]]["letter"]
    assert found["caption"] == f"{nearest} is nearest: you gave it last."


@pytest.mark.parametrize("method", ["vanilla", "pine"])
def test_positions_are_on_the_ruler_without_gaps(call: Call, record: dict[str, Any], method: str) -> None:
    answer = record["orders"][0][method]
    given = {"method": method, "answer": answer, "token": 0}
    found = call("why_steps.positionsOf", record, given)
    ends = sorted((bar["left"], bar["left"] + bar["width"]) for bar in found["bars"])
    ends.append((found["question"]["left"], found["question"]["left"] + found["question"]["width"]))
    assert ends[0][0] == pytest.approx(0)
    assert [stop for _, stop in ends[:-1]] == pytest.approx([start for start, _ in ends[1:]])
    assert ends[-1][1] < 100 and found["query"]["left"] < ends[-1][1]


@pytest.mark.parametrize(
    ("without", "end"), [("It was 1913.", "too."), ("In 19139", "gone."), (None, "nearest.")]
)
def test_caption_compares_attention_with_the_answer_without(call: Call, without: str, end: str) -> None:
    documents = [{"letter": letter, "length": 3} for letter in "AB"]
    record = {
        "prefix_length": 1,
        "documents_end": 7,
        "suffix_length": 2,
        "num_tokens": 2,
        "documents": documents,
    }
    answer = {
        "tokens": ["In", " 19", "13."],
        "shares": [[0, 0], [0, 0.9], [0.1, 0.6]],
        "starts": [[1, 4]] * 3,
    }
    given = {"method": "pine", "token": 2, "answer": answer | {"without": [None, without]}}
    assert call("why_steps.positionsOf", record, given)["caption"].endswith(end)


def test_words_join_tokens_and_select_the_strongest(call: Call) -> None:
    tokens, shares = ["In", " the", " cas", "tle", "."], [[0, 0], [0, 0], [0.1, 0.7], [0.9, 0], [0, 0.2]]
    words = call("why_steps.wordsOf", {"tokens": tokens, "shares": shares})
    assert ["".join(piece["text"] for piece in word["pieces"]) for word in words] == ["In", "the", "castle."]
    assert [word["blank"] for word in words] == ["", " ", " "]
    assert words[2]["token"] == 3
    assert [piece["document"] for piece in words[2]["pieces"]] == [1, 0, None]
