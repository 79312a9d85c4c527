"""Arguments of the library: accepted forms, and errors for other values; and records in a line each."""

import itertools
import json
from collections.abc import Callable, Generator
from functools import partial
from inspect import isfunction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, LlamaModel

import pine_engine as pine
from pine_engine import METHODS, Answer, Document, Prompt, RunResult, TokenLayout, Trace
from pine_engine.engine.order_results import OrderComparison, OrderResult
from pine_engine.errors import UnknownNameError
from pine_engine.models.dtypes import known_dtype
from pine_engine.models.load import resolve
from pine_engine.prompts.prompt import Piece, segment_text
from pine_engine.reprs import html_table, shorten
from pine_engine.rows.documents import as_documents
from tests.support.errors import has_field
from tests.support.families import TinyLlama
from tests.support.tokenizers import letter_tokenizer

LAYOUT = pine.TokenLayout((5, 9), ((11, 12), (21,)), (51,))
WRONG_VOCABULARY = pine.TokenLayout((5,), ((11,), (12, 97)), (51,))
TASK = pine.TASKS["retrieval_qa"]
TOKENIZER = letter_tokenizer()
SHORT: dict[str, Any] = {"max_new_tokens": 2, "stop_at_eos": False}
TEXT = pine.Prompt("a", ["b"], "c")

# The tests pass values of wrong types on purpose.
prompt_of: Any = pine.Prompt
document: Any = pine.Document
trace_of: Any = pine.TraceConfig
range_of: Any = pine.TokenRange


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> pine.Engine:
    return pine.Engine(tiny_llama(), TOKENIZER)


def answers(engine: pine.Engine, prompt: Any = LAYOUT, **options: Any) -> dict[str, tuple[int, ...]]:
    result = engine.run(prompt, **{**SHORT, **options})
    return {name: answer.token_ids for name, answer in result.answers.items()}


def batch_answer(engine: Any, prompts: Any = LAYOUT, **options: Any) -> Any:
    ((_, answer),) = pine.generate_batch(engine, prompts, **{"max_new_tokens": 2, **options})
    return answer


def generated(engine: Any, prompts: Any, **options: Any) -> list[int]:
    with pine.patch_generate(engine, prompts, **options) as inputs:
        output: list[int] = engine.model.generate(**inputs, max_new_tokens=2, do_sample=False)[0].tolist()
    return output


def documents_of(documents: Any, **options: Any) -> list[str]:
    prompt = TASK.prompt(TOKENIZER, documents=documents, **{"question": "Who?", **options})
    return [segment_text(document) for document in prompt.documents]


def case_id(value: object) -> str:
    text = str(value)
    return type(value).__name__ if " at 0x" in text else text[:40]


def run_order(engine: Any, orders: Any) -> list[tuple[int, ...]]:
    events = pine.compare_orders(engine, LAYOUT, methods="pine", orders=orders, **SHORT)
    return [event.order for event in events if isinstance(event, OrderResult)]


PINE = pine.METHODS["pine"]
RANGE = pine.TokenRange(0, 1, 0, 3)
QUESTION = TASK.prompt(TOKENIZER, question="Who?", documents=["a", "b"])
ACCEPTED: dict[str, tuple[Callable[[Any, Any], Any], list[Any]]] = {
    "methods": (
        lambda engine, methods: answers(engine, methods=methods),
        ["pine", PINE, [PINE], ("pine",), {"pine"}, np.array(["pine"]), lambda: iter(["pine"]), "PINE"],
    ),
    "all methods": (
        lambda _, methods: pine.get_methods(methods),
        [list(pine.METHODS), pine.METHODS, pine.METHODS.keys(), pine.METHODS.values()],
    ),
    "methods without scores": (
        lambda _, methods: pine.get_methods(methods),
        ["all", "ALL", [name for name, row in pine.METHODS.items() if not row.needs_scores]],
    ),
    "method": (
        lambda engine, method: (batch_answer(engine, method=method).token_ids,
                                generated(engine, LAYOUT, method=method)),
        ["pine", PINE, "Pine"],
    ),
    "stop ids": (
        lambda engine, ids: pine.Engine(engine.model, stop_token_ids=ids).stop_token_ids,
        [{7}, 7, [7], (7, 7), np.array([7]), np.int64(7), torch.tensor(7)],
    ),
    "numbers": (
        lambda engine, number: (answers(engine, max_new_tokens=number), range_of(number, number, 0, number),
                                batch_answer(engine, max_new_tokens=number, batch_size=number).token_ids),
        [2, np.int64(2), torch.tensor(2)],
    ),
    "token ranges": (lambda _, ranges: trace_of(ranges), [(RANGE,), RANGE, [RANGE]]),
    "orders": (
        lambda engine, orders: run_order(engine, orders),
        [[[0, 1], [1, 0]], np.array([[0, 1], [1, 0]]), lambda: itertools.permutations([0, 1])],
    ),
    "continuations": (
        lambda engine, texts: engine.score(LAYOUT, texts, methods="pine"),
        [["Anna"], "Anna", np.array(["Anna"]), lambda: iter(["Anna"])],
    ),
    "token ids": (
        lambda engine, ids: (engine.decode_tokens(ids), engine.decode_text(ids)),
        [[40, 41], (40, 41), np.array([40, 41]), torch.tensor([40, 41])],
    ),
    "prompts": (
        lambda engine, prompts: batch_answer(engine, prompts).token_ids,
        [[LAYOUT], LAYOUT, lambda: iter([LAYOUT])],
    ),
    "prompts of generate": (
        lambda engine, prompts: generated(engine, prompts),
        [[QUESTION], QUESTION, lambda: iter([QUESTION])],
    ),
    "segments": (
        lambda _, segments: (prompt_of(*segments), hash(prompt_of(*segments))),
        [
            ((Piece("Read. "),), ((Piece("one"),), (Piece("two"),)), (Piece("Who?"),)),
            ("Read. ", ["one", "two"], "Who?"),
            (["Read. "], (Piece("one"), ["two"]), Piece("Who?")),
        ],
    ),
    "one document": (lambda _, documents: prompt_of("", documents, "Who?"), [["one"], "one"]),
}  # fmt: skip
"""Each value gives the result of the plain value, which is the first one."""


@pytest.mark.parametrize("name", ACCEPTED)
def test_argument_may_have_any_accepted_form(engine: pine.Engine, name: str) -> None:
    function, values = ACCEPTED[name]
    first, *others = (function(engine, value() if isfunction(value) else value) for value in values)
    assert first and others == [first] * len(others)


def test_tokenizer_model_and_dtype_have_other_forms(engine: pine.Engine, tiny: Path) -> None:
    options: dict[str, Any] = {"question": "Who?", "documents": ["a"], "system": None, "instruction": None}
    assert TASK.prompt(engine, **options) == TASK.prompt(TOKENIZER, question="Who?", documents=["a"])
    assert resolve(tiny) == resolve(str(tiny))
    loaded = pine.Engine.load(tiny, dtype=torch.float32, device=torch.device("cpu"))
    assert (loaded.dtype, loaded.device) == ("float32", "cpu")


COLUMNS = {"title": ["R", None], "text": ["red", "green"]}
TABLES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame, "pyarrow": pa.table, "datasets": datasets.Dataset.from_dict
}  # fmt: skip
RED, GREEN = "Document: red\n", "Document: green\n"


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (["red", "green"], [RED, GREEN]),
        (("red", pine.Document("green", "G")), [RED, "Document (Title: G) green\n"]),
        ("red", [RED]),
        (document("red", None), [RED]),
        (iter(["red", "green"]), [RED, GREEN]),
        (np.array(["red", "green"]), [RED, GREEN]),
        ({"text": "red"}, [RED]),
        *((make(COLUMNS)["text"], [RED, GREEN]) for make in TABLES.values()),
        *(
            (pd.DataFrame({"title": pd.Series([missing], dtype=object), "text": ["red"]}), [RED])
            for missing in (None, float("nan"), pd.NA)
        ),
    ],
    ids=case_id,
)
def test_documents_may_be_strings_mappings_and_columns(documents: Any, expected: list[str]) -> None:
    assert documents_of(documents) == expected


ROWS = {**COLUMNS, "source": ["a.md", "b.md"]}
RETRIEVED = {
    "dictionaries": [{"title": "R", "text": "red", "source": "a.md"}, {"text": "green", "source": "b.md"}],
    "dictionaries with metadata": [
        {"title": "R", "text": "red", "metadata": {"source": "a.md"}},
        {"content": "green", "source": "b.md"},
    ],
    "langchain": [
        SimpleNamespace(page_content="red", metadata={"title": "R", "source": "a.md"}),
        SimpleNamespace(page_content="green", metadata={"source": "b.md"}),
    ],
    "haystack": [
        SimpleNamespace(content="red", meta={"title": "R", "source": "a.md"}, score=None),
        SimpleNamespace(content="green", meta={"source": "b.md"}, score=None),
    ],
    "rows of pandas": [row for _, row in pd.DataFrame(ROWS).iterrows()],
    **{name: make(ROWS) for name, make in TABLES.items()},
}


@pytest.mark.parametrize("name", RETRIEVED)
def test_documents_of_other_libraries_keep_their_metadata(name: str) -> None:
    documents = as_documents(RETRIEVED[name])
    assert documents == [pine.Document("red", "R"), pine.Document("green")]
    assert [document.metadata for document in documents] == [{"source": "a.md"}, {"source": "b.md"}]


def test_score_of_single_document_is_in_json_unlike_other_metadata() -> None:
    node = SimpleNamespace(text="red", metadata={"source": object()}, score=0.5)
    assert as_documents(node)[0].metadata == {"source": node.metadata["source"], "score": 0.5}
    request = pine.Request.model_validate({"question": "Who?", "documents": [node]})
    assert request.documents[0].score == request.documents[0].metadata["score"] == 0.5
    assert json.loads(request.model_dump_json())["documents"] == [{"text": "red", "title": "", "score": 0.5}]
    assert pine.Request.model_validate_json(request.model_dump_json()).documents[0].score == 0.5


@pytest.mark.parametrize("score", [True, "high", "nan", float("inf"), [0.5]])
def test_score_that_is_no_finite_number_is_refused_or_metadata(score: Any) -> None:
    with pytest.raises(pine.InputError, check=has_field("score of a document")):
        pine.Document("red", score=score)
    (document,) = as_documents({"text": "red", "score": score})
    assert document.score is None and document.metadata == {"score": score}


def test_prefix_cache_serves_one_model(engine: pine.Engine, tiny_llama: TinyLlama) -> None:
    prefix_cache = pine.PrefixCache()
    expected = answers(engine, methods="pine", prefix_cache=prefix_cache)
    assert answers(pine.Engine(engine.model), methods="pine", prefix_cache=prefix_cache) == expected
    other = pine.Engine(tiny_llama(seed=1))
    with pytest.raises(pine.InputError):
        other.run(LAYOUT, prefix_cache=prefix_cache)
    prefix_cache.clear()
    cleared = answers(other, methods="pine", prefix_cache=prefix_cache)
    assert cleared == answers(other, methods="pine") != expected


Attempt = Callable[[pine.Engine], Any]


def cases(field: str, *attempts: Attempt) -> list[Any]:
    return [pytest.param(attempt, field, id=f"{field}-{n}") for n, attempt in enumerate(attempts)]


def with_value(field: str, values: list[Any], *attempts: Callable[[Any, Any], Any]) -> list[Any]:
    return [
        pytest.param(lambda engine, attempt=attempt, value=value: attempt(engine, value), field,
                     id=f"{field}-{n}-{case_id(value)}")
        for n, attempt in enumerate(attempts)
        for value in values
    ]  # fmt: skip


LABELLED = pine.LabeledRequest(
    documents=[pine.Document("a"), pine.Document("b")], question="Who?", labels=["A", "B"]
)

PARTS: dict[str, Any] = {
    "question": "Who?", "documents": ["a"], "task": "kv_retrieval", "instruction": "Say.", "system": "Hi."
}  # fmt: skip
INVALID_PARTS: list[tuple[str, dict[str, Any]]] = [
    *(("prompt", {"prompt": LAYOUT, name: value}) for name, value in PARTS.items()), ("prompt", {}),
    ("documents", {"question": "Who?"}), ("question", {"documents": ["a"]}),
    ("task", {"question": "Who?", "documents": ["a"], "task": "qa"}),
    ("lenght", {"prompt": LAYOUT, "lenght": 3}), ("temperature", {"prompt": LAYOUT, "temperature": 0.5}),
]  # fmt: skip
CALLS: tuple[Any, ...] = (pine.Engine.run, pine.Engine.generate, pine.Engine.shuffle, pine.Engine.score)

REFUSALS: list[Any] = [
    *(case for field, arguments in INVALID_PARTS
      for case in cases(field, *(partial(call, **arguments) for call in CALLS))),
    *cases("lenght", lambda engine: pine.compare_orders(engine, LAYOUT, lenght=3)),  # type: ignore[call-arg]  # as intended
    *cases("prompt", lambda engine: engine.run(), lambda engine: engine.run(LAYOUT, question="Who?")),
    *with_value("prompt", ["run", "generate", "shuffle"],
        lambda engine, name: getattr(engine, name)("Who?", ["one", "two"])),
    *with_value("method", [5, [None], ["vanilla", ["pine"]], b"pine"],
        lambda engine, methods: engine.run(LAYOUT, methods=methods)),
    *with_value("method", [["pine", "magic"], ["Magic"]], lambda _, methods: pine.get_methods(methods)),
    *with_value("methods", [[], ["All", "pine"], ["pine", "pcw", "PINE"]],
        lambda _, methods: pine.get_methods(methods)),
    *with_value("", [[], "pine,vanilla"], lambda engine, methods: engine.run(LAYOUT, methods=methods)),
    *with_value("method", ["pines", ["pine"] * 3],
        lambda engine, method: pine.generate_batch(engine, LAYOUT, method=method)),
    *cases("prompt", lambda engine: pine.generate_batch(engine, LAYOUT, max_new_tokens=600)),
    *with_value("", ["all", ["pine"], None],
        lambda _, base: pine.plan_debias([LABELLED], wrapper="permutation_full", base=base),
        lambda engine, base: generated(engine, [LAYOUT], method=base)),
    *with_value("",
        ["Who?", 5, [1, 2, 3], ["a", "b"], ((1,), ((2,),), (3,)), pine.Document("a"), None],
        lambda engine, prompt: engine.run(prompt),
        lambda engine, prompt: engine.generate(prompt),
        lambda engine, prompt: engine.tokenize(prompt),
        lambda engine, prompt: engine.score(prompt, "Anna"),
        lambda engine, prompt: pine.compare_orders(engine, prompt, orders=[[0, 1]]),
        lambda engine, prompt: batch_answer(engine, [prompt])),
    *with_value("prompt", [None, ["x"]], generated),
    *with_value("",
        [WRONG_VOCABULARY],
        lambda engine, layout: engine.run(layout),
        lambda engine, layout: engine.score(layout, "A"),
        lambda engine, layout: pine.compare_orders(engine, layout, orders=[[0, 1]]),
        lambda engine, layout: pine.generate_batch(engine, [LAYOUT, layout]),
        lambda engine, layout: generated(engine, [layout]),
        lambda engine, layout: pine.patch_generate(engine.model, [layout]).__enter__()),
    *cases("documents",
        lambda _: prompt_of("Who has the key?"), lambda _: prompt_of("Read.", [], "Who?"),
        lambda _: prompt_of("Read.", None, "Who?"), lambda _: prompt_of("Read.", {"a": "b"}, "Who?")),
    *cases("document 1",
        lambda _: prompt_of("Read.", [1], "Who?"), lambda _: prompt_of("a", ["\ud800"], "b")),
    *cases("document 2",
        lambda _: prompt_of("Read.", ["a", pine.Document("b")], "Who?")),
    *cases("documents[1]", lambda _: documents_of(["a", " "])),
    *cases("prefix", lambda _: prompt_of(None, ["a"], "Who?")),
    *with_value("document", [[], None, ["a", 2], [("title", "text")], [Path("a.txt")]],
        lambda _, documents: documents_of(documents)),
    *cases("documents[0]",
        *(lambda _, make=make: documents_of(make({"title": ["R"]})) for make in TABLES.values())),
    *cases("documents[1]",
        *(lambda _, make=make: documents_of(make({"text": ["red", None]})) for make in TABLES.values())),
    *with_value("documents[0]", [None, float("nan"), pd.NA],
        lambda _, missing: documents_of(pd.DataFrame({"text": pd.Series([missing], dtype=object)}))),
    *cases("document", lambda _: documents_of(pd.Series(["red", float("nan")], dtype=object))),
    *with_value("text of a document", [5, None, ["a"]], lambda _, text: document(text)),
    *cases("title of a document", lambda _: document("a", 5)),
    *cases("instruction", lambda _: documents_of("a", instruction=5)),
    *cases("system text", lambda _: documents_of("a", system=["a"])),
    *with_value("question", [5, None], lambda _, question: documents_of("a", question=question)),
    *cases("tokenizer", lambda _: TASK.prompt("gpt2", question="Who?", documents="a")),
    *cases("", lambda engine: pine.Engine(engine.model, "gpt2")),
    *with_value("longest context", ["512", 0],
        lambda engine, size: pine.Engine(engine.model, max_context_length=size)),
    *with_value("stop id", ["</s>", ["</s>"]],
        lambda engine, ids: pine.Engine(engine.model, stop_token_ids=ids)),
    *cases("", lambda engine: pine.generate_batch(engine.model, [LAYOUT]),  # type: ignore[arg-type]
        lambda engine: pine.compare_orders(engine.model, LAYOUT, orders=[[0, 1]])),  # type: ignore[arg-type]
    *with_value("answer length", [2.0, "2", None, True, float("inf")],
        lambda engine, number: engine.run(LAYOUT, max_new_tokens=number),
        lambda engine, number: engine.generate(LAYOUT, max_new_tokens=number),
        lambda engine, number: pine.compare_orders(engine, LAYOUT, orders=[[0, 1]], max_new_tokens=number),
        lambda engine, number: pine.generate_batch(engine, LAYOUT, max_new_tokens=number)),
    *with_value("batch size", [2.0, 0], lambda engine, n: pine.generate_batch(engine, LAYOUT, batch_size=n)),
    *cases("number of alternatives", lambda _: trace_of(alternatives=2.0)),
    *with_value("", [-1], lambda engine, count: engine.generate(LAYOUT, trace=trace_of(alternatives=count))),
    *with_value("", [(2, 0, 0, 1), (0, 4, 0, 1), (-1, 0, 0, 1), (0, -1, 0, 1), (0, 0, 3, 10), (0, 0, 3, 3),
                     (0, 0, -1, 3)],
        lambda engine, place: engine.generate(LAYOUT, max_new_tokens=3, trace=trace_of((range_of(*place),)))),
    *cases("head of a token range", lambda _: range_of(0, "2", 0, 1)),
    *cases("token range", lambda _: trace_of(((0, 0, 0, 1),))),
    *with_value("", [1, "yes", pine.TokenRange(0, 0, 0, 1), [], {}, pine.TraceConfig],
        lambda engine, trace: engine.run(LAYOUT, trace=trace)),
    *with_value("", [5, [], pine.PrefixCache], lambda engine, cache: engine.run(LAYOUT, prefix_cache=cache)),
    *with_value("", [3, "01", [], [[0, 1], [0, 0]]],
        lambda engine, orders: next(pine.compare_orders(engine, LAYOUT, orders=orders))),
    *with_value("an order", [[0, 1], [["0", "1"]]],
        lambda engine, orders: next(pine.compare_orders(engine, LAYOUT, orders=orders))),
    *with_value("number of orders", [0, "two"], lambda engine, count: engine.shuffle(LAYOUT, count=count)),
    *cases("count", lambda engine: engine.shuffle(LAYOUT, count=2, orders=[[0, 1]])),
    *cases("order", lambda engine: engine.shuffle(LAYOUT, orders=[[0, 0]])),
    *cases("orders", lambda engine: engine.shuffle(LAYOUT, orders=[])),
    *cases("prefix_cache", lambda engine: engine.shuffle(LAYOUT, prefix_cache=None)),
    *with_value("document", [2, -1], lambda engine, document:
        pine.sweep_document(engine, LAYOUT, document=document, answer="A")),
    *with_value("", [{"answer": ""}, {"answer": "a" * 600}, {"answer": "A", "methods": ["none"]}],
        lambda engine, options: pine.sweep_document(engine, LAYOUT, document=0, **options)),
    *with_value("continuation", [[], None, 5, ["a", [5, 6]], b"Anna", pd.DataFrame({"red": ["A"]})],
        lambda engine, texts: engine.score(LAYOUT, texts)),
    *with_value("", [None, 5, ["a"], b"a"], lambda engine, text: engine.tokenize_answer(text)),
    *with_value("", [[97], [-1], "BC", [1.0], [[40]], None],
        lambda engine, ids: engine.decode_tokens(ids), lambda engine, ids: engine.decode_text(ids)),
]  # fmt: skip
"""Attempts, and the field of the error; "" where the test does not check the field."""


@pytest.mark.parametrize(("attempt", "field"), REFUSALS)
def test_wrong_argument_raises_input_error(engine: pine.Engine, attempt: Attempt, field: str) -> None:
    with pytest.raises(pine.InputError) as raised:
        result = attempt(engine)
        if isinstance(result, Generator):  # some functions check their arguments when iteration begins
            list(result)
    assert field in ("", raised.value.field)
    assert "\n" not in str(raised.value)


TEXT_CALLS: list[Attempt] = [
    lambda bare: bare.run(TEXT),
    lambda bare: bare.tokenize(TEXT),
    lambda bare: pine.generate_batch(bare, [TEXT]),
    lambda bare: pine.patch_generate(bare.model, [TEXT]).__enter__(),
    lambda bare: bare.score(LAYOUT, ["A"]),
    lambda bare: bare.tokenize_answer("A"),
    lambda bare: bare.decode_tokens([5]),
]


def test_engine_without_tokenizer_rejects_text(engine: pine.Engine) -> None:
    bare = pine.Engine(engine.model)
    for attempt in TEXT_CALLS:
        with pytest.raises(pine.InputError, match="tokenizer"):
            attempt(bare)
    assert answers(bare)["pine"] and bare.decode_text([5]) == ""


@pytest.mark.parametrize(("registry", "kind"), [(pine.METHODS, "method"), (pine.TASKS, "task")])
def test_registry_rejects_unknown_name_with_choices(registry: dict[str, Any], kind: str) -> None:
    with pytest.raises(UnknownNameError) as raised:
        registry["pines"]
    error = raised.value
    assert (error.field, error.name, error.choices) == (kind, "pines", tuple(registry))
    assert isinstance(error, KeyError) and error.choices[0] in str(error)  # code for dicts expects KeyError
    assert "pines" not in registry and registry.get("pines") is None


@pytest.mark.parametrize(
    ("function", "value"),
    [(known_dtype, torch.float64), *((resolve, name) for name in (5, ["a"], b"a", Path("/no/such")))],
    ids=case_id,
)
def test_wrong_model_name_or_dtype_raises(function: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(pine.ModelError):
        function(value)


@pytest.mark.parametrize(
    "model", [None, "gpt2", {"a\n": 1}, LlamaForCausalLM, nn.Linear(2, 2), TOKENIZER, LlamaModel], ids=case_id
)
def test_wrong_model_raises_model_error_in_one_line(engine: pine.Engine, model: Any) -> None:
    config: Any = engine.model.config
    model = LlamaModel(config) if model is LlamaModel else model
    for attempt in (pine.Engine, lambda model: pine.patch_generate(model, [LAYOUT]).__enter__()):
        with pytest.raises(pine.ModelError) as raised:
            attempt(model)
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 200
    assert issubclass(pine.InputError, pine.PineError) and issubclass(pine.ModelError, pine.PineError)


LONG = "very " * 999
WIDE = TokenLayout(tuple(range(999)), tuple(tuple(range(500)) for _ in range(99)), (7,))
ANSWER = Answer("pine", f"<b>{LONG}", tuple(range(999)), (-0.25,) * 999, 0.5, 0.1, "length")
TRACE = Trace(
    "pine", WIDE, np.zeros((30, 9, 99, 99), np.int32), np.zeros((30, 9, 64, 99), np.int32),
    np.zeros((30, 9, 99, 99), np.float32),
)  # fmt: skip
RESULT = RunResult(WIDE, dict.fromkeys(METHODS, ANSWER), {"pine": TRACE}, {"pine": torch.zeros(99, 97)})
CELL = OrderComparison(ANSWER, True, None, 0.0, True, -1.0)


def test_repr_of_short_record_is_complete() -> None:
    layout = TokenLayout((5, 9), ((11, 12), (21,)), (51,))
    assert eval(repr(layout)) == layout
    assert repr(Document("red", "R")) == "Document(text='red', title='R')"


def test_repr_of_long_record_is_one_line_with_shapes_and_lengths() -> None:
    prompt = Prompt((Piece(LONG),), ((Piece(LONG),),) * 99, ())
    order = OrderResult((1, 0), {}, RESULT)
    for record in (WIDE, ANSWER, TRACE, RESULT, CELL, Document(LONG), order, prompt):
        shown = repr(record)
        assert shown.startswith(f"{type(record).__name__}(") and "\n" not in shown
        assert len(shown) < 85 * len(METHODS), shown
    assert "document_starts=int32 (30, 9, 99, 99)" in repr(TRACE)
    assert "... 999 in all" in repr(WIDE)
    assert shorten(torch.zeros(2, 3)) == "float32 (2, 3)"


def test_html_table_escapes_answers() -> None:
    table = RESULT._repr_html_()
    assert table.count("<tr>") == 1 + len(METHODS)
    assert f"&lt;b&gt;{LONG}" in table and "<b>" not in table
    assert ANSWER._repr_html_().count("<tr>") == 2
    cells = html_table(["<i>"], [["<u>", '"&']])
    assert all(text in cells for text in ("&lt;i&gt;</th>", "&lt;u&gt;</th>", "&quot;&amp;</td>"))
