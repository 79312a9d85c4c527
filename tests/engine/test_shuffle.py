"""A shuffle returns what compare_orders tells, in one record."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from pine_engine import (
    Engine,
    InputError,
    OrderResult,
    ShuffleResult,
    TokenLayout,
    compare_orders,
    sample_orders,
    summarize_orders,
)
from pine_engine.engine import run as run_file

LAYOUT = TokenLayout((5, 9), ((11, 12, 13), (21, 22), (31, 32, 33, 34)), (51, 52))
OPTIONS: dict[str, Any] = {"methods": ["vanilla", "pine"], "max_new_tokens": 4, "stop_at_eos": False}


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama())


@pytest.fixture(scope="module")
def shuffled(engine: Engine) -> ShuffleResult:
    return engine.shuffle(LAYOUT, **OPTIONS)


def measured(row: OrderResult) -> dict[str, Any]:
    """All of a row's cells but the seconds."""
    return {
        method: (
            cell.answer.token_ids,
            cell.answer.logprobs,
            cell.same_text,
            cell.first_difference,
            cell.max_abs_logit_diff,
            cell.bitwise_identical,
            cell.reference_logprob,
        )
        for method, cell in row.cells.items()
    }


def test_it_holds_what_compare_orders_tells(engine: Engine, shuffled: ShuffleResult) -> None:
    told = compare_orders(engine, LAYOUT, orders=sample_orders(3), **OPTIONS)
    rows = [event for event in told if isinstance(event, OrderResult)]
    assert shuffled.orders == tuple(row.order for row in rows) == tuple(sample_orders(3))
    assert list(map(measured, shuffled.rows)) == list(map(measured, rows))
    assert shuffled.summary == summarize_orders(shuffled.cells)
    assert shuffled.answers["pine"] == [row.cells["pine"].answer.text for row in rows]
    assert shuffled.invariance_held == {"vanilla": None, "pine": True}
    assert not shuffled.summary["vanilla"].bitwise_identical  # the control: a change would be seen


def test_logits_are_kept_only_where_they_are_asked_for(engine: Engine, shuffled: ShuffleResult) -> None:
    assert all(row.result.logits == {} for row in shuffled.rows)
    kept = engine.shuffle(LAYOUT, **OPTIONS, orders=[[2, 0, 1], [0, 1, 2]], return_logits=True)
    one, other = (row.result.logits["pine"] for row in kept.rows)
    assert torch.equal(one, other) and one.shape == (5, 97)
    assert kept.first.layout == LAYOUT.reorder([2, 0, 1])


def test_a_broken_promise_is_told(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    result_of = run_file.Run.result

    def nudged(run: run_file.Run, *args: Any) -> Any:
        result = result_of(run, *args)
        logits = result.logits["pine"].clone()
        logits[0, 0] += run.layout.documents[0][0]  # tells the order
        return replace(result, logits={**result.logits, "pine": logits})

    monkeypatch.setattr(run_file.Run, "result", nudged)
    found = engine.shuffle(LAYOUT, **OPTIONS, count=2)
    assert found.invariance_held == {"vanilla": None, "pine": False}
    assert "broken" in found._repr_html_()


def test_as_many_orders_are_tried_as_were_asked_for_and_progress_is_told(engine: Engine) -> None:
    layout = TokenLayout((5,), tuple((11 + index,) for index in range(6)), (51,))
    told: list[tuple[float, str]] = []
    found = engine.shuffle(
        layout,
        methods="pine",
        max_new_tokens=1,
        count=4,
        seed=3,
        progress=lambda *done: told.append(done),
    )
    assert list(found.orders) == sample_orders(6, 3, seed=3)
    assert told == [(part / 4, f"order {part} of 4") for part in (1, 2, 3, 4)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"count": 0}, "the number of orders is 0; give 1 or more"),
        ({"count": "two"}, "the number of orders is the text 'two'; give a whole number, 1 or more"),
        ({"count": 2, "orders": [[0, 1, 2]]}, "orders were given, and a count of them; give one of the two"),
        ({"orders": [[0, 0, 2]]}, "order [0, 0, 2] is not a permutation of 3 documents"),
        ({"orders": []}, "the orders are list []; give at least one, as sample_orders(num_documents) does: "),
    ],
)
def test_what_are_no_orders_is_said(engine: Engine, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        engine.shuffle(LAYOUT, **OPTIONS, **options)
    assert str(raised.value).startswith(sentence)


def test_a_notebook_shows_one_line_and_a_table(shuffled: ShuffleResult) -> None:
    line = repr(shuffled)
    assert line.startswith("ShuffleResult(6 orders; vanilla: ") and "\n" not in line
    assert line.endswith("pine: 1 answer, bitwise identical)") and len(line) < 200
    table = shuffled._repr_html_()
    assert table.count("<tr>") == 1 + 6 + 3
    assert "<td" in table and ">kept</td>" in table and ">none</td>" in table
