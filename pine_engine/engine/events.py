"""What a run tells while it works, and what it leaves: plain frozen records."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pine_engine.attention.trace import Trace
from pine_engine.prompts.layout import TokenLayout
from pine_engine.shown import html_table, in_short, short_repr

if TYPE_CHECKING:  # a record, which those read who compute nothing
    from torch import Tensor


@dataclass(frozen=True)
class PrefillProgress:
    """One more layer of the prompt has been read; a run reports these in order."""

    method: str
    layers_done: int
    num_layers: int


@dataclass(frozen=True)
class PrefillDone:
    """The prompt has been read by one method."""

    method: str
    seconds: float


@dataclass(frozen=True)
class TokenDecoded:
    """One more token of an answer; text is the whole answer so far."""

    method: str
    step: int
    token_id: int
    text: str


@dataclass(frozen=True)
class Answer:
    """One method's finished answer.

    token_ids: without the end-of-turn token. prefill_s: seconds to read the prompt.
    decode_s_per_token: seconds per decoding step, which all methods of a run share; 0 if none was made. Of
    runs that are written together, as the orders of a shuffle are, its share of a step.
    finish_reason: "stop" at the end of the turn, "length" at the token limit.
    logprobs: log-probability in nats of each token of token_ids.
    """

    method: str
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    prefill_s: float
    decode_s_per_token: float
    finish_reason: str

    __repr__ = short_repr

    def _repr_html_(self) -> str:
        return _answers_table([self])


@dataclass(frozen=True)
class AnswerDone:
    """One method has finished its answer; others may go on."""

    answer: Answer


@dataclass(frozen=True)
class RunResult:
    """Everything a run leaves behind, answers and traces by method name.

    logits: float32 on the CPU, kept only if asked for: (T + steps, V), the rows of the prompt's suffix
        followed by those of the decoding steps.
    """

    layout: TokenLayout
    answers: dict[str, Answer]
    traces: dict[str, Trace]
    logits: "dict[str, Tensor]" = field(default_factory=dict)

    def __repr__(self) -> str:
        answers = (f"{method}={in_short(answer.text)}" for method, answer in self.answers.items())
        return f"RunResult({', '.join(answers)})"

    def _repr_html_(self) -> str:
        return _answers_table(self.answers.values())


@dataclass(frozen=True)
class RunDone:
    """The last event of a run that was not stopped."""

    result: RunResult


Event = PrefillProgress | PrefillDone | TokenDecoded | AnswerDone | RunDone


def _answers_table(answers: Iterable[Answer]) -> str:
    return html_table(
        ("method", "answer", "tokens", "ended by"),
        ((answer.method, answer.text, len(answer.token_ids), answer.finish_reason) for answer in answers),
    )
