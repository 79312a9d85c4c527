"""Export of a finished run as one ZIP. Imports torch."""

import datetime
import io
import shlex
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import pine_engine as pine
from pine_engine.invariance.certificate import FILE_NAME, REPRODUCE_COMMAND
from pine_engine.methods.table import METHODS
from viz.cards.tutorial import run_html
from viz.drawing.identity import document_segment, order_name
from viz.drawing.markup import figure_styles
from viz.drawing.scripts import FIGURE_SCRIPTS, join_modules
from viz.export.standalone import packed_json, pictures_page
from viz.page.answers.run import Run
from viz.page.answers.shared import record_of_run
from viz.page.certificate_page import certificate_page
from viz.page.common.look import PLOTLY
from viz.page.form.documents import entries_from
from viz.page.form.form import form_request
from viz.page.internals.content import TabContent
from viz.page.internals.tabs import DRAWING, TABS
from viz.page.selection import Selection, as_picks
from viz.page.session import SESSION_NAME

NAME = "pine-explorer-results.zip"
CERTIFICATE_PAGE = "certificate.html"

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # time of every file in the ZIP, so that equal runs give equal bytes
_ABOUT = {
    SESSION_NAME: "the run: input and all answers, with tokens, log-probabilities (nats) and times (s)",
    "input.json": "question and documents, for the command below",
    "pictures.html": "all figures with data (works offline)",
    FILE_NAME: f"reproducibility certificate; verify with `{REPRODUCE_COMMAND}`",
    CERTIFICATE_PAGE: "printable certificate",
}


def bundle(
    run: Run,
    selection: Selection | None,
    *,
    accepted: str,
    date: datetime.date | None = None,  # default: today
) -> bytes:
    """Return the ZIP of a run of this session, with its certificate if it is a shuffle test.

    selection: None for a run without internals, which has no pictures.
    """
    files = dict(_files(run, selection, accepted))
    date = date or datetime.datetime.now(datetime.UTC).date()
    return _zipped({"README.txt": _readme(run, files, date)} | files)


def _files(run: Run, selection: Selection | None, accepted: str) -> Iterator[tuple[str, str]]:
    """Iterate over names and contents."""
    record = record_of_run(run, accepted=accepted, selection=as_picks(selection))
    yield SESSION_NAME, record.model_dump_json(indent=2) + "\n"
    documents = [(entry.title, entry.text, entry.score) for entry in run.form.entries]
    by_slot = replace(run.form, entries=entries_from(documents))
    yield "input.json", form_request(by_slot).model_dump_json(indent=2)
    if certificate := run.certificate:
        yield FILE_NAME, certificate.model_dump_json(indent=2) + "\n"
        yield CERTIFICATE_PAGE, certificate_page(certificate)
    if selection:
        drawn = {label: DRAWING[tab](run, selection) for tab, label in TABS if tab in DRAWING}
        yield "pictures.html", _pictures(run, drawn)


def _pictures(run: Run, drawn: Mapping[str, TabContent]) -> str:
    texts = [(document_segment(entry.letter), entry.text) for entry in run.form.entries]
    answers = {METHODS[method].label: answer.text for method, answer in run.result.answers.items()}
    return pictures_page(
        [(heading, tab.html, list(map(packed_json, tab.figures.values()))) for heading, tab in drawn.items()],
        run=run_html(run.form.question, texts, answers),
        title="Figures of one run",
        about=f"{run.model}, {run.dtype}. This page works offline.",
        styles=figure_styles(),
        scripts=[PLOTLY.read_text(encoding="utf-8"), join_modules(FIGURE_SCRIPTS)],
    )


def _readme(run: Run, names: Collection[str], date: datetime.date) -> str:
    """Describe the content of the ZIP, its origin and how to reproduce it."""
    lines = [
        "PINE Explorer: results of one run",
        "",
        f"Model      {run.model}",
        f"Dtype      {run.dtype}",
        f"Program    PINE Explorer {pine.__version__}",
        f"Created    {date.isoformat()} (UTC)",
        f"Documents  {len(run.order)}, as {order_name(run.order)}",
        f"Methods    {', '.join(METHODS[name].label for name in run.result.answers)}",
        "",
        "Files",
        *(f"  {name:<17}  {about}" for name, about in _ABOUT.items() if name in names),
        "",
        "To reproduce the answers, run in this folder:",
        f"  {_command(run)}",
    ]
    if run.form.row.has_letters and list(run.order) != sorted(run.order):
        lines.append("  Note: the command labels documents by slot; here they were moved after labeling.")
    return "\n".join(lines) + "\n"


def _command(run: Run) -> str:
    return shlex.join(
        [
            *("python", "-m", "pine_engine", "compare", "input.json"),
            *("--methods", ",".join(run.form.methods)),
            *("--max-new-tokens", str(run.form.max_new_tokens)),
            *(
                ("--model", run.address, "--dtype", run.dtype)
                if run.has_internals
                else ("--endpoint", run.address, "--model", run.model)
            ),
        ]
    )


def _zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, _EARLIEST)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return packed.getvalue()
