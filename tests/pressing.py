"""A visitor without a browser, who presses buttons of the page."""

import json
from collections.abc import Generator
from typing import Any

import httpx
from gradio_client.utils import apply_diff

PATIENCE_S = 60.0


class Visitor:
    """Presses buttons of the page; its widgets hold what they were served with, but for what is given.

    name: of his session; what the server keeps for it is his alone. served: the page as he got it.
    """

    def __init__(self, url: str, name: str) -> None:
        self._http = httpx.Client(base_url=url, timeout=PATIENCE_S)
        self._name = name
        self.served = self._http.get("config").text
        config = json.loads(self.served)
        self._events = config["dependencies"]
        self._widgets = {widget["id"]: widget["props"] for widget in config["components"]}

    def close(self) -> None:
        self._http.close()

    def _event(self, button: str) -> dict[str, Any]:
        number = next(id for id, props in self._widgets.items() if props.get("elem_id") == button)
        event: dict[str, Any] = next(event for event in self._events if [number, "click"] in event["targets"])
        return event

    def _asked(self, button: str, **values: Any) -> dict[str, Any]:
        event = self._event(button)
        widgets = [self._widgets[widget] for widget in event["inputs"]]
        data = [values.get(props.get("elem_id"), props.get("value")) for props in widgets]
        return {"data": data, "fn_index": event["id"], "session_hash": self._name}

    def press(self, button: str, **values: Any) -> Generator[str, None, None]:
        """Presses a button in front of the model; yields what the page is told until it is done."""
        self._http.post("gradio_api/queue/join", json=self._asked(button, **values)).raise_for_status()
        path = f"gradio_api/queue/data?session_hash={self._name}"
        with self._http.stream("GET", path) as response:
            for line in response.iter_lines():
                yield line
                if '"process_completed"' in line:
                    return

    def press_at_once(self, button: str) -> None:
        """Presses a button that does not wait for the model."""
        self._http.post("gradio_api/run/predict", json=self._asked(button)).raise_for_status()

    def watch(self, button: str, **values: Any) -> Generator[dict[str, str], None, None]:
        """Presses a button in front of the model; yields the HTML of the widgets as it changes, by id."""
        outputs = [self._widgets[widget].get("elem_id") for widget in self._event(button)["outputs"]]
        data: list[Any] = []
        shown: dict[str, str] = {}
        for line in self.press(button, **values):
            message = json.loads(line.removeprefix("data: ")) if line else {}
            told = (message.get("output") or {}).get("data")
            if message.get("msg") == "process_generating" and told:
                data = [apply_diff(*pair) for pair in zip(data, told, strict=True)] if data else told
                shown |= {
                    name: html
                    for name, html in zip(outputs, data, strict=True)
                    if name and isinstance(html, str)
                }
                yield shown
