"""The page served in this process with a tiny model, and visitors that send whatever they like."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tools.fuzz.outcomes import PATIENCE_S, FailureError, check_updates

if TYPE_CHECKING:
    from pine_engine.engine.engine import Engine

EVENTS_AT_ONCE = 4


def tiny_engine() -> "Engine":
    """A Llama with random weights that reads 4,096 bytes."""
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
    """The served page. blocks: gradio's Blocks, which know the functions."""

    blocks: Any
    http: httpx.Client

    def run(self, body: dict[str, Any]) -> bool:
        """What a function that answers at once gives; True for an answer, False for a refusal."""
        response = self._post("run/predict", body)
        if response.status_code != 200:
            return refused(response)
        return check_updates(response.json()["data"])

    def join(self, body: dict[str, Any]) -> bool:
        """The same for a function that waits for the model, with all that it gives on the way."""
        session = uuid.uuid4().hex
        response = self._post("queue/join", body | {"session_hash": session})
        if response.status_code != 200:
            return refused(response)
        answered = True
        with self.http.stream("GET", "queue/data", params={"session_hash": session}) as lines:
            for line in lines.iter_lines():
                message = json.loads(line.removeprefix("data:")) if line.startswith("data:") else {}
                output = message.get("output") or {}
                match message.get("msg"):
                    case "process_generating" | "process_completed" if message.get("success"):
                        answered = check_updates(output.get("data")) and answered
                    case "process_completed":
                        return check_sentence(output.get("error"))
                    case "unexpected_error":
                        raise FailureError(f"the queue failed: {message}")
                if message.get("msg") == "process_completed":
                    return answered
        raise FailureError("the stream ended without an answer")

    def _post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        # httpx refuses NaN, which Python's JSON writes.
        return self.http.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})


@dataclass(frozen=True)
class Doors:
    """What inputs are thrown at. folder: for files that are made on the way."""

    engine: "Engine"
    page: Page
    folder: Path


def refused(response: httpx.Response) -> bool:
    """False for a refusal with a sentence. Raises FailureError for any other."""
    try:
        said = response.json()
    except ValueError:
        said = {"detail": response.text}
    return check_sentence(said.get("error") or said.get("detail"))


def check_sentence(said: Any) -> bool:
    """False. Raises FailureError if nothing was said, or that it is a mistake of ours."""
    if not said or any(word in str(said) for word in ("Internal error", "Traceback", "Internal Server")):
        raise FailureError(f"refused without a sentence: {said!r}")
    return False


@contextmanager
def served_page(engine: "Engine") -> Iterator[Page]:
    """Serves the page on a free port of this machine until the block is left."""
    import app
    from viz.page.common.host_settings import DEFAULTS
    from viz.page.jobs.loading import EngineSource

    source = EngineSource(lambda: engine, "the tiny model")
    blocks = app.build_app(source)
    app.launch(blocks, DEFAULTS.model_copy(update={"max_requests_per_minute": 10**6}), quiet=True)
    source.start()
    try:
        with httpx.Client(base_url=f"{blocks.local_url}gradio_api/", timeout=PATIENCE_S * 2) as http:
            yield Page(blocks, http)
    finally:
        blocks.close(verbose=False)
