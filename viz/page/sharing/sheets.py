"""Certificate of a shuffle test as two files: JSON, and a page to print. Imports torch."""

from dataclasses import dataclass
from pathlib import Path

from pine_engine.invariance.certificate import FILE_NAME, Certificate
from pine_engine.invariance.platform_facts import ASPECTS
from pine_engine.prompts.prompt import Document
from pine_engine.prompts.request import Request
from viz.cards.certificate import certificate_page
from viz.drawing.markup import figure_styles
from viz.page.common.disk import remove_folder
from viz.page.form.form import Form

PAGE_NAME = "certificate.html"


@dataclass(frozen=True)
class Files:
    """Paths of the two files of one certificate, in a folder of their own."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """Return the path of the JSON, which `reproduce` reads."""
        return self.folder / FILE_NAME

    @property
    def page(self) -> Path:
        """Return the path of the HTML to print."""
        return self.folder / PAGE_NAME


def form_comparison(form: Form) -> Request:
    """Return the request of the form, with documents in the order of their letters."""
    lettered = sorted(form.entries, key=lambda entry: entry.identity)
    return Request(
        question=form.question,
        documents=[Document(entry.text, title=form.title(entry)) for entry in lettered],
        instruction=form.instruction,
        task=form.task,
    )


def write_files(certificate: Certificate, folder: Path) -> Files:
    """Write both files into a folder of their own."""
    files = Files(folder)
    files.certificate.write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
    platform = certificate.platform
    facts = {name: str(getattr(platform, field) or "unknown") for field, name in ASPECTS.items()}
    page = certificate_page(certificate, facts=facts, styles=figure_styles())
    files.page.write_text(page, encoding="utf-8")
    return files


def remove_files(files: Files | None) -> None:
    """Remove the files of write_files."""
    remove_folder(files.folder if files else None)
