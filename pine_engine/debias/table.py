"""The table of wrappers: ways to take a position bias out of any base method, one frozen row each.

A wrapper runs a method of methods.py several times and combines what comes out. What each does is fixed in
docs/specification.md section 8; everything done differently for two of them is read from the columns.
"""

from dataclasses import dataclass
from typing import Literal

from pine_engine.input_validation import Registry

OrderKind = Literal["full", "cyclic", "sampled"]
"""Which orders of k documents are run: all k!, the k rotations, or a random sample."""

Steps = Literal["first", "every"]
"""Which generated tokens are compared with their probability without content."""

Calibrated = Steps | Literal["nothing", "labels"]
"""What is so compared: nothing, given labels, the first generated token, or every generated token."""

Invariance = Literal["always", "of base", "never"]
"""Whether the result is promised to be the same in whatever order the documents are given: always, if the
base method promises it, or not at all."""


TIE = "tie"
"""The answer where several documents have the most votes."""

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Contents that say nothing."""


@dataclass(frozen=True)
class Wrapper:
    """One wrapper; see the types above for its columns.

    orders: None if the documents keep their order. has_prior: the orders are run on a few samples only,
    and what they tell about the labels is taken from all others. invariance: the invariance in words.
    cost: in words, in runs of the base method.
    """

    name: str
    label: str
    orders: OrderKind | None
    has_prior: bool
    calibrated: Calibrated
    invariance_kind: Invariance
    description: str
    invariance: str
    cost: str
    source: str

    @property
    def votes(self) -> bool:
        """Whether the answers that are written in several orders vote."""
        return self.orders is not None and not self.has_prior

    @property
    def steps(self) -> Steps | None:
        """The generated tokens that are calibrated, None if none are."""
        if self.calibrated == "nothing" or self.calibrated == "labels":
            return None
        return self.calibrated


_PERMUTATION = "Zheng et al. 2024, chujiezheng/LLM-MCQ-Bias"
_CALIBRATION = "Zhao et al. 2021, tonyzhaozh/few-shot-learning"
_SAME_ORDERS = "only if the same orders of the contents are visited"
_CALIBRATION_PROMISE = "no, unless the base method is"

_ROWS = (
    Wrapper(
        "permutation_full",
        "Permutation, full",
        "full",
        False,
        "nothing",
        "always",
        "Runs all orders of the documents; takes the mean of what they say, or their most frequent answer.",
        "yes",
        "k! times the base method",
        _PERMUTATION,
    ),
    Wrapper(
        "permutation_cyclic",
        "Permutation, cyclic",
        "cyclic",
        False,
        "nothing",
        "never",
        "As full permutation, over the k rotations of the documents.",
        _SAME_ORDERS,
        "k times the base method",
        _PERMUTATION,
    ),
    Wrapper(
        "permutation_sampled",
        "Permutation, sampled",
        "sampled",
        False,
        "nothing",
        "never",
        "As full permutation, over a seeded random sample of the orders.",
        _SAME_ORDERS,
        "as many times the base method as orders are drawn",
        "specification 8.1, for many documents",
    ),
    Wrapper(
        "pride",
        "PriDe",
        "cyclic",
        True,
        "nothing",
        "never",
        "Learns on a few samples how much the model likes each label, and divides by it on all others.",
        "no: most samples are run in one order",
        "k times the base method on 5 % of the samples, once on all others",
        _PERMUTATION,
    ),
    Wrapper(
        "calibration_labels",
        "Calibration, labels",
        None,
        False,
        "labels",
        "of base",
        "Divides the probability of each label by the one it has when the documents have no content.",
        _CALIBRATION_PROMISE,
        "four prompts of the base method",
        _CALIBRATION,
    ),
    Wrapper(
        "calibration_first",
        "Calibration, first token",
        None,
        False,
        "first",
        "of base",
        "Subtracts from the first token's probability the one it has when the documents have no content.",
        _CALIBRATION_PROMISE,
        "four prompts of the base method, one answer",
        _CALIBRATION,
    ),
    Wrapper(
        "calibration_every",
        "Calibration, every token",
        None,
        False,
        "every",
        "of base",
        "Divides every token's probability by the one it has when the documents have no content.",
        _CALIBRATION_PROMISE,
        "four times the base method",
        f"specification 8.2, after {_CALIBRATION}",
    ),
)

DEBIASERS: dict[str, Wrapper] = Registry("wrapper", _ROWS)


def get_wrapper(name: str) -> Wrapper:
    """The wrapper of that name. Raises InputError for an unknown one."""
    return DEBIASERS[name]
