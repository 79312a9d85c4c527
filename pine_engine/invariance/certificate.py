"""A certificate of a comparison of orders: what was asked, where it was computed and what came out."""

import hashlib
import importlib.metadata
import math
import platform as python_platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from pine_engine.errors import InputError
from pine_engine.given import in_words
from pine_engine.methods.table import METHODS
from pine_engine.models.dtypes import Dtype
from pine_engine.prompts.inputs import Comparison, parse_json, read_text

if TYPE_CHECKING:  # torch is imported by what computes: a certificate is read without it
    from pine_engine.engine.engine import Engine
    from pine_engine.engine.events import RunResult
    from pine_engine.engine.orders import OrderCell

FORMAT: Final = "pine-explorer certificate"
VERSION: Final = 1

FILE_NAME = "certificate.json"
REPEAT_COMMAND = f"python -m pine_engine repeat {FILE_NAME}"

DTYPES = (*get_args(Dtype), "float64")
"""Those that a model is loaded in, and that of an engine that somebody has made of their own model."""

ROUNDING = 1e-5
"""How far, in nats per token, log-softmax of one and the same logits may be off: it is computed in float32,
in which a log-probability of -100 has a last digit of 8e-6."""

ASPECTS = {
    "model": "model",
    "revision": "revision",
    "dtype": "dtype",
    "device": "device",
    "hardware": "hardware",
    "threads": "threads",
    "python": "Python",
    "torch": "torch",
    "transformers": "transformers",
    "pine_explorer": "PINE Explorer",
}
"""What the bits of a logit may depend on besides the prompt: fields of Platform, as they are called."""


class Platform(BaseModel):
    """The model, and all that its arithmetic runs on.

    hardware: the processor that computes. threads: of torch's operations on the CPU.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str
    revision: str | None
    dtype: str
    device: str
    hardware: str
    threads: PositiveInt
    python: str
    torch: str
    transformers: str
    pine_explorer: str


class MethodResult(BaseModel):
    """One method over all orders.

    same_answers: orders whose answer is the first order's, which is among them. max_abs_logit_diff and
    bitwise_equal: see OrderCell, over all orders. logprobs: log-probability of the first order's answer in
    every order, in nats; logprob_spread: the largest less the smallest. logits_sha256: over all logits of the
    first order, see logits_sha256().
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")

    method: str
    distinct_answers: PositiveInt
    same_answers: PositiveInt
    max_abs_logit_diff: float
    bitwise_equal: bool
    logprobs: list[float]
    logprob_spread: float
    first_answer: str
    first_token_ids: list[NonNegativeInt]
    logits_sha256: str = Field(pattern="^[0-9a-f]{64}$")

    def contradictions(self, num_orders: int, max_new_tokens: int) -> Iterator[str]:
        """What cannot be true of so many orders and answers of at most so many tokens, in words."""
        if len(self.logprobs) != num_orders:
            yield "must have one log-probability for each order"
            return
        num_tokens = len(self.first_token_ids)
        if num_tokens > max_new_tokens:
            yield f"has a first answer of {num_tokens} tokens, of at most {max_new_tokens}"
        if not num_tokens and (self.first_answer or any(self.logprobs)):
            yield "has a first answer without tokens, which has no text and log-probabilities of 0"
        for logprob in self.logprobs:
            if not logprob <= ROUNDING * num_tokens:  # neither is one that is not a number
                yield f"has a log-probability of {logprob}; expected 0 or less"
        spread = max(self.logprobs) - min(self.logprobs)
        if not is_near(self.logprob_spread, spread, 0.0):
            yield f"has a logprob_spread of {self.logprob_spread}, and log-probabilities {spread} apart"
        yield from self._impossible_counts(num_orders)
        yield from self._impossible_bits(num_orders, spread)

    def _impossible_counts(self, num_orders: int) -> Iterator[str]:
        others = num_orders - self.same_answers
        if not min(others, 1) < self.distinct_answers <= others + 1:
            alike = f"{self.same_answers} of {num_orders} orders with the first one"
            yield f"has {self.distinct_answers} distinct answers, and {alike}"

    def _impossible_bits(self, num_orders: int, spread: float) -> Iterator[str]:
        if self.max_abs_logit_diff < 0:
            yield f"has a max_abs_logit_diff of {self.max_abs_logit_diff}; expected 0 or more"
        if not self.bitwise_equal:
            if self.max_abs_logit_diff == 0:
                yield "has a max_abs_logit_diff of 0, and is not equal to the last bit"
            return
        if self.max_abs_logit_diff > 0:  # NaN is the difference of two that are infinite, and so equal
            yield f"is equal to the last bit, and has a max_abs_logit_diff of {self.max_abs_logit_diff}"
        if self.same_answers != num_orders:
            yield f"is equal to the last bit, and answers alike in {self.same_answers} of {num_orders} orders"
        if spread > ROUNDING * len(self.first_token_ids):
            yield f"is equal to the last bit, and has log-probabilities {spread} apart"


class Certificate(BaseModel):
    """Everything that repeats a comparison of orders, and what it found.

    made: when, in UTC. command: what repeats it. address: what the model is loaded by. comparison: what was
    asked, documents as A, B, C ... orders: those tried, the first as entered; orders[i][p] is the document at
    place p. seed: of the orders, None if they are all there are, or the first of these where somebody
    stopped. traced: attention was recorded, in which case documents are read anew where methods could share
    them, and last bits may differ.

    Raises ValueError for what cannot be true together, whoever wrote it.
    """

    model_config = ConfigDict(extra="forbid")

    format: Literal["pine-explorer certificate"] = FORMAT
    version: Literal[1] = VERSION
    made: str
    command: str = REPEAT_COMMAND
    address: str
    platform: Platform
    comparison: Comparison
    orders: list[list[int]] = Field(min_length=1)
    seed: int | None
    max_new_tokens: int = Field(ge=0)
    traced: bool
    results: list[MethodResult] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> "Certificate":
        if self.command != REPEAT_COMMAND:
            raise ValueError(
                f"the command is {in_words(self.command)}; {REPEAT_COMMAND} repeats a certificate"
            )
        if self.platform.dtype not in DTYPES:
            raise ValueError(f"the dtype is {in_words(self.platform.dtype)}; expected {', '.join(DTYPES)}")
        places = list(range(len(self.comparison.documents)))
        for order in self.orders:
            if sorted(order) != places:
                raise ValueError(f"{in_words(order)} is no order of {len(places)} documents")
        if len(set(map(tuple, self.orders))) < len(self.orders):
            raise ValueError("an order stands twice among the orders")
        for result in self.results:
            if result.method not in METHODS:
                raise ValueError(f"there is no method {result.method!r}")
            if self.methods.count(result.method) > 1:
                raise ValueError(f"{result.method} stands twice among the results")
            contradiction = next(result.contradictions(len(self.orders), self.max_new_tokens), None)
            if contradiction:
                raise ValueError(f"{result.method} {contradiction}")
        return self

    @property
    def methods(self) -> list[str]:
        """Names of the methods, in the order in which they run."""
        return [result.method for result in self.results]


class _Header(BaseModel):
    """What tells a certificate from any other JSON object."""

    format: Any = None
    version: Any = None


def read_certificate(path: Path) -> Certificate:
    """The certificate in a file. Raises InputError that says what is wrong with it."""
    text = read_text(path)
    header = parse_json(_Header, text, str(path))
    if header.format != FORMAT:
        raise InputError(
            f"{path} is not a certificate of PINE Explorer; save one with the button 'Certificate (JSON)', "
            "which the page shows after a shuffle"
        )
    if header.version != VERSION:
        raise InputError(
            f"{path} is a certificate of version {header.version!r}, and this program reads version "
            f"{VERSION}; use the release of PINE Explorer that the certificate names"
        )
    return parse_json(Certificate, text, str(path))


def certify(
    engine: "Engine",
    comparison: Comparison,
    *,
    orders: Sequence[Sequence[int]],
    cells: Sequence[Mapping[str, "OrderCell"]],
    hashes: Mapping[str, str],
    seed: int | None,
    max_new_tokens: int,
    traced: bool,
) -> Certificate:
    """The certificate of orders that were compared.

    orders: of the comparison's documents. cells: of compare_orders, for each order. hashes: logits_sha256()
    of the first order.
    """
    from pine_engine.engine.orders import summarize

    results = []
    for method, summary in summarize(cells).items():
        first = cells[0][method].answer
        results.append(
            MethodResult(
                method=method,
                distinct_answers=summary.distinct_texts,
                same_answers=summary.same_texts,
                max_abs_logit_diff=summary.max_abs_logit_diff,
                bitwise_equal=summary.bitwise_equal,
                logprobs=[row[method].reference_logprob for row in cells],
                logprob_spread=summary.logprob_spread,
                first_answer=first.text,
                first_token_ids=list(first.token_ids),
                logits_sha256=hashes[method],
            )
        )
    return Certificate(
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        address=engine.address,
        platform=platform_of(engine),
        comparison=comparison,
        orders=[list(order) for order in orders],
        seed=seed,
        max_new_tokens=max_new_tokens,
        traced=traced,
        results=results,
    )


def logits_sha256(result: "RunResult") -> dict[str, str]:
    """For each method, SHA-256 over its logits as little-endian float32: suffix and steps, row by row."""
    return {
        method: hashlib.sha256(logits.contiguous().numpy().astype("<f4", copy=False).tobytes()).hexdigest()
        for method, logits in result.logits.items()
    }


def platform_of(engine: "Engine") -> Platform:
    """The engine's model, and what it runs on."""
    import torch

    return Platform(
        model=engine.model_name,
        revision=engine.revision,
        dtype=engine.dtype,
        device=engine.device,
        hardware=hardware_of(engine.device),
        threads=torch.get_num_threads(),
        python=python_platform.python_version(),
        torch=torch.__version__,
        transformers=importlib.metadata.version("transformers"),
        pine_explorer=installed_version("pine-explorer"),
    )


def hardware_of(device: str, cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """Name of the processor that computes; of a CPU also the instructions that torch uses there."""
    import torch

    if device.startswith("cuda"):
        name: str = torch.cuda.get_device_name(device)
        return name
    instructions = torch.backends.cpu.get_cpu_capability()
    lines = cpu_info.read_text(encoding="utf-8").splitlines() if cpu_info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{next(names, python_platform.machine())}, {instructions}"


def installed_version(package: str) -> str:
    """The version of a package, or that it runs from its sources."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed, run from its sources"


def is_near(one: float, other: float, tolerance: float) -> bool:
    """Also for two that are infinite alike, and two that are not numbers."""
    return one == other or abs(one - other) <= tolerance or (math.isnan(one) and math.isnan(other))
