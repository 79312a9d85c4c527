"""The page served in this process with a tiny model, and its clients."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tools.fuzz.outcomes import INTERNAL_ERROR, TIMEOUT_S, FailureError, check_updates

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine

MAX_CONCURRENT_EVENTS = 4


def tiny_engine() -> "Engine":
    """Return a Llama with random weights and a context of 4,096 bytes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from pine_engine.engine.engine import Engine
    from tests.support.tokenizers import byte_tokenizer

    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8, max_position_embeddings=4096,
        initializer_range=0.2, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    return Engine(LlamaForCausalLM(config).eval().requires_grad_(False), tokenizer)


@dataclass(frozen=True)
class Page:
    """Served page: gradio's Blocks with the functions, and an HTTP client."""

    blocks: Any
    http: httpx.Client

    def run(self, body: dict[str, Any]) -> bool:
        """Call an unqueued function. Return True for an answer, False for a rejection."""
        response = self._post("run/predict", body)
        if response.status_code != 200:
            return check_rejection(response)
        return check_updates(response.json()["data"])

    def join(self, body: dict[str, Any]) -> bool:
        """Call a queued function, check all its updates, and return as `run` does."""
        session = uuid.uuid4().hex
        response = self._post("queue/join", body | {"session_hash": session})
        if response.status_code != 200:
            return check_rejection(response)
        is_answered = True
        with self.http.stream("GET", "queue/data", params={"session_hash": session}) as lines:
            for line in lines.iter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                output = message.get("output") or {}
                match message.get("msg"):
                    case "process_generating" | "process_completed" if message.get("success"):
                        is_answered = check_updates(output.get("data")) and is_answered
                    case "process_completed":
                        return check_message(output.get("error"))
                    case "unexpected_error":
                        raise FailureError(f"the queue failed: {message}")
                if message.get("msg") == "process_completed":
                    return is_answered
        raise FailureError("the stream ended without an answer")

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        # The option `json` of httpx rejects NaN, which json.dumps writes.
        return self.http.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})


@dataclass(frozen=True)
class Targets:
    """Receivers of the inputs, and the folder of the files that these need."""

    engine: "Engine"
    page: Page
    folder: Path


def check_rejection(response: httpx.Response) -> bool:
    """Return False for a rejection with a message, see `check_message`."""
    try:
        content = response.json()
    except ValueError:
        content = {"detail": response.text}
    return check_message(content.get("error") or content.get("detail"))


def check_message(message: Any) -> bool:
    """Return False for an error message.

    Raises:
        FailureError: The message is empty or about an internal error.
    """
    words = (INTERNAL_ERROR, "Traceback", "Internal Server")
    if not message or any(word in str(message) for word in words):
        raise FailureError(f"rejected without a message: {message!r}")
    return False


@contextmanager
def served_page(engine: "Engine") -> Iterator[Page]:
    """Serve the page on a free port of this machine inside the block."""
    import app
    from viz.page.common.host_settings import DEFAULTS
    from viz.page.jobs.loading import EngineSource

    source = EngineSource(lambda: engine, "the tiny model")
    blocks = app.build_app(source)
    app.launch(blocks, DEFAULTS.model_copy(update={"max_requests_per_minute": 10**6}), quiet=True)
    source.start()
    try:
        with httpx.Client(base_url=f"{blocks.local_url}gradio_api/", timeout=TIMEOUT_S * 2) as http:
            yield Page(blocks, http)
    finally:
        blocks.close(verbose=False)
