"""Public data sets: table of their pinned sources, download and conversion."""

import csv
import json
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pine_engine.data import readers
from pine_engine.errors import InputError, one_line
from pine_engine.extras import how_to_install

TIMEOUT_S = 30
NUM_RETRIES = 2


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, pinned to a commit or a checksum.

    Attributes:
        name: File name in the download folder.
        url: Address of the file.
        part: Part of the set in this file, such as a subset or a programming language.
        sha256: Checksum published by at least two independent sources; None if there are none.
    """

    name: str
    url: str
    part: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class PublicSet:
    """A public data set.

    Attributes:
        name: Name of the set.
        task: Task of its examples.
        records: Number of records in the source.
        size: Approximate size of all files, in bytes; None if unknown.
        license: License of the source.
        source: Home page.
        files: Files of the source.
        read: Reader of the records of one file.
        convert: Conversion of the records of all files to rows.
    """

    name: str
    task: str
    records: int
    size: int | None
    license: str
    source: str
    files: tuple[SourceFile, ...]
    read: Callable[[Path], Iterator[Any]]
    convert: Callable[[Iterable[readers.Record]], Iterator[readers.Row]]


def download(public_set: PublicSet, folder: Path) -> list[Path]:
    """Download the files of a set to FOLDER/downloads/NAME. Files with the right checksum are kept.

    Raises:
        InputError: pooch is not installed, a file cannot be downloaded or written, or its checksum differs.
    """
    try:
        import pooch
        from requests.exceptions import RequestException
    except ImportError as error:
        raise InputError(
            f"pooch is not installed, and downloads need it; {how_to_install('pooch')}"
        ) from error
    pooch.get_logger().setLevel("WARNING")
    target = folder / "downloads" / public_set.name
    source = pooch.create(
        target,
        base_url="",
        registry={file.name: file.sha256 for file in public_set.files},
        urls={file.name: file.url for file in public_set.files},
        retry_if_failed=NUM_RETRIES,
    )
    downloader = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=1 << 17, timeout=TIMEOUT_S)
    paths = []
    for file in public_set.files:
        try:
            paths.append(Path(source.fetch(file.name, downloader=downloader)))
        except RequestException as error:
            status = None if error.response is None else f"status {error.response.status_code}"
            raise InputError(
                f"{file.url} cannot be downloaded ({status or type(error).__name__}); check the connection "
                f"and run the same command again, or save a copy as {target / file.name}"
            ) from error
        except ValueError as error:  # of pooch
            raise InputError(
                f"{file.url} does not have the expected sha256 {file.sha256}, and was not kept; run the same "
                f"command again, or save the published file as {target / file.name}"
            ) from error
        except OSError as error:
            raise _not_written(target, error) from error
    return paths


def convert(
    public_set: PublicSet,
    paths: Iterable[Path],
    folder: Path,
    *,
    limit: int | None = None,
    advance: Callable[[str], None] = lambda _: None,
) -> int:
    """Write the rows of a set to FOLDER/NAME.jsonl and return their number.

    Args:
        public_set: The set.
        paths: Downloaded files, in the order of the set.
        folder: Output folder. An existing file is replaced only by a complete one.
        limit: Maximum number of rows.
        advance: Called with the id of each row.

    Raises:
        InputError: A source file cannot be read, or the output cannot be written.
    """
    path = folder / f"{public_set.name}.jsonl"
    part = path.with_suffix(".jsonl.part")
    count = 0
    try:
        with part.open("w", encoding="utf-8", newline="\n") as output:
            for row in islice(_rows(public_set, paths), limit):
                output.write(json.dumps(row, ensure_ascii=False) + "\n")
                count += 1
                advance(row["id"])
        if not count:
            raise InputError(
                f"{public_set.name} has no examples; delete {folder / 'downloads'} and try again"
            )
        part.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        part.unlink(missing_ok=True)
    return count


def get_set(name: str) -> PublicSet:
    """Return the set with this name.

    Raises:
        InputError: The name is unknown, or the set has no public copy.
    """
    if name in NOT_PUBLIC:
        raise InputError(
            f"no public copy of {name} is known; use gsm8k, whose problems are split into premises in the "
            "same way, or write your own rows as in docs/data.md"
        )
    if name not in PUBLIC_SETS:
        raise InputError(f"unknown set {name!r}; choose from: {', '.join(PUBLIC_SETS)}")
    return PUBLIC_SETS[name]


def _rows(public_set: PublicSet, paths: Iterable[Path]) -> Iterator[readers.Row]:
    where = public_set.name

    def records() -> Iterator[readers.Record]:
        nonlocal where
        for file, path in zip(public_set.files, paths, strict=True):
            where = f"{path}, record 0"
            for index, content in enumerate(public_set.read(path)):
                where = f"{path}, record {index}"
                yield readers.Record(content, index, file.part)

    try:
        yield from public_set.convert(records())
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        OSError,
        EOFError,
        csv.Error,
        zlib.error,
    ) as error:
        raise InputError(
            f"{where} cannot be read ({one_line(error)}); delete the file and run the same command again"
        ) from error


def _not_written(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{path} cannot be written: {error.strerror}; free some space, or give another folder with "
        "--output-dir"
    )


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _lost_in_the_middle(path: str) -> str:
    return _github("nelson-liu/lost-in-the-middle", "29b8a6d042ce29abccee3db1a73171a107d7e6af", path)


def _llmbar(path: str) -> str:
    return _github(
        "princeton-nlp/LLMBar", "900616bff90b6c6c8e1681f7d079250637c55992", f"Dataset/{path}/dataset.json"
    )


def _humanevalpack(language: str) -> str:
    path = f"evaluation/create/humaneval-x/data/{language}/data/humanevalpack.jsonl"
    return _github("bigcode-project/octopack", "e17a8f6470264286bc6a52eb8263582083bf3bf6", path)


def _questions(count: int, size: int, sha256: str) -> PublicSet:
    path = f"qa_data/{count}_total_documents/nq-open-{count}_total_documents_gold_at_0.jsonl.gz"
    return PublicSet(
        f"lost-in-the-middle-{count}", "retrieval_qa", 2655, size,
        license=(
            "MIT, Copyright (c) 2023 Nelson Liu; NaturalQuestions: CC BY-SA 3.0; "
            "passages of English Wikipedia: CC BY-SA"
        ),
        source="https://github.com/nelson-liu/lost-in-the-middle",
        files=(SourceFile(f"{count}-documents.jsonl.gz", _lost_in_the_middle(path), sha256=sha256),),
        read=readers.read_json_lines,
        convert=readers.convert_questions,
    )  # fmt: skip


# fmt: off
_SETS = (
    PublicSet(
        "rewardbench", "judge_pair", 2985, 2_354_751,
        license="ODC-BY 1.0; its subsets come from sets with licences of their own",
        source="https://huggingface.co/datasets/allenai/reward-bench",
        files=(SourceFile(
            "filtered.parquet",
            "https://huggingface.co/datasets/allenai/reward-bench/resolve/"
            "168d848cdbbea9764fae4a544dc9ca1e6cca4931/data/filtered-00000-of-00001.parquet",
            sha256="65473c20ed0627e02503557ae102c25c6b0e66b5ed69ee327e224bb95e70ca29",
        ),),
        read=readers.read_parquet,
        convert=readers.convert_rewardbench,
    ),
    PublicSet(
        "llmbar", "judge_pair", 419, 546_715,
        license="MIT, Copyright (c) 2023 Princeton Natural Language Processing",
        source="https://github.com/princeton-nlp/LLMBar",
        files=tuple(SourceFile(f"{part}.json", _llmbar(path), part) for part, path in {
            "llmbar-natural": "LLMBar/Natural",
            "llmbar-adver-neighbor": "LLMBar/Adversarial/Neighbor",
            "llmbar-adver-gptinst": "LLMBar/Adversarial/GPTInst",
            "llmbar-adver-gptout": "LLMBar/Adversarial/GPTOut",
            "llmbar-adver-manual": "LLMBar/Adversarial/Manual",
        }.items()),
        read=readers.read_json_list,
        convert=readers.convert_llmbar,
    ),
    PublicSet(
        "mt-bench", "judge_pair", 200, 468_579,
        license="CC BY 4.0 (the judgments); MIT (LLMBar, which took the majority and left out ties)",
        source="https://github.com/princeton-nlp/LLMBar",
        files=(SourceFile("mt-bench.json", _llmbar("Processed/MT-Bench")),),
        read=readers.read_json_list,
        convert=readers.convert_mt_bench,
    ),
    PublicSet(
        "humanevalpack", "judge_pair", 984, None,
        license="MIT, Copyright (c) 2023 Muennighoff",
        source="https://github.com/bigcode-project/octopack",
        files=tuple(
            SourceFile(f"{language}.jsonl", _humanevalpack(language), language)
            for language in ("cpp", "go", "java", "js", "python", "rust")
        ),
        read=readers.read_json_lines,
        convert=readers.convert_humanevalpack,
    ),
    _questions(10, 7_801_797, "192a05b27af2b09eec33ca0c94bb5cf82bcaf70d78b3bdff1258df34bf37aab9"),
    _questions(20, 15_151_873, "69a8dd87a45f07fb3ed9b804917a89db975cd6e488682fc838edca029cc3881f"),
    PublicSet(
        "key-value-75", "kv_retrieval", 500, 1_667_554,
        license="MIT, Copyright (c) 2023 Nelson Liu",
        source="https://github.com/nelson-liu/lost-in-the-middle",
        files=(SourceFile(
            "75-keys.jsonl.gz", _lost_in_the_middle("kv_retrieval_data/kv-retrieval-75_keys.jsonl.gz")
        ),),
        read=readers.read_json_lines,
        convert=readers.convert_key_values,
    ),
    PublicSet(
        "gsm8k", "math_reasoning", 1319, 749_738,
        license="MIT, Copyright (c) 2021 OpenAI",
        source="https://github.com/openai/grade-school-math",
        files=(SourceFile(
            "test.jsonl",
            _github(
                "openai/grade-school-math", "3101c7d5072418e28b9008a6636bde82a006892c",
                "grade_school_math/data/test.jsonl",
            ),
            sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        ),),
        read=readers.read_json_lines,
        convert=readers.convert_gsm8k,
    ),
    PublicSet(
        "qm9", "molecule_generation", 133_885, 29_856_825,
        license="CC0 1.0 (QM9: Ramakrishnan et al. 2014, doi 10.1038/sdata.2014.22)",
        source="https://moleculenet.org",
        files=(SourceFile(
            "qm9.csv",
            "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/qm9.csv",
            sha256="3e668f8c34e4bc392a90d417a50a5eed3b64b842a817a633024bdc054c68ccb4",
        ),),
        read=readers.read_csv,
        convert=readers.convert_molecules,
    ),
)
# fmt: on

PUBLIC_SETS: dict[str, PublicSet] = {row.name: row for row in _SETS}
"""All public sets by name."""

NOT_PUBLIC = {"r-gsm": "math_reasoning"}
"""Sets of papers without a known public copy, with their task."""
