import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("triton")

pytestmark = pytest.mark.slow

MAX_SHARED = 99 * 1024  # bytes of a thread block on the GPUs of workstations


def run_kernels(command: str) -> Any:
    """Run `tests.support.kernels_on_cpu`, for which Triton must be imported with this variable."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.kernels_on_cpu", command],
        env={**os.environ, "TRITON_INTERPRET": str(int(command == "interpret"))},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_kernels_agree_with_torch_and_are_order_invariant() -> None:
    found = run_kernels("interpret")
    differences = found["differences"]
    assert differences.pop("vanilla") == 0  # computed by torch
    assert all(0 < difference < 1e-5 for difference in differences.values()), differences
    assert found["changed"] == [] and found["warning"] is None


def test_kernels_compile_for_a_gpu() -> None:
    found = run_kernels("compile")
    names = {name for name, _ in found}
    assert len(names) == 7
    assert max(shared for _, shared in found) <= MAX_SHARED
