"""Time is counted to the innermost of ours, of the linear layers, or of the rest of the model."""

from dataclasses import dataclass

import pytest

from pine_engine.benchmark.profiling import place_of, profile_method, sum_up
from pine_engine.benchmark.random_models import load_engine
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout


@dataclass(frozen=True)
class Event:
    """As torch's FunctionEvent."""

    name: str
    self_cpu_time_total: float = 0.0
    self_device_time_total: float = 0.0
    cpu_parent: "Event | None" = None


PREFILL = Event("/somewhere/pine_engine/engine/engine.py(209): prefill")
MODEL = Event("nn.Module: LlamaForCausalLM_0", cpu_parent=PREFILL)
ATTENTION = Event("nn.Module: LlamaAttention_3", cpu_parent=MODEL)
OURS = Event("pine_engine/attention/arithmetic.py(41): causal_tail", cpu_parent=ATTENTION)
LOOP = Event("pine_engine/attention/arithmetic.py(44): <listcomp>", cpu_parent=OURS)
LINEAR = Event("nn.Module: Linear_17", cpu_parent=ATTENTION)


@pytest.mark.parametrize(
    ("around", "place"),
    [
        (PREFILL, "engine.prefill"),
        (MODEL, "rest of the model"),
        (ATTENTION, "rest of the model"),
        (OURS, "attention.causal_tail"),
        (LOOP, "attention.causal_tail"),
        (LINEAR, "linear layers"),
        (
            Event("/somewhere/pine_engine/network/batch_invariant_ops.py(140): linear", cpu_parent=LINEAR),
            "linear layers",
        ),
        (
            Event("pine_engine/network/batch_invariant_ops.py(99): elementwise", cpu_parent=MODEL),
            "rest of the model",
        ),
        (Event("nn.Module: Linear8bitLt_2", cpu_parent=MODEL), "linear layers"),
        (None, "rest of the model"),
        (Event("pine_engine/engine/model_worker.py(31): run"), None),
    ],
)
def test_an_operation_belongs_to_the_innermost_place(around: Event | None, place: str | None) -> None:
    assert place_of(Event("aten::mm", cpu_parent=Event("aten::matmul", cpu_parent=around))) == place


def test_shares_add_up_and_the_largest_comes_first() -> None:
    events = [
        Event("aten::mm", 2e6, 1e6, LINEAR),
        Event("aten::mm", 1e6, 5e6, LINEAR),
        Event("aten::sdpa", 5e6, 2e6, OURS),
        Event("aten::mul", 2e6, 0.0, MODEL),
        Event("get of SimpleQueue", 9e6, 9e6, Event("pine_engine/engine/model_worker.py(31): run")),
    ]
    on_cpu = [(share.where, share.seconds, share.share) for share in sum_up(events)]
    assert on_cpu == [
        ("attention.causal_tail", 5.0, 0.5),
        ("linear layers", 3.0, 0.3),
        ("rest of the model", 2.0, 0.2),
    ]
    on_gpu = [(share.where, share.seconds, share.share) for share in sum_up(events, on_gpu=True)]
    assert on_gpu == [("linear layers", 6.0, 0.75), ("attention.causal_tail", 2.0, 0.25)]


def test_decoding_ranks_for_the_suffix_only_and_vanilla_not_at_all() -> None:
    engine = load_engine("random:tiny")
    layout = TokenLayout((1, 2, 3), tuple(tuple(range(d, d + 9)) for d in range(4)), (5, 6))
    places = {
        (name, part): {share.where for share in shares}
        for name in ("vanilla", "pine")
        for part, shares in profile_method(engine, layout, METHODS[name], 3).items()
    }
    suffix, documents = "attention.rank_for_suffix", "attention.document_importance"
    assert {suffix, documents} <= places["pine", "prefill"]
    assert suffix in places["pine", "decode"] and documents not in places["pine", "decode"]
    for part in ("prefill", "decode"):
        assert "linear layers" in places["vanilla", part]
        assert "engine.run" not in places["vanilla", part]  # of the thread that loaded the model, and waits
        assert not {suffix, documents} & places["vanilla", part]
