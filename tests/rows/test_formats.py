"""Files of known formats: question, documents and accepted answers, or a refusal that names the format."""

import json
from pathlib import Path
from typing import Any

import pytest

from pine_engine import Document, InputError, Request
from pine_engine.prompts.examples import read_examples
from pine_engine.prompts.request import read_requests
from pine_engine.rows.document_files import read_documents
from pine_engine.rows.documents import as_documents
from pine_engine.rows.parse_errors import ValidationErrors
from tests.support.commands import write

ANN, BEN = "Ann has the key.", "Ben has the boat."
TEXTS = [ANN, BEN]
WHO = "Who has the key?"


def hits(*names: str, **fields: Any) -> list[dict[str, Any]]:
    """Return hits whose texts are at a path of keys."""
    found = []
    for number, text in enumerate(TEXTS):
        value: Any = text
        for name in reversed(names):
            value = {name: value}
        found.append({"id": number, "score": 0.9 - number / 10, **fields, **value})
    return found


def elasticsearch(source: list[Any]) -> dict[str, Any]:
    found = [hit | {"_index": "keys", "_id": str(number)} for number, hit in enumerate(source)]
    return {"took": 3, "timed_out": False, "hits": {"total": {"value": 2}, "max_score": 1.0, "hits": found}}


MUSIQUE = {
    "id": "2hop__1", "question": WHO, "question_decomposition": [], "answer": "Ann",
    "answer_aliases": ["Anna", "Ann"], "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "Keys", "paragraph_text": ANN, "is_supporting": True},
        {"idx": 1, "title": "Boats", "paragraph_text": BEN, "is_supporting": False},
    ],
}  # fmt: skip
SEARCH = {
    "type": "file_search_call", "id": "fs_1", "status": "completed", "queries": [WHO],
    "results": hits("text", file_id="f", filename="keys.md", attributes={}),
}  # fmt: skip
CHROMA = {
    "ids": [["a", "b"]], "embeddings": None, "documents": [TEXTS], "uris": None, "data": None,
    "metadatas": [[{"page": 1}, None]], "distances": [[0.1, 0.2]],
}  # fmt: skip

ROWS: dict[str, tuple[Any, list[str], int | None]] = {
    "ragas, old": (
        {"question": WHO, "answer": "Ben", "contexts": TEXTS, "ground_truths": ["Ann"]}, ["Ann"], None),
    "ragas": (
        {"user_input": WHO, "response": "Ben", "retrieved_contexts": TEXTS, "reference": "Ann",
         "reference_contexts": [ANN], "rubrics": None}, ["Ann"], None),
    "prompt flow": (
        {"question": WHO, "ground_truth": "Ann", "documents": [
            {f"[doc{number}]": {"title": "", "content": text}} for number, text in enumerate(TEXTS, 1)]},
        ["Ann"], None),
    "deepeval": (
        {"input": WHO, "actual_output": "Ben", "expected_output": "Ann", "context": [ANN],
         "retrieval_context": TEXTS, "name": None, "comments": None}, ["Ann"], None),
    "deepeval, golden": ({"input": WHO, "expected_output": "Ann", "context": TEXTS}, ["Ann"], None),
    "deepeval, test run": (
        {"input": WHO, "actualOutput": "Ben", "expectedOutput": "Ann", "retrievalContext": TEXTS},
        ["Ann"], None),
    "MuSiQue": (MUSIQUE, ["Ann", "Anna"], 0),
    "MuSiQue, not answerable": (MUSIQUE | {"answerable": False}, [], 0),
    "2WikiMultihopQA": (
        {"_id": "8813", "type": "compositional", "question": WHO, "supporting_facts": [["Keys", 0]],
         "context": [["Keys", ["Ann has", "the key."]], ["Boats", [BEN]]], "evidences": [], "answer": "Ann"},
        ["Ann"], None),
    "2WikiMultihopQA of the hub": (
        {"id": "8813", "question": WHO, "answer": "Ann",
         "context": json.dumps([["Keys", ["Ann has", "the key."]], ["Boats", [BEN]]])}, ["Ann"], None),
    "HotpotQA": (
        {"_id": "5a", "question": WHO, "answer": "Ann", "supporting_facts": [["Keys", 0]], "level": "hard",
         "context": [["Keys", ["Ann has", " the key."]], ["Boats", [BEN]]]}, ["Ann"], None),
    "KILT": (
        {"id": "k1", "input": WHO, "output": [
            {"answer": "Ann", "provenance": [{"wikipedia_id": "1", "text": text} for text in TEXTS]},
            {"answer": "Anna"}, {"answer": "Ann"}]},
        ["Ann", "Anna"], None),
    "KILT with passages": (
        {"id": "k1", "input": WHO, "output": [{"answer": "Ann", "provenance": [{"wikipedia_id": "1"}]}],
         "ctxs": hits("text")}, ["Ann"], None),
    "FlagEmbedding": (
        {"query": WHO, "pos": [ANN], "neg": [BEN], "pos_scores": [1.0], "neg_scores": [0.1], "prompt": "Find",
         "type": "normal"}, [], 0),
    "FlagEmbedding, several positive": ({"query": WHO, "pos": TEXTS, "neg": []}, [], None),
    "Bedrock": (
        {"question": WHO, "retrievalResults": hits("content", "text", location={"type": "S3"}, metadata={})},
        [], None),
    "OpenAI vector store": (
        {"object": "vector_store.search_results.page", "search_query": [WHO], "has_more": False, "data": [
            {"file_id": "f", "filename": "keys.md", "score": 0.9, "attributes": {},
             "content": [{"type": "text", "text": text}]} for text in TEXTS]}, [], None),
    "OpenAI file search": (SEARCH, [], None),
    "OpenAI response": ({"id": "resp_1", "output": [SEARCH, {"type": "message"}]}, [], None),
    "Milvus": ({"question": WHO, "code": 0, "data": hits("text", distance=0.5)}, [], None),
    "pymilvus": ({"question": WHO, "hits": [hits("entity", "text", distance=0.5)]}, [], None),
    "Chroma": ({"question": WHO, **CHROMA}, [], None),
    "Chroma in a field": ({"question": WHO, "reply": CHROMA, "reference": "Ann"}, ["Ann"], None),
    "Chroma, get": ({"question": WHO, "ids": ["a", "b"], "documents": TEXTS, "metadatas": None}, [], None),
    "Cohere": (
        {"question": WHO, "id": "r", "meta": {}, "results": hits("document", "text", relevance_score=0.9)},
        [], None),
    "RankGPT": ({"query": WHO, "hits": hits("content", docid="7", qid="q", rank=1)}, [], None),
    "RankLLM": (
        {"query": {"text": WHO, "qid": "q"}, "relevance": [2, 0],
         "candidates": hits("doc", "contents", docid="7")}, [], 0),
    "Qdrant": (
        {"question": WHO, "result": hits("payload", "text", version=3), "status": "ok", "time": 0.1},
        [], None),
    "Qdrant, query": (
        {"query": WHO, "result": {"points": hits("payload", "page_content", version=3)}}, [], None),
    "Qdrant, client": ({"query": WHO, "points": hits("payload", "document", version=3)}, [], None),
    "Elasticsearch": ({"query": WHO, **elasticsearch(hits("_source", "text"))}, [], None),
    "LangChain": (
        {"question": WHO, "documents": [
            [{"page_content": text, "metadata": {"page": 1}, "type": "Document"}, 0.8] for text in TEXTS]},
        [], None),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_row_of_known_format_is_read(name: str, tmp_path: Path) -> None:
    row, answers, gold_index = ROWS[name]
    for path in (write(tmp_path / "row.json", row), write(tmp_path / "row.jsonl", row)):
        (example,) = read_examples(path)
        assert (example.question, example.answers, example.gold_index) == (WHO, answers, gold_index)
        assert [document.text for document in example.documents] == TEXTS
        ((_, request),) = read_requests(path, Request)
        assert request == example.comparison()
        assert read_documents([path]) == example.documents


MANY_CHROMA = CHROMA | {name: CHROMA[name] * 2 for name in ("ids", "documents", "metadatas", "distances")}  # type: ignore[operator]
FILES: dict[str, tuple[Any, int, list[str]]] = {
    "SQuAD": (
        {"version": "v2.0", "data": [{"title": "Keys", "paragraphs": [{"context": " ".join(TEXTS), "qas": [
            {"id": "q1", "question": WHO, "is_impossible": False,
             "answers": [{"text": "Ann", "answer_start": 0}, {"text": "Ann", "answer_start": 0}]},
            {"id": "q2", "question": "Who has the car?", "is_impossible": True, "answers": [],
             "plausible_answers": [{"text": "Ben", "answer_start": 17}]}]}]}]},
        2, ["Ann"]),
    "Pyserini for DPR": (
        {"0": {"question": WHO, "answers": ["Ann"],
               "contexts": [{"docid": text[:3], "score": 1.0, "text": text} for text in TEXTS]},
         "1": {"question": "Who has the boat?", "answers": ["Ben"], "contexts": hits("text")}},
        2, ["Ann"]),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_file_with_several_rows_in_one_value_is_read(name: str, tmp_path: Path) -> None:
    content, count, answers = FILES[name]
    examples = read_examples(write(tmp_path / "rows.json", content))
    assert (len(examples), examples[0].question, examples[0].answers) == (count, WHO, answers)
    assert " ".join(document.text for document in examples[0].documents) == " ".join(TEXTS)
    assert len({example.id for example in examples}) == count


def test_replies_without_question_are_documents(tmp_path: Path) -> None:
    pairs = [[{"page_content": text, "metadata": {}}, 0.8] for text in TEXTS]
    milvus = [hits("entity", "text", distance=0.5)]
    for content in (CHROMA, pairs, milvus, hits("text")):
        path = write(tmp_path / "reply.json", content)
        assert [document.text for document in read_documents([path])] == TEXTS
    assert len(read_documents([write(tmp_path / "two.json", MANY_CHROMA)])) == 4


def test_pair_of_document_and_score_keeps_the_score() -> None:
    pairs = [({"page_content": ANN, "metadata": {"page": 1}}, 0.5), (Document(BEN), 0.25), (ANN, 0.125)]
    first, second, third = as_documents(pairs)
    assert (first, first.metadata) == (Document(ANN), {"page": 1, "score": 0.5})
    assert (second, third, third.metadata) == (Document(BEN), Document(ANN), {"score": 0.125})
    assert as_documents(pairs[0]) == [first]


@pytest.mark.parametrize(
    ("numbers", "scores"),
    [([0.9, 0.5, 0.5], [0.9, 0.5, 0.5]), ([0.1, 0.4, 2], [-0.1, -0.4, -2]), ([-3, -2, -1], [3, 2, 1])],
)
def test_pairs_with_distances_have_negative_scores(
    numbers: list[float], scores: list[float], tmp_path: Path
) -> None:
    """The best document is first, so that sorting by score leaves the order."""
    pairs = [[{"page_content": text}, number] for text, number in zip("abc", numbers, strict=True)]
    (_, request), *_ = read_requests(
        write(tmp_path / "a.json", {"question": WHO, "documents": pairs}), Request
    )
    for documents in (as_documents(list(map(tuple, pairs))), request.documents):
        assert [(one.text, one.score) for one in documents] == list(zip("abc", scores, strict=True))


def test_pairs_in_no_order_are_refused(tmp_path: Path) -> None:
    pairs = [[{"page_content": text}, number] for text, number in zip("abc", (0.4, 0.1, 0.9), strict=True)]
    with pytest.raises(InputError, match="0.4, 0.1"):
        as_documents(list(map(tuple, pairs)))
    with pytest.raises(InputError, match="documents: .*0.4, 0.1"):
        read_requests(write(tmp_path / "a.json", {"question": WHO, "documents": pairs}), Request)


INCOMPLETE: dict[str, Any] = {
    "ragas": {"user_input": WHO, "reference_contexts": TEXTS, "reference": "Ann"},
    "deepeval": {"input": WHO, "actual_output": "Ben", "expected_output": "Ann"},
    "MuSiQue": {key: value for key, value in MUSIQUE.items() if key != "paragraphs"},
    "HotpotQA": {"_id": "5a", "question": WHO, "answer": "Ann", "supporting_facts": []},
    "SQuAD": {"id": "q1", "question": WHO, "is_impossible": False, "answers": []},
    "KILT": {"id": "k1", "input": WHO, "output": [{"answer": "Ann", "provenance": [{"wikipedia_id": "1"}]}]},
    "BEIR": {"_id": "q1", "text": WHO, "metadata": {}},
    "Pyserini": {"id": "d1", "contents": ANN},
    "FlagEmbedding": {"query": WHO, "pos": [ANN]},
    "Bedrock": {"question": WHO, "retrievalResults": [{"location": {}, "score": 0.5}]},
    "OpenAI": SEARCH | {"results": [{"file_id": "f", "filename": "keys.md", "score": 0.5}]},
    "Milvus": {"question": WHO, "data": [{"id": 1, "distance": 0.5}]},
    "Chroma": {"question": WHO, **CHROMA, "documents": None},
    "Cohere": {"question": WHO, "results": [{"index": 1, "relevance_score": 0.9}]},
    "Qdrant": {"question": WHO, "result": [{"id": 1, "version": 3, "score": 0.9, "payload": None}]},
    "Elasticsearch": {"question": WHO, **elasticsearch([{"_score": 1.0}])},
}


def test_row_without_documents_is_described_by_its_own_fields(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.jsonl", {"query": WHO, "ground_truth": "Ann"})
    with pytest.raises(ValidationErrors, match="'query', 'ground_truth'"):
        read_examples(path)


@pytest.mark.parametrize("name", INCOMPLETE)
def test_row_without_documents_is_named_by_its_format(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / "row.jsonl", INCOMPLETE[name])
    for read in (lambda: read_examples(path), lambda: read_requests(path, Request)):
        with pytest.raises(ValidationErrors, match=name) as raised:
            read()
        assert [problem.field for problem in raised.value.problems] == ["documents"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([{"turns": [{"role": "user", "content": WHO}]}], "row 1: .*turns"),
        ([{"turns": [{"role": "user", "content": WHO}], "context": TEXTS}], "row 1: .*turns"),
        ([{"scenario": "A key", "expected_outcome": "Ann", "context": TEXTS}], "row 1: .*scenario"),
        ({"name": "keys", "samples": [{"question": WHO, "contexts": TEXTS}]}, "list 'samples'"),
        ([{"query": WHO, "tags": [{"name": "keys"}]}], "row 1: .*'query', 'tags'"),
        ([{"query": WHO, "reference_contexts": TEXTS}], "row 1: .*documents=reference_contexts"),
    ],
)
def test_rows_of_another_shape_are_named(content: Any, reason: str, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.json", content)
    for read in (lambda: read_examples(path), lambda: read_requests(path, Request)):
        with pytest.raises(ValidationErrors, match=reason):
            read()


def test_line_with_hits_of_several_queries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationErrors, match="Chroma"):
        read_examples(write(tmp_path / "a.jsonl", f"{json.dumps(MANY_CHROMA)}\n{json.dumps(MANY_CHROMA)}"))


# folders with a run

CORPUS = [
    {"_id": f"d{number}", "title": "T", "text": text, "metadata": {}} for number, text in enumerate(TEXTS)
]
RUN = "q1 Q0 d1 2 0.5 bm25\nq1 Q0 d0 1 0.9 bm25\n"
FOLDERS: dict[str, dict[str, str]] = {
    "BEIR": {
        "corpus.jsonl": "".join(json.dumps(one) + "\n" for one in CORPUS),
        "queries.jsonl": json.dumps({"_id": "q1", "text": WHO, "metadata": {}}),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td0\t1\nq1\td1\t0\n",
        "run.trec": RUN,
    },
    "Pyserini": {
        "collection.jsonl": "".join(
            json.dumps({"id": one["_id"], "contents": one["text"]}) + "\n" for one in CORPUS
        ),
        "topics.tsv": f"q1\t{WHO}\n",
        "qrels.txt": "q1 0 d0 2\n",
        "run.msmarco.tsv": "q1\td0\t1\nq1\td1\t2\n",
    },
}


def put_folder(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", FOLDERS)
def test_corpus_with_run_is_read_in_order_of_ranks(name: str, tmp_path: Path) -> None:
    (example,) = read_examples(put_folder(tmp_path / name, FOLDERS[name]))
    assert (example.id, example.question, example.gold_index) == ("q1", WHO, 0)
    assert [document.text for document in example.documents] == TEXTS
    assert example.relevance == [{"BEIR": 1, "Pyserini": 2}[name], 0]


KEYS = [{"docid": "a", "text": ANN}, {"docid": "b", "text": BEN}, {"docid": "c", "text": "Cy has none."}]


@pytest.mark.parametrize(
    ("fields", "grades", "gold", "accepted"),
    [
        ({"documents": KEYS, "relevance": [1, 3, 0]}, (1, 3, 0), None, ("B", "A")),
        ({"documents": KEYS, "relevance": {"c": 2, "b": 1, "z": 3}}, (0, 1, 2), None, ("C", "B")),
        ({"documents": KEYS, "relevance": {"b": 1}}, (0, 1, 0), 1, ("B",)),
        ({"documents": [{**one, "isgold": True} for one in KEYS[:2]]}, (1, 1), None, ("A", "B")),
        ({"pos": TEXTS, "neg": ["Cy has none."]}, (1, 1, 0), None, ("A", "B")),
        ({"documents": KEYS, "gold_index": 2, "answers": ["A"]}, (0, 0, 1), 2, ("C",)),
        ({"documents": KEYS, "answers": ["A", "C"]}, (1, 0, 1), None, ("A", "C")),
        ({"documents": KEYS, "relevance": "high", "answers": ["C"]}, (0, 0, 1), None, ("C",)),
    ],
)  # fmt: skip
def test_relevance_of_each_form_is_read(
    fields: dict[str, Any],
    grades: tuple[float, ...],
    gold: int | None,
    accepted: tuple[str, ...],
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "rows.jsonl", json.dumps({"query": WHO, **fields}))
    (example,) = read_examples(path, task="ranking")
    assert (example.grades, example.gold_index, example.accepted) == (grades, gold, accepted)
    (plain,) = read_examples(path)
    assert plain.grades == () and plain.accepted == tuple(plain.answers)


@pytest.mark.parametrize("relevance", [[1], [1, 0, 0, 0], [1, "x", 0], [1, None, float("inf")]])
def test_invalid_relevance_is_rejected(relevance: list[Any], tmp_path: Path) -> None:
    row = {"query": WHO, "documents": KEYS, "relevance": relevance}
    with pytest.raises(InputError, match="relevance"):
        read_examples(write(tmp_path / "rows.jsonl", json.dumps(row)), task="ranking")


@pytest.mark.parametrize(
    ("name", "content"),
    [("run.trec", None), ("run2.trec", RUN), ("queries.jsonl", None), ("run.trec", RUN.replace("d1", "d7")),
     ("run.trec", RUN.replace("q1", "q7")), ("run.trec", "q1 d1\n"), ("run.trec", RUN.replace(" 2 ", " x ")),
     ("corpus.jsonl", "{"), ("corpus.jsonl", "[1]"), ("corpus.jsonl", '{"text": "no id"}')],
)  # fmt: skip
def test_unusable_corpus_is_rejected_with_its_folder(name: str, content: str | None, tmp_path: Path) -> None:
    files = FOLDERS["BEIR"] | ({} if content is None else {name: content})
    folder = put_folder(tmp_path / "beir", {key: files[key] for key in files if content or key != name})
    with pytest.raises(InputError, match="beir"):
        read_examples(folder)
