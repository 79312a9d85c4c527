"""How a repetition compares with its certificate: what differs, and what could not be checked here."""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from pine_engine.engine.orders import orders_to_try
from pine_engine.given import in_words
from pine_engine.invariance.certificate import ASPECTS, Certificate, MethodResult, Platform, is_near


@dataclass(frozen=True)
class Tolerance:
    """How far numbers may be off that were computed on another platform, where rounding differs.

    logit_diff: max |Δ logit|. logprob: a log-probability, in nats for each token of its answer.
    """

    logit_diff: float
    logprob: float


SAME = Tolerance(0.0, 0.0)

TOLERANCES = {
    "float32": Tolerance(1e-3, 3e-4),
    "float16": Tolerance(0.2, 0.06),
    "bfloat16": Tolerance(1.0, 0.3),
    "4bit": Tolerance(1.0, 0.3),
}
"""By the coarser dtype of both platforms. Rounding grows over the layers to about a hundred times a logit's
last digit, which in 4 bits is that of bfloat16. The largest of many logits is far off sooner than one token's
log-probability: docs/exactness.md says what was measured."""

COMPUTED_BY = ("model", "revision", "dtype")
"""Fields of Platform that say what computed; the others say where. What computes is no matter of rounding."""


@dataclass(frozen=True)
class Check:
    """One thing that a certificate says, compared with what was found.

    within: how far it may be off; 0 for the same to the last digit. problem: what differs and must not, in
    words. unchecked: why it could not be checked; None if it was.
    """

    what: str
    within: float = 0.0
    problem: str | None = None
    unchecked: str | None = None

    @property
    def how(self) -> str:
        """How it was checked, in words."""
        return f"within {self.within:g}" if self.within else "exactly"


@dataclass(frozen=True)
class MethodRepeat:
    """How one method's repetition compares.

    bits: whether the first order's logits are the certified ones to the last bit; None if that could not be
    checked: they differ, and may do so on another platform.
    """

    found: MethodResult
    certified: MethodResult
    bits: bool | None
    checks: tuple[Check, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What differs and must not, in words."""
        return _problems(self.checks)


@dataclass(frozen=True)
class Repeat:
    """How a repetition compares.

    elsewhere: what differs between the platforms, in words. replaced: the same of what was asked for in place
    of what the certificate names. tolerance: None where numbers must be the same. checks: of the certificate
    as a whole.
    """

    elsewhere: tuple[str, ...]
    replaced: tuple[str, ...]
    tolerance: Tolerance | None
    checks: tuple[Check, ...]
    methods: tuple[MethodRepeat, ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """What differs and must not in the certificate as a whole, in words."""
        return _problems(self.checks)

    @property
    def holds(self) -> bool:
        """True if nothing that could be checked differs."""
        return not self.problems and not any(method.problems for method in self.methods)

    @property
    def not_checked(self) -> dict[Check, list[str]]:
        """What could not be checked, and of which methods; of none if it is of the whole certificate."""
        found: dict[Check, list[str]] = {check: [] for check in self.checks if check.unchecked}
        for method in self.methods:
            for check in method.checks:
                if check.unchecked:
                    found.setdefault(check, []).append(method.found.method)
        return found


def compare_certificates(
    certified: Certificate, found: Certificate, *, replaced: Collection[str] = ()
) -> Repeat:
    """How `found`, which repeats `certified`, compares with it.

    replaced: fields of Platform that were asked for in place of the certified ones. Where the bits of all
    methods are the certified ones, the arithmetic is the same, whatever the platforms are called: then all
    numbers must be the same.
    """
    here, there = found.platform, certified.platform
    different = [field for field in ASPECTS if getattr(here, field) != getattr(there, field)]
    pairs = list(zip(found.results, certified.results, strict=True))
    tolerance, why = None, None
    if different and any(result.logits_sha256 != expected.logits_sha256 for result, expected in pairs):
        both = [TOLERANCES.get(platform.dtype, SAME) for platform in (here, there)]
        tolerance = max(both, key=lambda of_dtype: of_dtype.logit_diff)
        names = ", ".join(ASPECTS[field] for field in different)
        why = f"they may depend on what is another here: {names}"
    instead = [field for field in different if field in replaced]
    elsewhere = [field for field in different if field not in (*replaced, *COMPUTED_BY)]
    checks = [*_check_model(here, there, instead), _check_orders(certified)]
    if elsewhere:
        checks.append(Check("where it was computed", unchecked="only a repetition there could tell"))
    if why and here.revision is None:
        checks.append(Check("the weights", unchecked="this model has a name and no revision"))
    return Repeat(
        elsewhere=tuple(_in_words(here, there, field) for field in elsewhere),
        replaced=tuple(_in_words(here, there, field) for field in instead),
        tolerance=tolerance,
        checks=tuple(checks),
        methods=tuple(_compare_method(*pair, tolerance or SAME, why) for pair in pairs),
    )


def _check_model(here: Platform, there: Platform, replaced: Collection[str]) -> Iterator[Check]:
    for field in COMPUTED_BY:
        name = ASPECTS[field]
        if field in replaced:
            yield Check(f"the {name}", unchecked="another was asked for in its place")
        elif getattr(here, field) == getattr(there, field):
            yield Check(f"the {name}")
        elif getattr(there, field) is None:
            yield Check(f"the {name}", unchecked="the certificate names none")
        else:
            yield Check(f"the {name}", problem=f"another {_in_words(here, there, field)}")


def _check_orders(certified: Certificate) -> Check:
    """Whether somebody has picked the orders. A shuffle that was stopped has tried the first of them."""
    orders = [tuple(order) for order in certified.orders]
    first = orders[0]
    if certified.seed is None:
        expected = list(itertools.islice(itertools.permutations(first), len(orders)))
        problem = "other orders than the first ones of all there are"
    else:
        places = orders_to_try(len(first), len(orders) - 1, certified.seed)
        expected = [tuple(first[place] for place in order) for order in places]
        problem = f"other orders than seed {certified.seed} draws"
    return Check("the orders", problem=None if expected == orders else problem)


def _compare_method(
    found: MethodResult, certified: MethodResult, tolerance: Tolerance, why: str | None
) -> MethodRepeat:
    """why: the bits could not be checked, if they differ; None if they must be the same."""
    same_bits = found.logits_sha256 == certified.logits_sha256
    bits = Check("the bits of the logits")
    if not same_bits:
        bits = replace(bits, unchecked=why, problem=None if why else "other logits")
    return MethodRepeat(
        found,
        certified,
        bits=None if bits.unchecked else same_bits,
        checks=(
            _check_answer(found, certified),
            *_check_counts(found, certified),
            _check_difference(found, certified, tolerance.logit_diff),
            _check_logprobs(found, certified, tolerance.logprob),
            bits,
        ),
    )


def _check_answer(found: MethodResult, certified: MethodResult) -> Check:
    problem = None
    if found.first_token_ids != certified.first_token_ids:
        problem = "another answer"
    elif found.first_answer != certified.first_answer:
        problem = f"another answer: these tokens are {in_words(found.first_answer)}"
    return Check("the first answer", problem=problem)


def _check_counts(found: MethodResult, certified: MethodResult) -> Iterator[Check]:
    for field, words in (
        ("same_answers", "orders with the first answer"),
        ("distinct_answers", "distinct answers"),
    ):
        here, there = getattr(found, field), getattr(certified, field)
        yield Check(words, problem=None if here == there else f"{here} {words}, not {there}")
    negation = "" if found.bitwise_equal else "not "
    same = found.bitwise_equal == certified.bitwise_equal
    yield Check("equality to the last bit", problem=None if same else f"{negation}equal to the last bit")


def _check_difference(found: MethodResult, certified: MethodResult, within: float) -> Check:
    here, there = found.max_abs_logit_diff, certified.max_abs_logit_diff
    problem = f"max |Δ logit| {here:.4g}, not {there:.4g}"
    return Check("max |Δ logit|", within, None if is_near(here, there, within) else problem)


def _check_logprobs(found: MethodResult, certified: MethodResult, per_token: float) -> Check:
    check = Check("the log-probabilities", per_token * len(certified.first_token_ids))
    if found.first_token_ids != certified.first_token_ids:
        return replace(check, unchecked="they are of another answer")
    for number, pair in enumerate(zip(found.logprobs, certified.logprobs, strict=True), start=1):
        if not is_near(*pair, check.within):
            here, there = pair
            return replace(
                check, problem=f"other log-probabilities: {here:.4g} in order {number}, not {there:.4g}"
            )
    return check


def _problems(checks: tuple[Check, ...]) -> tuple[str, ...]:
    return tuple(check.problem for check in checks if check.problem)


def _in_words(here: Platform, there: Platform, field: str) -> str:
    return f"{ASPECTS[field]}: {_shown(getattr(here, field))} here, {_shown(getattr(there, field))} there"


def _shown(value: str | int | None) -> str:
    """As it is, but for control characters: a certificate must not write lines of its own on a terminal."""
    text = str(value or "unknown")
    return text if text.isprintable() else ascii(text)
