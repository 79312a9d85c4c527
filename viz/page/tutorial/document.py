"""The tutorial as one HTML document, of the last run."""

import pine_engine as pine
from viz.cards import tutorial as cards
from viz.drawing.markup import figure_styles
from viz.drawing.scripts import join_modules
from viz.page.answers.run import Run
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.common.look import PLOTLY, SCRIPTS
from viz.page.tutorial.steps import document_texts, source_of, tutorial_steps


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
