"""Steps of the tutorial, with the picture of each."""

from collections.abc import Sequence

import pine_engine as pine
from viz.cards import tutorial as cards
from viz.cards.shuffle import answer_letters
from viz.drawing.identity import Segment, order_name
from viz.drawing.markup import render
from viz.figures.shuffle import plot_answers
from viz.page.answers.answering import is_correct_by
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import Recording
from viz.page.form.examples import load_examples
from viz.page.traced_run import run_documents
from viz.page.tutorial.figures import importance_figure, map_figure, mask_figure, position_figure
from viz.page.tutorial.proof import num_different_cells


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
