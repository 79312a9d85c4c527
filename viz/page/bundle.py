"""Export of a finished run as one ZIP. Imports torch."""

import datetime
import io
import json
import math
import shlex
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pine_engine as pine
from pine_engine.engine.events import trace_report
from pine_engine.invariance.certificate import FILE_NAME, REPRODUCE_COMMAND, Certificate
from pine_engine.invariance.platform_facts import ASPECTS
from pine_engine.methods.table import METHODS, Method
from viz.cards.tutorial import run_html
from viz.drawing.identity import document_segment, order_name
from viz.drawing.markup import figure_styles, render
from viz.drawing.pictures import Numbers
from viz.drawing.scripts import FIGURE_SCRIPTS, join_modules
from viz.drawing.text import format_difference, format_value
from viz.export.standalone import as_csv, figure_numbers, packed_json, picture_numbers, pictures_page
from viz.figures.answer_tokens import AnswerTokens
from viz.page.answers.record import record_of
from viz.page.answers.run import Run
from viz.page.common.look import PLOTLY
from viz.page.form.documents import entries_from
from viz.page.form.form import form_request
from viz.page.internals.content import TabContent
from viz.page.internals.tabs import DRAWING, TABS
from viz.page.selection import Selection, as_picks
from viz.page.session import SESSION_NAME, to_json

NAME = "pine-explorer-results.zip"
CERTIFICATE_PAGE = "certificate.html"

MAX_BYTES = 40_000_000  # maximum bytes of all files, unpacked; the rest is left out and named in README.txt
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # time of every file in the ZIP, so that equal runs give equal bytes
_ABOUT = {
    "README.txt": "this file",
    SESSION_NAME: "your input; load it with \u201cOpen session\u201d",
    "input.json": "question and documents, for the command below",
    "answers.json": "answers: text, tokens, log-probabilities (nats), time (s)",
    "answers.csv": "all answer tokens, one per row",
    "orders.csv": "answers for every tested order",
    "report.json": "positions, importance and attention of the last prompt token, by method, layer and head",
    "pictures.html": "all figures with data (works offline)",
    FILE_NAME: f"reproducibility certificate; verify with `{REPRODUCE_COMMAND}`",
    CERTIFICATE_PAGE: "printable certificate",
    "numbers/": "data of each figure (CSV and JSON)",
}


def bundle(
    run: Run,
    selection: Selection | None,
    *,
    accepted: str,
    date: datetime.date | None = None,  # default: today
    max_bytes: int = MAX_BYTES,
) -> bytes:
    """Return the ZIP of a run of this session, with its certificate if it is a shuffle test.

    selection: None for a run without internals, of which answers alone are packed.
    """
    kept: dict[str, bytes] = {}
    left_out = []
    for name, content in _files(run, selection, accepted):
        if sum(map(len, kept.values())) + len(content) <= max_bytes:
            kept[name] = content
        else:
            left_out.append(name)
    date = date or datetime.datetime.now(datetime.UTC).date()
    return _zipped({"README.txt": _readme(run, list(kept), left_out, date).encode()} | kept)


def _files(run: Run, selection: Selection | None, accepted: str) -> Iterator[tuple[str, bytes]]:
    """Iterate over names and contents, the most important first."""
    form = run.form
    session = record_of(form, accepted=accepted, ran=True, selection=as_picks(selection))
    yield SESSION_NAME, to_json(session).encode()
    by_slot = replace(form, entries=entries_from([(entry.title, entry.text) for entry in form.entries]))
    yield "input.json", form_request(by_slot).model_dump_json(indent=2).encode()
    source = {"model": run.model, "dtype": run.dtype}
    answers = run.result.to_dict()["results"]
    for answer, (name, found) in zip(answers, run.result.answers.items(), strict=True):
        answer["finish_reason"] = found.finish_reason
        if record := run.answer_records.get(name):
            answer["tokens"] = _tokens_of(record)
    yield "answers.json", _json(source | {"answers": answers})
    if selection:
        yield "answers.csv", as_csv(_tokens(run)).encode()
    if run.other_orders:
        yield "orders.csv", as_csv(_orders(run)).encode()
    if certificate := run.certificate:
        yield FILE_NAME, (certificate.model_dump_json(indent=2) + "\n").encode()
        yield CERTIFICATE_PAGE, certificate_page(certificate).encode()
    if selection is None:
        return
    drawn = {label: DRAWING[tab](run, selection) for tab, label in TABS if tab in DRAWING}
    yield "pictures.html", _pictures(run, drawn).encode()
    for tab in drawn.values():
        for each in (*picture_numbers(tab.html), *map(figure_numbers, tab.figures.values())):
            yield f"numbers/{each.name}.csv", as_csv(each).encode()
            columns = {"name": each.name, "caption": each.caption, "columns": each.columns}
            yield f"numbers/{each.name}.json", _json(columns | {"rows": each.rows})
    yield "report.json", _json(source | trace_report(run.result))


def _tokens_of(record: AnswerTokens) -> list[dict[str, Any]]:
    tokens = zip(record.token_ids, record.tokens, record.logprobs, record.alternatives, strict=True)
    return [
        {
            "id": token,
            "text": text,
            "logprob": logprob,
            "alternatives": [{"text": other, "logprob": value} for other, value in others],
        }
        for token, text, logprob, others in tokens
    ]


def _tokens(run: Run) -> Numbers:
    return Numbers(
        ("method", "token", "text", "token id", "log-probability (nats)"),
        tuple(
            (method, step + 1, text, token, logprob)
            for method, record in run.answer_records.items()
            for step, (text, token, logprob) in enumerate(
                zip(record.tokens, record.token_ids, record.logprobs, strict=True)
            )
        ),
    )


def _orders(run: Run) -> Numbers:
    return Numbers(
        ("order", "method", "answer"),
        tuple(
            (order_name(order), method, text)
            for order, answers in run.orders.items()
            for method, text in answers.texts.items()
        ),
    )


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


def _readme(run: Run, names: list[str], left_out: list[str], date: datetime.date) -> str:
    """Describe the content of the ZIP, its origin and how to reproduce it."""
    listed = {name.partition("/")[0] + "/" if "/" in name else name for name in ["README.txt", *names]}
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
        *(f"  {name:<17}  {about}" for name, about in _ABOUT.items() if name in listed),
        "",
        "To reproduce the answers, run in this folder:",
        f"  {_command(run)}",
    ]
    if run.form.row.has_letters and list(run.order) != sorted(run.order):
        lines.append("  Note: the command labels documents by slot; here they were moved after labeling.")
    if left_out:
        most = f"{MAX_BYTES / 1e6:.0f} MB"
        lines += ["", f"Omitted ({most} limit): {', '.join(left_out)}"]
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


def _json(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n"


def _zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            info = zipfile.ZipInfo(name, _EARLIEST)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return packed.getvalue()


def certificate_page(certificate: Certificate) -> str:
    """Render the certificate as an HTML document without scripts, which needs no other file."""
    rows = []
    for index, order in enumerate(certificate.orders):
        documents = [document_segment(document, slot) for slot, document in enumerate(order)]
        rows.append((documents, [format_value(result.logprobs[index]) for result in certificate.results]))
    return render(
        "certificate.html",
        certificate=certificate,
        request=certificate.request,
        facts=[(name, getattr(certificate.platform, field) or "unknown") for field, name in ASPECTS.items()],
        styles=figure_styles(),
        results=[(METHODS[result.method], result) for result in certificate.results],
        orders=certificate.orders,
        documents=[(document_segment(i, i), one) for i, one in enumerate(certificate.request.documents)],
        rows=rows,
        order_text=_describe_orders(certificate),
        verdict=_verdict,
        difference=format_difference,
    )


def _verdict(method: Method, result: Any) -> str:
    """Return the conclusion of a method's results in a few words."""
    if method.is_order_invariant:
        return "invariant ✓" if result.bitwise_identical else "invariance violated ✗"
    return "no change observed" if result.bitwise_identical else "changed"


def _describe_orders(certificate: Certificate) -> str:
    if certificate.seed is not None:
        return f"input order and random orders, seed {certificate.seed}"
    count = math.factorial(len(certificate.request.documents))
    return "all orders" if len(certificate.orders) == count else f"first of {count:,} orders"
