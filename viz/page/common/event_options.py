"""Options of gradio's events: which run the model, which only redraw the page, which write a state."""

from typing import Any

MODEL_EVENT: dict[str, Any] = {"concurrency_limit": None}
"""Options of every event that runs the model: it waits in a queue of ours, and not in gradio's."""

PRIVATE_EVENT: dict[str, Any] = {
    "show_progress": "hidden",
    "show_progress_on": [],
    "api_visibility": "private",
    "queue": False,
}
"""Options of events that only redraw the page: answered at once, past those who wait for the model. Each says
that it shows no progress, and where: gradio spends time on every widget of which it might.

Through the queue an answer could be lost: gradio closes a visitor's stream of answers after each last one,
and an event that joins in that moment has none.
"""

STATE_EVENT: dict[str, Any] = PRIVATE_EVENT | {"queue": True, "concurrency_limit": None}
"""Of those that write a state whose change others follow: past the queue gradio tells nobody of it."""
