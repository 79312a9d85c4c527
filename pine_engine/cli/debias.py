"""The verb `debias`: questions answered with a wrapper around one method."""

from pathlib import Path
from typing import Annotated

import typer

from pine_engine.console import terminal
from pine_engine.console.options import AsJson, Device, Dtype, ModelName
from pine_engine.debias.orders import MAX_ORDERS


def debias(
    files: Annotated[
        list[Path], typer.Argument(help='JSON as for compare, which may hold "labels"; pride needs several.')
    ],
    wrapper: Annotated[str, typer.Option(help="Permutation, PriDe or calibration; see `methods`.")],
    base: Annotated[str, typer.Option(help="The method that is run again and again.")] = "vanilla",
    labels: Annotated[
        str | None,
        typer.Option(help="What the model may answer, separated by commas; in place of the files' labels."),
    ] = None,
    majority: Annotated[
        bool, typer.Option("--majority", help="Let generated answers vote, in place of averaging.")
    ] = False,
    max_new_tokens: Annotated[int, typer.Option(help="Longest generated answer, in tokens.")] = 64,
    samples: Annotated[int, typer.Option(help="Orders of permutation_sampled.")] = 10,
    seed: Annotated[int, typer.Option(help="Of the sampled orders and of pride's samples.")] = 0,
    max_orders: Annotated[int, typer.Option(help="Most orders of permutation_full.")] = MAX_ORDERS,
    model: ModelName = None,
    dtype: Dtype = "auto",
    device: Device = "cpu",
    as_json: AsJson = False,
) -> None:
    """Answer questions with a wrapper around one method: permutation, PriDe or contextual calibration."""
    from pine_engine.debias.plan import plan_debias
    from pine_engine.prompts.inputs import LabeledRequest, read_request

    comparisons = [read_request(file, LabeledRequest) for file in files]
    if labels is not None:
        given = [label.strip() for label in labels.split(",") if label.strip()]
        comparisons = [comparison.model_copy(update={"labels": given}) for comparison in comparisons]
    plan = plan_debias(
        comparisons,
        wrapper=wrapper,
        base=base,
        majority=majority,
        max_new_tokens=max_new_tokens,
        samples=samples,
        seed=seed,
        max_orders=max_orders,
    )

    engine = terminal.load(model, dtype, device, reads_text=True)

    from pine_engine.debias.run import DebiasResult, debias_report, debias_rows, run_debias
    from pine_engine.engine.events import PrefillDone

    results: list[DebiasResult] = []
    with terminal.progress(plan.num_prompts) as advance:
        for event in run_debias(engine, plan):
            if isinstance(event, PrefillDone):
                advance(f"{event.method} has read a prompt")
            elif isinstance(event, DebiasResult):
                results.append(event)
    report = debias_report(engine, plan, list(map(str, files)), results)
    terminal.print_report(report, as_json, debias_rows(report))
