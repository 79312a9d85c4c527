"""Bad input for the functions behind the page: texts, forms, links and files."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pine_engine.prompts.tasks import TASKS
from tools.fuzz import corpus
from tools.fuzz.outcomes import FailureError, Tally, check_html
from tools.fuzz.served import Doors

# texts


def _tokenizers() -> list[tuple[str, Any]]:
    from pine_engine.models.embedded import find_embedded_gguf, prepare_embedded
    from tests.support.tokenizers import byte_tokenizer, letter_tokenizer, sentencepiece_tokenizer

    control = [name for name in corpus.CONTROL if len(name) > 1]  # the others stand for blanks and bytes
    tokenizers: list[tuple[str, Any]] = [
        ("marked", byte_tokenizer(special=control)),
        ("unmarked", byte_tokenizer(unmarked=control, adds_bos=True)),
        ("prepend", sentencepiece_tokenizer("prepend")),
        ("metaspace", sentencepiece_tokenizer("metaspace", merges=[("s", "a")])),
        ("letters", letter_tokenizer(unmarked=["<think>"])),
    ]
    if find_embedded_gguf() is not None:
        from transformers import AutoTokenizer

        tokenizers.append(("embedded", AutoTokenizer.from_pretrained(prepare_embedded())))
    return tokenizers


def throw_texts(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Texts in all parts of a prompt, with tokenizers of several kinds: no control token may come of them."""
    from pine_engine.prompts.layout import tokenize
    from pine_engine.prompts.prompt import build_prompt

    def control_in(tokenizer: Any, text: str) -> Counter[int]:
        prompt = build_prompt(tokenizer, prefix=text, documents=[text, f"a{text}"], suffix=text, system=text)
        # Where a tokenizer has no token for a character it writes its unknown one, which controls nothing.
        unknown = (
            tokenizer.convert_tokens_to_ids("�\x01")
            if tokenizer.unk_token_id is None
            else tokenizer.unk_token_id
        )
        known = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()} - {
            unknown,
            tokenizer.pad_token_id,
        }
        blank = {token for name, token in tokenizer.get_added_vocab().items() if not name.strip()}
        return Counter(token for token in tokenize(prompt, tokenizer).ids if token in known - blank)

    tokenizers = _tokenizers()
    harmless = {name: control_in(tokenizer, "a") for name, tokenizer in tokenizers}
    for number, text in enumerate(corpus.draws(corpus.TEXTS, count, seed)):
        name, tokenizer = tokenizers[number % len(tokenizers)]

        def read(text: str = text, name: str = name, tokenizer: Any = tokenizer) -> bool:
            more = control_in(tokenizer, text) - harmless[name]
            tally.control_tokens += more.total()
            if more:
                raise FailureError(f"control tokens {dict(more)} with the tokenizer {name}")
            return True

        tally.judge(text, read)


_DOCUMENTS = st.tuples(corpus.TEXTS, corpus.SAID)

FORMS = st.fixed_dictionaries(
    {
        "task": st.sampled_from(sorted(name for name, row in TASKS.items() if not row.model)),
        "question": corpus.SAID | corpus.TEXTS,
        "instruction": corpus.TEXTS,
        "methods": st.sampled_from(
            [["vanilla"], ["nia"], ["pcw", "sp"], ["pine"], ["pine", "vanilla"], ["pine"], []]
        ),
        "max_new_tokens": st.sampled_from([*[8] * 9, 256, 0, -1, 10**9]),
        "documents": st.lists(_DOCUMENTS, min_size=1, max_size=4)
        | st.lists(st.tuples(corpus.TEXTS, corpus.TEXTS), max_size=4),
        "accepted": corpus.TEXTS,
    }
)


def throw_forms(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Forms that are run, and all pictures of every fifth run."""
    from viz.page.answers.answering import answer
    from viz.page.answers.cards import Shown, accepted_answers, shown_html
    from viz.page.form.documents import entries_from, entries_json
    from viz.page.form.form import count_tokens, read_form
    from viz.page.internals_figures import DRAWING
    from viz.page.selection import first_selection

    for number, given in enumerate(corpus.draws(FORMS, count, seed)):

        def run(given: dict[str, Any] = given, number: int = number) -> bool:
            entries = entries_from(given["documents"])
            form = read_form(
                given["task"], given["question"], given["instruction"], given["methods"],
                given["max_new_tokens"],
                entries_json(entries),
            )  # fmt: skip
            count_tokens(form, doors.engine)
            *_, last = answer(doors.engine, form)
            check_html(shown_html(Shown(last.cards, form.task), accepted_answers(given["accepted"])))
            if number % 5 == 0 and last.finished is not None:
                for draw in DRAWING.values():
                    check_html(draw(last.finished, first_selection(last.finished)).html)
            return True

        tally.judge(given, run)


# links and files


def throw_links(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Codes of links and of drafts."""
    from viz.page.session import from_code, to_code
    from viz.page.share import own_draft

    for number, code in enumerate(corpus.draws(corpus.CODES, count, seed)):
        read = own_draft if number % 3 == 0 else from_code
        tally.judge(code, partial(lambda read, code: bool(to_code(read(code))), read, code))


def throw_files(doors: Doors, count: int, seed: int, tally: Tally) -> None:
    """Files as documents, as rows to measure, and as sessions."""
    from pine_engine.prompts.document_files import read_documents
    from viz.page.common.bounds import MAX_DOCUMENTS
    from viz.page.files.data_sets import read_set
    from viz.page.files.limited_process import Limits
    from viz.page.files.reading_files import FileReader, without_progress
    from viz.page.form.upload import check_room
    from viz.page.jobs.run_log import RunLog
    from viz.page.session import from_file

    most = MAX_DOCUMENTS + 1
    reader = FileReader(RunLog(), Limits(cpu_s=1))

    def read_apart(path: Path) -> Any:
        said = reader.read(read_documents, [path], most, what="read documents", files=[path], say=str)
        documents = without_progress(said)
        check_room((), documents)
        return documents

    def read_here(path: Path) -> Any:
        documents = read_documents([path], most)
        check_room((), documents)
        return documents

    readers: list[tuple[Callable[[Path], Any], tuple[str, ...]]] = [
        (read_here, corpus.ENDINGS),
        (read_set, (".jsonl", ".csv", ".jsonl", "")),
        (from_file, (".json",)),
    ]
    generator = random.Random(seed)
    contents = ((content, None) for content in corpus.draws(corpus.CONTENTS, count, seed))
    bombs = corpus.bombs() if count > 100 else ()
    for number, (content, kind) in enumerate(itertools.islice(itertools.chain(bombs, contents), count)):
        read, endings = (read_apart, ()) if kind else generator.choice(readers)
        path = doors.folder / f"file{number}{kind or generator.choice(endings)}"
        path.write_bytes(content)
        tally.judge(
            (path.name, content[:100]), partial(lambda read, path: read(path) is not None, read, path)
        )
        path.unlink()
