"""Options of gradio events: events that run the model, redraw the page or write a state."""

from typing import Any

MODEL_EVENT: dict[str, Any] = {"concurrency_limit": None}
"""Options of events that run the model; they wait in the fair queue and not in that of gradio."""

PRIVATE_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
    "queue": False,
}
"""Options of events that only redraw the page, without the queue.

In the queue an answer can be lost: gradio closes the stream of a session after each last answer. The options
hide progress for all widgets, which saves time in gradio.
"""

STATE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"queue": True, "concurrency_limit": None}
"""Options of events that write a state with change listeners, which gradio notifies only in the queue."""
