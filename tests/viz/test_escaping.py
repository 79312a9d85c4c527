"""Escaping: texts of others come out of all cards and pictures as they went in."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from plotly.graph_objects import Figure

import pine_engine as pine
from pine_engine.evaluation.report.tables import Part, Table
from tests.support.figure_records import answer_with, cell, order_row
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from tests.viz.cards.test_certificate import RECORDED
from tests.viz.figures.test_bias_curve import CURVE
from viz.cards.answers import AnswerCard, Reading, answer_grid
from viz.cards.certificate import certificate_page
from viz.cards.compare import answers_picture
from viz.cards.measured import key_findings
from viz.cards.shuffle import shuffle_answer, verdict_html
from viz.cards.tutorial import Step, figure_html, quiz, run_html, tutorial
from viz.drawing.identity import document_segment, legend
from viz.drawing.picture import Numbers, picture, switch
from viz.export.report import report_page


def certificate(text: str) -> str:
    recorded = pine.read_certificate(RECORDED)
    documents = [replace(one, text=text, title=text) for one in recorded.request.documents]
    request = recorded.request.model_copy(
        update={"question": text, "instruction": text, "documents": documents}
    )
    results = [one.model_copy(update={"first_answer": text}) for one in recorded.results]
    changed = recorded.model_copy(update={"request": request, "results": results, "command": text})
    return certificate_page(changed, facts={text: text}, styles="")


def report(text: str) -> str:
    table = Table(text, (text, text), ((text, text),), 1, text)
    curve = replace(CURVE, title=text, x_title=text, y_title=text, places=(text, "2", "3"), note=text)
    return report_page([Part(text, (text,), (table,), (curve,), (text,))], title=text, made=text)


DRAWINGS: dict[str, Callable[[str], str]] = {
    "answers": lambda text: answer_grid(
        [
            AnswerCard("m", text, text, True, "finished", text, reading=Reading(text, text, 1.0)),
            AnswerCard("m", text, text, True, "failed", message=text, model=text),
        ]
    ),
    "certificate": certificate,
    "compare": lambda text: answers_picture(
        [answer_with(text, [text]), answer_with("b", [text, text])], dtype=text, queries=[text]
    ),
    "findings": lambda text: key_findings([text]),
    "legend": lambda text: legend([document_segment(0)], [text]),
    "picture": lambda text: picture("", Numbers((text,), ((text,),), "x", text), readout=text),
    "quiz": lambda text: quiz(text, {text: [text]}, figure="", explanation=""),
    "figure": lambda text: figure_html({text: Figure(), "b": Figure()}, label=text, note=text),
    "report": report,
    "run": lambda text: run_html(text, [(document_segment(0), text)], {text: text}),
    "shuffle answer": lambda text: shuffle_answer(
        replace(pine.METHODS["pine"], label=text),
        order_row([0], {"pine": replace(cell(text, 1.0), token_text=text)}),
        order_row([0], {"pine": cell("b")}),
    ),
    "switch": lambda text: switch(text, [(text, {"other": text})], text),
    "tutorial": lambda text: tutorial([Step("a", text, text, text, source=text)], is_live=True),
    "verdict": lambda text: verdict_html(
        [pine.METHODS["pine"]], [order_row([0], {"pine": cell(text)})] * 2, caption=text
    ),
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("name", DRAWINGS)
def test_hostile_text_stays_text(name: str, text: str) -> None:
    html = DRAWINGS[name](text)
    if name not in ("certificate", "figure", "report", "tutorial"):  # these have links or scripts
        assert_harmless(html)
    root = read_html(html)
    assert text in root.text and not root.all("img")
