"""The public data sets that can be downloaded: a table, one row a set, with its source, licence and form."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pine_engine.data.math_problems import convert_gsm8k
from pine_engine.data.molecule_table import convert_molecules
from pine_engine.data.pairs import (
    convert_humanevalpack,
    convert_llmbar,
    convert_mt_bench,
    convert_rewardbench,
)
from pine_engine.data.readers import (
    SourceRecord,
    read_csv,
    read_json_lines,
    read_json_list,
    read_parquet,
    require_datasets,
)
from pine_engine.data.retrieval import convert_key_values, convert_questions
from pine_engine.data.schema import ExampleRow
from pine_engine.errors import InputError


@dataclass(frozen=True)
class SourceFile:
    """A file of a source, at a state that cannot change.

    name: what it is called here. part: which part of the set it is. sha256: where at least two who downloaded
    it independently published the same; None where we know of no two, and then the first download counts.
    """

    name: str
    url: str
    part: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class PublicSet:
    """A set. records: how many its source has. size: bytes of all its files, about; None if not known.

    read gives the records of one file; convert makes examples of the records of all files; check raises
    InputError if something is missing that reading needs.
    """

    name: str
    task: str
    records: int
    size: int | None
    license: str
    source: str
    files: tuple[SourceFile, ...]
    read: Callable[[Path], Iterator[Any]]
    convert: Callable[[Iterable[SourceRecord]], Iterator[ExampleRow]]
    check: Callable[[], object] = lambda: None


def _github(repository: str, commit: str, path: str) -> str:
    return f"https://raw.githubusercontent.com/{repository}/{commit}/{path}"


def _lost_in_the_middle(path: str) -> str:
    return _github("nelson-liu/lost-in-the-middle", "29b8a6d042ce29abccee3db1a73171a107d7e6af", path)


def _llmbar(path: str) -> str:
    commit = "900616bff90b6c6c8e1681f7d079250637c55992"
    return _github("princeton-nlp/LLMBar", commit, f"Dataset/{path}/dataset.json")


def _humanevalpack(language: str) -> str:
    path = f"evaluation/create/humaneval-x/data/{language}/data/humanevalpack.jsonl"
    return _github("bigcode-project/octopack", "e17a8f6470264286bc6a52eb8263582083bf3bf6", path)


_LLMBAR_PARTS = {
    "llmbar-natural": "LLMBar/Natural",
    "llmbar-adver-neighbor": "LLMBar/Adversarial/Neighbor",
    "llmbar-adver-gptinst": "LLMBar/Adversarial/GPTInst",
    "llmbar-adver-gptout": "LLMBar/Adversarial/GPTOut",
    "llmbar-adver-manual": "LLMBar/Adversarial/Manual",
}

_LANGUAGES = ("cpp", "go", "java", "js", "python", "rust")

_LITM_LICENSE = (
    "MIT, Copyright (c) 2023 Nelson Liu; NaturalQuestions: CC BY-SA 3.0; "
    "passages of English Wikipedia: CC BY-SA"
)
_LITM_SOURCE = "https://github.com/nelson-liu/lost-in-the-middle"

_ROWS = (
    PublicSet(
        name="rewardbench",
        task="judge_pair",
        records=2985,
        size=2_354_751,
        license="ODC-BY 1.0; its subsets come from sets with licences of their own",
        source="https://huggingface.co/datasets/allenai/reward-bench",
        files=(
            SourceFile(
                "filtered.parquet",
                "https://huggingface.co/datasets/allenai/reward-bench/resolve/"
                "168d848cdbbea9764fae4a544dc9ca1e6cca4931/data/filtered-00000-of-00001.parquet",
                sha256="65473c20ed0627e02503557ae102c25c6b0e66b5ed69ee327e224bb95e70ca29",
            ),
        ),
        read=read_parquet,
        convert=convert_rewardbench,
        check=require_datasets,
    ),
    PublicSet(
        name="llmbar",
        task="judge_pair",
        records=419,
        size=546_715,
        license="MIT, Copyright (c) 2023 Princeton Natural Language Processing",
        source="https://github.com/princeton-nlp/LLMBar",
        files=tuple(
            SourceFile(f"{part}.json", _llmbar(path), part=part) for part, path in _LLMBAR_PARTS.items()
        ),
        read=read_json_list,
        convert=convert_llmbar,
    ),
    PublicSet(
        name="mt-bench",
        task="judge_pair",
        records=200,
        size=468_579,
        license="CC BY 4.0 (the judgments); MIT (LLMBar, which took the majority and left out ties)",
        source="https://github.com/princeton-nlp/LLMBar",
        files=(SourceFile("mt-bench.json", _llmbar("Processed/MT-Bench")),),
        read=read_json_list,
        convert=convert_mt_bench,
    ),
    PublicSet(
        name="humanevalpack",
        task="judge_pair",
        records=984,
        size=None,
        license="MIT, Copyright (c) 2023 Muennighoff",
        source="https://github.com/bigcode-project/octopack",
        files=tuple(
            SourceFile(f"{language}.jsonl", _humanevalpack(language), part=language)
            for language in _LANGUAGES
        ),
        read=read_json_lines,
        convert=convert_humanevalpack,
    ),
    PublicSet(
        name="lost-in-the-middle-10",
        task="retrieval_qa",
        records=2655,
        size=7_801_797,
        license=_LITM_LICENSE,
        source=_LITM_SOURCE,
        files=(
            SourceFile(
                "10-documents.jsonl.gz",
                _lost_in_the_middle(
                    "qa_data/10_total_documents/nq-open-10_total_documents_gold_at_0.jsonl.gz"
                ),
                sha256="192a05b27af2b09eec33ca0c94bb5cf82bcaf70d78b3bdff1258df34bf37aab9",
            ),
        ),
        read=read_json_lines,
        convert=convert_questions,
    ),
    PublicSet(
        name="lost-in-the-middle-20",
        task="retrieval_qa",
        records=2655,
        size=15_151_873,
        license=_LITM_LICENSE,
        source=_LITM_SOURCE,
        files=(
            SourceFile(
                "20-documents.jsonl.gz",
                _lost_in_the_middle(
                    "qa_data/20_total_documents/nq-open-20_total_documents_gold_at_0.jsonl.gz"
                ),
                sha256="69a8dd87a45f07fb3ed9b804917a89db975cd6e488682fc838edca029cc3881f",
            ),
        ),
        read=read_json_lines,
        convert=convert_questions,
    ),
    PublicSet(
        name="key-value-75",
        task="kv_retrieval",
        records=500,
        size=1_667_554,
        license="MIT, Copyright (c) 2023 Nelson Liu",
        source=_LITM_SOURCE,
        files=(
            SourceFile(
                "75-keys.jsonl.gz", _lost_in_the_middle("kv_retrieval_data/kv-retrieval-75_keys.jsonl.gz")
            ),
        ),
        read=read_json_lines,
        convert=convert_key_values,
    ),
    PublicSet(
        name="gsm8k",
        task="math_reasoning",
        records=1319,
        size=749_738,
        license="MIT, Copyright (c) 2021 OpenAI",
        source="https://github.com/openai/grade-school-math",
        files=(
            SourceFile(
                "test.jsonl",
                _github(
                    "openai/grade-school-math",
                    "3101c7d5072418e28b9008a6636bde82a006892c",
                    "grade_school_math/data/test.jsonl",
                ),
                sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
            ),
        ),
        read=read_json_lines,
        convert=convert_gsm8k,
    ),
    PublicSet(
        name="qm9",
        task="molecule_generation",
        records=133_885,
        size=29_856_825,
        license="CC0 1.0 (QM9: Ramakrishnan et al. 2014, doi 10.1038/sdata.2014.22)",
        source="https://moleculenet.org",
        files=(
            SourceFile(
                "qm9.csv",
                "https://deepchemdata.s3-us-west-1.amazonaws.com/datasets/qm9.csv",
                sha256="3e668f8c34e4bc392a90d417a50a5eed3b64b842a817a633024bdc054c68ccb4",
            ),
        ),
        read=read_csv,
        convert=convert_molecules,
    ),
)

PUBLIC_SETS: dict[str, PublicSet] = {row.name: row for row in _ROWS}

NOT_PUBLIC = {"r-gsm": "math_reasoning"}
"""Sets that papers use and of which no public copy is known, with their task."""


def get_set(name: str) -> PublicSet:
    """The set of that name. Raises InputError for one that is unknown, or that nobody can download."""
    if name in NOT_PUBLIC:
        raise InputError(
            f"no public copy of {name} is known; take gsm8k, whose problems are split into premises in the "
            "same way, or write your own rows as docs/data.md describes them"
        )
    if name not in PUBLIC_SETS:
        raise InputError(f"unknown set {name!r}; choose from: {', '.join(PUBLIC_SETS)}")
    return PUBLIC_SETS[name]
