"""Properties of every figure and card: light, named, small, never uploaded, and texts of others escaped."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.graph_objects import Figure
from plotly.offline import get_plotlyjs_version

import pine_engine as pine
import viz
from pine_engine import METHODS, ShuffleResult, build_plan, order_effects
from pine_engine.lab.debias.clusters import Clusters
from pine_engine.lab.evaluation.report.tables import Part, Table
from tests.support.figure_records import LEFT_OUT, STEPS, answer_with, cell, order_row
from tests.support.runs import form_of
from tests.support.viz_reading import HOSTILE, assert_harmless, read_html
from tests.viz.cards.test_answers import card
from tests.viz.figures.test_bias_curve import CURVE
from tests.viz.page.test_certificate_page import RECORDED
from viz import theme
from viz.cards.answers import Reading, answer_grid
from viz.cards.compare import answers_picture
from viz.cards.shuffle import shuffle_answer, verdict_html
from viz.cards.tutorial import Step, figure_html, quiz, run_html, tutorial
from viz.drawing.identity import document_segment, legend
from viz.drawing.markup import empty_panel
from viz.drawing.pictures import Numbers, picture, switch
from viz.lab.report import measured_html, report_page
from viz.page.answers.stale import stale_html
from viz.page.certificate_page import certificate_page
from viz.page.common.failures import notice

CLUSTERS = Clusters(((0, 1), (1, 0), (0, 1)), ((0.0, 1.0), (0.5, -1.0), (0.1, 1.0)), (0, 1, 0), (0, 1))

SCRIPT = Path(__file__).parents[2] / "assets" / "plotly" / "plotly-cartesian.min.js"


def draw_all(shuffled: ShuffleResult, text: str) -> dict[str, partial[go.Figure]]:
    run = shuffled.first
    pine, layout = run.traces["pine"], run.layout
    weights = np.tri(layout.num_tokens, dtype=np.float32)
    labels = dict.fromkeys(("vanilla", "pine", "a"), text)
    rows = [order_row([0], {"pine": cell(text)})]
    line, level = (replace(lines[0], label=text) for lines in (CURVE.lines, CURVE.levels))
    curve = replace(CURVE, title=text, x_title=text, y_title=text, places=(text, "2", "3"))
    curve = replace(curve, lines=(line,), levels=(level,), areas=((text, *CURVE.areas[0][1:]),))
    answer = answer_with(text, [text], alternatives=[[(text, 0.5), ("a " + text, 0.25)]])
    draws: list[partial[go.Figure]] = [
        partial(viz.plot_position_sweep, STEPS, labels=labels),
        partial(viz.plot_leave_one_out, LEFT_OUT, labels=labels),
        partial(viz.plot_answer_attention, [answer, answer]),
        partial(viz.plot_attention, {"a": weights}, layout, labels=labels),
        partial(viz.plot_attention_shares, pine, steps=2),
        partial(viz.plot_clusters, replace(CLUSTERS, answers=(text, text))),
        partial(viz.plot_bias_curve, [curve, replace(curve, has_bars=True)]),
        partial(viz.plot_head_decisiveness, pine), partial(viz.plot_importance, pine),
        partial(viz.plot_next_token_candidates, answer, answer_with("PINE", ["x"])),
        partial(viz.plot_masks, [build_plan(METHODS["pine"], layout)]),
        partial(viz.plot_method_positions, run.traces, layer=0, head=0, labels=labels),
        partial(viz.plot_order_effects, order_effects([-1, -2], [-1, -3])),
        partial(viz.plot_logprob_by_order, rows, labels=labels),
        partial(viz.plot_position_map, pine, layer=0, head=0), partial(viz.plot_positions, pine),
        partial(viz.plot_query_attention, {"a": weights}, 3, tokens=[text] * len(weights), labels=labels),
        partial(viz.plot_shuffle, rows, labels=labels),
        partial(viz.plot_positions_by_order, shuffled.results, labels=labels),
        partial(viz.plot_answer_importance, pine, [text, text]),
    ]  # fmt: skip
    return {draw.func.__name__: draw for draw in draws}


@pytest.fixture(scope="module")
def figures(tiny_shuffle: ShuffleResult) -> dict[str, go.Figure]:
    return {name: draw() for name, draw in draw_all(tiny_shuffle, "x").items()}


@pytest.mark.parametrize(
    ("missing", "refused"),
    [
        (["suffix_attention"], {"plot_attention_shares", "plot_head_decisiveness"}),
        (
            ["suffix_attention", "suffix_importance", "document_importance"],
            {"plot_attention_shares", "plot_head_decisiveness", "plot_importance", "plot_answer_importance"},
        ),
    ],
)
def test_trace_without_attention_raises(
    tiny_shuffle: ShuffleResult, missing: list[str], refused: set[str]
) -> None:
    first = tiny_shuffle.results[0]
    absent: dict[str, Any] = dict.fromkeys(missing)
    traces = {name: replace(trace, **absent) for name, trace in first.result.traces.items()}
    order = replace(first, result=replace(first.result, traces=traces))
    found = set()
    for name, draw in draw_all(replace(tiny_shuffle, results=(order,)), "x").items():
        try:
            draw()
        except pine.InputError as error:
            assert error.field == "trace"
            found.add(name)
    assert found == refused


def test_every_function_is_drawn_here(figures: dict[str, go.Figure]) -> None:
    assert sorted(figures) == sorted(viz.__all__)


@pytest.mark.parametrize("name", viz.__all__)
def test_figure_has_name_title_caption_and_template(figures: dict[str, go.Figure], name: str) -> None:
    layout = figures[name].layout
    assert layout.title.text and layout.height > 100
    assert layout.template.layout == go.Figure(layout={"template": theme.TEMPLATE}).layout.template.layout
    assert layout.meta["name"].replace("-", "").isalnum()
    assert set(layout.meta) >= {"name", "caption"}


@pytest.mark.parametrize("text", [text for text in HOSTILE if "<" in text])
def test_untrusted_text_is_no_markup(tiny_shuffle: ShuffleResult, text: str) -> None:
    for name, draw in draw_all(tiny_shuffle, text).items():
        figure = draw().update_traces(meta=None).update_layout(meta=None)
        drawn = figure.to_json().replace("\\u003c", "<")
        assert not any(tag in drawn for tag in ("<img", "<script", "</td", "<|im")), name


def test_script_has_the_version_of_the_package() -> None:
    version = f"plotly.js (cartesian - minified) v{get_plotlyjs_version()}\n"
    assert version in SCRIPT.read_text(encoding="utf-8")[:200]
    assert "MIT" in (SCRIPT.parent / "LICENSE").read_text(encoding="utf-8")


def certificate(text: str) -> str:
    recorded = pine.read_certificate(RECORDED)
    documents = [replace(one, text=text, title=text) for one in recorded.request.documents]
    parts = {"question": text, "instruction": text, "documents": documents}
    request = recorded.request.model_copy(update=parts)
    results = [one.model_copy(update={"first_answer": text}) for one in recorded.results]
    changed = recorded.model_copy(update={"request": request, "results": results, "command": text})
    platform = recorded.platform.model_copy(update={"model": text})
    return certificate_page(changed.model_copy(update={"platform": platform}))


def report(text: str) -> str:
    table = Table(text, (text, text), ((text, text),), 1, text)
    curve = replace(CURVE, title=text, x_title=text, y_title=text, places=(text, "2", "3"), note=text)
    return report_page([Part(text, (text,), (table,), (curve,), (text,))], title=text, made=text)


DRAWINGS: dict[str, Callable[[str], str]] = {
    "answer": lambda text: answer_grid(
        [card("finished", text=text, model=text, reading=Reading(text, text, 1.0))]
    ),
    "certificate": certificate,
    "compare": lambda text: answers_picture(
        [answer_with(text, [text]), answer_with("b", [text, text])], dtype=text, queries=[text]
    ),
    "empty panel": lambda text: empty_panel(text, press="run", label=text),
    "legend": lambda text: legend([document_segment(0)], [text]),
    "measured": lambda text: measured_html(
        1, 1, findings=[text], tables=[Table(text, (text,), ((text,),))], note=text, reading=[text]
    ),
    "notice": lambda text: notice(text, kind="error"),
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
    "stale": lambda text: stale_html(form_of(question=text), ["question"], press="run"),
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
