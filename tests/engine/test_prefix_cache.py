"""Reused states give the logits of a separate prefill, and engines follow changes of their model."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pine_engine import METHODS, Engine, ModelError, PrefixCache, TokenLayout
from pine_engine.attention.state import SequenceState
from pine_engine.benchmark.shapes import synthetic_model
from pine_engine.engine import passes
from tests.support.families import FAMILIES, TinyLlama, make
from tests.support.forward import count_tokens
from tests.support.reference import PLANNED
from tests.support.tiers import first_daily

LAYOUT = TokenLayout((5, 9, 60), ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)), (51, 52, 53))
OTHER_QUESTION = TokenLayout(LAYOUT.prefix, LAYOUT.documents, (61, 62))
ROUNDING = 1e-5
"""Float64, but transformers rotates with float32 angles."""


@pytest.fixture(scope="module")
def engine(tiny_llama: TinyLlama) -> Engine:
    return Engine(tiny_llama(dtype=torch.float64))


@torch.inference_mode()
def prefill(
    engine: Engine, layout: TokenLayout, method: str, cached: list[SequenceState] | None = None
) -> tuple[SequenceState, Tensor, int]:
    models, kept = engine.patched_models, layout.suffix_length
    options = passes.PassOptions(
        models, reserved_tokens=4, logits_to_keep=kept, cached_sequences=cached or []
    )
    with count_tokens(models[0].network.model.embed_tokens) as fed:
        row, logits = passes.prefill(layout, METHODS[method], options)
    return row, logits, sum(fed)


def num_fed(engine: Engine, layout: TokenLayout, method: str, cached: SequenceState) -> int:
    """Check the logits of a prefill that may reuse a state; return the number of processed tokens."""
    expected = prefill(engine, layout, method)[1]
    row, logits, tokens = prefill(engine, layout, method, [cached])
    torch.testing.assert_close(logits, expected, rtol=0, atol=ROUNDING)
    assert row.num_cached_tokens() == layout.num_tokens
    return tokens


@pytest.mark.parametrize("source", ["vanilla", "pine"])
@pytest.mark.parametrize("method", PLANNED)
def test_prefix_of_any_method_is_reused(engine: Engine, method: str, source: str) -> None:
    cached = prefill(engine, LAYOUT, source)[0]
    layout = TokenLayout(LAYOUT.prefix, ((11, 12, 13, 14, 15, 16, 17), *LAYOUT.documents[1:]), LAYOUT.suffix)
    all_tokens = prefill(engine, layout, method)[2]
    is_reused = METHODS[method].prefix_encoding == METHODS[source].prefix_encoding
    num_reused = layout.prefix_length if is_reused else 0
    assert num_fed(engine, layout, method, cached) == all_tokens - num_reused


@pytest.mark.parametrize("method", [name for name in PLANNED if not METHODS[name].depends_on_question])
def test_documents_are_reused_for_other_question_and_order(engine: Engine, method: str) -> None:
    cached, before, _ = prefill(engine, LAYOUT, method)
    assert num_fed(engine, OTHER_QUESTION, method, cached) == OTHER_QUESTION.suffix_length
    moved = num_fed(engine, LAYOUT.reorder([2, 0, 1]), method, cached)
    assert (moved == LAYOUT.suffix_length) == METHODS[method].is_order_invariant
    again = prefill(engine, LAYOUT, method, [cached])[1]  # the cached state is unchanged
    torch.testing.assert_close(again, before, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("method", PLANNED)
def test_pcw_documents_serve_only_pcw_and_sp(engine: Engine, method: str) -> None:
    cached = prefill(engine, LAYOUT, "pcw")[0]
    is_reused = num_fed(engine, LAYOUT, method, cached) == LAYOUT.suffix_length
    assert is_reused == (METHODS[method].document_encoding == METHODS["pcw"].document_encoding)


def test_other_documents_or_prefix_are_not_reused(engine: Engine) -> None:
    cached = prefill(engine, LAYOUT, "pine")[0]
    others = TokenLayout(LAYOUT.prefix, (*LAYOUT.documents[:2], (71, 72)), LAYOUT.suffix)
    other_prefix = TokenLayout((6, 9, 60), LAYOUT.documents, LAYOUT.suffix)
    for layout, reused in ((others, others.prefix_length), (other_prefix, 0)):
        all_tokens = prefill(engine, layout, "pine")[2]
        assert num_fed(engine, layout, "pine", cached) >= all_tokens - reused > LAYOUT.suffix_length


def test_prefix_cache_serves_next_question(engine: Engine) -> None:
    cache, methods = PrefixCache(), ["vanilla", "pcw", "sp", "pine"]
    engine.run(LAYOUT, methods=methods, max_new_tokens=3, prefix_cache=cache)
    assert [row.state.plan.method.name for row in cache.rows] == methods
    options: dict[str, Any] = {"methods": methods, "max_new_tokens": 3, "stop_at_eos": False}
    expected = engine.run(OTHER_QUESTION, **options)
    with count_tokens(engine.patched_models[0].network.model.embed_tokens) as fed:
        again = engine.run(OTHER_QUESTION, **options, prefix_cache=cache)
    assert fed == [OTHER_QUESTION.suffix_length, 1, 1]  # in one batch, as the decode steps
    for method in methods:
        assert again.answers[method].token_ids == expected.answers[method].token_ids


def test_trace_is_not_taken_from_cached_documents(engine: Engine) -> None:
    cache = PrefixCache()
    engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, prefix_cache=cache)
    traced = engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, prefix_cache=cache, trace=True)
    alone = engine.run(LAYOUT, methods=["pine"], max_new_tokens=1, trace=True)
    assert (traced.traces["pine"].document_starts == alone.traces["pine"].document_starts).all()


Change = Callable[[nn.Module], Any]


def logits(engine: Engine, **options: Any) -> Tensor:
    run = engine.run(
        LAYOUT, methods="pine", max_new_tokens=4, return_logits=True, stop_at_eos=False, **options
    )
    return run.logits["pine"]


def _scale(model: nn.Module, *, of_data: bool = False) -> None:
    for weight in model.parameters():
        (weight.data if of_data else weight).mul_(1.5)


def _load(model: nn.Module, *, assign: bool = False) -> None:
    weights = {name: 1.5 * weight for name, weight in model.state_dict().items()}
    model.load_state_dict(weights, assign=assign)


def _replace_data(model: nn.Module) -> None:
    for weight in model.parameters():
        weight.data = 1.5 * weight.data


def _change_part(model: Any, index: Any) -> None:
    model.model.layers[1].mlp.down_proj.weight.data[index] += 0.5


def _change_number(model: Any) -> None:
    _change_part(model, (5, 3))
    torch.autograd.graph.increment_version(model.model.layers[1].mlp.down_proj.weight)


def _replace_module(model: Any) -> None:
    layer = model.model.layers[0]
    layer.mlp.down_proj = nn.Linear(layer.mlp.down_proj.in_features, layer.mlp.down_proj.out_features)


VALUES: dict[str, Change] = {
    "optimizer step": torch.no_grad()(_scale), "inference mode": torch.inference_mode()(_scale),
    "load_state_dict": _load, "data replaced": _replace_data, "data changed": partial(_scale, of_data=True),
    "row of data": partial(_change_part, index=5), "column of data": partial(_change_part, index=(..., 5)),
    "number of data and its version": _change_number,
}  # fmt: skip
STRUCTURE: dict[str, Change] = {
    "load_state_dict with assign": partial(_load, assign=True),
    "module": _replace_module,
    "dtype": nn.Module.double,
}


@pytest.mark.parametrize("change", first_daily([*VALUES, "inference tensors"], 2))
def test_engine_4bit_decodes_with_changed_weights(change: str) -> None:
    with torch.inference_mode(change == "inference tensors"):
        model = synthetic_model("random:tiny", dtype="4bit", device="cpu")
    engine = Engine(model, decode_in_4bit=True)
    before = logits(engine)
    assert torch.equal(logits(engine), before)
    VALUES.get(change, VALUES["inference mode"])(model)
    after = logits(engine)
    assert torch.equal(after, logits(Engine(model, decode_in_4bit=True)))
    assert not torch.equal(after[-1], before[-1])


@pytest.mark.parametrize("change", (VALUES | STRUCTURE).values(), ids=VALUES | STRUCTURE)
def test_engine_after_change_reuses_no_cached_prompt(tiny_llama: TinyLlama, change: Change) -> None:
    model = tiny_llama()
    engine, prefix_cache = Engine(model), PrefixCache()
    before = logits(engine, prefix_cache=prefix_cache)
    change(model)
    after = logits(engine, prefix_cache=prefix_cache)
    assert torch.equal(after, logits(Engine(model)))
    assert not torch.equal(after, before)


def test_engine_4bit_after_change_of_dtype_raises() -> None:
    model: Any = synthetic_model("random:tiny", dtype="4bit", device="cpu")
    engine = Engine(model, decode_in_4bit=True)
    model.to(torch.bfloat16)
    with pytest.raises(ModelError):
        logits(engine)


def test_engine_of_unchanged_model_keeps_its_networks(tiny_llama: TinyLlama) -> None:
    model: Any = tiny_llama()
    engine = Engine(model)
    patched_models = engine.patched_models
    model.train()
    model.generate(torch.tensor([LAYOUT.ids]), max_new_tokens=2)
    logits(engine)
    assert engine.patched_models is patched_models


class DependsOnPosition(nn.Module):
    def forward(self, rows: Tensor) -> Tensor:
        places = torch.arange(rows.shape[1])[:, None]
        return rows * (1 + 1e-6 * (places == rows.shape[1] - 9))


@pytest.mark.parametrize("name", ["llama", "mixtral", "falcon", "gemma3_text", "nemotron"])
def test_supported_family_has_no_warning(name: str) -> None:
    family = FAMILIES[name]
    assert Engine(make(family.kind, torch.bfloat16, **family.options)).invariance_warning is None


def test_layer_that_depends_on_position_has_warning() -> None:
    model = make("llama")
    model.model.layers[0].mlp = nn.Sequential(model.model.layers[0].mlp, DependsOnPosition())
    warning = Engine(model, name="uneven").invariance_warning
    assert warning is not None and all(name in warning for name in ("uneven", "float32", "PCW", "PINE"))


class DependsOnIndexOfStep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch_sizes: set[int] = set()

    def forward(self, rows: Tensor) -> Tensor:
        self.batch_sizes.add(len(rows))
        indices = torch.arange(len(rows))[:, None, None]
        return rows * (1 + 1e-3 * indices * (rows.shape[1] == 1))


@pytest.mark.parametrize("has_hook", [False, True])
def test_check_at_load_decodes_on_the_cpu(has_hook: bool) -> None:
    """A hook, such as that of an adapter, may expect one prompt, so that the orders are decoded in turn."""
    model = make("llama")
    uneven = DependsOnIndexOfStep()
    model.model.layers[0].mlp = nn.Sequential(model.model.layers[0].mlp, uneven)
    if has_hook:
        model.model.layers[1].register_forward_pre_hook(lambda *_: None)
    engine = Engine(model, name="uneven")
    assert (engine.invariance_warning is None) == has_hook
    module: Any = engine.patched_models[0].network.model.layers[0].mlp[1]
    assert max(module.batch_sizes) == (1 if has_hook else 2)
