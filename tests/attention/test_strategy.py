"""The example of a strategy in docs/recipes.md runs, and agrees with a model that has such attention."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from pine_engine import Engine, TokenLayout
from pine_engine.attention import state as strategies
from pine_engine.attention.arithmetic import attention_weights
from pine_engine.attention.kv_cache import LayerCache, new_layer
from pine_engine.attention.strategy import KeysValues, PromptState, Strategy
from pine_engine.network.registration import LayerInput
from tests.support.families import make
from tests.support.pages import ROOT

LAYOUT = TokenLayout((5, 9, 60), ((31, 32, 33), (21, 22), (41, 42, 43, 44)), (51, 52, 53))


def test_strategy_of_the_recipe_agrees_with_a_sliding_window(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```py\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"torch": torch, "new_layer": new_layer, "attention_weights": attention_weights}
    names |= {"Any": Any, "KeysValues": KeysValues, "Sequence": Sequence, "Tensor": Tensor}
    names |= {one.__name__: one for one in (LayerCache, LayerInput, PromptState, Strategy)}
    exec(compile(code, "recipes.md", "exec"), names)
    model: Any = make("mistral", torch.float64, sliding_window=None)
    engine = Engine(model)
    monkeypatch.setattr(strategies, "_choose_strategy", names["WindowAttention"])
    result = engine.run(LAYOUT, methods="vanilla", max_new_tokens=3, stop_at_eos=False, return_logits=True)
    ids = [*LAYOUT.ids, *result.answers["vanilla"].token_ids[:-1]]
    sliding: Any = make("mistral", torch.float64, sliding_window=names["WINDOW"])
    sliding.load_state_dict(model.state_dict())
    with torch.inference_mode():
        windowed, plain = (
            one(torch.tensor([ids])).logits[0, LAYOUT.documents_end :] for one in (sliding, model)
        )
    logits = result.logits["vanilla"].double()
    torch.testing.assert_close(logits, windowed, rtol=0, atol=1e-5)
    assert (logits - plain).abs().max() > 1e-3
