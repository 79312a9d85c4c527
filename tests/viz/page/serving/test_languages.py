"""Files of viz/languages: complete, with the same holes, and without texts that the page no longer has."""

import json
import re
from functools import cache
from pathlib import Path

import gradio
import pytest
from starlette.requests import Request

from pine_engine.prompts.tasks import TASKS
from tests.support.forks import ROOT
from viz.page.form.editor import question_words, words
from viz.page.serving.languages import (
    FIRST_PARTS,
    LANGUAGES_DIR,
    language_of,
    language_script,
    later_texts,
    load_languages,
)

OTHERS = sorted(load_languages().keys() - {"en"})
HOLE = re.compile(r"\{@{0,2}\w+(?::[^}]*)?\}")
TAG = re.compile(r"</?\d+>")
# Continued lines, ends of adjacent string literals, and the syntax of templates and of texts with links.
BETWEEN = re.compile(r"\\\n\s*|[\"'`]\s*(?:\+\s*)?\n\s*f?[\"'`]|\{%.*?%\}|\]\((?:term|mark):[^)]*\)|\[(?=\S)")


@cache
def sources() -> list[str]:
    """Return the texts of all files that can have words of the page."""
    patterns = (
        "viz/**/*.py",
        "viz/**/*.js",
        "viz/**/*.html",
        "viz/**/*.toml",
        "assets/*.js",
        "assets/*.json",
    )
    files = [
        file
        for pattern in (*patterns, "pine_engine/**/*.py", "pine_engine/**/*.toml")
        for file in ROOT.glob(pattern)
    ]
    scripts = Path(gradio.__file__).parent / "templates" / "frontend" / "assets"
    files += [*scripts.glob("core-*.js"), *scripts.glob("Index-*.js")]
    texts = [file.read_text(encoding="utf-8") for file in files if file.parent != LANGUAGES_DIR]
    texts += [
        json.dumps([words(task), question_words(task.nouns)], ensure_ascii=False) for task in TASKS.values()
    ]
    return [re.sub(r"\s+", " ", BETWEEN.sub("", text)).casefold() for text in texts]


def texts_of(language: str) -> dict[str, str]:
    return {english: text for part in load_languages()[language].values() for english, text in part.items()}


def holes(text: str) -> list[str]:
    """Return the holes and elements of a text; words by number are those of a hole."""
    found = [hole for hole in HOLE.findall(text) if ":" not in hole]
    return sorted([*found, *TAG.findall(text)])


def is_used(english: str) -> bool:
    """Check that the sources have all words of a text that are between two holes or punctuation marks."""
    parts = re.split(rf"{HOLE.pattern}|{TAG.pattern}|[^\w\s’/+-]+", english.casefold())
    clauses = [clause.strip() for clause in parts if re.search(r"[^\W\d]", clause)]
    return all(any(clause in text for text in sources()) for clause in clauses)


def request(query: str = "", accepted: str = "") -> Request:
    headers = [(b"accept-language", accepted.encode())]
    return Request({"type": "http", "query_string": query.encode(), "headers": headers})


def test_all_languages_have_the_same_texts() -> None:
    assert {"de", "es"} <= set(OTHERS)
    parts = [
        {(name, text) for name, part in load_languages()[one].items() for text in part} for one in OTHERS
    ]
    for other in parts:
        assert parts[0] ^ other == set()
        assert len(other) == len({english for _, english in other})
    assert {name for name, _ in parts[0]} >= set(FIRST_PARTS)


@pytest.mark.parametrize("language", OTHERS)
def test_texts_keep_their_holes(language: str) -> None:
    texts = texts_of(language)
    assert [pair for pair in texts.items() if holes(pair[0]) != holes(pair[1]) or not pair[1].strip()] == []
    for english, text in texts.items():
        names = {hole.strip("{@}") for hole in holes(english)}
        by_number = {hole[1:].partition(":")[0] for hole in HOLE.findall(english + text) if ":" in hole}
        assert by_number <= names, english


def test_every_text_is_one_of_the_page() -> None:
    assert [english for english in texts_of(OTHERS[0]) if not is_used(english)] == []


@pytest.mark.parametrize(
    ("query", "accepted", "language"),
    [
        ("", "", "en"),
        ("", "de-AT,de;q=0.9,en;q=0.8", "de"),
        ("", "fr-CA, es-MX;q=0.5", "es"),
        ("", "en-US,de;q=0.9", "en"),
        ("lang=es", "de", "es"),
        ("lang=DE", "", "de"),
        ("lang=../en", "", "en"),
        ("lang=xx", "de", "de"),
        ("", "*;;,,\u00ff", "en"),
    ],
)
def test_address_and_browser_select_the_language(query: str, accepted: str, language: str) -> None:
    assert language_of(request(query, accepted)) == language


@pytest.mark.parametrize("language", OTHERS)
def test_first_and_later_texts_are_those_of_the_language(language: str) -> None:
    address, later = later_texts()[language]
    script = language_script(language)
    first = json.loads(script.partition("texts: ")[2].partition(", later: ")[0])
    assert f'lang: "{language}"' in script and f'later: "{address}"' in script
    assert dict(first) | dict(json.loads(later)) == texts_of(language)
    assert len(first) + len(json.loads(later)) == len(texts_of(language))


def test_english_page_requests_no_texts() -> None:
    assert 'texts: [], later: "" }' in language_script("en")
