"""Invalid input for the functions of the page: texts, forms, links and files."""

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
from tools.fuzz.served import Targets

# texts


def _tokenizers() -> list[tuple[str, Any]]:
    from pine_engine.models.embedded import find_embedded_gguf, prepare_embedded
    from tests.support.tokenizers import byte_tokenizer, letter_tokenizer, sentencepiece_tokenizer

    control = [name for name in corpus.CONTROL if len(name) > 1]  # the others represent blanks and bytes
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


def fuzz_texts(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Tokenize texts in all parts of a prompt with several tokenizers; they must not give control tokens."""
    from pine_engine.prompts.layout import tokenize
    from pine_engine.prompts.prompt import build_prompt

    def control_in(tokenizer: Any, text: str) -> Counter[int]:
        prompt = build_prompt(tokenizer, prefix=text, documents=[text, f"a{text}"], suffix=text, system=text)
        # The unknown token has no effect as a control token.
        unknown = tokenizer.unk_token_id
        if unknown is None:
            unknown = tokenizer.convert_tokens_to_ids("�\x01")
        added = tokenizer.get_added_vocab()
        blank = {token for name, token in added.items() if not name.strip()}
        control = {*tokenizer.all_special_ids, *added.values()} - {unknown, tokenizer.pad_token_id, *blank}
        return Counter(token for token in tokenize(prompt, tokenizer).ids if token in control)

    tokenizers = _tokenizers()
    baseline = {name: control_in(tokenizer, "a") for name, tokenizer in tokenizers}
    for number, text in enumerate(corpus.samples(corpus.TEXTS, count, seed)):
        name, tokenizer = tokenizers[number % len(tokenizers)]

        def check(text: str = text, name: str = name, tokenizer: Any = tokenizer) -> bool:
            control_tokens = control_in(tokenizer, text) - baseline[name]
            tally.control_tokens += control_tokens.total()
            if control_tokens:
                raise FailureError(f"control tokens {dict(control_tokens)} with the tokenizer {name}")
            return True

        tally.run(text, check)


_DOCUMENTS = st.tuples(corpus.TEXTS, corpus.NONEMPTY_TEXTS)

FORMS = st.fixed_dictionaries(
    {
        "task": st.sampled_from(sorted(name for name, row in TASKS.items() if not row.model)),
        "question": corpus.NONEMPTY_TEXTS | corpus.TEXTS,
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


def fuzz_forms(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Run forms, and draw all figures of every fifth run."""
    from viz.page.answers.answering import answer
    from viz.page.answers.cards import Shown, accepted_answers, shown_html
    from viz.page.form.documents import entries_from, entries_json
    from viz.page.form.form import count_tokens, read_form
    from viz.page.internals_figures import DRAWING
    from viz.page.selection import first_selection

    for number, fields in enumerate(corpus.samples(FORMS, count, seed)):

        def run(fields: dict[str, Any] = fields, number: int = number) -> bool:
            entries = entries_from(fields["documents"])
            form = read_form(
                fields["task"], fields["question"], fields["instruction"], fields["methods"],
                fields["max_new_tokens"],
                entries_json(entries),
            )  # fmt: skip
            count_tokens(form, targets.engine)
            *_, last = answer(targets.engine, form)
            check_html(shown_html(Shown(last.cards, form.task), accepted_answers(fields["accepted"])))
            if number % 5 == 0 and last.finished is not None:
                for draw in DRAWING.values():
                    check_html(draw(last.finished, first_selection(last.finished)).html)
            return True

        tally.run(fields, run)


# links and files


def fuzz_links(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Decode links and drafts."""
    from viz.page.session import from_code, to_code
    from viz.page.share import own_draft

    for number, code in enumerate(corpus.samples(corpus.CODES, count, seed)):
        read = own_draft if number % 3 == 0 else from_code
        tally.run(code, partial(lambda read, code: bool(to_code(read(code))), read, code))


def fuzz_files(targets: Targets, count: int, seed: int, tally: Tally) -> None:
    """Read files as documents, data sets and sessions."""
    from pine_engine.prompts.document_files import read_documents
    from pine_engine.scheduling.runs import RunLog
    from viz.page.common.bounds import MAX_DOCUMENTS
    from viz.page.files.data_sets import read_set
    from viz.page.files.limited_process import Limits
    from viz.page.files.reading_files import FileReader, without_progress
    from viz.page.form.upload import check_room
    from viz.page.session import from_file

    limit = MAX_DOCUMENTS + 1
    reader = FileReader(RunLog(), Limits(cpu_s=1))

    def read_in_process(path: Path) -> Any:
        updates = reader.read(read_documents, [path], limit, what="read documents", files=[path], say=str)
        documents = without_progress(updates)
        check_room((), documents)
        return documents

    def read_here(path: Path) -> Any:
        documents = read_documents([path], limit)
        check_room((), documents)
        return documents

    readers: list[tuple[Callable[[Path], Any], tuple[str, ...]]] = [
        (read_here, corpus.SUFFIXES),
        (read_set, (".jsonl", ".csv", ".jsonl", "")),
        (from_file, (".json",)),
    ]
    generator = random.Random(seed)
    contents = ((content, None) for content in corpus.samples(corpus.CONTENTS, count, seed))
    bombs = corpus.bombs() if count > 100 else ()
    for number, (content, suffix) in enumerate(itertools.islice(itertools.chain(bombs, contents), count)):
        read, suffixes = (read_in_process, ()) if suffix else generator.choice(readers)
        path = targets.folder / f"file{number}{suffix or generator.choice(suffixes)}"
        path.write_bytes(content)
        tally.run((path.name, content[:100]), partial(lambda read, path: read(path) is not None, read, path))
        path.unlink()
