"""Part of a report on verdicts that a judge has given before: position bias, and agreement with labels."""

from typing import Any

from pine_engine.lab.evaluation.report.tables import Columns, Part, estimated, pivot
from pine_engine.lab.evaluation.task_estimates import BIAS_GROUPS, Row, estimate_json
from pine_engine.lab.evaluation.verdicts import VerdictFile

AUDITED = {**BIAS_GROUPS, "flip_rate": "flip rate", "accuracy": "mean", "kappa": "kappa"}
"""Groups of the estimates, by their JSON keys."""

CHANCE = 0.5  # share of verdicts for the first of two slots without a preference

MAX_TEXTS = 3  # different texts that are no verdict, which are quoted


def audit_part(file: VerdictFile) -> Part:
    """Return the table of judges, and what was left out."""
    rows = [Row(file.grid, judge, "generated", run=file.name) for judge in file.grid.methods]
    columns: Columns = {
        "run": lambda row: row.run,
        "judge": lambda row: row.method,
        "pairs": lambda row: str(len(row.grid.examples)),
        "names the first slot, %": "first slot",
        "consistent, %": "consistent",
        "agrees with the labels, %": "mean",
        "kappa": "kappa",
    }
    audit = pivot("verdict_audit", rows, columns, heads=2)
    return Part(f"Verdicts of {file.name}", tuple(audit_sentences(file)), (audit,))


def audit_sentences(file: VerdictFile) -> list[str]:
    """Return what the first slot shows for each judge, and what was left out, in sentences."""
    sentences = []
    for judge in file.grid.methods:
        row = Row(file.grid, judge, "generated")
        first = row.get("first slot")
        if first is None or first.interval is None:
            sentences.append(f"{judge}: no pair has a verdict for a slot and both orders.")
            continue
        low, high = first.interval
        slot = "first" if low > CHANCE else "second"
        found = (
            f"preference for the {slot} slot"
            if low > CHANCE or high < CHANCE
            else "no preference for a slot found"
        )
        sentences.append(
            f"{judge}: {found}; {estimated(first)} % of the verdicts name the first one, with 50 % expected. "
            f"The answer is the same in both orders for {estimated(row.get('consistent'))} % of the pairs."
        )
    if left_out := file.grid.left_out:
        sentences.append(f"Pairs without a verdict of each judge in each order, left out: {left_out}.")
    if file.unreadable:
        texts = ", ".join(f"{text[:40]!r}" for text in list(file.unreadable)[:MAX_TEXTS])
        sentences.append(
            f"Texts that are no verdict, and name no slot: {sum(file.unreadable.values())}, such as {texts}."
        )
    return sentences


def audit_json(file: VerdictFile) -> dict[str, Any]:
    """Return the estimates of each judge."""
    judges = [
        {"judge": judge}
        | {key: estimate_json(file.grid.get(judge, "generated", group)) for key, group in AUDITED.items()}
        for judge in file.grid.methods
    ]
    return {
        "pairs": len(file.grid.examples),
        "left_out": file.grid.left_out,
        "unreadable": sum(file.unreadable.values()),
        "judges": judges,
        "sentences": audit_sentences(file),
    }
