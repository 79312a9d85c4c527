"""Code and QR code of a link: a session with as many answers as there is room for, or a shipped example."""

import re
from dataclasses import replace

from pine_engine.prompts.tasks import document_letter
from viz.page.answers.order_answers import Order
from viz.page.answers.record import RunRecord, record_of
from viz.page.answers.recordings import recorded_answers
from viz.page.form.examples import FormExample, load_examples
from viz.page.session import from_code, to_code

MAX_ANSWERS_CHARACTERS = 8_000  # of a link with answers
MAX_QR_BYTES = 367  # of version 12, whose 65 modules have 4 pixels in the card (QR_SIZE in assets/card.js)


def link_code(session: RunRecord, *, limit: int = MAX_ANSWERS_CHARACTERS) -> tuple[str, str]:
    """Return the code of a session with as much of its answers as there is room for, and its contents."""
    contents = "It contains everything you typed"
    if not session.orders:
        return to_code(session), f"{contents}."
    for kept, omitted in (
        (session, ""),
        (session.without("texts_without"), ", but not those without a document"),
        (session.without("texts_without", "origins"), ", without their sources"),
        (session.without("texts_without", "origins", "starts"), ", without sources and positions"),
    ):
        code = to_code(kept)
        if len(code) <= limit:
            return code, f"{contents}, and the answers{omitted}."
    answers = f"{contents}, without the answers, which are too long for a link."
    return to_code(session.without("answers")), answers


def qr_rows(link: str) -> list[str]:
    """Return the rows of the QR code of a link, with 1 for dark; [] if the link is too long."""
    if len(link.encode()) > MAX_QR_BYTES:
        return []
    import segno  # the page is served before it is needed

    code = segno.make_qr(link, error="l", mode="byte", boost_error=False)
    return ["".join(map(str, row)) for row in code.matrix]


def example_link(example: FormExample, order: Order) -> str:
    """Return the text of a link to an example in an order, such as `castle-3-documents-BAC`."""
    name = re.sub(r"[^a-z0-9]+", "-", example.name.lower()).strip("-")
    return f"{name}-{''.join(map(document_letter, order))}"


def linked_session(linked: str) -> RunRecord:
    """Return the session of `example_link` or of a code. Raises InputError if the link is invalid."""
    for example in load_examples():
        if not (record := recorded_answers().get(example.name)):
            continue
        form = example.form(record.methods, record.max_new_tokens)
        for order in record.orders:
            if linked == example_link(example, order):
                entries = tuple(form.entries[document] for document in order)
                return record_of(replace(form, entries=entries), accepted="\n".join(example.answers))
    return from_code(linked)
