"""Events of a scripted server: refused orders, failures of all requests, and progress while it computes."""

from itertools import permutations
from typing import Any

import pytest

from pine_engine import InputError
from pine_engine.endpoint import streams
from pine_engine.endpoint.client import Endpoint
from pine_engine.engine.events import (
    GenerationFinished,
    Repeated,
    RequestProgress,
    RequestsPlanned,
    RunFinished,
)
from pine_engine.engine.order_results import OrderResult
from pine_engine.errors import EndpointError
from pine_engine.prompts.prompt import Prompt
from tests.support.scripted_endpoint import ScriptedServer, answer, failure

PROMPT = Prompt("", ["a", "b", "c"], "?")
ORDERS = list(permutations(range(3)))
TEXTS = ["".join("abc"[index] for index in order) + "?" for order in ORDERS]


def refusing(*prompts: str) -> Any:
    """Return responses that refuse these prompts, and answer others with their first document."""
    return lambda body: failure(403, "flagged") if body["prompt"] in prompts else answer(body["prompt"][0])


def results_of(endpoint: Endpoint, **options: Any) -> list[OrderResult]:
    events = endpoint.compare_orders(PROMPT, orders=ORDERS, methods="vanilla", **options)
    return [event for event in events if isinstance(event, OrderResult)]


@pytest.mark.parametrize("refused", [0, 2, 5])
def test_refused_order_leaves_the_others_compared(
    server: ScriptedServer, endpoint: Endpoint, refused: int
) -> None:
    server.respond = refusing(TEXTS[refused])
    results = results_of(endpoint)
    assert [result.order for result in results] == ORDERS
    first = next(index for index in range(6) if index != refused)
    for index, result in enumerate(results):
        reply = result.result.answers["vanilla"]
        if index == refused:
            assert "flagged" in reply.refusal and not result.comparisons
            assert reply.to_dict() == {"method": "vanilla", "text": None, "error": reply.refusal}
        else:
            assert result.comparisons["vanilla"].same_text == (TEXTS[index][0] == TEXTS[first][0])


def test_all_refused_orders_have_no_comparison(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.respond = refusing(*TEXTS)
    assert [len(result.comparisons) for result in results_of(endpoint)] == [0] * 6


def test_events_before_a_failure_arrive(server: ScriptedServer, endpoint: Endpoint) -> None:
    server.respond = lambda body: failure(429, "quota") if body["prompt"] == "1?" else answer("x")
    endpoint.max_concurrency = 1
    prompts = [Prompt("", [str(number)], "?") for number in range(3)]
    found = []
    with pytest.raises(EndpointError, match="quota"):
        for index, event in endpoint.run_each(prompts, methods="vanilla"):
            found.append((index, type(event)))
    assert [kind for _, kind in found if kind in (RunFinished, GenerationFinished)] == [
        GenerationFinished,
        RunFinished,
    ]
    assert {index for index, _ in found} == {0}


def test_first_request_is_sent_twice(server: ScriptedServer, endpoint: Endpoint) -> None:
    texts = iter("abcdefg")
    server.respond = lambda _: answer(next(texts))
    endpoint.max_concurrency = 1
    planned, *events = endpoint.compare_orders(PROMPT, orders=ORDERS, methods="vanilla")
    assert isinstance(planned, RequestsPlanned) and planned.num_requests == 6
    assert planned.sentence.startswith("requests: 7, of which 1 repeat")
    assert [event for event in events if isinstance(event, Repeated)] == [Repeated("vanilla", is_equal=False)]
    assert [body["prompt"] for body in server.bodies] == [TEXTS[0], *TEXTS]


def test_progress_arrives_while_the_server_computes(
    server: ScriptedServer, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "BEAT_S", 0.05)
    server.seconds = 0.4
    _, first, *_, last = endpoint.generate(PROMPT, methods=["vanilla", "reorder_content"])
    assert first == RequestProgress(0, 2) and isinstance(last, RunFinished)


@pytest.mark.parametrize("option", ["trace", "return_logits", "question"])
def test_options_that_need_a_model_are_refused(endpoint: Endpoint, option: str) -> None:
    options: Any = {option: True}
    with pytest.raises(InputError) as raised:
        endpoint.generate(PROMPT, **options)
    assert raised.value.field == option
    with pytest.raises(InputError, match="stop_at_eos"):
        endpoint.generate(PROMPT, stop_at_eos=False)
