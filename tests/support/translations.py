"""Texts of the page that no pair of a language translates, as assets/language.js finds them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pine_engine.lab.debias.wrappers import DEBIASERS
from pine_engine.lab.evaluation.document_orders import ORDERS
from pine_engine.methods.table import METHODS
from tests.support.javascript import Call, scripts
from tests.support.viz_reading import Element, read_html
from viz.page.serving.languages import load_languages

LABELS = ("title", "aria-label", "placeholder", "alt", "data-readout", "data-default-text")
SKIPPED = ("script", "style", "textarea", "pre", "code")
FIELDS = ("label", "info", "placeholder")

HOLE = re.compile(r"\{@{1,2}\w+\}")
DONE = "·"
NAMES = sorted(
    {
        *(method.label for method in METHODS.values()),
        *(wrapper.label for wrapper in DEBIASERS.values()),
        *ORDERS,
        *("gold-at:", "float32", "float16", "bfloat16", "auto", "4bit", "RoPE", "PINE Explorer"),
        *("Ctrl", "Shift", "Alt", "Enter", "Esc", "PNG", "SVG", "HTML", "CSV", "JSON"),
    },
    key=len,
    reverse=True,
)
WORD = re.compile(r"[^\W\d_]{3}")


Found = tuple[str, ...]
"""A text, or a sentence with numbered elements and then its parts, which are translated if it is not."""


def html_texts(html: str) -> Iterator[Found]:
    """Yield the texts and labels of some HTML, except those of users and models."""
    yield from _texts(read_html(html))


def _texts(node: Element) -> Iterator[Found]:
    if node.attributes.get("translate") == "no":
        return
    yield from ((label,) for name in LABELS if (label := node.attributes.get(name)))
    if node.tag in SKIPPED:
        return
    elements = node.children
    texts = [part for part in node.parts if isinstance(part, str) and part.strip()]
    is_sentence = bool(elements and texts)
    is_sentence &= not any(element.children for element in elements)
    if is_sentence:
        numbers = {id(element): number for number, element in enumerate(elements, start=1)}
        tagged = [
            part if isinstance(part, str) else f"<{numbers[id(part)]}>{part.text}</{numbers[id(part)]}>"
            for part in node.parts
        ]
        open_elements = [one for one in elements if one.attributes.get("translate") != "no"]
        inner = [one.text for one in open_elements if one.tag not in SKIPPED]
        yield ("".join(tagged), *texts, *inner)
        yield from ((label,) for one in elements for name in LABELS if (label := one.attributes.get(name)))
        return
    yield from ((text,) for text in texts)
    for element in elements:
        yield from _texts(element)


def component_texts(component: dict[str, Any]) -> Iterator[Found]:
    """Yield the texts of a widget of the page, from its configuration."""
    props, kind = component["props"], component["type"]
    if props.get("visible") in (False, "hidden"):
        return
    labels = [props.get(name) for name in FIELDS]
    yield from ((label,) for label in labels if isinstance(label, str) and not label.startswith("{"))
    yield from ((choice[0],) for choice in props.get("choices") or ())
    value = props.get("value")
    if kind == "html" and isinstance(value, str) and not value.startswith(("{", "[")):
        yield from html_texts(value)
    if kind.endswith("button") and isinstance(value, str):
        yield (value,)


@cache
def _script() -> Call:
    return scripts("language", "figure_texts")


def figure_texts(figures: Iterable[str]) -> Iterator[Found]:
    """Yield the texts of figures as JSON, which viz/drawing/figure_texts.js finds."""
    function = """(figures) => {
      const found = new Set();
      const note = (text) => found.add(text) && text;
      for (const figure of figures) pine.figure_texts.translatedFigure(figure, note);
      return [...found];
    }"""
    found = _script()(function, [json.loads(one) for one in figures])
    yield from ((text,) for text in found)


def translate(texts: Sequence[str], pairs: Sequence[tuple[str, str]], language: str) -> list[str]:
    """Return the texts as assets/language.js translates them."""
    function = f"(texts) => texts.map(pine.language.translator({json.dumps(pairs)}, {language!r}))"
    translated: list[str] = _script()(function, texts)
    return translated


def untranslated(found: Iterable[Found], language: str, names: Sequence[str] = ()) -> list[str]:
    """Return what no pair of the language translates of these texts, with a sign in place of the rest."""
    pairs = [
        (english, DONE + "".join(HOLE.findall(english)))
        for part in load_languages()[language].values()
        for english in part
    ]
    alternatives = sorted({tuple(" ".join(text.split()) for text in texts) for texts in found})
    texts = sorted({text for several in alternatives for text in several})
    left = dict(zip(texts, translate(texts, pairs, "en"), strict=True))
    known = re.compile("|".join(map(re.escape, (*names, *NAMES))))

    def is_done(text: str) -> bool:
        return not WORD.search(known.sub("", left[text]))

    missing: list[str] = []
    for first, *others in alternatives:
        if not is_done(first):
            missing += [left[text] for text in others or [first] if not is_done(text)]
    return sorted({*missing})
