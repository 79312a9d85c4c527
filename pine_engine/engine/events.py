"""Events and results of a run: frozen records without torch, and their JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pine_engine.attention.trace import Trace
from pine_engine.optional_packages import import_extra
from pine_engine.prompts.layout import TokenLayout
from pine_engine.reprs import html_table, plot, short_repr, shorten
from pine_engine.rows.documents import Document

if TYPE_CHECKING:  # this module loads without torch
    from pandas import DataFrame
    from torch import Tensor


@dataclass(frozen=True)
class PrefillProgress:
    """Start of a layer in the prefill of one method; layers_done counts the layers before it.

    Within a long layer, further events have the share of the layer that is done. Methods with several forward
    passes begin with the first layer again. In several document orders, events have the index of their order;
    those of a batch of orders have that of the first.
    """

    method: str
    layers_done: int
    num_layers: int
    layer_share: float = 0.0  # at least 0, below 1
    pass_number: int = 1
    order: int = 0

    @property
    def share(self) -> float:
        """Share of the pass that is done, below 1."""
        return (self.layers_done + self.layer_share) / self.num_layers

    @property
    def place(self) -> str:
        """Current layer, with the pass from the second one on: "pass 2, layer 4 of 30, 50%"."""
        number = f"pass {self.pass_number}, " if self.pass_number > 1 else ""
        share = f", {self.layer_share:.0%}" if self.layer_share else ""
        return f"{number}layer {self.layers_done + 1} of {self.num_layers}{share}"


@dataclass(frozen=True)
class PrefillDone:
    """End of the prefill of one method."""

    method: str
    seconds: float
    order: int = 0


@dataclass(frozen=True)
class TokenGenerated:
    """One more token of an answer; text and thinking are the whole ones up to this token."""

    method: str
    step: int
    token_id: int
    text: str
    thinking: str = ""
    order: int = 0


@dataclass(frozen=True)
class Answer:
    """Finished answer of one method.

    A server returns its text without token ids, log-probabilities and times of passes, but with the fields
    from `seconds` on.
    """

    method: str
    text: str  # without the thinking part
    token_ids: tuple[int, ...]  # without the end-of-sequence token
    logprobs: tuple[float, ...]  # in nats
    prefill_s: float
    decode_s_per_token: float  # of a step, which all methods of a run share; in a shuffle, of one order
    finish_reason: str  # "stop" at the end-of-sequence token, "length" at the limit of tokens
    thinking: str = ""
    is_finished: bool = True  # False if the tokens end inside the thinking part: the text is then empty
    seconds: float | None = field(default=None, repr=False)  # of the request; None without a server
    usage: tuple[int, int] = field(default=(0, 0), repr=False)  # tokens of prompt and answer, by the server
    refusal: str = field(default="", repr=False)  # reason of a server that refuses to answer, in its words
    decode_s: float = field(
        default=0.0, repr=False
    )  # its share of the time of all its steps; 0 with a server

    __repr__ = short_repr

    @property
    def content(self) -> str | tuple[int, ...]:
        """Part of the answer that is compared: the tokens, or the text after a thinking part."""
        has_only_text = self.seconds is not None or (self.thinking and self.is_finished)
        return self.text if has_only_text else self.token_ids

    @property
    def num_tokens(self) -> int:
        """Number of tokens."""
        return len(self.token_ids) if self.seconds is None else self.usage[1]

    @property
    def num_prompt_tokens(self) -> int | None:
        """Number of prompt tokens, as a server counts them; None if PrefillDone reports the prefill."""
        return None if self.seconds is None else self.usage[0]

    @property
    def times(self) -> dict[str, float]:
        """Measured times in seconds, by name."""
        if self.seconds is not None:
            return {"seconds": self.seconds}
        return {"prefill_s": self.prefill_s, "decode_s_per_token": self.decode_s_per_token}

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON: text, number of tokens, and times in seconds; or the refusal.

        An answer with a thinking part has this too, and whether the tokens go beyond it.
        """
        if self.refusal:
            return {"method": self.method, "text": None, "error": self.refusal}
        known = {"method": self.method, "text": self.text, "tokens": self.num_tokens, **self.times}
        known |= {"thinking": self.thinking} if self.thinking else {}
        return known | ({"is_finished": self.is_finished} if self.thinking or not self.is_finished else {})

    def _repr_html_(self) -> str:
        return _answers_table([self])


@dataclass(frozen=True)
class GenerationFinished:
    """End of the answer of one method; other methods may continue."""

    answer: Answer
    order: int = 0


@dataclass(frozen=True)
class RequestsPlanned:
    """First event of a run on a server: the number of its requests, and their size in a sentence."""

    num_requests: int  # without repetitions
    sentence: str


@dataclass(frozen=True)
class RequestProgress:
    """Number of requests that have a reply, from time to time."""

    num_replies: int
    num_requests: int

    @property
    def place(self) -> str:
        """Progress in words."""
        return f"{self.num_replies} of {self.num_requests} prompts answered"


@dataclass(frozen=True)
class Repeated:
    """Second answer of a server to the first request of a run, compared with its first answer."""

    method: str
    is_equal: bool


@dataclass(frozen=True)
class RunResult:
    """Result of a run: answers, and traces and logits if requested, by method.

    Attributes:
        layout: Tokenized prompt.
        answers: Answer of each method.
        traces: Trace of each method, if requested.
        logits: Logits of each method, if requested: float32 on the CPU, (T + steps, V), of the suffix and of
            the decoding steps.
        documents: Documents of the request, with their metadata; empty for a prompt.
    """

    layout: TokenLayout
    answers: dict[str, Answer]
    traces: dict[str, Trace]
    logits: "dict[str, Tensor]" = field(default_factory=dict)
    documents: tuple[Document, ...] = ()

    @property
    def answered(self) -> list[str]:
        """Names of the methods whose answers have tokens."""
        return [method for method, answer in self.answers.items() if answer.token_ids]

    def to_dict(self) -> dict[str, Any]:
        """Return the answers as JSON, see `Answer.to_dict`."""
        return {"results": [answer.to_dict() for answer in self.answers.values()]}

    def to_frame(self) -> "DataFrame":
        """Return the entries of `to_dict` as a pandas DataFrame, one row per method.

        Raises:
            InputError: pandas is not installed.
        """
        return to_frame(self.to_dict()["results"])

    def show(self) -> None:
        """Open a figure of the attention masks of the methods, in a notebook or in the browser."""
        plot("plot_masks", self).show()

    def __repr__(self) -> str:
        answers = (f"{method}={shorten(answer.text)}" for method, answer in self.answers.items())
        return f"RunResult({', '.join(answers)})"

    def _repr_html_(self) -> str:
        return _answers_table(self.answers.values())


@dataclass(frozen=True)
class RunFinished:
    """Last event of a run that was not stopped."""

    result: RunResult


Event = (
    PrefillProgress
    | PrefillDone
    | TokenGenerated
    | RequestsPlanned
    | RequestProgress
    | Repeated
    | GenerationFinished
    | RunFinished
)
"""Event of a run. Those of requests come from a server, which has no progress within an answer."""


def _answers_table(answers: Iterable[Answer]) -> str:
    return html_table(
        ("method", "answer", "tokens", "ended by"),
        ((answer.method, answer.text, len(answer.token_ids), answer.finish_reason) for answer in answers),
    )


def to_frame(rows: Iterable[Mapping[str, Any]]) -> "DataFrame":
    """Return rows as a pandas DataFrame; raise InputError if pandas is not installed."""
    return import_extra("pandas", "pandas").DataFrame(list(rows))


def trace_report(result: RunResult) -> dict[str, Any]:
    """Return as JSON the attention of the last prompt token, which determines the first answer token.

    Lists are by layer, query head and document; methods with equal positions everywhere have one of each.
    """
    layout, last = result.layout, result.layout.suffix_length - 1

    def at_last(values: NDArray[np.float32] | None) -> list[Any] | None:
        return None if values is None else values[:, :, last].tolist()

    return {
        "prefix_tokens": layout.prefix_length,
        "document_tokens": layout.lengths.tolist(),
        "suffix_tokens": layout.suffix_length,
        "results": [
            {
                "method": method,
                "text": result.answers[method].text,
                "starts": trace.suffix_starts[:, :, last].tolist(),
                "importance": at_last(trace.suffix_importance),
                "attention": at_last(trace.suffix_attention),
            }
            for method, trace in result.traces.items()
        ],
    }
