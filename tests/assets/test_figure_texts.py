"""Translation of plotly figures, as viz/drawing/figure_texts.js computes it."""

import json
from typing import Any

import pytest

from tests.support.javascript import Call, scripts

PAIRS = [
    ("attention", "Aufmerksamkeit"),
    ("slot", "Platz"),
    ("document {letter}", "Dokument {letter}"),
    ("{method}, slot {n}: {m} nats", "{n} ({m} nats): {method}"),
    ("{n} {n:answer|answers}", "{n} {n:Antwort|Antworten}"),
    ("Attention of layer {n}", "Schicht {n}"),
    ("Gray: masked.", "Grau: maskiert."),
]


@pytest.fixture(scope="module")
def call() -> Call:
    return scripts("language", "figure_texts")


def translated(call: Call, **figure: Any) -> Any:
    whole = {"data": [], "layout": {}, **figure}
    translate = f"pine.language.translator({json.dumps(PAIRS)}, 'de')"
    given = f"(figure) => pine.figure_texts.translatedFigure(figure, {translate})"
    return call(given, whole)


def test_titles_axes_and_caption_are_translated(call: Call) -> None:
    layout = {
        "title": {"text": "Attention of layer 2"},
        "xaxis": {"title": {"text": "slot"}, "ticktext": ["document A", "slot"], "tickvals": [0, 1]},
        "coloraxis": {"colorbar": {"title": {"text": "attention"}}},
        "annotations": [{"text": "<b>attention</b><br>1 answer", "xref": "x domain"}],
        "meta": {"name": "attention", "caption": "Gray: masked."},
        "template": {"layout": {"title": {"text": "slot"}}},
    }
    changed = translated(call, layout=layout)["layout"]
    assert changed["title"]["text"] == "Schicht 2"
    assert changed["xaxis"] == {
        "title": {"text": "Platz"},
        "ticktext": ["Dokument A", "Platz"],
        "tickvals": [0, 1],
    }
    assert changed["coloraxis"]["colorbar"]["title"]["text"] == "Aufmerksamkeit"
    assert changed["annotations"][0] == {"text": "<b>Aufmerksamkeit</b><br>1 Antwort", "xref": "x domain"}
    assert changed["meta"] == {"name": "attention", "caption": "Grau: maskiert."}
    assert changed["template"] == layout["template"]


def test_values_of_hover_texts_keep_their_formats(call: Call) -> None:
    hover = "%{fullData.name}, slot %{x}: %{y:.4g} nats<extra></extra>"
    trace = {"name": "document B", "x": [1, 2], "y": ["slot", "prefix"], "hovertemplate": hover}
    changed = translated(call, data=[trace], frames=[{"name": "0", "data": [trace]}])
    expected = "%{x} (%{y:.4g} nats): %{fullData.name}<extra></extra>"
    assert changed["data"][0] == {
        "name": "Dokument B",
        "x": [1, 2],
        "y": ["Platz", "prefix"],
        "hovertemplate": expected,
    }
    assert changed["frames"] == [{"name": "0", "data": changed["data"]}]


def test_texts_of_users_and_models_stay(call: Call) -> None:
    layout = {"meta": {"verbatim": ["ticktext", "customdata"]}, "yaxis": {"ticktext": ["slot"]}}
    trace = {"customdata": [["slot"]], "text": [["slot"]], "meta": {"y": [{"name": "slot"}]}}
    changed = translated(call, layout=layout, data=[trace])
    assert changed["layout"]["yaxis"]["ticktext"] == ["slot"]
    assert changed["data"] == [{**trace, "text": [["Platz"]]}]


def test_numbers_of_a_matrix_are_not_changed(call: Call) -> None:
    trace = {"z": {"dtype": "f4", "bdata": "AACAPw==", "shape": "1,1"}, "text": [["a"]]}
    assert translated(call, data=[trace])["data"] == [trace]
