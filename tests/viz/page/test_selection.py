"""Selection in a run: its queries, and changes from the browser, which are not trusted."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from pine_engine.engine.engine import Engine
from pine_engine.errors import InputError
from tests.support.runs import THREE, finish, swapped, with_orders
from viz.drawing.pictures import pick
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.page.answers.run import Run
from viz.page.internals.tab import _shown
from viz.page.internals.view import after_control, after_pick, new_picks
from viz.page.queries import (
    Query,
    has_query,
    num_suffix_queries,
    query_at,
    query_choices,
    query_of_step,
    step_of,
    token_of,
)
from viz.page.selection import Selection, as_picks, first_selection, shown_place, turned

START = Selection("pine", Query("suffix", 5), layer=1, head=0)
METHODS = ("vanilla", "pcw", "pine")


@pytest.fixture(scope="module")
def run(engine: Engine) -> Run:
    """The documents B, A, C, in that order; 2 layers with 4 heads."""
    return finish(engine, swapped(THREE, 0), methods=METHODS)


def cut(run: Run, method: str, count: int) -> Run:
    """The run as if the answer of one method had `count` tokens."""
    trace = run.result.traces[method]
    rows = run.result.layout.suffix_length - 1 + count
    traces = run.result.traces | {method: replace(trace, suffix_starts=trace.suffix_starts[:, :, :rows])}
    return replace(run, result=replace(run.result, traces=traces))


# Queries


def test_answer_tokens_are_queries_of_their_method(run: Run) -> None:
    """The query of an answer token generates it; a shorter answer of the same run has fewer."""
    short = cut(run, "vanilla", 1)
    for method, count in (("vanilla", 1), ("pine", 3)):
        answers = [one for one in query_choices(short, method) if one[0].startswith("Answer token")]
        assert [label.split()[2].rstrip(":") for label, _ in answers] == [
            str(step + 1) for step in range(count)
        ]
        expected = [str(query_of_step(run, step)) for step in range(count)]
        assert [value for _, value in answers] == expected


def test_every_query_of_a_method_is_listed(run: Run) -> None:
    choices = query_choices(run, "pine")
    assert choices[0] == ("Document B: Senna", "document 0")
    assert len(choices) == 3 + num_suffix_queries(run, "pine")
    assert all(has_query(run, "pine", query) for _, value in choices if (query := Query.parse(value)))
    empty = replace(run.answer_records["pine"], token_ids=(), tokens=(), logprobs=(), alternatives=(),
                    attention=run.answer_records["pine"].attention[:0])  # fmt: skip
    ended = with_orders(run, (run.order, {**run.answer_records, "pine": empty}))
    assert query_choices(ended, "pine")[-1][0] == "End of the answer"


def test_keys_turn_through_the_queries(run: Run) -> None:
    choices, selection = query_choices(run, "pine"), replace(START, query=Query("document", 0))
    seen = []
    for _ in choices:
        label, query = turned(run, selection, 1)
        selection = replace(selection, query=query)
        seen.append((label, str(query)))
    assert seen == [*choices[1:], choices[-1]]
    assert turned(run, selection, -1) == (choices[-2][0], Query.parse(choices[-2][1]))
    first = replace(START, query=Query("document", 0))
    assert turned(run, first, -1) == (choices[0][0], first.query)


def test_token_selects_its_query(run: Run) -> None:
    layout, first = run.result.layout, first_selection(run)
    for _, value in query_choices(run, "pine"):
        query = Query.parse(value)
        assert query is not None and query_at(run, token_of(run, query), "pine") == query
        assert after_pick(run, first, {"token": token_of(run, query)})[0].query == query
    for slot, start in enumerate(layout.document_starts.tolist()):
        # Of long prompts a cell is several tokens, and its middle may lie between two.
        assert after_pick(run, first, {"token": start + 0.5})[0].query == Query("document", slot)
    end = layout.documents_end + num_suffix_queries(run, "pine")
    assert [step_of(run, query_of_step(run, step)) for step in range(3)] == [0, 1, 2]
    assert (
        step_of(run, Query("suffix", layout.suffix_length - 2)) is step_of(run, Query("document", 1)) is None
    )
    assert all(after_pick(run, first, {"turn": nothing}) == (first, "") for nothing in (2, "1"))
    for outside in (0, layout.prefix_length - 1, end, float("inf"), "5"):
        assert after_pick(run, first, {"token": outside}) == (first, "")


def test_first_query_generates_the_first_token_that_differs_else_the_decisive_one(run: Run) -> None:
    pine = run.answer_records["pine"]
    first, second, third = pine.token_ids
    for ids, step in ((pine.token_ids, None), ((first, second + 1, third), 1)):
        other = replace(run.answer_records["vanilla"], token_ids=ids)
        compared = with_orders(run, (run.order, {"vanilla": other, "pine": pine}))
        expected = run.origins["pine"].step if step is None else step
        assert first_selection(compared).query == query_of_step(run, expected)


def test_mean_shows_the_most_decisive_head(run: Run) -> None:
    spreads = decisiveness(run.result.traces["pine"])
    assert (first_selection(run).layer, first_selection(run).head) == most_decisive(spreads)

    def place(layer: int | None, head: int | None) -> tuple[int, int]:
        return shown_place(run, replace(START, layer=layer, head=head))

    assert place(None, None) == most_decisive(spreads)
    assert place(1, None) == (1, int(spreads[1].argmax()))
    assert place(0, None) == (0, int(spreads[0].argmax()))
    assert place(None, 3) == (int(spreads[:, 3].argmax()), 3)
    assert place(1, 3) == (1, 3)


# Changes from the browser


@pytest.mark.parametrize(
    "what",
    [{"method": "vanilla"}, {"query": "document 2"}, {"query": "suffix 9"}, {"layer": 0, "head": 3},
     {"layer": None}, {"head": None}, {"normalization": "log"}, {"with_prefix": False},
     {"other": "method:pcw"}, {"rows": "head"}, {"with_sink": True}],
)  # fmt: skip
def test_pick_changes_only_what_it_names(what: dict[str, Any], run: Run) -> None:
    after = START.picked(json.loads(pick(**what)), run)
    expected = what | ({"query": Query.parse(what["query"])} if "query" in what else {})
    for field in vars(START):
        assert getattr(after, field) == expected.get(field, getattr(START, field)), field


@pytest.mark.parametrize(
    "what",
    [{"method": "mask_only"}, {"query": "document 3"}, {"query": "suffix 9999"}, {"query": "suffix -1"},
     {"query": "suffix ²"}, {"query": 3}, {"query": "prefix 1"}, {"query": f"suffix {'9' * 5000}"},
     {"layer": 2}, {"layer": -1}, {"layer": True}, {"layer": 1.0},
     {"layer": math.inf}, {"head": "0"}, {"normalization": "sum"}, {"with_prefix": 1}, {"with_sink": 1},
     {"other": "x" * 65}, {"rows": "column"}, {"__class__": "x", "layers": 1}],
)  # fmt: skip
def test_invalid_pick_changes_nothing(what: dict[str, Any], run: Run) -> None:
    assert START.picked(what, run) == START


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
fields = st.sampled_from(list(vars(START)))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(what=st.dictionaries(fields | st.text(), anything))
def test_any_pick_gives_a_selection_of_the_run(what: dict[str, Any], run: Run) -> None:
    after = START.picked(what, run)
    assert after.method in METHODS and has_query(run, after.method, after.query)
    assert after.layer in (None, 0, 1) and after.head in (None, 0, 1, 2, 3)
    assert after.normalization in ("raw", "share", "log")
    assert isinstance(after.with_prefix, bool)
    assert after.picked({}, run) == after == first_selection(run).picked(as_picks(after), run)


def test_query_is_limited_to_the_selected_method(run: Run) -> None:
    short = cut(run, "vanilla", 1)
    last = replace(START, query=query_of_step(run, 2))
    assert last.picked({"method": "vanilla"}, short).query == query_of_step(run, 0)
    assert last.picked({"method": "pcw"}, short).query == last.query


def test_dropdowns_select_what_they_show(run: Run) -> None:
    for selection in (first_selection(run), Selection("vanilla", Query("document", 2), None, 1, "log")):
        values = (selection.method, str(selection.query), _shown(selection.layer), _shown(selection.head))
        assert after_control(run, replace(START, normalization=selection.normalization), *values) == selection


def test_waiting_picks_all_count() -> None:
    sent = json.dumps([[3, {"layer": 1}], [4, {"turn": 1}], [5, {"turn": 1}]])
    assert new_picks(sent, 3) == [(4, {"turn": 1}), (5, {"turn": 1})]
    assert new_picks(sent, 5) == [] == new_picks("", 0)


@pytest.mark.parametrize("sent", ["[", '[["a", {}]]', "[[1, 2]]", json.dumps([[1, {}]] * 21)])
def test_invalid_picks_raise(sent: str) -> None:
    with pytest.raises(InputError, match="Invalid selection: "):
        new_picks(sent, 0)
