"""A finished run as the pictures read it: documents, tokens, plans, what can be chosen, what is shown first.

Nothing is computed by the model.
"""

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
        """The text with visible blanks, at most 12 characters."""
        return shorten(visible_text(self.text), 12)


def bounds_of(run: FinishedRun) -> Bounds:
    """What can be chosen in this run."""
    layers, heads = layers_and_heads(run)
    return Bounds(tuple(run.result.traces), layers, heads, len(run.order), longest_suffix(run))


def longest_suffix(run: FinishedRun) -> int:
    """Most suffix tokens, answer tokens included, that any method of the run has seen."""
    return max(int(trace.suffix_starts.shape[2]) for trace in run.result.traces.values())


def run_documents(run: FinishedRun) -> tuple[Segment, ...]:
    """The documents of the run in input order."""
    return tuple(document_segment(identity, slot) for slot, identity in enumerate(run.order))


def prompt_tokens(run: FinishedRun) -> list[Token]:
    """All tokens of the prompt, in input order."""
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
    """The suffix tokens one method has a trace of: the prompt's, then those of its answer."""
    count = run.result.traces[method].suffix_starts.shape[2]
    question = prompt_tokens(run)[run.result.layout.documents_end :]
    answer = [Token(text, DECODED, offset) for offset, text in enumerate(run.answer_tokens[method])]
    return (question + answer)[:count]


def query_choices(run: FinishedRun) -> list[tuple[str, str]]:
    """(label, value) of every query of the run: documents, question tokens, answer tokens."""
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
    """Label and query that are `step` places (-1 or 1) behind this one in the list; itself at the ends."""
    choices = query_choices(run)
    place = [value for _, value in choices].index(str(query)) + step
    label, value = choices[min(max(place, 0), len(choices) - 1)]
    found = Query.parse(value)
    assert found is not None
    return label, found


def first_selection(run: FinishedRun) -> Selection:
    """What is shown first: the first word of the answer, and the most decisive layer and head."""
    ranked = ranked_trace(run)
    layer, head = (0, 0) if ranked is None else most_decisive(decisiveness(ranked))
    method = ranked.method if ranked else next(iter(run.result.traces))
    return Selection(method, first_word(run, method), layer, head)


def first_word(run: FinishedRun, method: str) -> Query:
    """The first token of a method's answer with a letter or digit; the prompt's last if none was traced."""
    tokens = suffix_tokens(run, method)
    words = (index for index, token in enumerate(tokens) if token.segment == DECODED and is_word(token.text))
    return Query("suffix", next(words, run.result.layout.suffix_length - 1))


def is_word(text: str) -> bool:
    """Whether there is a letter or a digit in it, so that it is no space, sign or line break."""
    return any(sign.isalnum() for sign in text)


def token_of(run: FinishedRun, query: Query) -> int:
    """Index of the query's token in the prompt and the answer after it."""
    layout = run.result.layout
    if query.kind == "suffix":
        return layout.documents_end + query.index
    return int(layout.document_starts[query.index] + layout.lengths[query.index]) - 1


def query_at(run: FinishedRun, token: int) -> Query | None:
    """The query that stands for a token: its document's, or itself; None where there is none."""
    layout = run.result.layout
    if token >= layout.documents_end:
        index = token - layout.documents_end
        return Query("suffix", index) if index < longest_suffix(run) else None
    if token < layout.prefix_length:
        return None
    return Query("document", int(np.searchsorted(layout.document_starts, token, side="right")) - 1)


def query_of_step(run: FinishedRun, step: int) -> Query:
    """The query that writes an answer token, from 0: the token before it."""
    return Query("suffix", run.result.layout.suffix_length - 1 + step)


def step_of(run: FinishedRun, query: Query) -> int | None:
    """The answer token that a query writes, from 0; None if it writes none."""
    step = query.index - (run.result.layout.suffix_length - 1)
    return step if query.kind == "suffix" and step >= 0 else None


def ranked_trace(run: FinishedRun, method: str = "") -> Trace | None:
    """The method's trace if it ranks documents, else the first one's that does; None if none does."""
    traces = [trace for trace in run.result.traces.values() if trace.suffix_importance is not None]
    return next((trace for trace in traces if trace.method == method), traces[0] if traces else None)


def layers_and_heads(run: FinishedRun) -> tuple[int, int]:
    """How many layers and heads the model has."""
    attention = next(iter(run.result.traces.values())).suffix_attention
    assert attention is not None
    return attention.shape[0], attention.shape[1]


def summary_html(run: FinishedRun) -> str:
    """HTML: which run is shown, with the documents in its order."""
    titles = [title or segment.name for segment, title in zip(run_documents(run), run.titles, strict=True)]
    layout = run.result.layout
    tokens = f"{layout.num_tokens:,} prompt tokens"
    live = f"The last run: {tokens}, {run.model}, {run.dtype}."
    sentence = f"{run.recorded}: {tokens}." if run.recorded else live
    said = legend(run_documents(run), titles) + notice(sentence, kind="count")
    return f'<div class="page-summary">{said}</div>'


def plan_of(run: FinishedRun, method: str) -> AttentionPlan:
    """The method's plan for the run's prompt."""
    return build_plan(METHODS[method], run.result.layout)
