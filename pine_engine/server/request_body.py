"""Limits of the body of a request: its bytes, and the seconds in which it must arrive."""

import asyncio
import time

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive


def limit_body(receive: Receive, max_bytes: int, seconds: float) -> Receive:
    """Return a receive function that raises HTTPException 413 or 408 for a body beyond its limits."""
    end = 0.0
    num_bytes, is_complete = 0, False

    async def receive_limited() -> Message:
        nonlocal end, num_bytes, is_complete
        if is_complete:  # the next message is a disconnect
            return await receive()
        end = end or time.monotonic() + seconds
        message: Message = {"more_body": True}
        try:
            async with asyncio.timeout(end - time.monotonic()):
                message = await receive()
        except TimeoutError:
            pass
        num_bytes += len(message.get("body", b""))
        is_complete = not message.get("more_body")
        # A busy loop calls timeouts late, or never for a body that keeps arriving: the clock decides.
        if not is_complete and time.monotonic() >= end:
            detail = f"Request timeout: body not received within {seconds:g} s. Send it again."
            raise HTTPException(408, detail)
        if num_bytes > max_bytes:
            raise HTTPException(413, f"Request too large (limit: {max_bytes:,} bytes). Send less data.")
        return message

    return receive_limited
