"""Code and QR code of a link: a session with as much of its answers as there is room for."""

from viz.page.answers.record import RunRecord
from viz.page.session import to_code

MAX_ANSWERS_CHARACTERS = 8_000  # of a link with answers
MAX_QR_BYTES = 1_273  # of version 25, whose 117 modules can be scanned from the card


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
