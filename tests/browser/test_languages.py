"""The page in other languages: chosen by address or browser, without English texts, and readable."""

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.browser.conftest import OpenPage, visit, window
from tests.browser.driving import cut_off, violations
from tests.support.serving import ServedApp
from tools.first_screen import LAPTOP
from viz.page.serving.languages import load_languages

PHONE: ViewportSize = {"width": 390, "height": 844}
OTHERS = sorted(load_languages().keys() - {"en"})

TEXTS = """
() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const isText = ({ parentElement: place, data }) =>
    /\\\\p{L}{3}/u.test(data) && place.checkVisibility() &&
    !place.closest("script, style, textarea, pre, code, [translate=no]:not([translate=yes] *), footer, [role=listbox]");
  const texts = [];
  while (walker.nextNode()) if (isText(walker.currentNode)) texts.push(walker.currentNode.data.trim());
  const labels = [...document.querySelectorAll("[aria-label], [title], [placeholder]")]
    .filter((node) => node.checkVisibility() && !node.closest("[translate=no], footer"))
    .flatMap((node) => [node.ariaLabel, node.title, node.placeholder]);
  return [...texts, ...labels.filter(Boolean)];
}
"""
"""Script that returns the visible texts and labels that a visitor of another language should not see in English."""
