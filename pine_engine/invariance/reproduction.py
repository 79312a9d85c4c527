"""Reproduction of a certificate by computing it again."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pine_engine.engine.engine import Engine
from pine_engine.engine.orders import OrderComparison, OrderResult, compare_orders, sample_orders
from pine_engine.invariance.certificate import (
    ASPECTS,
    Certificate,
    MethodResult,
    Platform,
    create_certificate,
    hash_logits,
)


@dataclass(frozen=True)
class Tolerance:
    """Largest allowed difference of numbers computed on two platforms, where rounding differs."""

    logit_diff: float  # of max |Δ logit|
    logprob: float  # of a log-probability, in nats per token of the answer


EXACT = Tolerance(0.0, 0.0)

TOLERANCES = {
    "float32": Tolerance(1e-3, 3e-4),
    "float16": Tolerance(0.2, 0.06),
    "bfloat16": Tolerance(1.0, 0.3),
    "4bit": Tolerance(1.0, 0.3),
}
"""Tolerance by the coarser dtype of both platforms; docs/exactness.md has the measurements.

Rounding errors grow over the layers to about 100 units in the last place of a logit. Decode steps in 4bit
use bfloat16 activations.
"""

MODEL_FIELDS = ("model", "revision", "dtype")
"""Fields of Platform that identify the model. They must be equal on both platforms."""


@dataclass(frozen=True)
class CertificateCheck:
    """Comparison of one statement of a certificate with its reproduction."""

    method: str | None  # None for the certificate as a whole
    label: str
    tolerance: float = 0.0
    problem: str | None = None  # the difference, if it exceeds the tolerance
    unchecked: str | None = None  # why the comparison was not possible


@dataclass(frozen=True)
class Reproduction:
    """Comparison of a certificate with its reproduction.

    Attributes:
        platform_differences: Differences of the platforms, without the model.
        overrides: Differences that the caller requested.
        tolerance: Tolerance of numbers. None if they must be equal.
        checks: All comparisons, those of the certificate as a whole first.
    """

    platform_differences: list[str]
    overrides: list[str]
    tolerance: Tolerance | None
    checks: list[CertificateCheck]

    @property
    def holds(self) -> bool:
        """True if no completed comparison found a difference."""
        return not any(check.problem for check in self.checks)

    def checks_of(self, method: str | None) -> list[CertificateCheck]:
        """Return the comparisons of one method, or of the certificate as a whole."""
        return [check for check in self.checks if check.method == method]

    def problems_of(self, method: str | None) -> list[str]:
        """Return the differences of one method, or of the certificate as a whole."""
        return [check.problem for check in self.checks_of(method) if check.problem]


def reproduce(engine: Engine, certified: Certificate, *, on_order: Callable[[str], None]) -> Certificate:
    """Compute the request of a certificate again and return the new certificate.

    Args:
        engine: Engine with the certified model.
        certified: Certificate that defines request, orders and methods.
        on_order: Called with a status after each order.
    """
    comparisons: list[dict[str, OrderComparison]] = []
    hashes: dict[str, str] = {}
    for event in compare_orders(
        engine,
        certified.request.tokenize(engine),
        methods=certified.methods,
        orders=certified.orders,
        max_new_tokens=certified.max_new_tokens,
        trace=certified.traced,
    ):
        if isinstance(event, OrderResult):
            hashes = hashes or hash_logits(event.result)
            comparisons.append(event.comparisons)
            on_order(f"order {len(comparisons)} of {len(certified.orders)}")
    return create_certificate(
        engine,
        certified.request,
        orders=certified.orders,
        comparisons=comparisons,
        hashes=hashes,
        seed=certified.seed,
        max_new_tokens=certified.max_new_tokens,
        traced=certified.traced,
    )


def compare_certificates(
    certified: Certificate, found: Certificate, *, overrides: Collection[str] = ()
) -> Reproduction:
    """Compare a certificate with its reproduction.

    Numbers must be equal if the platforms are equal, or if the logits of all methods are bitwise identical
    on both platforms.

    Args:
        certified: Certificate to check.
        found: Certificate of the reproduction.
        overrides: Fields of Platform for which the caller requested another value than the certified one.
    """
    here, there = found.platform, certified.platform
    pairs = list(zip(found.results, certified.results, strict=True))
    fields = ((field, getattr(here, field), getattr(there, field)) for field in ASPECTS)
    compared = {field: _compare(ASPECTS[field], *values) for field, *values in fields}
    differences = {field: problem for field, problem in compared.items() if problem}
    requested = [field for field in differences if field in overrides]
    elsewhere = [field for field in differences if field not in (*overrides, *MODEL_FIELDS)]
    tolerance, reason = None, None
    if differences and any(result.logits_sha256 != expected.logits_sha256 for result, expected in pairs):
        tolerances = [TOLERANCES.get(platform.dtype, EXACT) for platform in (here, there)]
        tolerance = max(tolerances, key=lambda of_dtype: of_dtype.logit_diff)
        reason = f"logits depend on the platform, which differs: {', '.join(ASPECTS[f] for f in differences)}"
    checks = [*_check_model(differences, requested, there), _check_orders(certified)]
    if elsewhere:
        checks.append(CertificateCheck(None, "where it was computed", unchecked="this is another platform"))
    if reason and here.revision is None:
        checks.append(CertificateCheck(None, "the weights", unchecked="the model has no revision"))
    for pair in pairs:
        checks += _check_method(*pair, tolerance or EXACT, reason)
    return Reproduction(
        platform_differences=[differences[field] for field in elsewhere],
        overrides=[differences[field] for field in requested],
        tolerance=tolerance,
        checks=checks,
    )


def _check_model(
    differences: Mapping[str, str], requested: Collection[str], certified: Platform
) -> Iterator[CertificateCheck]:
    for field in MODEL_FIELDS:
        check = partial(CertificateCheck, None, f"the {ASPECTS[field]}")
        if field in requested:
            yield check(unchecked="an option replaced it")
        elif field in differences and getattr(certified, field) is None:
            yield check(unchecked="the certificate does not name it")
        else:
            yield check(problem=differences.get(field))


def _check_orders(certified: Certificate) -> CertificateCheck:
    """Check that the orders are those of the seed, or the first permutations; a stopped test has fewer."""
    orders = [tuple(order) for order in certified.orders]
    first = orders[0]
    if certified.seed is None:
        expected = list(itertools.islice(itertools.permutations(first), len(orders)))
        source = "the first permutations"
    else:
        sampled = sample_orders(len(first), len(orders) - 1, certified.seed)
        expected = [tuple(first[slot] for slot in order) for order in sampled]
        source = f"the orders of seed {certified.seed}"
    return CertificateCheck(
        None, "the orders", problem=None if expected == orders else f"orders: expected {source}"
    )


def _check_method(
    found: MethodResult, certified: MethodResult, tolerance: Tolerance, reason: str | None
) -> Iterator[CertificateCheck]:
    """Compare one method; reason: why its logits may differ, None if they must be bitwise identical."""
    check = partial(CertificateCheck, found.method)
    problem = _compare("first answer", found.first_answer, certified.first_answer)
    if problem is None and found.first_token_ids != certified.first_token_ids:
        problem = "first answer: got other token ids"
    yield check("the first answer", problem=problem)
    for label, field, within in (
        ("orders with the first answer", "num_matching_answers", 0.0),
        ("distinct answers", "num_distinct_answers", 0.0),
        ("bitwise identity", "bitwise_identical", 0.0),
        ("max |Δ logit|", "max_abs_logit_diff", tolerance.logit_diff),
    ):
        problem = _compare(label, getattr(found, field), getattr(certified, field), within)
        yield check(label, within, problem)
    label, within = "the log-probabilities", tolerance.logprob * len(certified.first_token_ids)
    if found.first_token_ids == certified.first_token_ids:
        yield check(label, within, _compare_logprobs(found, certified, within))
    else:
        yield check(label, within, unchecked="the first answers differ")
    label = "the logits"
    if found.logits_sha256 == certified.logits_sha256:
        yield check(label)
    elif reason is None:
        yield check(label, problem="logits: got another hash")
    else:
        yield check(label, unchecked=reason)


def _compare_logprobs(found: MethodResult, certified: MethodResult, within: float) -> str | None:
    """Return the first problem of the log-probabilities and of their spread, a difference of two."""
    for number, pair in enumerate(zip(found.logprobs, certified.logprobs, strict=True), start=1):
        if problem := _compare(f"log-probability in order {number}", *pair, within):
            return problem
    label = "spread of the log-probabilities"
    return _compare(label, found.logprob_spread, certified.logprob_spread, 2 * within)


def _compare(label: str, found: Any, certified: Any, within: float = 0.0) -> str | None:
    """Return the problem of two values; infinities of one sign are equal, and so are two NaN."""
    if found == certified or (found != found and certified != certified):
        return None
    if within and abs(found - certified) <= within:
        return None
    return f"{label}: got {_printable(found)}, expected {_printable(certified)}"


def _printable(value: Any) -> str:
    """Escape control characters, so that a certificate cannot write to the terminal."""
    text = f"{value:.4g}" if isinstance(value, float) else str("unknown" if value is None else value)
    return text if text.isprintable() else ascii(text)
