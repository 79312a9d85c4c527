"""Certificate of a shuffle test: request, platform and results, as one JSON file."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, model_validator

from pine_engine.engine.events import RunResult
from pine_engine.engine.order_results import OrderComparison, OrderStats, summarize_orders
from pine_engine.errors import InputError
from pine_engine.input_validation import describe
from pine_engine.invariance.platform_facts import Platform, platform_of
from pine_engine.methods.table import get_methods
from pine_engine.prompts.request import Request, parse_json
from pine_engine.rows.files import read_text
from pine_engine.rows.untrusted_json import ListInput

if TYPE_CHECKING:  # a certificate is read without torch
    from pine_engine.backend import Backend

FORMAT: Final = "pine-explorer certificate"
VERSION: Final = 2
FILE_NAME = "certificate.json"
REPRODUCE_COMMAND: Final = "python -m pine_engine reproduce certificate.json"

VERSION_1_COMMAND = "python -m pine_engine repeat certificate.json"
VERSION_1_KEYS = {
    "address": "model_ref",
    "comparison": "request",
    "distinct_answers": "num_distinct_answers",
    "same_answers": "num_matching_answers",
    "bitwise_equal": "bitwise_identical",
}
"""Current keys by the keys of version 1."""


class Certificate(BaseModel):
    """Request, document orders and platform of a shuffle test, and its results.

    Validation covers the schema and the orders. Results are checked by reproduction.

    Attributes:
        made: Creation time in UTC.
        model_ref: Hub id, folder name or name of the model to load.
        orders: Document orders, the input order first; `orders[i][p]` is the document in slot p.
        seed: Seed that sampled the orders. None if they are the first of all permutations.
        traced: True if attention was recorded: methods then share no prefill, and low-order bits may differ.
        methods: Methods of the test, as in results, so that a removed or moved result is found. Earlier
            certificates have none; default: those of the results.
    """

    model_config = ConfigDict(extra="forbid")

    format: Literal["pine-explorer certificate"]
    version: Literal[2]
    made: str
    command: Literal["python -m pine_engine reproduce certificate.json"] = REPRODUCE_COMMAND
    model_ref: str
    platform: Platform
    request: Request
    orders: ListInput[ListInput[int]] = Field(min_length=1)
    seed: int | None
    max_new_tokens: NonNegativeInt
    traced: bool
    methods: ListInput[str] = []
    results: ListInput[OrderStats] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _check_header(cls, content: Any) -> Any:
        if not isinstance(content, dict):
            return content
        if content.get("format") != FORMAT:
            button = "the ZIP of 'Download results' has one after a shuffle test on the page"
            raise ValueError(f"not a certificate of PINE Explorer; {button}")
        if content.get("version") == 1:
            return _convert_version_1(content)
        if content.get("version") != VERSION:
            found = f"unsupported certificate version: got {content.get('version')!r}, expected {VERSION}"
            raise ValueError(f"{found}. Use the release of PINE Explorer that the certificate names")
        return content

    @model_validator(mode="after")
    def _check(self) -> Self:
        slots = list(range(len(self.request.documents)))
        for order in self.orders:
            if sorted(order) != slots:
                raise ValueError(f"invalid order: got {describe(order)}, expected the numbers {slots}")
        if len(set(map(tuple, self.orders))) < len(self.orders):
            raise ValueError("invalid orders: got an order twice, expected different orders")
        methods = [result.method for result in self.results]
        try:
            get_methods(methods)
        except InputError as error:
            raise ValueError(str(error)) from error
        self.methods = self.methods or methods
        if self.methods != methods:
            raise ValueError(f"invalid results: got {', '.join(methods)}, expected one for each of methods")
        for result in self.results:
            if (count := len(result.logprobs)) != len(self.orders):
                expected = f"{len(self.orders)}, one for each order"
                raise ValueError(f"invalid logprobs of {result.method}: got {count}, expected {expected}")
            if result.bitwise_identical is None or not result.logits_sha256:
                raise ValueError(
                    f"no logits of {result.method}: expected bitwise_identical and logits_sha256"
                )
        return self

    @property
    def hashes(self) -> list[str]:
        """Hashes of the logits of the methods."""
        return [result.logits_sha256 for result in self.results]


def _convert_version_1(content: dict[str, Any]) -> dict[str, Any]:
    def rename(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {VERSION_1_KEYS.get(key, key): value for key, value in pairs}

    converted: dict[str, Any] = json.loads(json.dumps(content), object_pairs_hook=rename)
    if converted.get("command") == VERSION_1_COMMAND:
        converted["command"] = REPRODUCE_COMMAND
    return converted | {"version": VERSION}


def read_certificate(path: Path) -> Certificate:
    """Read and validate a certificate of version 1 or 2.

    Args:
        path: File in the format of Certificate.

    Raises:
        InputError: If the file is not a valid certificate.
    """
    return parse_json(Certificate, read_text(path), str(path))


def certified_stats(
    comparisons: Sequence[Mapping[str, OrderComparison]], hashes: Mapping[str, str]
) -> list[OrderStats]:
    """Return the results of a certificate, from the arguments of `create_certificate`."""
    return [
        stats.model_copy(update={"logits_sha256": hashes[method]})
        for method, stats in summarize_orders(comparisons).items()
    ]


def create_certificate(
    engine: "Backend",
    request: Request,
    *,
    orders: Sequence[Sequence[int]],
    comparisons: Sequence[Mapping[str, OrderComparison]],
    hashes: Mapping[str, str],
    seed: int | None,
    max_new_tokens: int,
    traced: bool,
) -> Certificate:
    """Create the certificate of a shuffle test.

    Args:
        engine: Engine that computed the answers.
        request: Request of the shuffle test. If the chat template prints the date, and the request has none,
            it gets that of today.
        orders: Document orders of the request, the input order first.
        comparisons: Result of each order by method, from compare_orders.
        hashes: hash_logits() of the first order.
        seed: Seed that sampled the orders. None if they are the first of all permutations.
        max_new_tokens: Limit of tokens per answer.
        traced: True if attention was recorded.
    """
    results = certified_stats(comparisons, hashes)
    return Certificate(
        format=FORMAT,
        version=VERSION,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        model_ref=engine.model_ref,
        platform=platform_of(engine),
        request=request.with_date(engine),
        orders=[list(order) for order in orders],
        seed=seed,
        max_new_tokens=max_new_tokens,
        traced=traced,
        methods=[result.method for result in results],
        results=results,
    )


def hash_logits(result: RunResult) -> dict[str, str]:
    """Return the SHA-256 of each method's logits, as little-endian float32.

    Args:
        result: Run with logits of the suffix and of the decode steps.
    """
    return {
        method: hashlib.sha256(logits.contiguous().numpy().astype("<f4", copy=False).tobytes()).hexdigest()
        for method, logits in result.logits.items()
    }
