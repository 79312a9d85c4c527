"""A finished run for the figures: documents, tokens, plans and queries, without the model."""

from dataclasses import dataclass

import numpy as np

from pine_engine.attention.trace import Trace
from pine_engine.methods.plan import AttentionPlan, build_plan
from pine_engine.methods.table import METHODS
from viz.drawing.identity import DECODED, PREFIX, SUFFIX, Segment, document_segment, legend
from viz.drawing.text import shorten, visible_text
from viz.figures.head_decisiveness import decisiveness, most_decisive
from viz.page.answers.answering import FinishedRun
from viz.page.common.failures import notice
from viz.page.inside.selection import Bounds, Query, Selection


@dataclass(frozen=True)
class Token:
    """Token of the prompt or the answer; `offset` is the number of tokens from the start of the segment."""

    text: str
    segment: Segment
    offset: int

    @property
    def label(self) -> str:
        """Return the text with visible blanks, at most 12 characters."""
        return shorten(visible_text(self.text), 12)


def bounds_of(run: FinishedRun) -> Bounds:
    """Return the bounds of the selection in this run."""
    layers, heads = layers_and_heads(run)
    return Bounds(tuple(run.result.traces), layers, heads, len(run.order), longest_suffix(run))


def longest_suffix(run: FinishedRun) -> int:
    """Return the largest number of suffix tokens of any method, including its answer."""
    return max(int(trace.suffix_starts.shape[2]) for trace in run.result.traces.values())


def run_documents(run: FinishedRun) -> tuple[Segment, ...]:
    """Return the documents of the run in input order."""
    return tuple(document_segment(identity, slot) for slot, identity in enumerate(run.order))


def prompt_tokens(run: FinishedRun) -> list[Token]:
    """Return all tokens of the prompt, in input order."""
    layout = run.result.layout
    lengths = [layout.prefix_length, *layout.lengths.tolist(), layout.suffix_length]
    segments = [PREFIX, *run_documents(run), SUFFIX]
    places = [
        (segment, offset)
        for segment, length in zip(segments, lengths, strict=True)
        for offset in range(length)
    ]
    return [
        Token(text, segment, offset)
        for text, (segment, offset) in zip(run.prompt_tokens, places, strict=True)
    ]


def suffix_tokens(run: FinishedRun, method: str) -> list[Token]:
    """Return the traced suffix tokens of a method: those of the prompt, then those of its answer."""
    count = run.result.traces[method].suffix_starts.shape[2]
    question = prompt_tokens(run)[run.result.layout.documents_end :]
    answer = [Token(text, DECODED, offset) for offset, text in enumerate(run.answer_tokens[method])]
    return (question + answer)[:count]


def query_choices(run: FinishedRun) -> list[tuple[str, str]]:
    """Return (label, value) of every query: documents, question tokens, answer tokens."""
    documents = [
        (f"Document {segment.label}" + (f" · {title}" if title else ""), str(Query("document", slot)))
        for slot, (segment, title) in enumerate(zip(run_documents(run), run.titles, strict=True))
    ]
    first = run.result.layout.documents_end
    question = [
        (f"Suffix token {token.offset + 1} · {token.label}", str(Query("suffix", token.offset)))
        for token in prompt_tokens(run)[first:]
    ]
    answers = [
        (f"Answer token {index - len(question) + 1}", str(Query("suffix", index)))
        for index in range(len(question), longest_suffix(run))
    ]
    return documents + question + answers


def turned(run: FinishedRun, query: Query, step: int) -> tuple[str, Query]:
    """Return label and query `step` places (-1 or 1) further in the list, within its ends."""
    choices = query_choices(run)
    place = [value for _, value in choices].index(str(query)) + step
    label, value = choices[min(max(place, 0), len(choices) - 1)]
    found = Query.parse(value)
    assert found is not None
    return label, found


def first_selection(run: FinishedRun) -> Selection:
    """Return the initial selection: the first word of the answer, the most decisive layer and head."""
    ranked = ranked_trace(run)
    layer, head = (0, 0) if ranked is None else most_decisive(decisiveness(ranked))
    method = ranked.method if ranked else next(iter(run.result.traces))
    return Selection(method, first_word(run, method), layer, head)


def first_word(run: FinishedRun, method: str) -> Query:
    """Return the first answer token with a letter or digit; the last prompt token if none was traced."""
    tokens = suffix_tokens(run, method)
    words = (index for index, token in enumerate(tokens) if token.segment == DECODED and is_word(token.text))
    return Query("suffix", next(words, run.result.layout.suffix_length - 1))


def is_word(text: str) -> bool:
    """Check whether the text has a letter or a digit."""
    return any(sign.isalnum() for sign in text)


def token_of(run: FinishedRun, query: Query) -> int:
    """Return the index of the token of a query in prompt and answer."""
    layout = run.result.layout
    if query.kind == "suffix":
        return layout.documents_end + query.index
    return int(layout.document_starts[query.index] + layout.lengths[query.index]) - 1


def query_at(run: FinishedRun, token: int) -> Query | None:
    """Return the query of a token: its document or itself; None if there is no such query."""
    layout = run.result.layout
    if token >= layout.documents_end:
        index = token - layout.documents_end
        return Query("suffix", index) if index < longest_suffix(run) else None
    if token < layout.prefix_length:
        return None
    return Query("document", int(np.searchsorted(layout.document_starts, token, side="right")) - 1)


def query_of_step(run: FinishedRun, step: int) -> Query:
    """Return the query that generates an answer token, from 0: the token before it."""
    return Query("suffix", run.result.layout.suffix_length - 1 + step)


def step_of(run: FinishedRun, query: Query) -> int | None:
    """Return the answer token that a query generates, from 0; None if it generates none."""
    step = query.index - (run.result.layout.suffix_length - 1)
    return step if query.kind == "suffix" and step >= 0 else None


def ranked_trace(run: FinishedRun, method: str = "") -> Trace | None:
    """Return the trace of the method if it ranks documents, else the first that does; None if none does."""
    traces = [trace for trace in run.result.traces.values() if trace.suffix_importance is not None]
    return next((trace for trace in traces if trace.method == method), traces[0] if traces else None)


def layers_and_heads(run: FinishedRun) -> tuple[int, int]:
    """Return the number of layers and of heads."""
    attention = next(iter(run.result.traces.values())).suffix_attention
    assert attention is not None
    return attention.shape[0], attention.shape[1]


def summary_html(run: FinishedRun) -> str:
    """Render the run: its origin, and the documents in its order."""
    titles = [title or segment.name for segment, title in zip(run_documents(run), run.titles, strict=True)]
    layout = run.result.layout
    tokens = f"{layout.num_tokens:,} prompt tokens"
    live = f"The last run: {tokens}, {run.model}, {run.dtype}."
    sentence = f"{run.recorded}: {tokens}." if run.recorded else live
    content = legend(run_documents(run), titles) + notice(sentence, kind="count")
    return f'<div class="page-summary">{content}</div>'


def plan_of(run: FinishedRun, method: str) -> AttentionPlan:
    """Return the attention plan of the method for the prompt of the run."""
    return build_plan(METHODS[method], run.result.layout)
