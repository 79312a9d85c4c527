"""What newcomers give the library: accepted where it is clear what is meant, else one sentence."""

import itertools
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn
from transformers import LlamaForCausalLM, LlamaModel

from pine_engine import (
    METHODS,
    TASKS,
    Document,
    Engine,
    InputError,
    ModelError,
    PineError,
    PrefixCache,
    Prompt,
    TokenLayout,
    TokenRange,
    TraceConfig,
    compare_orders,
    generate_batch,
    patch_generate,
)
from pine_engine.debias.calibration import calibrate_labels
from pine_engine.debias.permutation import permute_answers, permute_options
from pine_engine.debias.plan import plan_debias
from pine_engine.engine.events import RunFinished
from pine_engine.engine.orders import OrderResult
from pine_engine.models.dtypes import known_dtype
from pine_engine.models.load import resolve
from pine_engine.prompts.inputs import DocumentInput, LabeledRequest
from pine_engine.prompts.prompt import Piece, segment_text
from tests.support.tokenizers import letter_tokenizer

LAYOUT = TokenLayout((5, 9), ((11, 12), (21,)), (51,))
TASK = TASKS["retrieval_qa"]
TOKENIZER = letter_tokenizer()
SHORT: dict[str, Any] = {"max_new_tokens": 2, "stop_at_eos": False}

PROMPT_HINT = (
    "; documents must be told apart from what stands around them: give engine.run question and documents, "
    "each by its name, make a prompt of text with "
    'TASKS["retrieval_qa"].prompt(engine.tokenizer, documents=["...", "..."], question="..."), or one of '
    "token ids with TokenLayout(prefix, documents, suffix)"
)


@pytest.fixture(scope="module")
def engine(tiny_llama: Callable[..., LlamaForCausalLM]) -> Engine:
    return Engine(tiny_llama(), TOKENIZER)


@pytest.fixture(scope="module")
def bare(engine: Engine) -> Engine:
    """Without a tokenizer."""
    return Engine(engine.model)


def answers(engine: Engine, prompt: Any = LAYOUT, **options: Any) -> dict[str, tuple[int, ...]]:
    result = engine.run(prompt, **{**SHORT, **options})
    return {name: answer.token_ids for name, answer in result.answers.items()}


def exhausted(given: Any) -> Any:
    """What is computed only when it is asked for, computed."""
    return list(given) if isinstance(given, Generator) else given


# methods


def shorten(given: object) -> str:
    """A name for a test's case, the same in every process."""
    text = str(given)
    return type(given).__name__ if " at 0x" in text else text


@pytest.mark.parametrize(
    "given",
    ["pine", METHODS["pine"], [METHODS["pine"]], ("pine",), {"pine"}, np.array(["pine"]), iter(["pine"])],
    ids=shorten,
)
def test_a_method_may_be_a_name_or_its_row_alone_or_among_several(engine: Engine, given: Any) -> None:
    assert list(answers(engine, methods=given)) == ["pine"]


@pytest.mark.parametrize("given", ["all", METHODS, METHODS.keys(), METHODS.values(), list(METHODS)], ids=type)
def test_all_methods_may_be_named_as_they_come(engine: Engine, given: Any) -> None:
    assert list(answers(engine, methods=given)) == list(METHODS)


def test_a_single_method_is_taken_everywhere(engine: Engine) -> None:
    assert list(engine.score(LAYOUT, ["A"], methods="pine")) == ["pine"]
    *_, last = engine.generate(LAYOUT, methods="pine", **SHORT)
    assert isinstance(last, RunFinished) and list(last.result.answers) == ["pine"]
    *_, row = compare_orders(engine, LAYOUT, methods="pine", orders=[[1, 0]], max_new_tokens=1)
    assert isinstance(row, OrderResult) and list(row.cells) == ["pine"]
    for method in ("pine", METHODS["pine"], ["pine"], [METHODS["pine"]]):
        ((_, answer),) = generate_batch(engine, [LAYOUT], method=method, max_new_tokens=1)
        assert answer.method == "pine"
    with patch_generate(engine, LAYOUT, method=METHODS["pine"]) as inputs:
        model: Any = engine.model
        assert model.generate(**inputs, max_new_tokens=1, do_sample=False).shape == (1, 7)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "no method was chosen; choose at least one of: vanilla, "),
        (5, "methods were given as int 5; choose from: vanilla, "),
        ([None], "method 1 is None; choose from: vanilla, "),
        (["vanilla", ["pine"]], "method 2 is list ['pine']; choose from: vanilla, "),
        ("pine,vanilla", "unknown method 'pine,vanilla'; choose from: vanilla, "),
        (b"pine", "methods were given as bytes b'pine'; choose from: vanilla, "),
    ],
)
def test_what_are_no_methods_is_said(engine: Engine, given: Any, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        engine.run(LAYOUT, methods=given)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(("table", "kind"), [(METHODS, "method"), (TASKS, "task")])
def test_a_table_says_which_rows_it_has(table: dict[str, Any], kind: str) -> None:
    with pytest.raises(InputError) as raised:
        table["pines"]
    assert str(raised.value) == f"unknown {kind} 'pines'; choose from: {', '.join(table)}"
    assert "pines" not in table and table.get("pines") is None
    with pytest.raises(KeyError):  # what a table of names has for code that expects a dict
        table["pines"]


@pytest.mark.parametrize("given", ["all", ["pine"], None])
def test_one_method_is_one(engine: Engine, given: Any) -> None:
    """`all` is a word for several: as the base of a wrapper it unpacked to a traceback."""
    documents = [DocumentInput(text="a"), DocumentInput(text="b")]
    asked = LabeledRequest(documents=documents, question="Who?", labels=["A", "B"])
    tries: list[Callable[[], Any]] = [
        lambda: calibrate_labels(engine, LAYOUT, ["A", "B"], content_free=[LAYOUT], base=given),
        lambda: permute_options(engine, LAYOUT, ["A", "B"], orders=[(0, 1)], base=given),
        lambda: list(permute_answers(engine, LAYOUT, len, orders=[(0, 1)], base=given)),
        lambda: plan_debias([asked], wrapper="permutation_full", base=given),
        lambda: patch_generate(engine, [LAYOUT], method=given).__enter__(),
    ]
    for attempt in tries:
        with pytest.raises(
            InputError, match=r"(unknown method|the method is) .*; choose (from|one of): vanilla"
        ):
            exhausted(attempt())


# prompts


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("Who has the key?", "the text 'Who has the key?'"),
        (5, "int 5"),
        ([1, 2, 3], "list [1, 2, 3]"),
        (["a", "b"], "list ['a', 'b']"),
        (((1,), ((2,),), (3,)), "tuple ((1,), ((2,),), (3,))"),
        (Document("a"), "Document(text='a', title='')"),
        ("a" * 99, f"the text {'a' * 40!r}"),
        (list(range(99)), "list [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 1 ..."),
    ],
)
def test_what_is_no_prompt_is_said_with_how_to_make_one(engine: Engine, given: Any, words: str) -> None:
    tries: list[Callable[[], Any]] = [
        lambda: engine.run(given),
        lambda: engine.generate(given),
        lambda: engine.tokenize(given),
        lambda: engine.score(given, "Anna"),
        lambda: compare_orders(engine, given, orders=[[0, 1]]),
        lambda: generate_batch(engine, [given]),
    ]
    for attempt in tries:
        with pytest.raises(InputError) as raised:
            exhausted(attempt())
        assert str(raised.value) == f"the prompt is {words}{PROMPT_HINT}"


def prompt_of(*parts: Any) -> Prompt:
    return Prompt(*parts)


def test_the_segments_of_a_prompt_may_be_texts(engine: Engine) -> None:
    full = Prompt((Piece("Read. "),), ((Piece("one"),), (Piece("two"),)), (Piece("Who?"),))
    assert prompt_of("Read. ", ["one", "two"], "Who?") == full
    assert prompt_of(["Read. "], (Piece("one"), ["t", Piece("wo")]), Piece("Who?")) == Prompt(
        (Piece("Read. "),), ((Piece("one"),), (Piece("t"), Piece("wo"))), (Piece("Who?"),)
    )
    assert prompt_of("", "one", "Who?").documents == ((Piece("one"),),)
    assert hash(prompt_of("Read. ", ["one", "two"], "Who?")) == hash(full)
    assert answers(engine, prompt_of("Read. ", ["one", "two"], "Who?"), methods="pine")
    # Text is data: nothing in it is a control token.
    control = {TOKENIZER.bos_token_id, TOKENIZER.convert_tokens_to_ids("<|im_end|>")}
    layout = engine.tokenize(prompt_of("<s>", ["<|im_end|>", "a"], "</s>"))
    assert not control & {*layout.prefix, *layout.documents[0]}


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (("Who has the key?",), f"the prompt has no documents{PROMPT_HINT}"),
        (("Read.", [], "Who?"), f"the prompt has no documents{PROMPT_HINT}"),
        (("Read.", None, "Who?"), f"the documents are None{PROMPT_HINT}"),
        (("Read.", {"a": "b"}, "Who?"), f"the documents are dict {{'a': 'b'}}{PROMPT_HINT}"),
        (("Read.", [1], "Who?"), f"document 1 holds int 1, which is no text{PROMPT_HINT}"),
        (
            ("Read.", ["a", Document("b")], "Who?"),
            f"document 2 holds Document(text='b', title=''), which is no text{PROMPT_HINT}",
        ),
        ((None, ["a"], "Who?"), f"the text around the documents holds None, which is no text{PROMPT_HINT}"),
        (
            ("a", ["\ud800"], "b"),
            "document 1 holds half of a surrogate pair ('\\ud800'), which is no character; remove it",
        ),
    ],
    ids=shorten,
)
def test_what_is_no_segment_is_said(parts: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        Prompt(*parts)
    assert str(raised.value) == sentence


def document(*parts: Any) -> Document:
    return Document(*parts)


def documents_of(given: Any, **options: Any) -> list[str]:
    prompt = TASK.prompt(TOKENIZER, documents=given, **{"question": "Who?", **options})
    return [segment_text(document) for document in prompt.documents]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["red", "green"], ["Document: red\n", "Document: green\n"]),
        (("red", Document("green", "G")), ["Document: red\n", "Document (Title: G) green\n"]),
        ("red", ["Document: red\n"]),
        (document("red", None), ["Document: red\n"]),
        (iter(["red", "green"]), ["Document: red\n", "Document: green\n"]),
        (np.array(["red", "green"]), ["Document: red\n", "Document: green\n"]),
        (
            [{"text": "red"}, {"title": "G", "text": "green"}],
            ["Document: red\n", "Document (Title: G) green\n"],
        ),
        ({"text": "red"}, ["Document: red\n"]),
    ],
    ids=shorten,
)
def test_documents_may_be_texts(given: Any, expected: list[str]) -> None:
    assert documents_of(given) == expected


COLUMNS = {"title": ["R", None], "text": ["red", "green"]}

TABLES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "pandas": pd.DataFrame,
    "pyarrow": pa.table,
    "datasets": datasets.Dataset.from_dict,
}


@pytest.mark.parametrize("make_table", TABLES.values(), ids=TABLES)
def test_documents_from_table_are_its_rows(make_table: Callable[[dict[str, Any]], Any]) -> None:
    assert documents_of(make_table(COLUMNS)) == ["Document (Title: R) red\n", "Document: green\n"]
    assert documents_of(make_table(COLUMNS)["text"]) == ["Document: red\n", "Document: green\n"]


@pytest.mark.parametrize("make_table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": ["red", None]}, "document 2 has .* None"),
        ({"text": ["red"], "id": ["7"]}, "document 1 has .* text, id"),
        ({"title": ["R"]}, "document 1 has .* title"),
    ],
)
def test_documents_from_unsuitable_table_are_refused(
    make_table: Callable[[dict[str, Any]], Any], columns: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        documents_of(make_table(columns))


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_documents_from_pandas_accept_missing_title_only(missing: Any) -> None:
    titles = pd.DataFrame({"title": pd.Series(["R", missing], dtype=object), "text": ["red", "green"]})
    assert documents_of(titles) == ["Document (Title: R) red\n", "Document: green\n"]
    texts = pd.Series(["red", missing], dtype=object)
    for given in (texts, pd.DataFrame({"text": texts})):
        with pytest.raises(InputError, match="^document 2 "):
            documents_of(given)


def test_continuations_from_table_are_refused(engine: Engine) -> None:
    with pytest.raises(InputError, match="^continuation 1 is dict "):
        engine.score(LAYOUT, pd.DataFrame({"red": ["A"], "green": ["B"]}))


ADVICE = '; give a text, a Document("text", "title"), or several of them'


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "there are no documents; give at least one"),
        (None, f"documents were given as None{ADVICE}"),
        (["a", 2], f"document 2 is int 2{ADVICE}"),
        ([("title", "text")], f"document 1 is tuple ('title', 'text'){ADVICE}"),
        (
            {"a.txt": "red"},
            "document 1 has the wrong fields: got a.txt, expected text and optionally title. Rename or "
            'select them, such as table[["title", "text"]].',
        ),
        ([Path("a.txt")], f"document 1 is PosixPath('a.txt'){ADVICE}"),
        (["a", " "], "document 2 is empty; write some text or remove it"),
    ],
    ids=shorten,
)
def test_what_are_no_documents_is_said(given: Any, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        documents_of(given)
    assert str(raised.value) == sentence


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: document(5), "the text of a document is int 5; give its text"),
        (lambda: document(None), "the text of a document is None; give its text"),
        (lambda: document(["a"]), "the text of a document is list ['a']; give its text"),
        (lambda: document("a", 5), "the title of a document is int 5; give text"),
        (lambda: documents_of("a", instruction=5), "the instruction is int 5; give text"),
        (lambda: documents_of("a", system=["a"]), "the system text is list ['a']; give text"),
        (lambda: documents_of("a", question=5), "the question is int 5; give text"),
        (lambda: documents_of("a", question=None), "there is no question; write one"),
        (
            lambda: TASK.prompt("gpt2", question="Who?", documents="a"),
            "the tokenizer is the text 'gpt2'; give the engine's own, engine.tokenizer",
        ),
    ],
)  # fmt: skip
def test_what_is_no_text_is_said(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        make()
    assert str(raised.value) == sentence


def test_an_engine_in_place_of_its_tokenizer_has_its_chat_template(engine: Engine) -> None:
    asked: dict[str, Any] = {"question": "Who?", "documents": ["a", "b"], "system": None, "instruction": None}
    assert TASK.prompt(engine, **asked) == TASK.prompt(TOKENIZER, question="Who?", documents=["a", "b"])


def test_ids_of_another_vocabulary_are_refused_wherever_tokens_come_in(engine: Engine) -> None:
    layout = TokenLayout((5,), ((11,), (12, 97)), (51,))
    sentence = "document 2 holds the token id 97 at place 1, but the vocabulary of the model has 97 tokens"
    tries: list[Callable[[], Any]] = [
        lambda: engine.run(layout),
        lambda: engine.score(layout, "A"),
        lambda: compare_orders(engine, layout, orders=[[0, 1]]),
        lambda: generate_batch(engine, [LAYOUT, layout]),
        lambda: patch_generate(engine, [layout]).__enter__(),
        lambda: patch_generate(engine.model, [layout]).__enter__(),
    ]
    for attempt in tries:
        with pytest.raises(InputError, match=f"^{sentence}"):
            exhausted(attempt())


# engines and models


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "the model is None; "),
        ("gpt2", "the model is the text 'gpt2'; "),
        (LlamaForCausalLM, "the model is type <class 'transformers.models.llama.mo"),
        (nn.Linear(2, 2), "the model is Linear(in_features=2, "),
        (TOKENIZER, "the model is "),
    ],
    ids=shorten,
)
def test_what_is_no_model_is_said(given: Any, words: str) -> None:
    tries: list[Callable[[], Any]] = [
        lambda: Engine(given),
        lambda: Engine(given, TOKENIZER),
        lambda: patch_generate(given, [LAYOUT]).__enter__(),
    ]
    for attempt in tries:
        with pytest.raises(ModelError) as raised:
            attempt()
        assert str(raised.value).startswith(words)
        assert str(raised.value).endswith("; give one that transformers has loaded, or a name to Engine.load")


def test_a_model_without_a_head_is_said(engine: Engine) -> None:
    config: Any = engine.model.config
    with pytest.raises(
        ModelError, match="^a LlamaModel gives no logits of a next token; load it with AutoModelF"
    ):
        Engine(LlamaModel(config))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tokenizer": "gpt2"}, "the tokenizer is the text 'gpt2'; give one that transformers has loaded"),
        (
            {"max_context_length": "512"},
            "the longest context is the text '512'; give a whole number, 1 or more tokens",
        ),
        ({"max_context_length": 0}, "the longest context is 0; give 1 or more tokens"),
        ({"stop_token_ids": "</s>"}, "stop ids were given as the text '</s>'; give token ids"),
        ({"stop_token_ids": ["</s>"]}, "stop id 1 is the text '</s>'; give token ids"),
    ],
)
def test_what_an_engine_cannot_be_made_of_is_said(engine: Engine, options: Any, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        Engine(engine.model, **options)
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(
    "given",
    [7, [7], {7}, (7, 7), np.array([7]), np.int64(7), [np.int64(7)], {np.int64(7)}, torch.tensor(7)],
    ids=repr,
)
def test_stop_ids_may_come_in_any_form(engine: Engine, given: Any) -> None:
    assert Engine(engine.model, stop_token_ids=given).stop_token_ids == {7}


def test_an_engine_without_a_tokenizer_says_what_it_needs_one_for(bare: Engine) -> None:
    prompt = prompt_of("a", ["b"], "c")
    tries: list[tuple[Callable[[], Any], str]] = [
        (lambda: bare.run(prompt), "read a prompt of text"),
        (lambda: bare.tokenize(prompt), "read a prompt of text"),
        (lambda: generate_batch(bare, [prompt]), "read a prompt of text"),
        (lambda: patch_generate(bare.model, [prompt]).__enter__(), "read a prompt of text"),
        (lambda: bare.score(LAYOUT, ["A"]), "score text"),
        (lambda: bare.tokenize_answer("A"), "score text"),
        (lambda: bare.decode_tokens([5]), "tell the text of tokens"),
    ]
    for attempt, why in tries:
        with pytest.raises(InputError) as raised:
            attempt()
        assert str(raised.value) == (
            f"this engine has no tokenizer to {why}; make it with Engine(model, tokenizer), or give "
            "TokenLayout(prefix, documents, suffix) of token ids"
        )
    assert answers(bare)["pine"] and bare.decode_text([5]) == ""


@pytest.mark.parametrize("name", [5, ["a"], b"a", 1.5])
def test_what_is_no_name_of_a_model_is_said(name: Any) -> None:
    with pytest.raises(
        ModelError, match="^a model cannot be loaded by .*; give a hub id, a folder or a GGUF file"
    ):
        resolve(name)


def test_a_model_may_be_named_by_a_path_and_a_dtype_as_torch_does(tiny: Path) -> None:
    assert resolve(tiny) == resolve(str(tiny))
    assert known_dtype(torch.bfloat16) == "bfloat16"
    loaded = Engine.load(tiny, dtype=torch.float32, device=torch.device("cpu"))
    assert (loaded.dtype, loaded.device) == ("float32", "cpu")
    with pytest.raises(ModelError, match="dtype torch.float64 is not supported"):
        known_dtype(torch.float64)
    with pytest.raises(ModelError, match="hub id"):
        resolve(Path("/no/such/folder"))


def test_a_model_in_place_of_an_engine_is_said(engine: Engine) -> None:
    model: Any = engine.model
    tries: list[Callable[[], Any]] = [
        lambda: generate_batch(model, [LAYOUT]),
        lambda: compare_orders(model, LAYOUT, orders=[[0, 1]]),
    ]
    for attempt in tries:
        with pytest.raises(InputError) as raised:
            exhausted(attempt())
        said = str(raised.value)
        assert said.startswith("the engine is LlamaForCausalLM( (model): LlamaModel(")
        assert said.endswith("; give Engine(model, tokenizer) or Engine.load(name)")


# numbers and options


@pytest.mark.parametrize("given", [np.int64(2), torch.tensor(2), 2], ids=repr)
def test_numbers_may_be_numpy_s_and_tensors(engine: Engine, given: Any) -> None:
    assert answers(engine, max_new_tokens=given) == answers(engine, max_new_tokens=2)
    one, two = (
        dict(generate_batch(engine, LAYOUT, max_new_tokens=number, batch_size=number))[0].token_ids
        for number in (given, 2)
    )
    assert one == two
    assert TokenRange(given, given, 0, given) == TokenRange(2, 2, 0, 2)


@pytest.mark.parametrize(
    ("given", "words"),
    [(2.0, "float 2.0"), ("2", "the text '2'"), (None, "None"), (True, "True"), (float("inf"), "float inf")],
    ids=shorten,
)
def test_what_is_no_number_is_said(engine: Engine, given: Any, words: str) -> None:
    length = f"the answer length is {words}; give a whole number, "
    tries: list[tuple[Callable[[], Any], str]] = [
        (lambda: engine.run(LAYOUT, max_new_tokens=given), f"{length}0 or more tokens"),
        (lambda: engine.generate(LAYOUT, max_new_tokens=given), f"{length}0 or more tokens"),
        (
            lambda: compare_orders(engine, LAYOUT, orders=[[0, 1]], max_new_tokens=given),
            f"{length}0 or more tokens",
        ),
        (lambda: generate_batch(engine, LAYOUT, max_new_tokens=given), f"{length}1 or more"),
        (
            lambda: generate_batch(engine, LAYOUT, batch_size=given),
            f"the batch size is {words}; give a whole number, 1 or more",
        ),
        (
            lambda: TraceConfig(alternatives=given),
            f"the number of alternatives is {words}; give a whole number",
        ),
        (lambda: TokenRange(0, given, 0, 1), f"the head of a token range is {words}; give a whole number"),
    ]
    for attempt, sentence in tries:
        with pytest.raises(InputError) as raised:
            exhausted(attempt())
        assert str(raised.value) == sentence


def request(ranges: Any) -> TraceConfig:
    return TraceConfig(ranges)


def test_token_ranges_may_come_alone_and_in_a_list(engine: Engine) -> None:
    asked = TokenRange(0, 1, 0, 3)
    alone, several = request(asked), request([asked])
    assert alone == several == TraceConfig((asked,))
    trace = engine.run(LAYOUT, methods="pine", trace=alone, **SHORT).traces["pine"]
    assert [kept.asked for kept in trace.token_weights] == [asked]
    with pytest.raises(InputError, match=r"^token range 1 is tuple \(0, 0, 0, 1\); give TokenRange\(layer, "):
        request(((0, 0, 0, 1),))


@pytest.mark.parametrize("given", [1, "yes", TokenRange(0, 0, 0, 1), [], {}, TraceConfig])
def test_what_is_no_trace_is_said(engine: Engine, given: Any) -> None:
    with pytest.raises(InputError, match=r"^the trace is .*; give True, False or a TraceConfig\(\.\.\.\)$"):
        engine.run(LAYOUT, trace=given)


@pytest.mark.parametrize(
    "orders", [[[0, 1], [1, 0]], np.array([[0, 1], [1, 0]]), itertools.permutations([0, 1])]
)
def test_orders_may_come_in_any_form(engine: Engine, orders: Any) -> None:
    events = compare_orders(engine, LAYOUT, orders=orders, **SHORT)
    rows = [event for event in events if isinstance(event, OrderResult)]
    assert [row.order for row in rows] == [(0, 1), (1, 0)]


@pytest.mark.parametrize(
    ("orders", "sentence"),
    [
        (3, "the orders are int 3; give at least one"),
        ("01", "the orders are the text '01'; give at least one"),
        ([], "the orders are list []; give at least one"),
        ([0, 1], "an order is int 0; expected the documents' places counted from 0, such as [2, 0, 1]"),
        ([["0", "1"]], "an order holds the text '0' at place 0; expected the documents' places"),
        ([[0, 1], [0, 0]], "order [0, 0] is not a permutation of 2 documents"),
    ],
    ids=shorten,
)
def test_what_are_no_orders_is_said_before_anything_is_read(
    engine: Engine, orders: Any, sentence: str
) -> None:
    with pytest.raises(InputError) as raised:
        next(compare_orders(engine, LAYOUT, orders=orders))
    assert str(raised.value).startswith(sentence)


def test_one_continuation_is_one(engine: Engine) -> None:
    ((score,),) = engine.score(LAYOUT, "Anna", methods="pine").values()
    assert (score.text, len(score.token_ids)) == ("Anna", 4)
    assert [score] == engine.score(LAYOUT, np.array(["Anna"]), methods="pine")["pine"]
    assert [score] == engine.score(LAYOUT, iter(["Anna"]), methods="pine")["pine"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "no continuations were given; give at least one text to score"),
        (None, "continuations were given as None; give at least one text to score"),
        (5, "continuations were given as int 5; give at least one text to score"),
        (["a", [5, 6]], "continuation 2 is list [5, 6]; give at least one text to score"),
        (b"Anna", "continuations were given as bytes b'Anna'; give at least one text to score"),
    ],
)
def test_what_are_no_continuations_is_said(engine: Engine, given: Any, sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        engine.score(LAYOUT, given)
    assert str(raised.value) == sentence


@pytest.mark.parametrize("given", [None, 5, ["a"], b"a"])
def test_an_answer_is_text(engine: Engine, given: Any) -> None:
    with pytest.raises(InputError, match="^the answer is .*; give text$"):
        engine.tokenize_answer(given)


@pytest.mark.parametrize("given", [[40, 41], np.array([40, 41]), torch.tensor([40, 41]), (40, 41)], ids=type)
def test_tokens_are_decoded_in_any_form(engine: Engine, given: Any) -> None:
    assert engine.decode_tokens(given) == ["B", "C"] and engine.decode_text(given) == "BC"
    assert engine.decode_tokens(given[0]) == ["B"] and engine.decode_text(given[0]) == "B"


@pytest.mark.parametrize("given", [[97], [-1], "BC", [1.0], [[40]], None])
def test_what_cannot_be_decoded_is_said(engine: Engine, given: Any) -> None:
    for decode in (engine.decode_tokens, engine.decode_text):
        with pytest.raises(InputError, match="^what is decoded holds .* at place 0[,;] "):
            decode(given)


def test_prompts_of_a_batch_may_come_alone_and_one_by_one(engine: Engine) -> None:
    alone = dict(generate_batch(engine, LAYOUT, max_new_tokens=2))
    lazily = dict(generate_batch(engine, (prompt for prompt in [LAYOUT]), max_new_tokens=2))
    assert alone[0].token_ids == lazily[0].token_ids == answers(engine, methods="pine")["pine"]
    nothing: Any = None
    with pytest.raises(InputError, match="^the prompt is None; documents must be"):
        generate_batch(engine, nothing)


def test_prompts_of_generate_may_be_text_and_come_alone(engine: Engine) -> None:
    prompt = TASK.prompt(engine.tokenizer, question="Who?", documents=["a", "b"])
    layout = engine.tokenize(prompt)
    ids = [
        answering_ids(engine, given)
        for given in (prompt, layout, [prompt], (each for each in [layout]))
    ]  # fmt: skip
    assert ids == [ids[0]] * 4
    for given, words in ((None, "prompts were given as None"), (["x"], "prompt 1 is the text 'x'")):
        with pytest.raises(InputError, match=f"^{words}; give at least one token layout$"):
            answering_ids(engine, given)


def answering_ids(engine: Engine, prompts: Any) -> list[int]:
    with patch_generate(engine, prompts) as inputs:
        model: Any = engine.model
        output: list[int] = model.generate(**inputs, max_new_tokens=2, do_sample=False)[0].tolist()
    return output


def test_a_memory_serves_one_model(engine: Engine, tiny_llama: Callable[..., LlamaForCausalLM]) -> None:
    prefix_cache = PrefixCache()
    expected = answers(engine, methods="pine", prefix_cache=prefix_cache)
    assert answers(Engine(engine.model), methods="pine", prefix_cache=prefix_cache) == expected
    other = Engine(tiny_llama(seed=1))
    with pytest.raises(
        InputError, match="^this memory holds what another model has read; give each engine a mem"
    ):
        other.run(LAYOUT, prefix_cache=prefix_cache)
    prefix_cache.rows.clear()
    assert (
        answers(other, methods="pine", prefix_cache=prefix_cache)
        == answers(other, methods="pine")
        != expected
    )
    refused: tuple[Any, ...] = (5, [], PrefixCache)
    for given in refused:
        with pytest.raises(InputError, match=r"^prefix_cache is "):
            engine.run(LAYOUT, prefix_cache=given)


def test_every_refusal_is_one_line() -> None:
    assert issubclass(InputError, PineError) and issubclass(ModelError, PineError)
    models: tuple[Any, ...] = ("a\nb" * 30, nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), {"a\n": 1})
    for given in models:
        with pytest.raises(ModelError) as raised:
            Engine(given)
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 200
