"""Memory of runs: its share of the free memory, and the bound of the bytes of a token."""

import pytest

from pine_engine import Engine
from pine_engine.engine.run import prepare_run
from pine_engine.scheduling.steps import compute_alone
from pine_engine.scheduling.worker import NO_CONTROL
from pine_engine.server import admission
from pine_engine.server.admission import USED_SHARE, memory_share
from tests.engine.conftest import LAYOUT
from tests.support.families import TinyLlama


def test_share_is_of_the_usable_memory(tiny_llama: TinyLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(tiny_llama())
    monkeypatch.setattr(admission, "free_memory", lambda _: 100 * engine.bytes_per_token)
    assert memory_share(engine, 10) == pytest.approx(0.1 / USED_SHARE)
    assert memory_share(engine, 1000) == memory_share(engine, 0) == 1
    monkeypatch.setattr(Engine, "shares_steps", False)
    assert memory_share(engine, 10) == 1


@pytest.mark.parametrize("method", ["pine", "superposition", "attention_buckets", "nbce"])
def test_bytes_per_token_bound_the_caches(method: str, tiny_llama: TinyLlama) -> None:
    engine = Engine(tiny_llama())
    run = prepare_run(engine, LAYOUT, methods=method, max_new_tokens=20)
    (answer,) = compute_alone(run.prefill(NO_CONTROL))
    caches = [sequence.cache for row in answer.rows for sequence in row.sequences]
    assert sum(cache.num_bytes for cache in caches) <= (LAYOUT.num_tokens + 20) * engine.bytes_per_token
