"""Replies of a server, read from the completions of the OpenAI API."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pine_engine.endpoint.failures import RefusalError, provider_words
from pine_engine.engine.events import Answer
from pine_engine.errors import one_line
from pine_engine.prompts.thinking import NOTHING_GENERATED, THINKING_MARKERS, SplitAnswer, split_thinking

MAX_TEXT = 2**20
"""Maximum number of characters of an answer, and of its thinking part. Parsing takes time in proportion."""

MAX_COUNT = 10**9  # of tokens
ROUNDING = 1e-6  # by which the log-probability of a certain token may exceed 0

_UNREADABLE = (AttributeError, LookupError, RecursionError, TypeError, ValueError)


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
        error: Reason why there is no answer, such as that of a filter, in the words of the provider.
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

    def answer(self, method: str) -> Answer:
        """Return the answer under a method."""
        return Answer(
            method,
            self.found.text,
            token_ids=(),
            logprobs=(),
            prefill_s=math.nan,
            decode_s_per_token=math.nan,
            finish_reason="length" if self.finish_reason == "length" else "stop",
            thinking=self.found.thinking,
            is_finished=self.found.is_finished,
            seconds=self.seconds,
            usage=(self.num_prompt_tokens, self.num_tokens),
            refusal=self.error,
        )


def parse_completion(body: bytes) -> Reply:
    """Return the reply in the JSON of a completion, of a chat or of a text.

    Raises:
        RefusalError: The body states an error, has an answer that a filter has ended, or is no completion.
    """
    try:
        return _read(json.loads(body, parse_constant=_refuse_constant))
    except _UNREADABLE as error:
        advice = "check the address, which usually ends with /v1"
        raise RefusalError(
            f"the server does not answer as the OpenAI API does ({one_line(error)}); {advice}"
        ) from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _read(completion: Any) -> Reply:
    """Return the reply of a parsed completion. Raises _UNREADABLE for other content."""
    if not isinstance(completion, dict):
        raise TypeError(f"a completion is no {type(completion).__name__}")
    if completion.get("error") and not completion.get("choices"):
        raise RefusalError(f"refused: {provider_words(completion['error'])}")
    choice, usage = completion["choices"][0], completion.get("usage") or {}
    message = choice.get("message", choice)
    text = message.get("text" if message is choice else "content")
    finish_reason = choice.get("finish_reason")
    if problem := choice.get("error"):
        raise RefusalError(f"refused: {provider_words(problem)}")
    if finish_reason == "content_filter":
        begun = f", after {text[:100]!r}" if text else ""
        raise RefusalError(f"refused: a filter of the provider ended the answer (content_filter){begun}")
    if not text and (refusal := message.get("refusal")):
        raise RefusalError(f"refused by the model: {provider_words(refusal)}")
    return Reply(
        found=_split(message, _text("answer", text), finish_reason),
        finish_reason=str(finish_reason or ""),
        num_tokens=_count(usage.get("completion_tokens")),
        num_prompt_tokens=_count(usage.get("prompt_tokens")),
        first_logprobs=_first_logprobs(choice.get("logprobs")),
    )


def _text(name: str, value: Any) -> str:
    """Return a text of a message, "" for None, without surrogates, which cannot be stored."""
    text = "" if value is None else value
    if not isinstance(text, str):
        raise TypeError(f"the {name} is no text but {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise RefusalError(f"the {name} has {len(text):,} characters; at most {MAX_TEXT:,} are accepted")
    return text.encode(errors="replace").decode()


def _count(value: Any) -> int:
    """Return a number of tokens, 0 if the server states none."""
    return value if isinstance(value, int) and 0 < value <= MAX_COUNT else 0


def _split(message: Mapping[str, Any], text: str, finish_reason: Any) -> SplitAnswer:
    """Return the thinking part, which is a field of the message or between markers, and the answer."""
    if thinking := message.get("reasoning_content") or message.get("reasoning"):
        return SplitAnswer(_text("thinking part", thinking), text, bool(text) or finish_reason != "length")
    start = text.lstrip()
    marked = (each for each in THINKING_MARKERS if start.startswith(each.start) or each.end in text)
    found = split_thinking(text, next(marked, None))
    # Some models think without showing it: an empty answer at the limit of tokens was not begun.
    return found._replace(is_finished=found.is_finished and (bool(text) or finish_reason != "length"))


def _first_logprobs(logprobs: Any) -> dict[str, float] | None:
    """Return the likely first tokens, empty for an empty answer; None if the server returned none."""
    if not logprobs:
        return None
    if "content" not in logprobs:
        first = (logprobs.get("top_logprobs") or [{}])[0] or {}
        return {_text("token", token): _logprob(value) for token, value in dict(first).items()}
    firsts = [(token, *(token.get("top_logprobs") or ())) for token in (logprobs["content"] or ())[:1]]
    return {_text("token", one["token"]): _logprob(one["logprob"]) for tokens in firsts for one in tokens}


def _logprob(value: Any) -> float:
    """Return a log-probability. Raises ValueError for a number that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value <= ROUNDING:
        raise ValueError(f"invalid log-probability: got {value!r:.40}, expected a finite number of at most 0")
    return min(float(value), 0.0)
