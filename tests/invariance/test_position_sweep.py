"""Position sweep: scores equal Engine.score; invariant methods have equal scores in all slots."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from pine_engine import Engine, PrefillProgress, SlotScored, order_effects, sweep_document
from pine_engine.methods.table import METHODS
from pine_engine.prompts.layout import TokenLayout

LAYOUT = TokenLayout(
    tuple(range(60, 73)),
    ((11, 12, 13, 14), (21, 22), (31, 32, 33, 34, 35)),
    (51, 52, 53),
    scores=(0.5, 2.0, 0.5),
)
ANSWER = "hello"


@pytest.mark.slow
def test_sweep_scores_equal_score_of_reordered_prompt(engine: Engine) -> None:
    events = list(sweep_document(engine, LAYOUT, document=2, answer=ANSWER, methods=[*METHODS]))
    slots = [event for event in events if isinstance(event, SlotScored)]
    assert [(item.slot, item.order) for item in slots] == [(0, (2, 0, 1)), (1, (0, 2, 1)), (2, (0, 1, 2))]
    for item in slots:
        expected = engine.score(LAYOUT.reorder(item.order), [ANSWER], methods=[*METHODS])
        assert item.scores == {method: score for method, (score,) in expected.items()}
        assert all(len(score.logprobs) == len(ANSWER) for score in item.scores.values())
    identical = {method for method in METHODS if len({item.scores[method].logprobs for item in slots}) == 1}
    reordered = {row.name for row in METHODS.values() if row.score}  # may be the same in several slots
    assert identical - reordered == {
        row.name for row in METHODS.values() if row.is_order_invariant and not row.score
    }
    for method in ("vanilla", "nia"):
        totals = [item.scores[method].total for item in slots]
        assert max(totals) - min(totals) > 1e-3
    names = [event.method if isinstance(event, PrefillProgress) else "slot" for event in events if event]
    # Methods with a first pass, or several streams, begin each layer more than once.
    per_slot = [[*METHODS, "slot"].index(name) for name in names]
    borders = [index + 1 for index, name in enumerate(names) if name == "slot"]
    assert len(borders) == 3 and borders[-1] == len(names)
    for start, stop in pairwise([0, *borders]):
        assert per_slot[start:stop] == sorted(per_slot[start:stop])
        assert Counter(names[start:stop])["pine"] == engine.num_layers


SCORES = st.floats(-500, 0).map(lambda value: round(value, 3))


@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=20))
def test_order_effects_sum_to_total_and_are_centered(pairs: list[tuple[float, float]]) -> None:
    vanilla, nia = zip(*pairs, strict=True)
    effects = order_effects(vanilla, nia)
    sums = [rope + causal for rope, causal in zip(effects.rope, effects.causal, strict=True)]
    assert sums == pytest.approx(effects.total, abs=1e-9)
    assert effects.rope == pytest.approx([score - sum(nia) / len(nia) for score in nia], abs=1e-9)
    for part in (effects.total, effects.rope, effects.causal):
        assert sum(part) == pytest.approx(0, abs=1e-9)
