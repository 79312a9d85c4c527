"""JSON files that are one value with several rows: SQuAD, rows by id, replies to several queries."""

from collections.abc import Iterator, Mapping
from typing import Any

from pine_engine.rows.hits import find_hits
from pine_engine.rows.published import has_documents


def rows_of_file(content: Any) -> list[Any] | None:
    """Return the rows in the content of a JSON file, None if the content is one row or a plain list."""
    if isinstance(content, list):  # documents of LangChain with their scores are one row
        pairs = [one for one in content if isinstance(one, list) and len(one) == 2]
        is_row = all(isinstance(one[0], Mapping) and isinstance(one[1], int | float) for one in pairs)
        return [content] if pairs and len(pairs) == len(content) and is_row else None
    if not isinstance(content, Mapping) or not content:
        return None
    if rows := list(_squad_rows(content)):
        return rows
    if (hits := find_hits(content)) and len(hits.queries) > 1:
        return [{"documents": query} for query in hits.queries]
    if all(map(has_documents, content.values())):  # of Pyserini, for DPR
        return [{"id": name, **row} for name, row in content.items()]
    return None


def _squad_rows(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row for each question of the articles of SQuAD, none for other content."""
    for article in _objects(content.get("data")):
        for paragraph in _objects(article.get("paragraphs")):
            shared = {"title": article.get("title", ""), "context": paragraph.get("context")}
            for question in _objects(paragraph.get("qas")):
                answers = (answer.get("text") for answer in _objects(question.get("answers")))
                texts = list(dict.fromkeys(text for text in answers if isinstance(text, str)))
                yield {**question, **shared, "answers": texts}


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
