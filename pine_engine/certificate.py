"""A certificate of a comparison of orders: what was asked, where, what came out, whether it comes again."""

import hashlib
import importlib.metadata
import math
import platform as python_platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pine_engine.engine import Engine
from pine_engine.errors import InputError
from pine_engine.events import RunResult
from pine_engine.inputs import Comparison, parse_json, read_text
from pine_engine.invariance import OrderCell, summarize
from pine_engine.methods import METHODS

FORMAT: Final = "pine-explorer certificate"
VERSION: Final = 1

FILE_NAME = "certificate.json"
REPEAT_COMMAND = f"python -m pine_engine repeat {FILE_NAME}"

TOLERANCES = {"float32": 1e-3, "float16": 0.1, "bfloat16": 1.0}
"""How far max |Δ logit| may lie from the certified one on another platform, by the coarser dtype of both:
rounding differs there, and it grows over the layers to about a hundred times a logit's last digit."""

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
    threads: int
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
    distinct_answers: int
    same_answers: int
    max_abs_logit_diff: float
    bitwise_equal: bool
    logprobs: list[float]
    logprob_spread: float
    first_answer: str
    first_token_ids: list[int]
    logits_sha256: str


class Certificate(BaseModel):
    """Everything that repeats a comparison of orders, and what it found.

    made: when, in UTC. command: what repeats it. address: what the model is loaded by. comparison: what was
    asked, documents as A, B, C ... orders: those tried, the first as entered; orders[i][p] is the document at
    place p. seed: of the orders, None if they are all there are. traced: attention was recorded, in which
    case documents are read anew where methods could share them, and last bits may differ.
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
        places = list(range(len(self.comparison.documents)))
        for order in self.orders:
            if sorted(order) != places:
                raise ValueError(f"{order} is no order of {len(places)} documents")
        for result in self.results:
            if result.method not in METHODS:
                raise ValueError(f"there is no method {result.method!r}")
            if self.methods.count(result.method) > 1:
                raise ValueError(f"{result.method} stands twice among the results")
            if len(result.logprobs) != len(self.orders):
                raise ValueError(f"{result.method} must have one log-probability for each order")
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
    engine: Engine,
    comparison: Comparison,
    *,
    orders: Sequence[Sequence[int]],
    cells: Sequence[Mapping[str, OrderCell]],
    hashes: Mapping[str, str],
    seed: int | None,
    max_new_tokens: int,
    traced: bool,
) -> Certificate:
    """The certificate of orders that were compared.

    orders: of the comparison's documents. cells: of compare_orders, for each order. hashes: logits_sha256()
    of the first order.
    """
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


def logits_sha256(result: RunResult) -> dict[str, str]:
    """For each method, SHA-256 over its logits as little-endian float32: suffix and steps, row by row."""
    return {
        method: hashlib.sha256(logits.contiguous().numpy().astype("<f4", copy=False).tobytes()).hexdigest()
        for method, logits in result.logits.items()
    }


def platform_of(engine: Engine) -> Platform:
    """The engine's model, and what it runs on."""
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


@dataclass(frozen=True)
class MethodRepeat:
    """How one method's repetition compares.

    bits: whether the first order's logits are the certified ones to the last bit; None if they were not
    compared, on another platform. problems: what differs and must not, in words.
    """

    found: MethodResult
    certified: MethodResult
    bits: bool | None
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Repeat:
    """How a repetition compares.

    elsewhere: what differs between the platforms, in words. tolerance: of max |Δ logit|; None on the same
    platform, where it must be the same number.
    """

    elsewhere: tuple[str, ...]
    tolerance: float | None
    methods: tuple[MethodRepeat, ...]

    @property
    def holds(self) -> bool:
        """True if nothing differs that must not."""
        return not any(method.problems for method in self.methods)


def compare_certificates(certified: Certificate, found: Certificate) -> Repeat:
    """How `found`, which repeats `certified`, compares with it."""
    here, there = found.platform, certified.platform
    elsewhere = tuple(
        f"{name}: {getattr(here, field) or 'unknown'} here, {getattr(there, field) or 'unknown'} there"
        for field, name in ASPECTS.items()
        if getattr(here, field) != getattr(there, field)
    )
    coarsest = max(TOLERANCES.get(platform.dtype, 0.0) for platform in (here, there))
    tolerance = coarsest if elsewhere else None
    return Repeat(
        elsewhere,
        tolerance,
        tuple(
            _compare_method(result, expected, tolerance)
            for result, expected in zip(found.results, certified.results, strict=True)
        ),
    )


def _compare_method(found: MethodResult, certified: MethodResult, tolerance: float | None) -> MethodRepeat:
    problems = []
    if (found.first_answer, found.first_token_ids) != (certified.first_answer, certified.first_token_ids):
        problems.append("another answer")
    for name, words in (
        ("same_answers", "orders with the first answer"),
        ("distinct_answers", "distinct answers"),
    ):
        if getattr(found, name) != getattr(certified, name):
            problems.append(f"{getattr(found, name)} {words}, not {getattr(certified, name)}")
    if found.bitwise_equal != certified.bitwise_equal:
        negation = "" if found.bitwise_equal else "not "
        problems.append(f"{negation}equal to the last bit")
    if not _is_near(found.max_abs_logit_diff, certified.max_abs_logit_diff, tolerance or 0.0):
        problems.append(
            f"max |Δ logit| {found.max_abs_logit_diff:.4g}, not {certified.max_abs_logit_diff:.4g}"
        )
    bits = None
    if tolerance is None:
        bits = found.logits_sha256 == certified.logits_sha256
        if not bits:
            problems.append("other logits")
        if found.logprobs != certified.logprobs or found.logprob_spread != certified.logprob_spread:
            problems.append("other log-probabilities")
    return MethodRepeat(found, certified, bits, tuple(problems))


def _is_near(one: float, other: float, tolerance: float) -> bool:
    """Also for two that are not numbers."""
    return abs(one - other) <= tolerance or (math.isnan(one) and math.isnan(other))
