"""Replies of a server, read from the completions of the OpenAI API."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pine_engine.engine.events import Answer
from pine_engine.prompts.thinking import NOTHING_GENERATED, THINKING_MARKERS, SplitAnswer, split_thinking

UNREADABLE = (AttributeError, IndexError, OverflowError, TypeError, ValueError)
"""Errors for content that is no completion, which the client does not check."""


@dataclass(frozen=True)
class Reply:
    """Answer of a server, or the reason why there is none.

    Attributes:
        found: Generated answer, and its thinking part.
        finish_reason: "stop" at the end of the answer, "length" at the limit of tokens.
        num_tokens: Number of tokens of the answer, as the server counts them.
        num_prompt_tokens: Number of tokens of the prompt, as the server counts them.
        seconds: Time from the request to the answer.
        first_logprobs: Log-probabilities of the likely first tokens, in nats, by their text; None if the
            server returned none.
        is_repeatable: True if the repeated request had the same answer; None if it was not repeated.
        error: Reason why there is no answer, such as a prompt that is too long.
    """

    found: SplitAnswer = NOTHING_GENERATED
    finish_reason: str = ""
    num_tokens: int = 0
    num_prompt_tokens: int = 0
    seconds: float = 0.0
    first_logprobs: dict[str, float] | None = None
    is_repeatable: bool | None = None
    error: str = ""
    logprobs: Sequence[float] = ()  # of the tokens, which are not requested

    def answer(self, method: str) -> "TextAnswer":
        """Return the answer under a method."""
        return TextAnswer(
            method,
            self.found.text,
            token_ids=(),
            logprobs=(),
            prefill_s=math.nan,
            decode_s_per_token=math.nan,
            finish_reason="length" if self.finish_reason == "length" else "stop",
            thinking=self.found.thinking,
            is_finished=self.found.is_finished,
            reply=self,
        )


@dataclass(frozen=True, repr=False)
class TextAnswer(Answer):
    """Answer of a server: its text, without token ids, log-probabilities and times of passes."""

    reply: Reply = Reply()

    @property
    def content(self) -> str:
        """Text of the answer, which is compared."""
        return self.text

    @property
    def num_tokens(self) -> int:
        """Number of tokens, as the server counts them."""
        return self.reply.num_tokens

    @property
    def times(self) -> dict[str, float]:
        """Seconds of the request."""
        return {"seconds": self.reply.seconds}


def read_completion(completion: Any) -> Reply:
    """Return the reply in a completion of a chat or of a text. Raises UNREADABLE for other content."""
    choice, usage = completion.choices[0], completion.usage
    is_chat = hasattr(choice, "message")
    message = choice.message if is_chat else choice
    text = (message.content if is_chat else message.text) or ""
    if not isinstance(text, str):
        raise TypeError(f"The text of a completion is {type(text).__name__}")
    return Reply(
        found=_split(message, text, choice.finish_reason),
        finish_reason=str(choice.finish_reason or ""),
        num_tokens=int(getattr(usage, "completion_tokens", None) or 0),
        num_prompt_tokens=int(getattr(usage, "prompt_tokens", None) or 0),
        first_logprobs=_first_logprobs(choice.logprobs),
    )


def _split(message: Any, text: str, finish_reason: str) -> SplitAnswer:
    """Return the thinking part, which is a field of the message or between markers, and the answer."""
    if thinking := getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None):
        return SplitAnswer(str(thinking), text, bool(text) or finish_reason != "length")
    start = text.lstrip()
    marked = (each for each in THINKING_MARKERS if start.startswith(each.start) or each.end in text)
    return split_thinking(text, next(marked, None))


def _first_logprobs(logprobs: Any) -> dict[str, float] | None:
    """Return the likely first tokens, empty for an empty answer; None if the server returned none."""
    if not logprobs:
        return None
    if not hasattr(logprobs, "content"):
        tops = dict((logprobs.top_logprobs or [{}])[0])
        return {str(token): float(logprob) for token, logprob in tops.items()}
    firsts = [(token, *token.top_logprobs) for token in (logprobs.content or ())[:1]]
    return {str(token.token): float(token.logprob) for tokens in firsts for token in tokens}
