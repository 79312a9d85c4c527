"""Tab "Tutorial", of the recorded run or the last run; the texts are in viz/cards/tutorial.toml."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import gradio as gr
import numpy as np
import plotly.graph_objects as go
from gradio.processing_utils import save_bytes_to_cache

import pine_engine as pine
import viz
from pine_engine.methods.plan import starts_from_ranking
from pine_engine.methods.table import TUTORIAL_METHODS
from viz.cards import tutorial as cards
from viz.cards.shuffle import answer_letters
from viz.drawing.identity import Segment, document_letter, order_name
from viz.drawing.markup import empty_panel, figure_styles, render
from viz.drawing.scripts import join_modules
from viz.figures.shuffle import plot_answers
from viz.page.answers.answering import is_correct_by
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import Recording, tutorial_recording
from viz.page.common.look import PLOTLY, SCRIPTS
from viz.page.common.widgets import PRIVATE_EVENT, bind
from viz.page.form.examples import load_examples
from viz.page.internals_figures import of_method
from viz.page.selection import first_selection, shown_place
from viz.page.traced_run import plan_of, run_documents
from viz.theme import CHOSEN

FILE_NAME = "pine-tutorial.html"

CLICK_SAVE = "() => document.querySelector('#tutorial-file').click()"
"""Script: the file is created on click, then a hidden button saves it."""

Shapes = list[dict[str, Any]]


def build_tutorial(finished: gr.State) -> dict[gr.HTML, Callable[[], str]]:
    """Build the tab and connect its events; return what draws its figures, by widget."""
    with gr.Column(elem_id="tutorial-section", elem_classes="page-section"):
        tutorial = gr.HTML(empty_panel("Loading tutorial…"), elem_id="tutorial")
        with gr.Row(elem_classes="page-row"):
            download = gr.Button("Download tutorial", elem_id="download-tutorial", size="sm", scale=0)
            gr.HTML(
                '<p class="page-caption">A single offline HTML file with your last run (or the precomputed '
                "one). Nothing is uploaded.</p>"
            )
            file = gr.DownloadButton("Tutorial", visible="hidden", elem_id="tutorial-file")
    with gr.Accordion("Worked example: eight tokens", open=False):
        example = gr.HTML(empty_panel("Loading…"), elem_id="running-example")
    with gr.Accordion("Glossary and keyboard shortcuts", open=False):
        gr.HTML(cards.glossary_html(), elem_id="words")
        gr.HTML(f"<h3>Keyboard shortcuts</h3>{cards.keys_html()}", elem_id="keys")
    written = download.click(bind(write_file, file), finished, file, **PRIVATE_EVENT)
    written.success(None, None, None, js=CLICK_SAVE, **PRIVATE_EVENT)
    return {tutorial: tutorial_html, example: running_example_html}


def write_file(button: gr.DownloadButton, run: Run | None) -> str:
    """Write the tutorial into the folder that gradio serves and empties, and return the path of the file."""
    content = tutorial_document(run).encode("utf-8")
    path: str = save_bytes_to_cache(content, FILE_NAME, button.GRADIO_CACHE)
    return path


@cache
def tutorial_html() -> str:
    """Return the HTML of the tutorial for the page, of the recorded run."""
    return cards.tutorial(tutorial_steps(tutorial_recording()), is_live=True)


def tutorial_document(run: Run | None) -> str:
    """Return an HTML document with the tutorial, of the run as far as it has what a figure needs."""
    recording = tutorial_recording()
    run = run if run and run.has_internals else None
    shown = run or recording.run
    answers = {pine.METHODS[method].label: answer.text for method, answer in shown.answer_records.items()}
    return cards.tutorial_page(
        tutorial_steps(recording, run),
        run=cards.run_html(shown.form.question, document_texts(shown), answers),
        title=cards.CONTENT["title"],
        about=f"{f'Your run: {source_of(run)}' if run else recording.run.origin}. This page works offline.",
        styles=figure_styles(),
        scripts=[PLOTLY.read_text(encoding="utf-8"), join_modules(SCRIPTS)],
    )


def tutorial_steps(recording: Recording, run: Run | None = None) -> tuple[cards.Step, ...]:
    """Return the steps. A run replaces the recorded one in each figure for which it has the numbers."""
    run = run or recording.run
    with_vanilla = run if "vanilla" in run.answer_records else recording.run
    with_pine = run if "pine" in run.answer_records and len(run.order) > 1 else recording.run
    with_orders = run if run.other_orders and "vanilla" in run.answer_records else recording.run
    texts = {step["name"]: step for step in cards.CONTENT["steps"]}
    pictures = {
        "bias": (_guess(with_orders, recording, texts["bias"], methods=["vanilla"]), with_orders),
        "mask": (cards.figure_html({"": mask_figure(run, "vanilla", "nia")}), run),
        "rope": (cards.figure_html({"": position_figure(with_vanilla)}), with_vanilla),
        "both-ways": (cards.figure_html({"": mask_figure(run, "vanilla", "pine")}), run),
        "importance": (cards.figure_html({"": importance_figure(with_pine, with_pine)}), with_pine),
        "places": (cards.figure_html({"": map_figure(with_pine)}), with_pine),
        "proof": (_proof(recording), recording.run),
        "quiz": (
            _guess(with_orders, recording, texts["quiz"], methods=list(with_orders.answer_records)),
            with_orders,
        ),
    }
    steps = []
    for name, text in texts.items():
        picture, shown = pictures.get(name, ("", None))
        fields = {field: text[field] for field in ("heading", "text", "section", "live")}
        steps.append(cards.Step(name, **fields, picture=picture, source=source_of(shown) if shown else ""))
    return tuple(steps)


def source_of(run: Run) -> str:
    """Return the origin of a run: the date of the recording, or model and dtype."""
    return run.origin or f"{run.model}, {run.dtype}"


def document_texts(run: Run) -> list[tuple[Segment, str]]:
    """Return the documents of the run in input order, with their texts in the prompt."""
    layout = run.result.layout
    return [
        (segment, "".join(run.prompt_tokens[layout.document_slice(slot)]).strip())
        for slot, segment in enumerate(run_documents(run))
    ]


# Guesses


def _guess(run: Run, recording: Recording, text: dict[str, str], *, methods: Sequence[str]) -> str:
    """Render a guess for each method, and its answers in all orders of the run."""
    answers = {
        method: tuple(one.texts[method] for one in run.orders.values())
        for method in methods
        if method in run.answer_records
    }
    labels = {method: pine.METHODS[method].label for method in answers}
    example = next((one for one in load_examples() if one.name == recording.example), None)
    # With several methods, the question is which of them change their answer.
    is_scored = run is recording.run and len(methods) == 1
    is_right = is_correct_by(run.form.row, example.answers) if example and is_scored else None
    figure = plot_answers(list(run.orders), answers, labels=labels, is_right=is_right)
    figure.update_layout(height=90 + 24 * min(len(run.orders), 14), xaxis_tickangle=0)
    before = explanation = ""
    if len(methods) == 1:
        before = cards.run_html(run.form.question, document_texts(run))
        letters = answer_letters((one for texts in answers.values() for one in texts), is_right)
        explanation = render("tutorial_answers.html", letters=letters, takeaway=text["takeaway"])
    by_label = {labels[method]: texts for method, texts in answers.items()}
    guesses = cards.quiz(
        text["question"], by_label, figure=cards.figure_html({"": figure}), explanation=explanation
    )
    return before + guesses


# Figures, with the marks that words of the text highlight


def _mark(x: tuple[float, float], y: tuple[float, float], panel: str = "") -> dict[str, Any]:
    """Return the shape of a mark between two values on each axis."""
    ends = {"x0": x[0] - 0.5, "x1": x[1] - 0.5, "y0": y[0] - 0.5, "y1": y[1] - 0.5}
    line = {"color": CHOSEN, "width": 3}
    return {"type": "rect", "xref": f"x{panel}", "yref": f"y{panel}", "line": line, **ends}


def _cell(column: int, row: int) -> dict[str, Any]:
    return _mark((column, column + 1), (row, row + 1))


def _with_marks(figure: go.Figure, marks: dict[str, Shapes]) -> go.Figure:
    return figure.update_layout(meta={**figure.layout.meta, "marks": marks})


def mask_figure(run: Run, *methods: str) -> go.Figure:
    """Plot the masks of two methods for the prompt of the run."""
    figure = viz.plot_masks([plan_of(run, method) for method in methods], order=run.order)
    figure.update_layout(height=355, title_text="Attention masks by token")
    layout = run.result.layout
    bounds = [
        (start, start + length)
        for start, length in zip(layout.document_starts.tolist(), layout.lengths.tolist(), strict=True)
    ]
    whole, second = (0, layout.num_tokens), "2" if len(figure.data) > 1 else ""
    marks = {
        "last": [_mark(whole, bounds[-1])],
        "first": [_mark(whole, bounds[0])],
        "nia": [_mark(whole, whole, second)],
        "later": [
            _mark(later, earlier, second) for slot, later in enumerate(bounds) for earlier in bounds[:slot]
        ],
        "inside": [_mark(document, document, second) for document in bounds],
    }
    return _with_marks(figure, marks)


def position_figure(run: Run) -> go.Figure:
    """Plot the positions of the documents for the last token of the question under vanilla."""
    trace, query = run.result.traces["vanilla"], run.result.layout.suffix_length - 1
    figure = viz.plot_method_positions(
        [trace], query=query, layer=0, head=0, order=run.order, labels={"vanilla": "Vanilla"}
    )
    figure.update_layout(title_text="Document positions for the last token of the question")
    starts, lengths = trace.suffix_starts[0, 0, query].tolist(), trace.layout.lengths.tolist()
    bars = [
        _mark((start + 0.5, start + length + 0.5), (0, 1))
        for start, length in zip(starts, lengths, strict=True)
    ]
    return _with_marks(figure, {"near": bars[-1:], "far": bars[:1]})


def importance_figure(run: Run, selected_in: Run) -> go.Figure:
    """Plot the importance of the documents under PINE, in the most decisive head of another run."""
    trace, place = run.result.traces["pine"], shown_place(selected_in, first_selection(selected_in))
    assert trace.document_importance is not None
    values = trace.document_importance[place.layer, place.head]
    figure = viz.plot_importance(trace, layer=place.layer, head=place.head, order=run.order)
    count = len(run.order)
    marks = {
        "pair": [_cell(1, 0)],
        "most": [_cell(int(np.nanargmax(row)), index) for index, row in enumerate(values)],
    } | {
        document_letter(document): [_mark((0, count), (slot, slot + 1)), _mark((slot, slot + 1), (0, count))]
        for slot, document in enumerate(run.order)
    }
    return _with_marks(of_method(figure, "PINE"), marks)


def map_figure(run: Run) -> go.Figure:
    """Plot the positions of the documents for all documents and the question under PINE."""
    place, count = shown_place(run, first_selection(run)), len(run.order)
    figure = viz.plot_position_map(
        run.result.traces["pine"], layer=place.layer, head=place.head, order=run.order
    )
    own = [_cell(slot, slot) for slot in range(count)]
    return _with_marks(of_method(figure, "PINE"), {"own": own, "column": [_mark((1, 2), (0, count + 1))]})


# The proof


def _proof(recording: Recording) -> str:
    """Render the importances of two orders, of which a switch shows one, and the count of differences."""
    runs = (recording.run, recording.exchanged)
    figures = {order_name(run.order): importance_figure(run, recording.run) for run in runs}
    trace = recording.run.result.traces["pine"]
    layers, heads = trace.document_starts.shape[:2]
    num_different, num_compared = num_different_cells(*runs)
    note = (
        f"{num_different} cells differ: {num_compared:,} importances and positions compared, "
        f"all {layers} layers and {heads} heads."
    )
    return cards.figure_html(figures, label="Input order", note=note)


def num_different_cells(one: Run, other: Run) -> tuple[int, int]:
    """Count the importances and positions under PINE that differ between two orders, and all of them."""
    pairs = list(zip(_by_document(one), _by_document(other), strict=True))
    different = [(left != right) & ~(np.isnan(left) & np.isnan(right)) for left, right in pairs]
    return sum(int(cells.sum()) for cells in different), sum(cells.size for cells in different)


def _by_document(run: Run) -> list[np.ndarray]:
    """Return importances and starts with the documents as entered, each (A, H, Q, D)."""
    trace, slots = run.result.traces["pine"], np.argsort(run.order)
    last = run.result.layout.suffix_length - 1
    assert trace.document_importance is not None and trace.suffix_importance is not None
    between = [trace.document_importance, trace.document_starts]
    from_question = [trace.suffix_importance, trace.suffix_starts]
    return [array[:, :, slots][..., slots] for array in between] + [
        array[:, :, last : last + 1][..., slots] for array in from_question
    ]


# The paper's running example: one system token, three documents of two tokens, one answer token

EXAMPLE = pine.TokenLayout(prefix=(0,), documents=((1, 2), (3, 4), (5, 6)), suffix=(7,))

# Documents by importance, the most important first (specification 6.1); for a document, first itself.
DOCUMENT_RANKINGS = np.array(((0, 1, 2), (1, 2, 0), (2, 0, 1)))
DECODED_RANKING = np.array((1, 2, 0))


def example_trace(method: "pine.Method") -> "pine.Trace":
    """Return the positions of the documents for each document and the decoded token."""
    plan = pine.build_plan(method, EXAMPLE)
    starts, decoded_starts = plan.document_starts, plan.suffix_document_starts
    if starts is None or decoded_starts is None:
        starts = starts_from_ranking(DOCUMENT_RANKINGS, EXAMPLE.lengths, EXAMPLE.documents_end)
        decoded_starts = starts_from_ranking(DECODED_RANKING, EXAMPLE.lengths, EXAMPLE.documents_end)
    starts = np.where(plan.visible, starts, -1)
    return pine.Trace(
        method.name,
        EXAMPLE,
        document_starts=starts[None, None].astype(np.int32),
        suffix_starts=decoded_starts[None, None, None].astype(np.int32),
    )


@cache
def running_example_html() -> str:
    """Render the masks, and the positions for each document and the decoded token under each method."""
    traces = [example_trace(method) for method in TUTORIAL_METHODS]
    labels = {method.name: method.label for method in TUTORIAL_METHODS}
    figures = {}
    for slot in [*range(EXAMPLE.num_documents), None]:
        name = "the decoded token" if slot is None else f"document {document_letter(slot)}"
        figure = viz.plot_method_positions(traces, document=slot, layer=0, head=0, labels=labels)
        figures[name] = figure.update_layout(title_text=f"Document positions for {name}")
    masks = viz.plot_masks([pine.build_plan(method, EXAMPLE) for method in TUTORIAL_METHODS])
    return render(
        "running_example.html",
        text=cards.CONTENT["example"],
        masks=cards.figure_html({"": masks}),
        positions=cards.figure_html(figures, label="Query"),
    )
