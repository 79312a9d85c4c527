"""Table of inference methods: all that the engine does differently for two methods follows from it."""

import tomllib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pine_engine.errors import InputError
from pine_engine.input_validation import Registry, as_tuple_of, describe

MaskKind = Literal["causal", "none", "alone", "bidirectional"]
"""Other documents that a document attends to: the earlier ones, none, or all.

- `alone`: none, and only the first token of the prefix, so that the cache of a document serves all prompts.
"""

PositionKind = Literal[
    "input",
    "own_last",
    "own_at_end",
    "shared",
    "shared_right",
    "importance",
    "importance_reversed",
    "rotated",
    "equilibrium",
    "none",
]
"""Positions of the documents for a query.

- `input`: those in the input.
- `own_last`: input order without gaps, but the query's document is last.
- `own_at_end`: those in the input, but the query's document is at the end, where it overlaps others.
- `shared`: all documents start at the same position.
- `shared_right`: as `shared`, except that all documents end at the same position for the suffix.
- `importance`, `importance_reversed`: ranked, the most important document closest to the query or farthest.
- `rotated`: one order by contents, rotated so that the query's document comes first and is the closest.
- `equilibrium`: all documents start at the same position and are stretched to the same, real-valued end.
- `none`: every token is at position 0.
"""

Sorting = Literal["lexical", "frequency"]
"""Order of the documents for rotated positions, the closest to the suffix first.

- `lexical`: by token ids, the smallest first.
- `frequency`: by how often each token occurs in all documents, the most frequent first.
"""

ImportanceKind = Literal["mean", "sum", "max"]
"""Reduction of the attention on a document's tokens to its importance."""

KeyWeighting = Literal["nothing", "documents", "documents_and_prefix", "adaptive", "saliency", "calibrated"]
"""Keys that the suffix weights.

- `documents`, `documents_and_prefix`: by 1/k, where k is the number of documents.
- `adaptive`: documents together, by their temperature and scale (APE).
- `saliency`: the best documents by their likelihood with the question, at a temperature; no others.
- `calibrated`: by their attention beyond a dummy's in their place, at a temperature, in the last layers.
"""

QuestionPlace = Literal["once", "in_every_document"]
"""Place of the question: after all documents, or after each of them, in one prefill with it."""

ScoreKind = Literal["content", "given", "likelihood", "attention", "rerank"]
"""Score by which the documents are reordered before the run.

- `content`: their token ids, the smallest first.
- `given`: score of a retriever, which comes with the document.
- `likelihood`: log-probability of the question after the document alone.
- `attention`: attention of the last token.
- `rerank`: attention of the question minus that of a question without content.
"""

Arrangement = Literal["best_first", "best_last", "ends", "attended"]
"""Places of the documents by score.

- `ends`: the best first, the second last, the third second, and so on.
- `attended`: the best in the slot to which the model attends most, and so on (AttnRank).
"""

MergeKind = Literal["least_entropy", "mean", "naive_bayes", "logits", "probabilities"]
"""Merging of the next-token distributions of streams, which have one document or one RoPE base each.

- `least_entropy`: that of the document with the least entropy, in contrast to no document (NBCE).
- `mean`: mean probability.
- `naive_bayes`: the documents' probabilities multiplied, divided by the prior.
- `logits`: mean of the logits, weighted by a softmax over the streams' largest logits (Attention Buckets).
- `probabilities`: mean of the probabilities, weighted by the largest of each stream.
"""

PositionScale = Literal["one", "per_head"]
"""Ratio that divides the positions of queries and keys; `per_head`: from MIN_RATIO to MAX_RATIO (Ms-PoE)."""

MIN_RATIO, MAX_RATIO = 1.2, 1.8
"""Smallest ratio per head, and the limit that no ratio reaches."""

FIRST_SCALED_LAYER = 2
"""First layer whose positions are divided by a ratio per head."""

RecomputedKind = Literal["nothing", "first", "deviating"]
"""Document tokens that are recomputed at vanilla's positions: none, the first ones, or those that differ.

- `deviating`: those whose values in an early layer differ most from those of the documents alone.
"""

Requirement = Literal["placement", "passes", "texts"]
"""Need of a method, the largest first: attention that places documents, the model's own forward passes, or
answers to texts, which any server gives. What meets a need meets those after it."""

Output = Literal["traces", "logits", "logprobs"]
"""Result besides the text of an answer: a trace, logits, or log-probabilities of given texts."""

Role = Literal["method", "other", "variant", "control"]
"""Method of the PINE paper, which `reproduce-paper` evaluates; other method; variant; or control."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Inference method.

    Attributes:
        name: Name in Python, JSON and on the command line.
        label: Name in figures and on the page.
        mask: Other documents that a document attends to.
        positions: Positions of the documents for a query.
        description: One sentence for users.
        cost: Computation compared with vanilla, in words.
        source: Paper and code that define the method.
        requires: Need of the method, which decides the models that run it.
        role: Method of the paper, other method, variant or control.
        key_weighting: Keys that the suffix weights.
        temperature: Temperature of the documents' scores, for weighting by scores.
        scale: Factor of the documents' joint score, for adaptive weighting.
        question: Place of the question.
        sorting: Order of the documents, for rotated positions.
        recomputed: Document tokens that are recomputed after the documents were prefilled alone.
        importance: Reduction of attention to importance, for ranked positions.
        position_scale: Ratio that divides the positions.
        score: Score by which the documents are reordered before the run; None for the input order.
        arrangement: Places of the documents by score.
        rounds: Number of times that scores are computed and documents reordered.
        rope_bases: Factors of the model's RoPE base: of the only run, or of streams that have all documents.
        merge: Merging of streams, which have one document each unless there are rope_bases; None for one run.
        is_default: True if the method is compared by default.
        in_tutorial: True if the tutorial explains the method.
    """

    name: str
    label: str
    mask: MaskKind
    positions: PositionKind
    description: str
    cost: str
    source: str
    requires: Requirement
    role: Role = "method"
    key_weighting: KeyWeighting = "nothing"
    temperature: float = 1.0
    scale: float = 1.0
    question: QuestionPlace = "once"
    sorting: Sorting = "lexical"
    recomputed: RecomputedKind = "nothing"
    importance: ImportanceKind = "mean"
    position_scale: PositionScale = "one"
    score: ScoreKind | None = None
    arrangement: Arrangement = "best_last"
    rounds: int = 1
    rope_bases: tuple[float, ...] = ()
    merge: MergeKind | None = None
    is_default: bool = False
    in_tutorial: bool = False

    def __post_init__(self) -> None:
        """Convert a list of rope_bases to a tuple.

        Raises:
            InputError: `requires` is "passes" or "texts", but attention or positions are not vanilla's.
        """
        object.__setattr__(self, "rope_bases", tuple(self.rope_bases))
        if self.requires != "placement" and not self.splits_documents and not self._is_vanilla:
            message = f"{self.name} changes attention or positions: got requires {self.requires!r}, expected"
            raise InputError(f"{message} 'placement'", field="requires")

    @property
    def _is_vanilla(self) -> bool:
        """True if each forward pass is one of the model as it is."""
        has_weights = self.key_weighting != "nothing" or self.question != "once"
        has_positions = self.is_rotated or self.recomputed != "nothing" or bool(self.rope_bases)
        return self.mask == "causal" and self.positions == "input" and not (has_weights or has_positions)

    @property
    def is_order_invariant(self) -> bool:
        """True if the output is independent of the document order (specification 2, last column)."""
        return self.encodes_set or self.score in ("content", "given", "likelihood")

    @property
    def needs_scores(self) -> bool:
        """True if each document needs the score of a retriever."""
        return self.score == "given"

    @property
    def encodes_set(self) -> bool:
        """True if mask and positions do not depend on the document order."""
        depends_on_content = ("shared", "importance", "rotated", "equilibrium", "none")
        reads_once = self.mask != "causal" and self.recomputed == "nothing"
        return reads_once and self.positions.startswith(depends_on_content)

    @property
    def has_plan(self) -> bool:
        """True if mask and positions follow from the prompt in its order; else they are not drawn."""
        reads_once = self.question == "once" and self.recomputed == "nothing"
        return self.score is None and not self.splits_documents and reads_once

    @property
    def has_one_pass(self) -> bool:
        """True if one pass over the prompt, in its order, gives the logits."""
        return self.has_plan and self.merge is None and self.key_weighting != "calibrated"

    @property
    def splits_documents(self) -> bool:
        """True if each stream has one document."""
        return self.merge is not None and not self.rope_bases

    def fits(self, requirement: Requirement) -> bool:
        """Check whether the method runs where this requirement is met, and no larger one.

        Args:
            requirement: Largest need that the model meets.
        """
        needs = get_args(Requirement)
        return needs.index(self.requires) >= needs.index(requirement)

    @property
    def rope_base(self) -> float:
        """Factor of the model's RoPE base of a method that does not merge streams."""
        return self.rope_bases[0] if self.rope_bases and not self.merge else 1.0

    @property
    def is_rotated(self) -> bool:
        """True if PINE rotates to positions, or by a base, other than those of the model."""
        return self.position_scale != "one" or self.rope_base != 1

    @property
    def has_positions(self) -> bool:
        """True if tokens have positions."""
        return self.positions != "none"

    @property
    def prefix_encoding(self) -> tuple[Hashable, ...]:
        """Columns that affect the prefill of the prefix."""
        return self.has_positions, self.position_scale, self.rope_base

    @property
    def depends_on_question(self) -> bool:
        """True if states of prefix and documents depend on later tokens, so that no other prompt has them."""
        return self.position_scale == "per_head"

    @property
    def has_starts(self) -> bool:
        """True if the tokens of a document have consecutive integer positions."""
        return self.positions not in ("equilibrium", "none")

    @property
    def invariance(self) -> str:
        """`is_order_invariant` as a word, for tables."""
        return "yes" if self.is_order_invariant else "no"

    @property
    def document_encoding(self) -> tuple[Hashable, ...]:
        """Columns that affect the prefill of documents; methods with equal ones differ in the suffix only."""
        positions: PositionKind = "shared" if self.positions == "shared_right" else self.positions
        first_pass = self.score, self.arrangement, self.rounds, self.merge
        bases = self.rope_base, self.rope_bases if self.merge else ()
        columns = self.mask, positions, self.sorting, self.importance, self.position_scale, self.recomputed
        return *columns, *first_pass, *bases


_TABLE = tomllib.loads(Path(__file__).with_name("methods.toml").read_text(encoding="utf-8"))["method"]

METHODS: dict[str, Method] = Registry("method", (Method(**entry) for entry in _TABLE))
"""Methods by name, from methods.toml."""


def default_methods(requirement: Requirement) -> tuple[Method, ...]:
    """Return the methods that are compared by default where this requirement is met.

    Where only passes fit, the default methods have no order-invariant one, and the first that fits is added.
    """
    fitting = [method for method in METHODS.values() if method.fits(requirement)]
    found = [method for method in fitting if method.is_default]
    if not any(method.is_order_invariant for method in found):
        found.append(next(method for method in fitting if method.is_order_invariant))
    return tuple(found)


def compared_pair(methods: Sequence[Method]) -> tuple[Method, ...]:
    """Return the first method that depends on the order, and the last that does not, as far as there are any.

    They are default methods, if there are any of their kind.
    """
    found: list[Method] = []
    for is_invariant, place in ((False, 0), (True, -1)):
        of_kind = [method for method in methods if method.is_order_invariant is is_invariant]
        usual = [method for method in of_kind if method.is_default] or of_kind
        found += usual[place:][:1]
    return tuple(found)


TUTORIAL_METHODS = tuple(method for method in METHODS.values() if method.in_tutorial)

ALL = "all"  # name that selects every method that needs no scores of documents


def get_methods(methods: str | Method | Iterable[str | Method] | None = None) -> tuple[Method, ...]:
    """Return the named methods in their order.

    Args:
        methods: One or more names in any case, or methods; "all" for every method that needs no scores of
            documents, None for the default ones.

    Raises:
        InputError: A name is unknown or occurs twice, or there is none.
    """
    if methods is None:
        return default_methods("placement")
    known = ", ".join(METHODS)
    methods = tuple(methods) if isinstance(methods, Mapping) else methods  # METHODS itself
    items = as_tuple_of(methods, (str, Method), "method", f"choose from: {known}", least=0)
    if not items:
        raise InputError(f"no method was chosen; choose at least one of: {known}", field="methods")
    is_all = [isinstance(item, str) and item.lower() == ALL for item in items]
    if is_all == [True]:
        return tuple(method for method in METHODS.values() if not method.needs_scores)
    if any(is_all):
        raise InputError(f"{ALL!r} selects every method; name it alone", field="methods")
    found = tuple(map(get_method, items))
    names = [method.name for method in found]
    if len(set(names)) < len(names):
        message = f"a method was named twice in {', '.join(names)}; name each method once"
        raise InputError(message, field="methods")
    return found


def get_method(method: str | Method) -> Method:
    """Return one method by its name; raise InputError if the name is unknown, or if there are several."""
    if isinstance(method, Method):
        return method
    if isinstance(method, str):
        return METHODS[method]
    raise InputError(f"the method is {describe(method)}; choose one of: {', '.join(METHODS)}", field="method")
