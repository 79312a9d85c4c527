"""Cards of a shuffle: the verdict, and the answer of a selected cell."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pine_engine as pine
from viz.cards.compare import word_diff
from viz.drawing.identity import ink_on
from viz.drawing.markup import render
from viz.drawing.text import format_difference, format_value, visible_text
from viz.figures.frame import document_segments
from viz.figures.shuffle import answer_color, answer_letter, answer_numbers

Methods = Sequence["pine.Method"]
Rows = Sequence["pine.OrderResult"]  # results of the orders so far, the reference order first
Check = Callable[[str], bool]  # check of an answer; None in its place if the correct answer is not known


def answer_letters(texts: Iterable[str], is_right: Check | None = None) -> list[dict[str, Any]]:
    """Return the distinct answers with their letters, for a template, in the sequence in which they occur."""
    return [
        {
            "letter": answer_letter(number),
            "color": answer_color(number),
            "ink": ink_on(answer_color(number)),
            "text": " ".join(text.split()) or "(empty answer)",
            "is_right": is_right and is_right(text),
        }
        for text, number in answer_numbers(texts).items()
    ]


def verdict_html(methods: Methods, rows: Rows, *, caption: str, is_right: Check | None = None) -> str:
    """Render the result of a shuffle in sentences, and the letters of the answers, above the caption."""
    texts = [cell.text for row in rows for cell in row.comparisons.values()]
    return render(
        "shuffle_verdict.html",
        score=score_sentence(methods, rows, is_right) or "First order done.",
        verdict=verdict_sentence(methods, rows),
        letters=answer_letters(texts, is_right),
        caption=caption,
    )


def score_sentence(methods: Methods, rows: Rows, is_right: Check | None = None) -> str:
    """Return "PINE gave 1 answer, correct in 6 of 6 orders.", and so on for each method with answers.

    Order-invariant methods come first, then those that are more often right.
    """
    scores = []
    for method in methods:
        texts = [row.comparisons[method.name].text for row in rows if method.name in row.comparisons]
        num_right = sum(map(is_right, texts)) if is_right else 0
        if texts:
            scores.append((not method.is_order_invariant, -num_right, method.label, texts))
    sentences: list[str] = []
    for _, negative, label, texts in sorted(scores, key=lambda score: score[:2]):
        kinds, count = len(set(texts)), len(texts)
        orders = f"{count} order{'s' * (count != 1)}"
        places = f", correct in {-negative} of {orders}" if is_right else f" in {orders}"
        sentences.append(f"{label} gave {kinds} answer{'s' * (kinds != 1)}{places}.")
    return " ".join(sentences)


def verdict_sentence(methods: Methods, rows: Rows) -> str:
    """Name the methods whose invariance held, and state whether the check could have failed; "" of one row.

    Methods that are not order-invariant are the controls: if none of their logits changed, unchanged logits
    of the others prove nothing.
    """
    labels: dict[tuple[bool, bool], list[str]] = {}
    for method in methods:
        cells = [row.comparisons[method.name] for row in rows[1:] if method.name in row.comparisons]
        if cells:
            is_equal = all(cell.is_unchanged for cell in cells)
            labels.setdefault((method.is_order_invariant, is_equal), []).append(method.label)
    held, broken, constant, moved = (
        ", ".join(labels.get(key, ())) for key in ((True, True), (True, False), (False, True), (False, False))
    )
    sentences = []
    if held:
        is_text = any(one.bitwise_identical is None for row in rows for one in row.comparisons.values())
        what = "The same text" if is_text else "Bitwise identical logits"
        sentences.append(f"{what} in every order: {held}.")
    if broken:
        sentences.append(f"Order invariance violated: {broken}.")
    if moved:
        sentences.append(f"Control methods changed as expected: {moved}.")
    elif constant:
        unchanged = f"the control methods ({constant}) did not change either"
        sentences.append(f"Inconclusive: {unchanged}. Try other documents.")
    elif held or broken:
        sentences.append("Enable \u201cInclude control methods\u201d to validate the test.")
    return " ".join(sentences)


def shuffle_answer(method: "pine.Method", row: "pine.OrderResult", reference: "pine.OrderResult") -> str:
    """Render a method's answer next to that in the reference order, with different words marked."""
    cell = row.comparisons[method.name]
    before, after = word_diff(reference.comparisons[method.name].text, cell.text)
    is_reference = row is reference
    orders = [document_segments(len(one.order), one.order) for one in (reference, row)]
    answers = [("Row 1", orders[0], before), ("Selected row", orders[1], after)]
    return render(
        "shuffle_answer.html",
        label=method.label,
        is_reference=is_reference,
        is_same=cell.is_unchanged if cell.bitwise_identical is None else cell.first_difference is None,
        is_text=cell.bitwise_identical is None,
        is_identical=cell.bitwise_identical,
        first_token=_describe_difference(cell),
        difference=format_difference(cell.max_abs_logit_diff),
        likelihood=f"{format_value(cell.reference_logprob)} nats",
        answers=answers[is_reference:],
    )


def _describe_difference(cell: "pine.OrderComparison") -> str:
    """Describe the first token that differs; "" if none does."""
    if cell.first_difference is None:
        return ""
    token, reference = (
        "end of answer" if text is None else f"\u201c{visible_text(text)}\u201d"
        for text in (cell.token_text, cell.reference_token_text)
    )
    return f"token {cell.first_difference + 1}: {token} instead of {reference}"
