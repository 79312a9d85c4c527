"""A shuffle's certificate as two files: JSON that repeats it, and a page to print. Imports torch."""

from dataclasses import dataclass
from pathlib import Path

from pine_engine.invariance.certificate import ASPECTS, FILE_NAME, Certificate
from pine_engine.methods.table import METHODS
from pine_engine.prompts.inputs import Request
from pine_engine.prompts.prompt import Document
from viz.cards.certificate import CertifiedMethod, Sheet, certificate_page
from viz.drawing.styles import figure_styles
from viz.page.common.private_folder import remove_folder
from viz.page.form.form import Form

PAGE_NAME = "certificate.html"


@dataclass(frozen=True)
class Files:
    """Where the two files of one certificate lie; nothing else is in the folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        """JSON, which the subcommand `reproduce` reads."""
        return self.folder / FILE_NAME

    @property
    def page(self) -> Path:
        """HTML to print."""
        return self.folder / PAGE_NAME


def form_comparison(form: Form) -> Request:
    """What the form asks, with the documents in the order of their letters."""
    lettered = sorted(form.entries, key=lambda entry: entry.identity)
    return Request(
        question=form.question,
        documents=[Document(entry.text, title=form.title(entry)) for entry in lettered],
        instruction=form.instruction,
        task=form.task,
    )


def sheet_of(certificate: Certificate) -> Sheet:
    """The certificate as the printed page shows it."""
    platform, asked = certificate.platform, certificate.request
    return Sheet(
        made=certificate.made,
        facts=tuple((name, str(getattr(platform, field) or "unknown")) for field, name in ASPECTS.items()),
        task=asked.task,
        question=asked.question,
        instruction=asked.instruction,
        documents=tuple((document.title, document.text) for document in asked.documents),
        orders=tuple(map(tuple, certificate.orders)),
        seed=certificate.seed,
        max_new_tokens=certificate.max_new_tokens,
        methods=tuple(
            CertifiedMethod(
                label=METHODS[result.method].label,
                is_order_invariant=METHODS[result.method].is_order_invariant,
                answer=result.first_answer,
                token_ids=tuple(result.first_token_ids),
                same=result.num_matching_answers,
                distinct=result.num_distinct_answers,
                max_abs_logit_diff=result.max_abs_logit_diff,
                bitwise_identical=result.bitwise_identical,
                logprobs=tuple(result.logprobs),
                logprob_spread=result.logprob_spread,
                sha256=result.logits_sha256,
            )
            for result in certificate.results
        ),
        command=certificate.command,
    )


def write_files(certificate: Certificate, folder: Path) -> Files:
    """Writes both files into a folder that is theirs alone."""
    files = Files(folder)
    files.certificate.write_text(certificate.model_dump_json(indent=2) + "\n", encoding="utf-8")
    files.page.write_text(certificate_page(sheet_of(certificate), styles=figure_styles()), encoding="utf-8")
    return files


def remove_files(files: Files | None) -> None:
    """Removes the files that write_files wrote."""
    remove_folder(files.folder if files else None)
