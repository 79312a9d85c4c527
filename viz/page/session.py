"""Links, drafts and files of the page: all contain a `RunRecord`; a certificate opens as one."""

import base64
import binascii
import io
import zipfile
import zlib
from pathlib import Path

from pydantic import TypeAdapter

from pine_engine.errors import InputError
from pine_engine.invariance.certificate import FORMAT as CERTIFICATE_FORMAT, Certificate
from pine_engine.prompts.chat_templates import dump_kwargs
from viz.page.answers.record import RunRecord
from viz.page.common.limits import check_limit
from viz.page.common.untrusted_json import read_json
from viz.page.form.documents import Entry
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS
from viz.page.form.options import OFFERED

MAX_LINK_CHARACTERS = 32_000
"""Maximum characters of a session in a link: a command line of Windows has at most 32,767."""

LARGEST_BYTES = 1_000_000  # maximum bytes of a session as JSON, also when unpacked from a link
MAX_LIST_BYTES = 100_000  # maximum bytes of the list of files in a ZIP
SESSION_NAME = "session.json"  # name in the ZIP of a run
ZIP_START = b"PK\3\4"

_RECORD, _CERTIFICATE = TypeAdapter(RunRecord), TypeAdapter(Certificate)


def to_json(session: RunRecord) -> str:
    """Return the session as JSON. Raises InputError if it could not be opened again."""
    text = session.model_dump_json(indent=2) + "\n"
    check_limit("Session too large", len(text.encode()), LARGEST_BYTES, "Shorten the input.", unit=" bytes")
    return text


def to_code(session: RunRecord) -> str:
    """Encode the session as letters, digits, - and _."""
    read = session.model_dump_json(exclude_defaults=True).encode()
    check_limit("Session too large", len(read), LARGEST_BYTES, "Shorten the input.", unit=" bytes")
    packed = zlib.compress(read, 9)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def from_code(code: str) -> RunRecord:
    """Decode a session from `to_code`. Raises InputError if the code is invalid."""
    if len(code) > MAX_LINK_CHARACTERS:
        raise InputError(f"Invalid link: over {MAX_LINK_CHARACTERS:,} characters. Open a session file.")
    if len(code) % 4 == 1:  # which no whole code has
        raise InputError("Incomplete link. Copy the full link.")
    try:
        packed = base64.b64decode(code.encode() + b"=" * (-len(code) % 4), altchars=b"-_", validate=True)
        unpacking = zlib.decompressobj()
        read = unpacking.decompress(packed, LARGEST_BYTES + 1)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise InputError("Invalid link. Copy the full link.") from error
    if len(read) <= LARGEST_BYTES and not unpacking.eof:
        raise InputError("Incomplete link. Copy the full link.")
    return _read(read, "the link")


def from_draft(text: str) -> RunRecord:
    """Read a session as JSON. Raises InputError if it is invalid, such as of another version."""
    try:
        return _read(text.encode(), "the draft")
    except InputError as error:
        raise InputError("The saved draft is from another version and cannot be restored.") from error


def from_file(path: Path) -> RunRecord:
    """Read the session of a saved file: a session, a certificate, or the ZIP of a run.

    Raises InputError if the file is invalid.
    """
    with path.open("rb") as file:
        is_zip = file.read(len(ZIP_START)) == ZIP_START
    if not is_zip and path.stat().st_size > LARGEST_BYTES:
        raise InputError(f"{path.name} is not a session file (over {LARGEST_BYTES:,} bytes).")
    content = path.read_bytes()
    return _read(_unpack(content, path.name) if is_zip else content, path.name)


def _unpack(content: bytes, name: str) -> bytes:
    """Return the session in the ZIP of a run. zipfile parses all entries: a long list is refused before."""
    end, end_of_zip64 = content[-22:], content[-42:-38]
    num_bytes = int.from_bytes(end[12:16], "little")  # of the list of files
    try:
        if not end.startswith(b"PK\5\6") or end_of_zip64 == b"PK\6\7" or num_bytes > MAX_LIST_BYTES:
            raise zipfile.BadZipFile
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(SESSION_NAME) as file:
            return file.read(LARGEST_BYTES + 1)
    except Exception as error:
        raise InputError(
            f"{name} is not a ZIP of PINE Explorer. Select one from “Download results”."
        ) from error


def _read(read: bytes, name: str) -> RunRecord:
    problem = f"{name} is not a valid session"
    if f'"{CERTIFICATE_FORMAT}"'.encode() in read[:100]:
        return _session_of_certificate(read_json(_CERTIFICATE, read, problem, max_size=LARGEST_BYTES))
    record = read_json(_RECORD, read, problem, max_size=LARGEST_BYTES)
    return record.model_copy(update={"source": "shared"})  # a file may state any source


def _session_of_certificate(certificate: Certificate) -> RunRecord:
    """Return the session that runs the request of a certificate, with the methods that the page offers."""
    request, platform, order = certificate.request, certificate.platform, certificate.orders[0]
    return RunRecord(
        task=request.task,
        question=request.question,
        instruction=request.instruction,
        chat_template_kwargs=dump_kwargs(request.chat_template_kwargs),
        methods=tuple(method for method in certificate.methods if method in OFFERED),
        max_new_tokens=min(max(certificate.max_new_tokens, MIN_NEW_TOKENS), MAX_NEW_TOKENS),
        documents=tuple(
            Entry(place, one.title, one.text, one.score)
            for place, one in ((place, request.documents[place]) for place in order)
        ),
        ran=True,
        model=platform.model,
        dtype=platform.dtype,
        revision=platform.revision or "",
    )
