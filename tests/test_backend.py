"""Properties of every backend: an engine, and an endpoint whose server has the model of the engine."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from pine_engine import METHODS, TASKS, Document, Engine, InputError, PineError
from pine_engine.backend import Backend
from pine_engine.endpoint.client import Endpoint
from pine_engine.engine.events import GenerationFinished, RunFinished
from pine_engine.engine.order_results import OrderResult, summarize_orders
from pine_engine.prompts.layout import TokenLayout
from pine_engine.scheduling.work import Work
from tests.support.api_server import running_server
from tests.support.errors import has_field

FITTING = ("vanilla", "reorder_content", "by_score", "by_score_reversed", "ends_by_score")
ORDERS = list(permutations(range(3)))


@pytest.fixture(scope="module")
def endpoint(engine: Engine) -> Iterator[Endpoint]:
    with running_server(engine) as (address, _):
        yield Endpoint(f"{address}/v1", engine.model_name, extra_body={"n": 1})


@pytest.fixture(scope="module", params=["engine", "endpoint"])
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.getfixturevalue(request.param)
    return found


def layout_on(backend: Backend, question: str = "Who has the key?") -> TokenLayout:
    texts = ["Ann has the bell.", "Ben has the key.", "Cy has the map."]
    documents = [Document(text, score=score) for text, score in zip(texts, (0.5, -1, 0.5), strict=True)]
    tokenizer: Any = vars(type(backend)).get("tokenizer") or vars(backend)["tokenizer"]
    return backend.tokenize(TASKS["retrieval_qa"].prompt(tokenizer, question=question, documents=documents))


def texts_of(backend: Backend, question: str, **options: Any) -> dict[str, str]:
    *_, last = backend.generate(layout_on(backend, question), methods=FITTING, max_new_tokens=3, **options)
    assert isinstance(last, RunFinished)
    return {method: one.text for method, one in last.result.answers.items()}


def test_last_event_has_all_answers(backend: Backend) -> None:
    events = list(backend.generate(layout_on(backend), methods=FITTING, max_new_tokens=3))
    finished = [event.answer for event in events if isinstance(event, GenerationFinished)]
    assert isinstance(events[-1], RunFinished)
    assert sorted(finished, key=lambda one: FITTING.index(one.method)) == list(
        events[-1].result.answers.values()
    )
    rows = events[-1].result.to_dict()["results"]
    assert [row["method"] for row in rows] == list(FITTING) and all(row["tokens"] == 3 for row in rows)


def test_orders_are_reported_in_turn_and_compared_with_the_first(backend: Backend) -> None:
    events = backend.compare_orders(layout_on(backend), orders=ORDERS, methods=FITTING, max_new_tokens=3)
    results = [event for event in events if isinstance(event, OrderResult)]
    assert [result.order for result in results] == ORDERS
    for result in results:
        for method, one in result.comparisons.items():
            assert one.same_text == (one.text == results[0].comparisons[method].text)
    stats = summarize_orders([result.comparisons for result in results])
    vanilla, *invariant = (stats[name].num_distinct_answers for name in FITTING)
    assert set(invariant) == {1} and vanilla > 1


def test_method_by_score_is_refused_without_one(backend: Backend) -> None:
    layout = replace(layout_on(backend), scores=(0.5, None, 0.5))
    for name in ("by_score", "ends_by_score"):
        with pytest.raises(InputError, check=has_field("methods"), match=f"{name}.*document 2"):
            backend.generate(layout, methods=["vanilla", name])


def test_several_prompts_have_the_answers_of_one(backend: Backend) -> None:
    questions = ["Who has the key?", "Who has the map?", "Who?"]
    layouts = [layout_on(backend, question) for question in questions]
    found = {
        index: {method: one.text for method, one in event.result.answers.items()}
        for index, event in backend.run_each(layouts, methods=FITTING, max_new_tokens=3)
        if isinstance(event, RunFinished)
    }
    assert found == {index: texts_of(backend, question) for index, question in enumerate(questions)}


@pytest.mark.parametrize("name", METHODS)
def test_methods_run_exactly_if_they_fit(backend: Backend, name: str) -> None:
    reason = backend.misfit(METHODS[name])
    assert (METHODS[name] in backend.methods) == (reason is None)
    if reason:
        with pytest.raises(PineError, match=name):
            backend.generate(layout_on(backend), methods=name)


def test_missing_output_is_refused_at_the_call(backend: Backend) -> None:
    for output, option in (("traces", "trace"), ("logits", "return_logits")):
        options: Any = {option: True}
        if backend.misfit(output):  # type: ignore[arg-type]
            with pytest.raises(PineError):
                backend.generate(layout_on(backend), methods="vanilla", **options)
        else:
            events = backend.generate(layout_on(backend), methods="vanilla", max_new_tokens=1, **options)
            *_, last = events
            assert isinstance(last, RunFinished) and (last.result.traces or last.result.logits)


def test_closed_generator_ends(backend: Backend) -> None:
    with closing(backend.generate(layout_on(backend), methods=FITTING, max_new_tokens=64)) as events:
        next(events)
    assert not list(events)


def test_conditions_name_model_and_sent_fields(backend: Backend) -> None:
    assert backend.model_name in backend.conditions
    if backend.ids_per_token > 1:
        assert '{"n": 1}' in backend.conditions


def test_planned_prompts_are_described_with_their_tokens(backend: Backend) -> None:
    assert "2 " in (described := backend.describe_prompts(Work(2, 3000))) and "3,000 tokens" in described
    assert ("about" in described) == (backend.ids_per_token > 1)
