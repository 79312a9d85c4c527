"""Profile of one method: shares of its operations."""

import pytest

from pine_engine.benchmark.shapes import Workload, load_engine
from tools.profile_method import profile_method

WORK = Workload("random:tiny", "float32", "cpu", documents=3, document_tokens=7, new_tokens=4)


def test_shares_add_up_and_largest_is_first() -> None:
    for part in profile_method(load_engine(WORK.model), WORK, "pine").values():
        shares = [operation.share for operation in part]
        assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True)
        assert any(operation.name.startswith("aten::") for operation in part)
