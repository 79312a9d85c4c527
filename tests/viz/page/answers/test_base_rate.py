"""Sentence on the base rate: the shares of the recorded evaluation."""

import re

from viz.page.answers.base_rate import base_rate, base_rate_sentence


def test_base_rate_sentence_has_both_shares_of_both_methods() -> None:
    rows = {row["method"]: row for row in base_rate()["methods"]}
    stated = list(map(int, re.findall(r"(\d+)%", base_rate_sentence(base_rate()["task"]))))
    assert stated == [
        round(rows[method][share]) for share in ("always", "correct") for method in ("pine", "vanilla")
    ]
    assert base_rate_sentence("judge") == ""
