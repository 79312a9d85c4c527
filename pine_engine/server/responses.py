"""Chat and text completions of the OpenAI API: complete ones and chunks of a stream."""

import codecs
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pine_engine.engine.engine import Engine
from pine_engine.engine.events import RunFinished, TokenGenerated
from pine_engine.prompts.thinking import THINKING_MARKERS
from pine_engine.server.jobs import JobEvent, ServerJob, TokenChoice

HELD_OF_THINKING = max(len(markers.end) for markers in THINKING_MARKERS)  # characters
DONE = "data: [DONE]\n\n"
PING = ": waiting\n\n"


def server_sent(content: dict[str, Any]) -> str:
    """Return a server-sent event."""
    return f"data: {json.dumps(content)}\n\n"


def _thinking(text: str) -> dict[str, str]:
    """Return the field of the thinking part, as other servers of reasoning models name it."""
    return {"reasoning_content": text} if text else {}


@dataclass(eq=False)
class ResponseText:
    """Text of an answer up to the first stop string, while its tokens arrive.

    Attributes:
        thinking: Thinking part that will not change: its end is held back, where the end marker may begin.
        text: Text that will not change: its end is held back while a stop string may begin there.
        num_tokens: Generated tokens, those of a stop string included.
        finish_reason: "stop" or "length" at the end, None before.
    """

    stops: Sequence[str]
    thinking: str = ""
    text: str = ""
    num_tokens: int = 0
    finish_reason: str | None = None

    def add(self, event: JobEvent) -> tuple[str, str]:
        """Take an event of the run, and return what is new of the thinking part and of the text."""
        if self.finish_reason or not isinstance(event, TokenGenerated | RunFinished):
            return "", ""
        held = max(map(len, self.stops), default=1) - 1
        if isinstance(event, RunFinished):
            (answer,) = event.result.answers.values()
            thinking = answer.thinking
            text, held, self.num_tokens = answer.text, 0, len(answer.token_ids)
            self.finish_reason = answer.finish_reason
        else:
            text, self.num_tokens = event.text, event.step + 1
            thinking = event.thinking if text else event.thinking[:-HELD_OF_THINKING]
        if found := [(place + len(stop), place) for stop in self.stops if (place := text.find(stop)) >= 0]:
            _, place = min(found)  # the string that is complete first, however the text is cut into tokens
            text, held, self.finish_reason = text[:place], 0, "stop"
        new_thinking, new = thinking[len(self.thinking) :], text[len(self.text) : len(text) - held]
        self.thinking += new_thinking
        self.text += new
        return new_thinking, new


@dataclass(eq=False)
class Reply:
    """Response to one request, as a whole or as the events of a stream."""

    engine: Engine
    job: ServerJob
    text: ResponseText
    is_chat: bool
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))
    _characters: codecs.IncrementalDecoder = field(
        default_factory=partial(codecs.getincrementaldecoder("utf-8"), "replace")
    )  # of the tokens whose offsets are taken
    _num_characters: int | None = None

    async def changes(self, events: AsyncIterator[JobEvent]) -> AsyncIterator[tuple[str, str] | None]:
        """Yield what is new of the thinking part and of the text after each event, None for a pause."""
        async for event in events:
            yield None if event is None else self.text.add(event)
            if self.text.finish_reason:
                break

    async def read(self, events: AsyncIterator[JobEvent]) -> dict[str, Any]:
        """Return the response to all events."""
        async for _ in self.changes(events):
            pass
        return self.completion()

    def completion(self) -> dict[str, Any]:
        """Return the response to the events so far."""
        thinking = _thinking(self.text.thinking)
        content = {"role": "assistant", "content": self.text.text, "refusal": None, **thinking}
        answer = {"message": content} if self.is_chat else {"text": self.text.text, **thinking}
        return self._object("chat.completion", [answer | self._state(0)]) | {"usage": self._usage()}

    async def stream(self, events: AsyncIterator[JobEvent], *, include_usage: bool) -> AsyncIterator[str]:
        """Yield server-sent events."""
        num_sent = 0
        if self.is_chat:
            yield self._chunk({"role": "assistant", "content": ""}, 0)
        async for change in self.changes(events):
            if change is None:
                yield PING
            new_thinking, new = change or ("", "")
            has_logprobs = self.job.choices and self.text.num_tokens > num_sent
            if new_thinking or new or has_logprobs or self.text.finish_reason:
                name = "content" if self.is_chat else "text"
                yield self._chunk({name: new, **_thinking(new_thinking)}, num_sent)
                num_sent = self.text.num_tokens
        if include_usage:
            yield server_sent(self._object("chat.completion.chunk", []) | {"usage": self._usage()})
        yield DONE

    def _chunk(self, new: dict[str, str], num_sent: int) -> str:
        answer = {"delta": new} if self.is_chat else new
        return server_sent(self._object("chat.completion.chunk", [answer | self._state(num_sent)]))

    def _object(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{'chatcmpl' if self.is_chat else 'cmpl'}-{self.id}",
            "object": kind if self.is_chat else "text_completion",
            "created": self.created,
            "model": self.engine.model_name,
            "choices": choices,
            "pine_engine": {
                "method": self.job.method,
                "num_documents": self.job.num_documents,
                "max_new_tokens": self.job.max_new_tokens,
            },
        }

    def _state(self, num_sent: int) -> dict[str, Any]:
        """Return index, end and log-probabilities of the tokens from `num_sent` on."""
        state: dict[str, Any] = {"index": 0, "finish_reason": self.text.finish_reason, "logprobs": None}
        if self.job.choices:
            state["logprobs"] = (
                self.chat_logprobs(num_sent) if self.is_chat else self._text_logprobs(num_sent)
            )
        return state

    def _usage(self) -> dict[str, int]:
        prompt, answer = self.job.layout.num_tokens, self.text.num_tokens
        return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        (text,), (value,) = self.engine.decode_tokens([token]), self.engine.token_bytes([token])
        return {"token": text, "logprob": logprob, "bytes": None if value is None else list(value)}

    def _choices(self, num_sent: int) -> list[TokenChoice]:
        return self.job.choices[num_sent : self.text.num_tokens]

    def chat_logprobs(self, num_sent: int) -> dict[str, Any]:
        """Return the log-probabilities of the tokens from `num_sent` on."""
        content = [
            self._token(choice.token_id, choice.logprob)
            | {"top_logprobs": [self._token(*alternative) for alternative in choice.alternatives]}
            for choice in self._choices(num_sent)
        ]
        return {"content": content, "refusal": None}

    def _text_logprobs(self, num_sent: int) -> dict[str, Any]:
        choices = self._choices(num_sent)
        ids = [choice.token_id for choice in choices]
        return {
            "tokens": self.engine.decode_tokens(ids),
            "token_logprobs": [choice.logprob for choice in choices],
            "top_logprobs": [self._by_text(choice.alternatives) for choice in choices],
            "text_offset": list(map(self._take_offset, ids)),
        }

    def _by_text(self, alternatives: Sequence[tuple[int, float]]) -> dict[str, float]:
        """Return log-probabilities by text; a further token of equal text has its name in the vocabulary."""
        found: dict[str, float] = {}
        for token, logprob in alternatives:
            (text,) = self.engine.decode_tokens([token])
            found[self.engine.tokenizer.convert_ids_to_tokens(token) if text in found else text] = logprob
        return found

    def _take_offset(self, token: int) -> int:
        """Return the index of the next token's first character in the text."""
        (value,) = self.engine.token_bytes([token])
        new = self._characters.decode(value or b"")
        if self._num_characters is None and not self.engine.decode_text([token]).startswith(" "):
            new = new.removeprefix(" ")  # which the text of an answer does not have
        offset = self._num_characters or 0
        self._num_characters = offset + len(new)
        return offset
