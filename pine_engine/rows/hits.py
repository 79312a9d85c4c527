"""Hits in replies of search services, and rows of FlagEmbedding and KILT, as fields of a data row."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, NamedTuple

from pine_engine.rows.document_keys import flat_keys, value_at
from pine_engine.rows.parse_errors import Problem, ValidationErrors, name_keys

CHROMA = "Chroma"
SERVICES = {
    "Bedrock": (("retrievalResults",), {"content", "location"}, "keep `content`"),
    "OpenAI": (("data", "results"), {"file_id"}, 'give include=["file_search_call.results"]'),
    "Elasticsearch": (("hits.hits", "hits"), {"_index", "_source"}, "return `_source`"),
    "Qdrant": (("points", "result.points", "result"), {"payload", "version"}, "give with_payload"),
    "Milvus": (("data", "results", "hits"), {"distance", "entity"}, "give output_fields"),
    "Cohere": (("results",), {"relevance_score"}, "give return_documents, or add each `document`"),
    "RankLLM": (("candidates", "hits"), {"docid"}, "add `content`, or `doc` with it"),
    CHROMA: ((), set[str](), 'give include=["documents"]'),
}
"""Places of the hits in a reply, keys of which each hit has one, and the request that returns texts."""

_CHROMA_KEYS = {"ids": "id", "documents": "text", "metadatas": "metadata", "distances": "distance"}


class Hits(NamedTuple):
    """Hits of a service for each of its queries, and the question, None if the reply has none."""

    service: str
    queries: list[Any]
    question: Any = None

    def documents(self) -> list[Any]:
        """Return the documents of the one query. Raises ValidationErrors for several, or without text."""
        problem = "" if len(self.queries) == 1 else f"hits of {len(self.queries)} queries; give a .json file"
        for number, hit in enumerate([] if problem else self.queries[0], start=1):
            if "text" not in (flat_keys(hit) if isinstance(hit, Mapping) else ()):
                advice = f"{SERVICES[self.service][2]}, or name its key: --column text=KEY"
                problem = problem or f"hit {number} has no text, got {name_keys(hit)}; {advice}"
        if problem:
            raise ValidationErrors([Problem(f"documents: {self.service}: {problem}", "documents")])
        return list(self.queries[0])


def find_hits(row: Mapping[str, Any]) -> Hits | None:
    """Return the hits of a reply, or of a reply in a field of a row; None for another row."""
    return next(filter(None, map(_hits_of, _replies(row))), None)


def _replies(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield objects that may be replies: the row, its fields, and searches in a response of OpenAI."""
    output = row.get("output")
    searches = output if isinstance(output, list) else []
    yield from (one for one in (row, *row.values(), *searches) if isinstance(one, Mapping))


def _hits_of(reply: Mapping[str, Any]) -> Hits | None:
    if isinstance(reply.get("ids"), list) and not reply.keys().isdisjoint(("documents", "distances")):
        return Hits(CHROMA, _chroma_queries(reply))
    for service, (places, marks, _) in SERVICES.items():
        for place in places:
            hits = value_at(reply, place)
            if not isinstance(hits, list) or not hits:
                continue
            queries = hits if isinstance(hits[0], list) else [hits]
            if queries[0] and isinstance(queries[0][0], Mapping) and not marks.isdisjoint(queries[0][0]):
                question = reply.get("search_query", reply.get("queries"))  # OpenAI
                is_one = isinstance(question, list) and len(question) == 1
                return Hits(service, queries, question[0] if is_one else question)
    return None


def _chroma_queries(reply: Mapping[str, Any]) -> list[Any]:
    """Return the columns of Chroma as hits: of each query, or all of `get`, which has no queries."""
    columns = {key: reply[name] for name, key in _CHROMA_KEYS.items() if isinstance(reply.get(name), list)}
    is_query = bool(reply["ids"]) and isinstance(reply["ids"][0], list)
    queries = zip(*columns.values(), strict=False) if is_query else [tuple(columns.values())]
    return [
        [dict(zip(columns, hit, strict=True)) for hit in zip_longest(*lists)]
        for lists in queries
        if all(isinstance(one, list) for one in lists)
    ]


def retrieval_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row of FlagEmbedding or KILT, none of another row.

    FlagEmbedding has texts that answer the query, then others. KILT has texts in outputs of retrievers only.
    """
    positive, negative = row.get("pos"), row.get("neg")
    is_labeled = "query" in row and "documents" not in row
    if is_labeled and isinstance(positive, list) and isinstance(negative, list):
        return {"documents": [*positive, *negative], "relevance": [1] * len(positive) + [0] * len(negative)}
    if not is_kilt(row):
        return {}
    lists = [one["provenance"] for one in row["output"] if isinstance(one.get("provenance"), list)]
    texts = [source for one in lists for source in one if isinstance(source, Mapping) and "text" in source]
    answers = (one.get("answer") for one in row["output"])
    accepted = list(dict.fromkeys(one for one in answers if one and isinstance(one, str)))
    return {"answers": accepted, **({"documents": texts} if texts else {})}


def is_kilt(row: Mapping[str, Any]) -> bool:
    """Check whether a row has the input and the outputs of KILT."""
    output = row.get("output")
    if "input" not in row or not isinstance(output, list) or not output:
        return False
    return all(isinstance(one, Mapping) and not one.get("type") for one in output)
