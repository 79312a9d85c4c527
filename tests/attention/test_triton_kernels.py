import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("triton")

NUM_KERNELS = 7
MAX_SHARED = 99 * 1024  # bytes of a thread block on the GPUs of workstations


def run_kernels(command: str) -> Any:
    """Run `tests.support.kernels_on_cpu`, for which Triton must be imported with this variable."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.kernels_on_cpu", command],
        env={**os.environ, "TRITON_INTERPRET": str(int(command.startswith("interpret")))},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_each_kernel_agrees_with_torch() -> None:
    found = run_kernels("interpret-each")
    assert len(found["kernels"]) == NUM_KERNELS
    differences = found["differences"]
    assert all(difference < 1e-6 for difference in differences.values()), differences
    assert any(difference > 0 for difference in differences.values())  # computed in another order


@pytest.mark.slow
def test_kernels_agree_with_torch_and_are_order_invariant() -> None:
    found = run_kernels("interpret")
    differences = found["differences"]
    assert differences.pop("vanilla") == 0  # computed by torch
    assert all(0 < difference < 1e-5 for difference in differences.values()), differences
    assert found["changed"] == [] and found["warning"] is None


@pytest.mark.slow
def test_kernels_compile_for_a_gpu() -> None:
    found = run_kernels("compile")
    names = {name for name, _ in found}
    assert len(names) == NUM_KERNELS
    assert max(shared for _, shared in found) <= MAX_SHARED
