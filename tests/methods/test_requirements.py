"""The column `requires` predicts the models that run a method, and no method needs less than it states."""

from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from pine_engine import METHODS, Engine, InputError, Method, ModelError, TokenLayout
from pine_engine.attention import recomputed
from pine_engine.attention.recorder import TraceRecorder
from pine_engine.endpoint.client import Endpoint
from pine_engine.engine import prepared_model
from pine_engine.engine.reordering import FirstPass, reorder_documents
from pine_engine.models.support import PLACEMENT
from tests.support.errors import has_field
from tests.support.families import make

LAYOUT = TokenLayout(
    (5, 9, 60), ((31, 32, 33), (21, 22), (41, 42, 43, 44)), (51, 52, 53), 2, scores=(0.5, -1.0, 0.5)
)
OPTIONS: dict[str, Any] = {"max_new_tokens": 2, "stop_at_eos": False, "return_logits": True}

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


@cache
def decoder() -> Engine:
    """Return a model whose attention can be replaced."""
    return Engine(make("llama", torch.float64, num_hidden_layers=4))


@cache
def hybrid() -> Engine:
    """Return a model whose convolutions have no attention to replace."""
    return Engine(make("lfm2", torch.float64, layer_types=["conv", "full_attention"]))


@cache
def as_it_is() -> Engine:
    """Return an engine that runs the decoder as it is."""
    refusal = ModelError("a model whose attention cannot be replaced", field=PLACEMENT)
    with patch.object(prepared_model, "validate_model", side_effect=refusal):
        return Engine(decoder().model)


def logits_of(engine: Engine, method: Method, layout: TokenLayout = LAYOUT) -> Tensor:
    return engine.run(layout, methods=method, **OPTIONS).logits[method.name]


@every_method
def test_column_predicts_the_models_that_run(method: Method) -> None:
    for model in (decoder(), hybrid(), Endpoint("http://127.0.0.1/v1", "m")):
        reason = model.misfit(method)
        assert (reason is None) == method.fits(model.meets)
        assert (method in model.methods) == (reason is None)
        if reason:
            assert method.name in reason
            with pytest.raises((ModelError, InputError), check=has_field("methods")):
                model.select_methods([method.name])
        elif isinstance(model, Engine):
            assert logits_of(model, method).isfinite().any()


@every_method
def test_model_as_it_is_gives_the_same_logits(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that need forward passes only; the others change attention, or read it in a first pass."""
    monkeypatch.setattr(recomputed, "NUM_RECOMPUTED", 1)
    if method.requires != "placement":
        expected = logits_of(decoder(), method)
        torch.testing.assert_close(logits_of(as_it_is(), method), expected, rtol=0, atol=1e-5)
    elif method.score is None:
        plain = logits_of(as_it_is(), METHODS["vanilla"])
        assert (logits_of(decoder(), method) - plain).abs().max() > 1e-4


@pytest.mark.parametrize("method", [row for row in METHODS.values() if row.score], ids=lambda row: row.name)
def test_first_pass_needs_no_more_than_the_column(method: Method) -> None:
    """Texts suffice without a first pass, passes if it records no attention."""
    needs = ["texts"]

    def run(_: TokenLayout, recorder: TraceRecorder | None, num_logits: int) -> Tensor:
        needs.append("placement" if recorder else "passes")
        if recorder:
            raise InterruptedError
        return torch.zeros(num_logits, 97)

    with suppress(InterruptedError):
        reorder_documents(LAYOUT, method, FirstPass(run))
    assert needs[-1] == method.requires


@every_method
def test_one_text_is_an_answer_where_texts_suffice(method: Method) -> None:
    if method.requires == "texts":
        reordered = reorder_documents(LAYOUT, method, FirstPass(lambda *_: torch.empty(0)))
        expected = logits_of(decoder(), METHODS["vanilla"], reordered)
        assert torch.equal(logits_of(decoder(), method), expected)


@pytest.mark.parametrize(
    "columns",
    [{"mask": "none"}, {"positions": "none"}, {"rope_bases": [2.0]}, {"key_weighting": "documents"}],
    ids=lambda columns: next(iter(columns)),
)
def test_variant_that_needs_more_than_it_states_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(InputError, check=has_field("requires")):
        replace(METHODS["vanilla"], **columns)
    assert replace(METHODS["vanilla"], requires="placement", **columns).requires == "placement"
