"""Folders with a corpus, queries and a run (BEIR, Pyserini): the documents that were found for each query."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pine_engine.errors import InputError
from pine_engine.rows.document_keys import flat_keys

NUM_HITS = 10
"""Documents of a row: the first ones of the run."""

_PATTERNS = {
    "corpus": ("corpus*.jsonl", "collection*.jsonl"),
    "queries": ("queries*.jsonl", "queries*.tsv", "topics*.tsv"),
    "run": ("run*.t*", "*.trec", "*.run"),
    "qrels": ("qrels/*.tsv", "qrels*.t*"),
}


def is_retrieval_folder(folder: Path) -> bool:
    """Check whether a folder has a corpus."""
    return bool(_find(folder, "corpus"))


def read_retrieval_folder(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each query of the run, of TREC or MS MARCO, with the relevance that the qrels state.

    Only one relevant document is the gold one.

    Raises InputError for a missing file, query or document, and ValueError for other content.
    """
    for kind in ("queries", "run"):
        if len(names := [path.name for path in _find(folder, kind)]) != 1:
            expected = f"got {', '.join(names) or 'none'}, expected one {kind} file ({_PATTERNS[kind][0]})"
            message = f"{folder} has a corpus of BEIR or Pyserini, and not all else: {expected}"
            raise InputError(message, field=str(folder))
    run: dict[str, list[tuple[int, str]]] = {}
    for parts in _split_lines(folder, "run"):
        query, document, rank = (parts[0], *parts[2:4]) if len(parts) == 6 else parts
        run.setdefault(query, []).append((int(rank), document))
    found = {query: [document for _, document in sorted(hits)[:NUM_HITS]] for query, hits in run.items()}
    qrels = (parts for parts in _split_lines(folder, "qrels") if parts[-1].isdecimal() and int(parts[-1]))
    relevant = {(parts[0], parts[-2]): int(parts[-1]) for parts in qrels}
    queries = {query["id"]: query for query in _read(folder, "queries")}
    needed = {document for documents in found.values() for document in documents}
    corpus = {document["id"]: document for document in _read(folder, "corpus") if document["id"] in needed}
    for kind, missing in (("queries", found.keys() - queries), ("corpus", needed - corpus.keys())):
        if missing:
            message = f"{folder}: the run names {min(missing)!r:.60}, which is not in the {kind}"
            raise InputError(f"{message}; give the run of these files", field=kind)
    for query, documents in found.items():
        grades = [relevant.get((query, document), 0) for document in documents]
        gold = {"relevance": grades} if any(grades) else {}
        fields = {"question": queries[query]["text"], "documents": list(map(corpus.__getitem__, documents))}
        yield {**queries[query], **fields, **gold}


def _find(folder: Path, kind: str) -> list[Path]:
    return sorted({path for pattern in _PATTERNS[kind] for path in folder.glob(pattern)})


def _read(folder: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield queries or documents with id and text."""
    for path in _find(folder, kind):
        for line in _lines(path):
            if path.suffix == ".tsv":
                name, _, text = line.partition("\t")
                yield {"id": name, "text": text}
                continue
            content = json.loads(line)
            fields = flat_keys(content if isinstance(content, dict) else {})
            if "text" not in fields or not {"id", "_id"} & fields.keys():
                raise ValueError(f"{path.name} has an object without id or text")
            yield {**fields, "id": str(fields.pop("_id", fields.get("id")))}


def _split_lines(folder: Path, kind: str) -> Iterator[list[str]]:
    for path in _find(folder, kind):
        yield from (line.split() for line in _lines(path) if not line.startswith("query-id"))


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        yield from (line.strip() for line in file if line.strip())
