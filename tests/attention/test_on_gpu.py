from itertools import product

import pytest
import torch

from tools.gpu_exactness import DTYPES, FAMILIES, HEADS, TOLERANCE, agreement, is_invariant

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_gpu_agrees_with_the_cpu() -> None:
    assert max(agreement("cuda").values()) <= TOLERANCE


@pytest.mark.parametrize(("dtype", "heads"), [*product(DTYPES, HEADS)])
def test_methods_are_order_invariant_on_a_gpu(dtype: torch.dtype, heads: tuple[int, int, int]) -> None:
    assert is_invariant("cuda", dtype, heads)


@pytest.mark.parametrize(("dtype", "family"), [*product(DTYPES[:2], FAMILIES[1:])])
def test_families_are_order_invariant_on_a_gpu(dtype: torch.dtype, family: str) -> None:
    assert is_invariant("cuda", dtype, HEADS[0], family)
