"""Tutorial: links of the texts, guesses, switched figures, and a document without a network."""

import json

import plotly.graph_objects as go

import viz.figures.frame as frame
from tests.support.viz_reading import Element, read_html
from viz.cards import tutorial as cards

TEXT = "A [short](term:token) text.\n\nIt shows [one](mark:first) & [other](mark:last)."
STEPS = tuple(cards.Step(name, name, TEXT, "section 3", "Masks", "<b>picture</b>") for name in ("one", "two"))


def addresses(root: Element) -> list[str]:
    names = ("src", "href", "action", "formaction", "poster", "data", "srcset", "background")
    return [one.attributes[name] for one in root.walk() for name in names if name in one.attributes]


def test_text_links_terms_and_marks() -> None:
    (first, *_) = read_html(cards.tutorial(STEPS, is_live=False)).all("article")
    buttons = {button.text: button.attributes for button in first.all("button")}
    assert buttons["short"]["data-term"] == "term-token"
    assert [buttons[words]["data-mark"] for words in ("one", "other")] == ["first", "last"]
    assert STEPS[0].marks == {"first", "last"}
    assert len(first.with_class("pine-tutorial-text")[0].all("p")) == 2


def test_steps_of_the_file_are_complete() -> None:
    for step in cards.CONTENT["steps"]:
        fields = {field: step[field] for field in ("name", "heading", "text", "section", "live")}
        assert "](" not in cards.tutorial([cards.Step(**fields)], is_live=True)  # every link is rendered
        assert len(step["text"].split()) <= 90


def test_only_the_page_links_to_its_tabs() -> None:
    for is_live, tabs in ((True, ["Masks"] * 2), (False, [])):
        links = read_html(cards.tutorial(STEPS, is_live=is_live)).all("a")
        assert [link.attributes["data-live"] for link in links if "data-live" in link.attributes] == tabs


def test_saved_tutorial_leads_to_the_paper_only() -> None:
    html = cards.tutorial_page(
        STEPS, run="<p>run</p>", title="T", about="A", styles="a{}", scripts=["let one;", "let two;"]
    )
    root = read_html(html)
    assert set(addresses(root)) == {cards.PAPER}
    (policy,) = [meta for meta in root.all("meta") if "http-equiv" in meta.attributes]
    assert policy.attributes["content"].startswith("default-src 'none'")
    assert [script.text.strip() for script in root.all("script")][1:] == ["let one;", "let two;"]


def test_quiz_has_one_answer_where_all_are_equal() -> None:
    root = read_html(cards.quiz("Who?", {"Vanilla": ["a", "b", "a"], "PINE": ["b", "b", "b"]}, figure="x"))
    truths = {entry.attributes["aria-label"]: entry.attributes["data-truth"] for entry in entries(root)}
    assert truths == {"Vanilla": "different", "PINE": "same"}
    for entry in entries(root):
        assert [button.attributes["data-guess"] for button in entry.all("button")] == ["same", "different"]
    assert "2 answers" in entries(root)[0].text


def entries(root: Element) -> list[Element]:
    return root.with_class("pine-quiz-entry")


def test_figures_are_switched_by_their_names() -> None:
    figures = {name: frame.new_figure(name=name, title=name, caption="c", height=200) for name in "ab"}
    root = read_html(cards.figure_html(figures, label="Order", note="0 cells differ"))
    assert not root.all("script"), "gradio warns of scripts"
    drawn = [json.loads(data.text) for data in root.all("data")]
    assert [go.Figure(one["data"], one["layout"]).layout.title.text for one in drawn] == ["a", "b"]
    shows = {button.text: button.attributes["data-show"] for button in root.all("button")}
    assert shows == {"a": "0", "b": "1"} and "0 cells differ" in root.text
    assert not read_html(cards.figure_html({"": figures["a"]})).all("button")


def test_every_term_has_its_explanation() -> None:
    page = read_html(cards.explanations_html())
    explained = {div.attributes["id"]: div.text for div in page.with_class("pine-explanation")}
    assert len(explained) == len(cards.TERMS)
    for name, meaning in cards.TERMS.items():
        (button,) = read_html(cards.term(name)).all("button")
        assert button.text == name and meaning in explained[button.attributes["data-term"]]
