"""Objects and events of /v1/responses, made from chat completions."""

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pine_engine.server.jobs import JobEvent
from pine_engine.server.responses import PING, Reply, server_sent
from pine_engine.server.schema import ResponsesBody

STATUSES = {None: "in_progress", "stop": "completed", "length": "incomplete"}  # by the reason of the end
ITEMS = {"reasoning": "rs", "message": "msg"}  # beginnings of ids by the type of the item


async def stream_response(
    reply: Reply, events: AsyncIterator[JobEvent], body: ResponsesBody
) -> AsyncIterator[str]:
    """Yield the events of a streamed response. An item begins with its first text, in their order."""
    numbers = itertools.count()
    items: list[str] = []  # types of those that have begun
    num_sent = 0

    def event(kind: str, **fields: Any) -> str:
        content = {"type": kind, "sequence_number": next(numbers), **fields}
        return f"event: {kind}\n{server_sent(content)}"

    def place() -> dict[str, Any]:
        """Return the place of the text of the last item."""
        item_id = f"{ITEMS[items[-1]]}_{reply.id}"
        return {"item_id": item_id, "output_index": len(items) - 1, "content_index": 0}

    def current() -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the last item with its text so far, and its part."""
        output = as_response(reply.completion(), body)["output"]
        (item,) = (one for one in output if one["type"] == items[-1])
        return item, item["content"][0]

    def begin(kind: str) -> Iterator[str]:
        if kind in items:
            return
        if items:
            yield from end()
        items.append(kind)
        item, part = current()
        new = {"status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=len(items) - 1, item=item | new)
        empty = {name: type(value)() for name, value in part.items() if name != "type"}
        yield event("response.content_part.added", part=part | empty, **place())

    def end() -> Iterator[str]:
        item, part = current()
        content = {name: part[name] for name in ("text", "logprobs") if name in part}
        yield event(f"response.{part['type']}.done", **content, **place())
        yield event("response.content_part.done", part=part, **place())
        yield event("response.output_item.done", output_index=len(items) - 1, item=item)

    started = as_response(reply.completion(), body) | {"output": [], "usage": None}
    yield event("response.created", response=started)
    yield event("response.in_progress", response=started)
    async for change in reply.changes(events):
        if change is None:
            yield PING
            continue
        thinking, text = change
        if thinking:
            for part in begin("reasoning"):
                yield part
            yield event("response.reasoning_text.delta", delta=thinking, **place())
        if text or reply.text.finish_reason:
            for part in begin("message"):
                yield part
            logprobs = reply.chat_logprobs(num_sent)["content"]
            num_sent = reply.text.num_tokens
            yield event("response.output_text.delta", delta=text, logprobs=logprobs, **place())
    for part in end():
        yield part
    response = as_response(reply.completion(), body)
    yield event(f"response.{response['status']}", response=response)


def as_response(completion: dict[str, Any], body: ResponsesBody) -> dict[str, Any]:
    """Return a chat completion as the object of /v1/responses; the thinking part is an item of its own."""
    (choice,), usage = completion["choices"], completion["usage"]
    message, number = choice["message"], completion["id"].partition("-")[2]
    status = STATUSES[choice["finish_reason"]]
    logprobs = choice["logprobs"]["content"] if choice["logprobs"] else []
    part = {"type": "output_text", "text": message["content"], "annotations": []}
    item = {
        "type": "message",
        "id": f"{ITEMS['message']}_{number}",
        "role": "assistant",
        "status": status,
        "content": [part | {"logprobs": logprobs}],
    }
    thinking = [{"type": "reasoning_text", "text": message.get("reasoning_content", "")}]
    reasoning = {
        "type": "reasoning",
        "id": f"{ITEMS['reasoning']}_{number}",
        "summary": [],
        "content": thinking,
    }
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": completion["created"],
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": body.instructions or None,
        "max_output_tokens": body.max_tokens,
        "model": completion["model"],
        "output": [reasoning, item] if thinking[0]["text"] else [item],
        "temperature": 0.0,
        "top_p": 1.0,
        "top_logprobs": body.top_logprobs,
        "text": {"format": {"type": "text"}},
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": False,
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
        "pine_engine": completion["pine_engine"],
    }
