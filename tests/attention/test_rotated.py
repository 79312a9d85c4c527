"""Causal attention at real positions: Ms-PoE agrees with its definition, and its limit is vanilla."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pine_engine import METHODS, Engine, PrefixCache, TokenLayout, patch_generate
from pine_engine.attention import rotated
from tests.support.families import TinyLlama
from tests.support.reference import exact_llama, reference_logits

LAYOUT = TokenLayout((5, 9, 60), ((31, 32, 33), (21, 22), (41, 42, 43, 44)), (51, 52, 53))
OPTIONS: dict[str, Any] = {"max_new_tokens": 5, "stop_at_eos": False, "return_logits": True}
MSPOE = METHODS["mspoe"]


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(exact_llama(tiny_llama, layers=4, heads=8, kv_heads=4, seed=1))


def test_decoding_keeps_the_ratios_of_the_prompt(engine: Engine) -> None:
    """The reference computes prompt and answer at once, with ratios by the prompt's last token."""
    result = engine.run(LAYOUT, methods=[MSPOE, "vanilla", "pine"], **OPTIONS)
    ids = result.answers["mspoe"].token_ids
    with torch.inference_mode():
        expected = reference_logits(engine.model, LAYOUT.extend(ids[:-1]), "mspoe", num_decoded=4)
    torch.testing.assert_close(result.logits["mspoe"], expected[-7:].float(), rtol=0, atol=1e-6)
    assert not torch.allclose(result.logits["mspoe"], result.logits["vanilla"], atol=0.1)


def test_equal_ratios_of_one_are_vanilla(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotated, "MIN_RATIO", 1.0)
    monkeypatch.setattr(rotated, "MAX_RATIO", 1.0)
    logits = engine.run(LAYOUT, methods=["mspoe", "vanilla"], **OPTIONS).logits
    torch.testing.assert_close(logits["mspoe"], logits["vanilla"], rtol=0, atol=1e-6)


def test_earlier_layers_change_the_logits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = engine.run(LAYOUT, methods="mspoe", **OPTIONS).logits["mspoe"]
    monkeypatch.setattr(rotated, "FIRST_SCALED_LAYER", 0)
    earlier = engine.run(LAYOUT, methods="mspoe", **OPTIONS).logits["mspoe"]
    assert not torch.allclose(logits, earlier, atol=1e-3)


def test_batched_methods_are_each_as_alone(engine: Engine) -> None:
    rows = [MSPOE, replace(MSPOE, name="second")]
    logits = engine.run(LAYOUT, methods=[*rows, "vanilla"], **OPTIONS).logits
    alone = engine.run(LAYOUT, methods=MSPOE, **OPTIONS).logits["mspoe"]
    for row in rows:
        torch.testing.assert_close(logits[row.name], alone, rtol=0, atol=1e-6)


def test_orders_differ_and_are_each_as_alone(engine: Engine) -> None:
    shuffled = engine.shuffle(LAYOUT, methods="mspoe", **OPTIONS)
    assert shuffled.summary["mspoe"].max_abs_logit_diff > 0.1
    for one in shuffled.results:
        alone = engine.run(LAYOUT.reorder(one.order), methods="mspoe", **OPTIONS).logits["mspoe"]
        torch.testing.assert_close(one.result.logits["mspoe"], alone, rtol=0, atol=1e-6)


def test_no_state_of_another_prompt_is_reused(engine: Engine) -> None:
    cache = PrefixCache()
    for methods in (["vanilla", "mspoe"], ["mspoe"]):
        for suffix in ((61, 62), (51, 52, 53)):
            layout = TokenLayout(LAYOUT.prefix, LAYOUT.documents, suffix)
            cached = engine.run(layout, methods=methods, prefix_cache=cache, **OPTIONS).logits["mspoe"]
            alone = engine.run(layout, methods="mspoe", **OPTIONS).logits["mspoe"]
            torch.testing.assert_close(cached, alone, rtol=0, atol=1e-6)


def test_generate_with_beams_and_more_tokens_than_reserved(engine: Engine) -> None:
    with patch_generate(engine, [LAYOUT], method="mspoe") as inputs:
        generate: Any = engine.model.generate
        options: dict[str, Any] = {**inputs, "max_new_tokens": 70, "eos_token_id": None, "do_sample": False}
        greedy = generate(**options)
        beams = generate(**options, num_beams=2, num_return_sequences=2)
    expected = engine.run(LAYOUT, methods="mspoe", **OPTIONS | {"max_new_tokens": 70}).answers["mspoe"]
    assert tuple(greedy[0, LAYOUT.num_tokens :].tolist()) == expected.token_ids
    assert len(beams) == 2
