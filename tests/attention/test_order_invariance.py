"""Order-invariant methods are bitwise identical for random shapes of heads and lengths of documents."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from pine_engine import METHODS, Engine, TokenLayout
from pine_engine.attention import arithmetic
from pine_engine.engine import passes
from pine_engine.network.thread_tuner import torch_num_threads
from pine_engine.prompts.orders import sample_orders
from tests.support.families import make
from tests.support.forward import unpadded_gemm

INVARIANT = [method.name for method in METHODS.values() if method.is_order_invariant]

HEADS = [(7, 1), (8, 1), (16, 1), (6, 2), (4, 4), (1, 1)]
"""Query heads and key heads."""

Shape = tuple[int, int, int, torch.dtype]


@cache
def engine_of(shape: Shape) -> Engine:
    heads, kv_heads, head_dim, dtype = shape
    sizes = {"head_dim": head_dim, "hidden_size": 8 * heads, "num_hidden_layers": 1}
    counts = {"num_attention_heads": heads, "num_key_value_heads": kv_heads}
    return Engine(make("llama", dtype, **sizes, **counts))


def layout_of(lengths: Sequence[int], prefix: int = 3, suffix: int = 2) -> TokenLayout:
    ids = torch.randint(3, 97, (sum(lengths) + prefix + suffix,), generator=torch.Generator().manual_seed(0))
    first, *documents, last = ids.split([prefix, *lengths, suffix])
    return TokenLayout(
        tuple(first.tolist()),
        tuple(tuple(one.tolist()) for one in documents),
        tuple(last.tolist()),
        scores=tuple(float(slot % 3) for slot in range(len(lengths))),
    )


SHAPES = st.tuples(
    st.sampled_from(HEADS), st.sampled_from([16, 64, 128]), st.sampled_from([torch.float32, torch.bfloat16])
).map(lambda drawn: (*drawn[0], *drawn[1:]))

LENGTHS = st.lists(st.one_of(st.just(1), st.integers(1, 20)), min_size=2, max_size=6)


@given(shape=SHAPES, lengths=LENGTHS, ends=st.tuples(st.integers(1, 9), st.integers(1, 9)))
@example(shape=(8, 1, 64, torch.float32), lengths=[8, 18, 1, 7, 22, 11], ends=(9, 6))
@example(shape=(4, 4, 64, torch.float32), lengths=[1, 1, 1], ends=(1, 1))
@settings(max_examples=settings().max_examples // 5)
def test_methods_are_bitwise_identical_in_all_orders(
    shape: Shape, lengths: list[int], ends: tuple[int, int]
) -> None:
    shuffled = engine_of(shape).shuffle(
        layout_of(lengths, *ends),
        methods=INVARIANT,
        orders=sample_orders(len(lengths), 3, seed=0),
        max_new_tokens=4,
        stop_at_eos=False,
    )
    changes = {name: one.max_abs_logit_diff for name, one in shuffled.summary.items()}
    assert changes == dict.fromkeys(INVARIANT, 0.0)
    assert all(one.bitwise_identical for one in shuffled.summary.values())


ATEN = torch.ops.aten
FACTORS = {
    **dict.fromkeys((ATEN.mm, ATEN.bmm, ATEN.matmul), slice(0, 2)),
    **dict.fromkeys((ATEN.addmm, ATEN.baddbmm), slice(1, 3)),
}
"""Arguments of an operation that are multiplied."""


class GemmShapes(TorchDispatchMode):
    """Collect rows and columns of GEMMs whose sums have several terms."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # of torch
        self.shapes: set[tuple[int, int]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if factors := FACTORS.get(func.overloadpacket):
            left, right = args[factors]
            if left.shape[-1] > 1:
                self.shapes.add((left.shape[-2], right.shape[-1]))
        return func(*args, **(kwargs or {}))


@torch.inference_mode()
@pytest.mark.parametrize("name", ["vanilla", "pcw", "pine", "pine_input_order", "rotor", "ape", "mspoe"])
def test_no_gemm_has_a_single_row_or_column(name: str) -> None:
    for shape in ((8, 1, 16, torch.float32), (1, 1, 16, torch.float32)):
        engine = engine_of(shape)
        options = passes.PassOptions(engine.patched_models, reserved_tokens=1)
        for lengths in ((1, 5, 1), (1,)):
            with GemmShapes() as gemms:
                row, _ = passes.prefill(layout_of(lengths, 1, 1), METHODS[name], options)
                passes.extend([row, None], [[5], [5]], is_step=True)
            assert gemms.shapes and all(min(one) > 1 for one in gemms.shapes), gemms.shapes


def test_load_warns_of_a_single_column(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of((8, 1, 64, torch.float32))
    with torch_num_threads(1):
        assert Engine(engine.model).invariance_warning is None
        monkeypatch.setattr(arithmetic, "batched_gemm", unpadded_gemm)
        assert "PINE (up to" in (Engine(engine.model).invariance_warning or "")
