"""Sessions: what is saved comes back, and nothing else is taken for one."""

import base64
import json
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import pine_engine as pine
from pine_engine.errors import InputError
from pine_engine.prompts.tasks import TASKS
from tests.support.junk import JUNK
from tests.support.widgets import function_of, whole_page
from viz.page.answers.record import RunRecord, record_of
from viz.page.answers.tutorial_recording import tutorial_recording
from viz.page.common.limits import MAX_DOCUMENTS
from viz.page.form.documents import Entry, entries_json
from viz.page.form.examples import load_examples
from viz.page.form.form import MAX_NEW_TOKENS, MIN_NEW_TOKENS, Form
from viz.page.form.options import OFFERED
from viz.page.internals.view import View
from viz.page.session import LARGEST_BYTES, from_code, from_file, to_code, to_json
from viz.page.share import opened_sentence, page_session

FORM = Form(
    "retrieval_qa", "Why?", "", ("vanilla", "pine"), 48, (Entry(1, "Sun", "It shines."), Entry(0, "", "x"))
)
SESSION = record_of(FORM, accepted="", ran=True, selection={"query": "suffix 3", "layer": None, "head": 2})

CERTIFICATE = Path(__file__).parents[2] / "golden" / "outputs" / "version_1" / "certificate.json"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@st.composite
def forms(draw: st.DrawFn) -> Form:
    letters = draw(st.permutations(range(draw(st.integers(1, MAX_DOCUMENTS)))))
    entries = tuple(Entry(letter, draw(texts), draw(texts)) for letter in letters)
    methods = tuple(draw(st.sets(st.sampled_from(sorted(OFFERED)))))
    task = draw(st.sampled_from(sorted(TASKS)))
    length, kwargs = draw(st.integers(MIN_NEW_TOKENS, MAX_NEW_TOKENS)), draw(texts)
    return Form(task, draw(texts), draw(texts), methods, length, entries, kwargs)


@given(forms(), texts, st.booleans())
def test_session_is_read_back_from_link_and_file(form: Form, accepted: str, ran: bool) -> None:
    session = record_of(form, accepted=accepted, ran=ran, selection={})
    code = to_code(session)
    assert from_code(code) == session == RunRecord.model_validate_json(to_json(session))
    assert set(code) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert (session.form, session.accepted) == (form, accepted)


def test_certificate_opens_in_its_first_order(tmp_path: Path) -> None:
    certificate = pine.read_certificate(CERTIFICATE)
    stored, *others = certificate.orders
    moved = certificate.model_copy(update={"orders": [*others, stored]})
    file = tmp_path / "certificate.json"
    file.write_text(moved.model_dump_json(), encoding="utf-8")
    written = [document.text for document in certificate.request.documents]
    documents = from_file(file).documents
    assert others[0] != stored
    assert [(one.letter, one.text) for one in documents] == [(place, written[place]) for place in others[0]]


def test_session_file_is_read_again_and_a_large_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "session.json"
    file.write_text(to_json(SESSION), encoding="utf-8")
    assert from_file(file) == SESSION
    assert json.loads(file.read_text())["documents"][0] == {"letter": 1, "title": "Sun", "text": "It shines."}
    file.write_bytes(b" " * (LARGEST_BYTES + 1))
    with pytest.raises(InputError, match=r"^session.json is not a session file \(over 1,000,000 bytes"):
        from_file(file)


def test_opened_session_names_its_model() -> None:
    by_other = record_of(FORM, accepted="", ran=True, model="tiny", dtype="bfloat16")
    assert "tiny (bfloat16)" in opened_sentence("a link", from_code(to_code(by_other)))
    assert opened_sentence("s.json", SESSION) == "Loaded from s.json."


def test_saved_session_has_what_its_run_used() -> None:
    example = load_examples()[0]
    ran = tutorial_recording().run
    own = replace(ran, form=replace(ran.form, question=example.question), source="own")
    accepted, (entry, *others) = "\n".join(example.answers), ran.form.entries
    values = [*("retrieval_qa", example.question, example.instruction, ("pine",), 8)]
    same = page_session(accepted, "", own, View(), *values, entries_json(ran.form.entries))
    assert (same.accepted, same.model, same.dtype) == (accepted, ran.model, ran.dtype) and same.ran
    edited = [replace(entry, text="Own."), *(replace(one, text="Own, too.") for one in others)]
    other = page_session(accepted, "", own, View(), *values, entries_json(tuple(edited)))
    assert (other.accepted, other.model, other.ran) == ("", "", False)


def packed(content: Any) -> str:
    read = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(zlib.compress(read, 9)).decode().rstrip("=")


def changed(**fields: Any) -> Any:
    return json.loads(to_json(SESSION)) | fields


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("", "Incomplete link"),
        ("éé", "Invalid link"),
        ("abcd", "Invalid link"),
        (to_code(SESSION)[:-9], "Incomplete link"),
        (packed(b"\xff\xfe"), "the link is not a valid session"),
        (packed(b"[" * 100_000), "the link is not a valid session"),
        (packed(b" " * (LARGEST_BYTES + 1)), f"over {LARGEST_BYTES:,} bytes"),
        (packed(changed(task="poetry")), "unknown task 'poetry'; choose from: "),
        (packed(changed(methods=["magic"])), "Unknown method: 'magic'"),
        (packed(changed(max_new_tokens=10_000)), "not a valid session: max_new_tokens: got 10000, expected"),
        (packed(changed(documents=[{"letter": 0}] * 2)), "Invalid document ids: expected 0 to 1"),
        (packed(changed(documents=[{"letter": "0", "name": "x"}])), 'documents[0].name: got "x", but'),
        (packed(changed(password="x")), 'not a valid session: password: got "x", but'),
        (packed(changed(selection={"layer": [1]})), "not a valid session: selection.layer"),
        (packed(changed(version=2)), "not a valid session: version: got 2, expected 1"),
    ],
)  # fmt: skip
def test_invalid_link_is_refused_with_its_problem(code: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        from_code(code)
    assert sentence in str(raised.value)


@given(
    st.dictionaries(st.sampled_from([*changed(), "extra"]), JUNK, max_size=3),
    st.integers(1, 400),
    st.text(max_size=300),
    st.binary(max_size=300),
)
def test_any_link_is_read_or_refused(fields: dict[str, Any], length: int, text: str, content: bytes) -> None:
    code = packed(changed(**fields))
    for link in (code, code[:length], text, packed(content)):
        try:
            session = from_code(link)
        except InputError as error:
            assert str(error).strip()
        else:
            assert from_code(to_code(session)) == session


@pytest.mark.parametrize(
    "end",
    [
        b"PK\5\6" + bytes(8) + (10**6).to_bytes(4, "little") + bytes(6),
        b"PK\6\7" + bytes(16) + b"PK\5\6" + bytes(18),  # ZIP64, whose list is elsewhere
    ],
)
def test_zip_with_a_long_list_of_files_is_refused_before_it_is_parsed(
    end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.zip"
    file.write_bytes(b"PK\3\4" + bytes(100) + end)
    monkeypatch.setattr(zipfile, "ZipFile", lambda _: pytest.fail("seconds for 10 MB"))
    with pytest.raises(InputError, match="is not a ZIP of"):
        from_file(file)


def test_zip_without_a_session_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(InputError, match="is not a ZIP of"):
        from_file(file)


@pytest.fixture(scope="module")
def restore() -> Callable[[str | None, str | None], str]:
    """Return a function that opens a page with the code of a link and a draft."""
    restored = function_of(whole_page(), "restore")
    return lambda linked, draft: str(restored(linked, draft, "", View()).values())


def test_link_precedes_draft_and_draft_precedes_example(restore: Callable[..., Any]) -> None:
    linked, typed = (record_of(replace(FORM, question=one), accepted="") for one in ("L?", "D?"))
    link, draft = to_code(linked), to_json(typed)
    assert "L?" in restore(link, draft)
    assert "D?" not in restore(link, draft)
    assert "D?" in restore("", draft)
    assert "The saved draft is from another version" in restore("", "AAAA")
    for nothing in ("", None):
        assert "page-notice" not in restore(nothing, nothing)


def test_session_too_large_or_with_invalid_unicode_is_refused() -> None:
    half = replace(FORM, entries=(Entry(0, "", "\ud800"),))
    with pytest.raises(InputError, match="Cannot save the session: .*invalid JSON"):
        record_of(half, accepted="", ran=False, selection={})
    with pytest.raises(InputError, match="Session too large"):
        to_json(record_of(replace(FORM, question="\x01" * 190_000), accepted=""))
    many = replace(FORM, question="x" * 200_001)
    with pytest.raises(InputError, match="Cannot save the session: question: string should have at most"):
        record_of(many, accepted="", ran=False, selection={})
