"""Certificate of a shuffle test as two files: JSON, and a page to print."""

from pathlib import Path

import pine_engine as pine
from pine_engine.invariance.certificate import FILE_NAME
from pine_engine.invariance.platform_facts import ASPECTS
from viz.cards.certificate import certificate_page
from viz.drawing.markup import figure_styles

PAGE_NAME = "certificate.html"


def write_certificate(certificate: "pine.Certificate", folder: Path) -> tuple[Path, Path]:
    """Write the JSON file for `reproduce` and the page to print into a folder; return their paths."""
    file, page = folder / FILE_NAME, folder / PAGE_NAME
    file.write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
    platform = certificate.platform
    facts = {name: str(getattr(platform, field) or "unknown") for field, name in ASPECTS.items()}
    html = certificate_page(certificate, facts=facts, styles=figure_styles())
    page.write_text(html, encoding="utf-8")
    return file, page
