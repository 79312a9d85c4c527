"""Figures of the tutorial: their numbers are those of the run, and the saved file has the reader's run."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pine_engine.engine.engine import Engine
from pine_engine.methods.plan import MASKED
from pine_engine.methods.table import METHODS
from tests.support.running import views_of
from tests.support.runs import with_orders
from tests.support.tokenizers import letter_tokenizer
from tests.support.viz_reading import HOSTILE, read_html
from tests.support.worked_matrices import read_matrix
from tests.viz.cards.test_tutorial import addresses, entries
from viz.cards.tutorial import PAPER, Step
from viz.page.answers.answering import prepare_answers
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.form.documents import entries_from
from viz.page.form.form import Form
from viz.page.selection import first_selection
from viz.page.tutorial.figures import importance_figure, map_figure, mask_figure, position_figure
from viz.page.tutorial.proof import num_different_cells
from viz.page.tutorial.running_example import EXAMPLE, example_trace, running_example_html
from viz.page.tutorial.steps import document_texts, tutorial_steps
from viz.page.tutorial.tab import tutorial_html, write_file

TEXTS = [("Varo", "red"), (HOSTILE[0], HOSTILE[4]), ("", "a white one")]
RECORDING = tutorial_recording()


@pytest.fixture(scope="module")
def steps() -> dict[str, Step]:
    """The steps of the recorded run by name."""
    return {step.name: step for step in tutorial_steps(RECORDING)}


@pytest.fixture(scope="module")
def run(tiny_llama: Callable[..., Any]) -> Run:
    """A run of two methods in one order."""
    return run_of(Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny <b>"))


def run_of(engine: Engine, methods: tuple[str, ...] = ("vanilla", "pine")) -> Run:
    form = Form("retrieval_qa", "Which is green?", "Answer.", methods, 3, entries_from(TEXTS))
    *_, last = views_of(prepare_answers, engine, form)
    assert last.run is not None
    return last.run


def sources(steps: Iterable[Step]) -> dict[str, str]:
    """Return the origin of each figure of the tutorial."""
    return {step.name: step.source for step in steps if step.picture}


def truths(html: str) -> dict[str, str]:
    return {
        entry.attributes["aria-label"]: entry.attributes["data-truth"] for entry in entries(read_html(html))
    }


def test_masks_are_those_of_the_methods() -> None:
    layout = RECORDING.run.result.layout
    starts = layout.document_starts
    vanilla, nia = mask_figure(RECORDING.run, "vanilla", "nia").data
    (_, pine) = mask_figure(RECORDING.run, "vanilla", "pine").data
    for query, key in np.ndindex(3, 3):
        cell = starts[query], starts[key]
        assert np.isnan(vanilla.z[cell]) == (key > query)
        assert np.isnan(nia.z[cell]) == (key != query) and not np.isnan(pine.z[cell])


def test_marks_of_the_masks_are_at_their_documents() -> None:
    marks = mask_figure(RECORDING.run, "vanilla", "pine").layout.meta["marks"]
    layout = RECORDING.run.result.layout
    (last,), (first,) = marks["last"], marks["first"]
    assert (last["y1"], first["y0"]) == (layout.documents_end - 0.5, layout.document_starts[0] - 0.5)
    assert len(marks["later"]) == len(marks["inside"]) == 3
    assert all(mark["x0"] >= mark["y1"] and mark["xref"] == "x2" for mark in marks["later"])


def test_positions_of_vanilla_are_the_input() -> None:
    figure = position_figure(RECORDING.run)
    layout = RECORDING.run.result.layout
    assert [bar.base[0] for bar in figure.data[:3]] == layout.document_starts.tolist()
    (near,), (far,) = (figure.layout.meta["marks"][name] for name in ("near", "far"))
    assert (near["x1"], far["x0"]) == (layout.documents_end, layout.document_starts[0])


def test_importance_and_positions_are_those_of_the_most_decisive_head() -> None:
    run, selected = RECORDING.run, first_selection(RECORDING.run)
    trace = run.result.traces["pine"]
    assert trace.document_importance is not None
    expected = trace.document_importance[selected.layer, selected.head]
    figure = importance_figure(run, run)
    (heat,) = figure.data
    np.testing.assert_allclose(heat.z, expected / np.nansum(expected, 1, keepdims=True), rtol=1e-6)
    most = [int(mark["x0"] + 0.5) for mark in figure.layout.meta["marks"]["most"]]
    assert most == np.nanargmax(expected, axis=1).tolist()
    (cells,) = map_figure(run).data
    np.testing.assert_array_equal(cells.z[:3], trace.document_starts[selected.layer, selected.head])


def test_proof_counts_no_difference_and_finds_one() -> None:
    one, other = RECORDING.run, RECORDING.exchanged
    assert num_different_cells(one, other)[0] == 0 < num_different_cells(one, other)[1]
    trace = other.result.traces["pine"]
    assert trace.document_importance is not None
    changed = trace.document_importance.copy()
    changed[3, 2, 0, 1] = np.nextafter(changed[3, 2, 0, 1], np.float32(9))
    traces = {"pine": replace(trace, document_importance=changed)}
    assert num_different_cells(one, replace(other, result=replace(other.result, traces=traces)))[0] == 1


def test_document_keeps_its_numbers_when_the_order_is_switched() -> None:
    cells = []
    for run in (RECORDING.run, RECORDING.exchanged):
        (heat,) = importance_figure(run, RECORDING.run).data
        cells.append(
            {(row, column): value for row, line in zip(heat.y, heat.z, strict=True)
             for column, value in zip(heat.x, line, strict=True) if not np.isnan(value)}
        )  # fmt: skip
    assert cells[0] == cells[1] and list(cells[0]) != list(cells[1])


def test_marks_of_a_step_are_in_its_figure(steps: dict[str, Step]) -> None:
    for step in steps.values():
        for mark in step.marks:
            assert f'"{mark}":[{{' in step.picture, step.name


def test_quiz_is_about_all_recorded_orders(steps: dict[str, Step]) -> None:
    quiz = steps["quiz"].picture
    answers = [one.records for one in RECORDING.run.orders.values()]
    for method in RECORDING.run.answer_records:
        is_same = len({records[method].text for records in answers}) == 1
        assert truths(quiz)[METHODS[method].label] == ("same" if is_same else "different")
    assert set(truths(quiz).values()) == {"same", "different"}


def test_run_of_one_order_leaves_the_orders_recorded(run: Run, steps: dict[str, Step]) -> None:
    recorded, own = sources(steps.values()), "tiny <b>, float32"
    assert set(recorded.values()) == {RECORDING.run.origin}
    expected = {name: recorded[name] for name in ("bias", "proof", "quiz")}
    assert sources(tutorial_steps(RECORDING, run)) == dict.fromkeys(recorded, own) | expected


def test_run_of_several_orders_replaces_the_quizzes(run: Run) -> None:
    changed = replace(run.answer_records["vanilla"], text="changed <b>")
    tried = with_orders(run, ((2, 1, 0), {**run.answer_records, "vanilla": changed}))
    steps = {step.name: step for step in tutorial_steps(RECORDING, tried)}
    assert truths(steps["quiz"].picture) == {"Vanilla": "different", "PINE": "same"}
    assert "changed <b>" in read_html(steps["bias"].picture).text
    assert steps["bias"].source == steps["quiz"].source == "tiny <b>, float32"


def test_run_without_vanilla_or_pine_keeps_the_masks_only(tiny_llama: Callable[..., Any]) -> None:
    run = run_of(Engine(tiny_llama(max_context_length=1024), letter_tokenizer(), name="tiny"), ("pcw",))
    found = sources(tutorial_steps(RECORDING, run))
    own = [name for name, source in found.items() if source == "tiny, float32"]
    assert own == ["mask", "both-ways"]


def test_saved_file_begins_with_the_run_and_needs_no_network(run: Run, tmp_path: Path) -> None:
    button: Any = SimpleNamespace(GRADIO_CACHE=str(tmp_path))
    path = Path(write_file(button, run))
    html = path.read_text(encoding="utf-8")
    assert tmp_path in path.parents
    root = read_html(html)
    assert set(addresses(root)) == {PAPER} and not root.all("img") and not root.all("iframe")
    first = root.all("main")[0].all("details")[0].text
    texts = dict((segment.label, text) for segment, text in document_texts(run))
    assert TEXTS[1][1] in texts["B"] and all(" ".join(text.split()) in first for text in ("Which is green?",))
    assert all(one.text in first for one in run.answer_records.values())


def test_figures_of_the_tutorial_have_no_selection() -> None:
    assert tutorial_html() is tutorial_html() and "data-pick" not in tutorial_html()


@pytest.mark.parametrize(
    ("method", "title"), [("vanilla", "Vanilla"), ("nia", "NIA"), ("pcw", "PCW (and SP)"), ("pine", "PINE")]
)
def test_running_example_is_that_of_the_paper(method: str, title: str) -> None:
    matrix, _ = read_matrix("6.1", title)
    trace = example_trace(METHODS[method])
    first_tokens = EXAMPLE.document_starts
    for slot, start in enumerate(first_tokens):
        # The second token of a document attends to its first.
        expected = [matrix[start + 1, key] for key in first_tokens]
        assert trace.document_starts[0, 0, slot].tolist() == expected
    assert trace.suffix_starts[0, 0, 0].tolist() == [matrix[-1, key] for key in first_tokens]
    assert MASKED == -1 and len(read_html(running_example_html()).all("data")) == 5
