"""Subcommand `debias`: answers of a debiasing wrapper around one method."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import pine_engine as pine
from pine_engine.cli import output
from pine_engine.cli.options import ModelOptions, split_names
from pine_engine.cli.output import CommandResult
from pine_engine.prompts.orders import MAX_ORDERS
from pine_engine.prompts.request import read_request


def debias(
    files: list[Path],
    wrapper: Annotated[str, typer.Option()],
    base: str = "vanilla",
    labels: str | None = None,
    majority: bool = False,
    max_new_tokens: int = 64,
    samples: int = 10,
    seed: int = 0,
    max_orders: int = MAX_ORDERS,
    model: ModelOptions = ModelOptions(),
) -> CommandResult:
    """Answer questions with a wrapper around one method: permutation, PriDe, calibration or routing.

    Args:
        files: JSON files as for compare, optionally with "labels". The wrapper pride needs several.
        wrapper: Name of the wrapper; `methods` lists all.
        base: Method that the wrapper runs.
        labels: Allowed answers, separated by commas. Overrides the labels of the files.
        majority: Take the most frequent generated answer instead of averaging probabilities of labels.
        max_new_tokens: Maximum length of a generated answer, in tokens.
        samples: Number of orders of permutation_sampled.
        seed: Seed of the sampled orders, and of the questions from which pride estimates its prior.
        max_orders: Maximum number of orders of permutation_full.
        model: Model that answers.
    """
    requests = [read_request(file, pine.LabeledRequest) for file in files]
    if labels is not None:
        update = {"labels": split_names(labels)}
        requests = [request.model_copy(update=update) for request in requests]
    plan = pine.plan_debias(
        requests,
        wrapper=wrapper,
        base=base,
        majority=majority,
        max_new_tokens=max_new_tokens,
        samples=samples,
        seed=seed,
        max_orders=max_orders,
    )

    engine = model.load(needs_tokenizer=True)
    results: list[pine.DebiasResult] = []
    with output.progress(plan.num_prompts) as advance:
        for event in pine.run_debias(engine, plan):
            if isinstance(event, pine.PrefillDone):
                advance(f"{event.method}: prefill finished")
            elif isinstance(event, pine.DebiasResult):
                results.append(event)
    by_file = list(zip(map(str, files), results, strict=True))
    report = output.report_header(engine)
    report |= {"wrapper": plan.wrapper.name, "base": plan.base, "prompts": plan.num_prompts}
    report["results"] = [{"file": file, **asdict(result)} for file, result in by_file]
    rows = []
    for file, result in by_file:
        base_answers = [f"{answer or 'none'} {count}x" for answer, count in result.base_answers.items()]
        scores = [f"{label} {score:.3g}" for label, score in result.scores.items()]
        row = {"file": file, "answer": result.answer or "none", "scores": ", ".join(scores)}
        row[f"{pine.METHODS[plan.base].label} alone"] = ", ".join(base_answers)
        rows.append({title: text for title, text in row.items() if text})  # some wrappers score no labels
    return CommandResult(report, rows)
