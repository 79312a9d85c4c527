"""Leave one out: scores equal those of prompts without a document, and of the unpatched model."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from pine_engine import METHODS, Engine, InputError, LeaveOneOut, RunResult, TokenLayout
from tests.support.errors import has_field
from tests.support.tiers import first_daily

LAYOUT = TokenLayout(
    (60, 61, 62), ((11, 12, 13, 14), (21, 22), (31, 32, 33)), (51, 52, 53), scores=(0.5, 2.0, -1.0)
)
ORDER = (2, 0, 1)


def without(layout: TokenLayout, slot: int) -> TokenLayout:
    documents, scores = layout.documents, layout.scores
    return replace(
        layout, documents=documents[:slot] + documents[slot + 1 :], scores=scores[:slot] + scores[slot + 1 :]
    )


def run(engine: Engine, layout: TokenLayout = LAYOUT, *methods: str) -> RunResult:
    return engine.run(layout, methods=methods or ("vanilla", "pine"), max_new_tokens=3)


@pytest.fixture(scope="module")
def left_out(engine: Engine) -> dict[str, LeaveOneOut]:
    return engine.leave_one_out(run(engine))


def test_differences_of_vanilla_are_those_of_the_unpatched_model(
    engine: Engine, left_out: dict[str, LeaveOneOut]
) -> None:
    ids = left_out["vanilla"].score.token_ids

    def logprob(layout: TokenLayout) -> float:
        with torch.inference_mode():
            logits = engine.model(torch.tensor([(*layout.ids, *ids)])).logits[0, -len(ids) - 1 : -1]
        return float(logits.double().log_softmax(-1)[range(len(ids)), list(ids)].sum())

    base = logprob(LAYOUT)
    expected = [base - logprob(without(LAYOUT, slot)) for slot in range(3)]
    assert left_out["vanilla"].differences == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("method", first_daily(sorted(METHODS, key=lambda name: name != "pine")))
def test_scores_equal_those_of_prompts_without_a_document(
    engine: Engine, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(engine, LAYOUT, method)
    found = engine.leave_one_out(result)[method]
    answer = result.answers[method]
    monkeypatch.setattr(engine, "tokenize_answer", lambda _: answer.token_ids)
    for layout, score in zip(
        (LAYOUT, *(without(LAYOUT, slot) for slot in range(3))), (found.score, *found.without), strict=True
    ):
        assert [score] == engine.score(layout, answer.text, methods=method)[method]
    assert found.to_dict()["differences"] == [found.score.total - one.total for one in found.without]


def test_differences_of_pine_do_not_depend_on_the_order(
    engine: Engine, left_out: dict[str, LeaveOneOut]
) -> None:
    again = engine.leave_one_out(run(engine, LAYOUT.reorder(ORDER)))
    moved = {method: tuple(one.differences[slot] for slot in ORDER) for method, one in left_out.items()}
    assert again["pine"].differences == moved["pine"]
    assert again["vanilla"].differences != moved["vanilla"]


def test_leave_one_out_refuses_what_it_cannot_score(engine: Engine) -> None:
    result = run(engine)
    alone = TokenLayout(LAYOUT.prefix, LAYOUT.documents[:1], LAYOUT.suffix)
    empty = engine.run(LAYOUT, methods="pine", max_new_tokens=0)
    wrong_results: list[Any] = [replace(result, layout=alone), empty, "text"]
    for wrong in wrong_results:
        with pytest.raises(InputError, check=has_field("result")):
            engine.leave_one_out(wrong)
    with pytest.raises(InputError, check=has_field("methods")):
        engine.leave_one_out(result, methods="pcw")


def test_progress_counts_prompts(engine: Engine) -> None:
    seen: list[float] = []
    engine.leave_one_out(run(engine), methods="pine", progress=lambda share, _: seen.append(share))
    assert seen == [0.25, 0.5, 0.75, 1.0]
