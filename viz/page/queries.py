"""Queries of a finished run: the last token of each document, and the tokens after the documents."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from viz.drawing.text import shorten, visible_text
from viz.page.answers.run import Run
from viz.page.traced_run import run_documents

Aspect = Literal["document", "suffix"]


@dataclass(frozen=True)
class Query:
    """Selected query: the last token of a document, or a suffix token (including the answer).

    Written as "document 2" (slot, from 0) or "suffix 17" (offset in the suffix).
    """

    kind: Aspect
    index: int

    @classmethod
    def parse(cls, text: object) -> "Query | None":
        """Return the query of that name; None for an invalid name."""
        kind, _, number = text.partition(" ") if isinstance(text, str) else ("", "", "")
        if kind not in get_args(Aspect) or not number.isdecimal() or len(number) > 6:
            return None
        return cls("document" if kind == "document" else "suffix", int(number))

    def __str__(self) -> str:
        return f"{self.kind} {self.index}"


def num_suffix_queries(run: Run, method: str) -> int:
    """Return the number of suffix tokens of a method that were queries, including those of its answer."""
    return int(run.result.traces[method].suffix_starts.shape[2])


def has_query(run: Run, method: str, query: Query) -> bool:
    """Check whether the run has that query under a method."""
    return query.index < (len(run.order) if query.kind == "document" else num_suffix_queries(run, method))


def traced_answer(run: Run, method: str) -> tuple[str, ...]:
    """Return the answer tokens of the method that its trace covers."""
    count = num_suffix_queries(run, method) - run.result.layout.suffix_length + 1
    return run.answer_records[method].tokens[:count]


def query_of_step(run: Run, step: int) -> Query:
    """Return the query that generates an answer token, from 0: the token before it."""
    return Query("suffix", run.result.layout.suffix_length - 1 + step)


def step_of(run: Run, query: Query) -> int | None:
    """Return the answer token that a query generates, from 0; None if it generates none."""
    step = query.index - (run.result.layout.suffix_length - 1)
    return step if query.kind == "suffix" and step >= 0 else None


def token_of(run: Run, query: Query) -> int:
    """Return the index of the token of a query in prompt and answer."""
    layout = run.result.layout
    if query.kind == "suffix":
        return layout.documents_end + query.index
    return int(layout.document_starts[query.index] + layout.lengths[query.index]) - 1


def query_at(run: Run, token: int, method: str) -> Query | None:
    """Return the query of a token: its document or itself; None if the method has no such query."""
    layout = run.result.layout
    if token < layout.prefix_length:
        return None
    if token < layout.documents_end:
        return Query("document", int(np.searchsorted(layout.document_starts, token, side="right")) - 1)
    query = Query("suffix", token - layout.documents_end)
    return query if has_query(run, method, query) else None


def query_choices(run: Run, method: str) -> list[tuple[str, str]]:
    """Return (label, value) of every query of a method: documents, question tokens, answer tokens.

    The query of an answer token is the token before it, which generates it.
    """
    choices = [
        (f"Document {segment.label}" + (f": {title}" if title else ""), str(Query("document", slot)))
        for slot, (segment, title) in enumerate(zip(run_documents(run), run.titles, strict=True))
    ]
    layout, answer = run.result.layout, traced_answer(run, method)
    question = run.prompt_tokens[layout.documents_end :]
    for index in range(num_suffix_queries(run, method)):
        query = Query("suffix", index)
        step = step_of(run, query)
        if step is None:
            label = f"Question token {index + 1}: {_visible(question[index])}"
        elif step < len(answer):
            label = f"Answer token {step + 1}: {_visible(answer[step])}"
        else:
            label = "End of the answer"
        choices.append((label, str(query)))
    return choices


def _visible(text: str) -> str:
    """Return the text with visible blanks, at most 12 characters."""
    return shorten(visible_text(text), 12)
