"""Reproduction of a certificate by computing it again."""

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pine_engine.engine.engine import Engine
from pine_engine.engine.order_results import OrderComparison, OrderResult, OrderStats
from pine_engine.engine.orders import compare_orders
from pine_engine.invariance.certificate import Certificate, create_certificate, hash_logits
from pine_engine.invariance.platform_facts import ASPECTS
from pine_engine.prompts.chat_templates import CLOCK
from pine_engine.prompts.orders import sample_orders

Tolerance = dict[Literal["logit_diff", "logprob"], float]
"""Maximum difference of max |Δ logit|, and of a log-probability in nats per token of the answer."""

EXACT: Tolerance = {"logit_diff": 0.0, "logprob": 0.0}

TOLERANCES: dict[str, Tolerance] = {
    "float32": {"logit_diff": 1e-3, "logprob": 3e-4},
    "float16": {"logit_diff": 0.2, "logprob": 0.06},
    "bfloat16": {"logit_diff": 1.0, "logprob": 0.3},
    "4bit": {"logit_diff": 1.0, "logprob": 0.3},
}
"""Tolerance of numbers computed on two platforms, by the coarser dtype; docs/exactness.md has measurements.

Rounding errors grow over the layers to about 100 units in the last place of a logit. Decode steps in 4bit
use bfloat16 activations.
"""

LOGITS = "the logits"
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
    """Comparison of a certificate with its reproduction, the certificate `found`."""

    certified: Certificate
    found: Certificate
    platform_differences: list[str]  # without the model
    overrides: list[str]  # differences that the caller requested
    tolerance: Tolerance | None  # of numbers; None if they must be equal
    checks: list[CertificateCheck]  # those of the certificate as a whole first

    @property
    def holds(self) -> bool:
        """True if no completed comparison found a difference beyond its tolerance."""
        return not any(check.problem for check in self.checks)

    @property
    def bitwise_reproduced(self) -> bool:
        """True if everything holds and the logits of all methods are bitwise identical."""
        return self.holds and self.found.hashes == self.certified.hashes

    def problems_of(self, method: str | None) -> list[str]:
        """Return the differences of one method, or of the certificate as a whole."""
        return [check.problem for check in self.checks if check.problem and check.method == method]

    def unchecked(self) -> dict[tuple[str, str], list[str]]:
        """Return the methods by label and reason of each comparison that was not possible."""
        methods: dict[tuple[str, str], list[str]] = {}
        for check in self.checks:
            if check.unchecked:
                names = methods.setdefault((check.label, check.unchecked), [])
                names += [check.method] if check.method else []
        return methods

    def report(self) -> dict[str, Any]:
        """Return the JSON of the subcommand `reproduce`."""
        logits = {check.method: check for check in self.checks if check.label == LOGITS}
        methods = [
            {
                "method": method,
                "found": found.model_dump(mode="json"),
                "certified": certified.model_dump(mode="json"),
                "logits_identical": None if logits[method].unchecked else logits[method].problem is None,
                "problems": self.problems_of(method),
                "checked": self._checked(method),
            }
            for method, found, certified in zip(
                self.certified.methods, self.found.results, self.certified.results, strict=True
            )
        ]
        return {
            "made": self.certified.made,
            "model": self.certified.platform.model,
            "orders": len(self.certified.orders),
            "platform_differences": self.platform_differences,
            "overrides": self.overrides,
            "tolerance": self.tolerance,
            "problems": self.problems_of(None),
            "checked": self._checked(None),
            "methods": methods,
            "unchecked": [
                {"what": label, "methods": names, "why": reason}
                for (label, reason), names in self.unchecked().items()
            ],
            "bitwise_reproduced": self.bitwise_reproduced,
            "dtype": self.found.platform.dtype,
        }

    def _checked(self, method: str | None) -> dict[str, str]:
        """Return the tolerance of each completed comparison."""
        return {
            check.label: f"within {check.tolerance:g}" if check.tolerance else "exactly"
            for check in self.checks
            if check.method == method and check.unchecked is None
        }


def reproduce(engine: Engine, certified: Certificate, *, on_order: Callable[[str], None]) -> Certificate:
    """Compute the request of a certificate again; on_order is called with a status after each order."""
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

    Numbers must be equal if the platforms are equal, or if the logits of all methods are bitwise identical.
    overrides are the fields of Platform for which the caller requested another value.
    """
    here, there = found.platform, certified.platform
    compared = {
        field: _compare(label, getattr(here, field), getattr(there, field))
        for field, label in ASPECTS.items()
    }
    differences = {field: problem for field, problem in compared.items() if problem}
    requested = [field for field in differences if field in overrides]
    elsewhere = [field for field in differences if field not in (*overrides, *MODEL_FIELDS)]
    tolerance, reason = None, None
    if differences and found.hashes != certified.hashes:
        tolerances = [TOLERANCES.get(platform.dtype, EXACT) for platform in (here, there)]
        tolerance = max(tolerances, key=lambda of_dtype: of_dtype["logit_diff"])
        reason = f"logits depend on the platform, which differs: {', '.join(ASPECTS[f] for f in differences)}"
    whole = partial(CertificateCheck, None)
    checks: list[CertificateCheck] = []
    for field in MODEL_FIELDS:
        problem, unchecked = differences.get(field), None
        if field in requested:
            problem, unchecked = None, "an option replaced it"
        elif problem and getattr(there, field) is None:
            problem, unchecked = None, "the certificate does not name it"
        checks.append(whole(f"the {ASPECTS[field]}", problem=problem, unchecked=unchecked))
    checks.append(whole("the orders", problem=_check_orders(certified)))
    if day := found.request.chat_template_kwargs.get(CLOCK):
        problem = f"prompt: the chat template prints the date: got {day}, expected that of {certified.made}"
        is_same = CLOCK in certified.request.chat_template_kwargs or found.hashes == certified.hashes
        checks.append(whole(f"the prompt with the date {day}", problem=None if is_same else problem))
    if elsewhere:
        checks.append(whole("where it was computed", unchecked="this is another platform"))
    if reason and here.revision is None:
        checks.append(whole("the weights", unchecked="the model has no revision"))
    for pair in zip(found.results, certified.results, strict=True):
        checks += _check_method(*pair, tolerance or EXACT, reason)
    return Reproduction(
        certified,
        found,
        platform_differences=[differences[field] for field in elsewhere],
        overrides=[differences[field] for field in requested],
        tolerance=tolerance,
        checks=checks,
    )


def _check_orders(certified: Certificate) -> str | None:
    """Check that the orders are those of the seed, or the first permutations; a stopped test has fewer."""
    first, *_ = orders = [tuple(order) for order in certified.orders]
    if certified.seed is None:
        expected = list(itertools.islice(itertools.permutations(first), len(orders)))
        return None if expected == orders else "orders: expected the first permutations"
    sampled = sample_orders(len(first), len(orders) - 1, certified.seed)
    expected = [tuple(first[slot] for slot in order) for order in sampled]
    return None if expected == orders else f"orders: expected the orders of seed {certified.seed}"


def _check_method(
    found: OrderStats, certified: OrderStats, tolerance: Tolerance, reason: str | None
) -> Iterator[CertificateCheck]:
    """Compare one method; reason: why its logits may differ, None if they must be bitwise identical."""
    check = partial(CertificateCheck, found.method)
    problem = _compare("first answer", found.first_answer, certified.first_answer)
    if found.first_token_ids != certified.first_token_ids:
        problem = problem or "first answer: got other token ids"
    yield check("the first answer", problem=problem)
    for label, field, within in (
        ("orders with the first answer", "num_matching_answers", 0.0),
        ("distinct answers", "num_distinct_answers", 0.0),
        ("bitwise identity", "bitwise_identical", 0.0),
        ("max |Δ logit|", "max_abs_logit_diff", tolerance["logit_diff"]),
    ):
        problem = _compare(label, getattr(found, field), getattr(certified, field), within)
        yield check(label, within, problem)
    label, within = "the log-probabilities", tolerance["logprob"] * len(certified.first_token_ids)
    if found.first_token_ids != certified.first_token_ids:
        yield check(label, within, unchecked="the first answers differ")
    else:
        spread = "spread of the log-probabilities"  # a difference of two log-probabilities
        problems = [
            _compare(f"log-probability in order {number}", *pair, within)
            for number, pair in enumerate(zip(found.logprobs, certified.logprobs, strict=True), start=1)
        ] + [_compare(spread, found.logprob_spread, certified.logprob_spread, 2 * within)]
        yield check(label, within, next(filter(None, problems), None))
    is_identical = found.logits_sha256 == certified.logits_sha256
    problem = None if is_identical or reason else "logits: got another hash"
    yield check(LOGITS, problem=problem, unchecked=None if is_identical else reason)


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
