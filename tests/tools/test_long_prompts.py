"""The measurement of long prompts, on short ones."""

import json

import pytest

from tools.long_prompts import long_prompts


def test_sizes_are_compared_by_operations(capsys: pytest.CaptureFixture[str]) -> None:
    long_prompts("300,600", document_tokens=40, rounds=1)
    small, large = json.loads(capsys.readouterr().out)["sizes"]
    assert (small["tokens"], small["documents"], small["ratio"]) == (298, 6, 1)
    assert 0.2 < large["ratio"] < 5
    # rotated and unrotated keys and values of 3 heads of 64 float32 numbers, and one reserved token
    assert large["rounds"][0]["cache_bytes_per_token"] == pytest.approx(3 * 3 * 64 * 4, rel=0.1)
