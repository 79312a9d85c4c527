"""Subcommand `lm-eval`: tasks of lm-evaluation-harness over document orders."""

from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli import output
from pine_engine.cli.options import Limit, Methods, ModelOptions, Positive, method_names, split_names
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError, import_extra


def lm_eval(
    tasks: str,
    methods: Methods = None,
    num_orders: Positive = 4,
    seed: int = 0,
    include_path: Path | None = None,
    limit: Limit = None,
    num_fewshot: Annotated[int | None, typer.Option(min=0)] = None,
    apply_chat_template: bool = False,
    model: ModelOptions = ModelOptions(),
) -> CommandResult:
    """Evaluate tasks of lm-evaluation-harness: mean and spread of each metric over document orders.

    Args:
        tasks: Names of tasks, separated by commas, whose contexts mark documents as <document>...</document>.
        methods: Names of methods.
        num_orders: Number of document orders; the first is that of the context.
        seed: Seed of the sampled orders.
        include_path: Folder with further tasks.
        limit: Maximum number of examples per task. Default: all.
        num_fewshot: Number of examples in the context. Default: that of the task.
        apply_chat_template: Use the chat template of the model.
        model: Model to evaluate.
    """
    names = method_names(methods)
    import_extra("lm_eval", "lm-eval")
    from lm_eval.tasks import TaskManager

    from pine_engine.integrations.lm_eval import evaluate_orders

    folder = None if include_path is None else str(include_path)
    manager = TaskManager(include_path=folder)
    selected = split_names(tasks) or []
    if unknown := sorted(set(selected) - set(manager.all_tasks)):
        raise InputError(
            f"unknown task {unknown[0]!r}; see `lm_eval ls tasks`, and --include-path", field="tasks"
        )
    engine = model.load(needs_tokenizer=True)
    with output.progress(len(names) * num_orders) as advance:
        rows = list(
            evaluate_orders(
                engine,
                selected,
                methods=names,
                num_orders=num_orders,
                seed=seed,
                progress=advance,
                task_manager=manager,
                limit=limit,
                num_fewshot=num_fewshot,
                apply_chat_template=apply_chat_template,
            )
        )
    cells = [{key: value for key, value in row.items() if key != "orders"} for row in rows]
    return CommandResult(output.report_header(engine) | {"results": rows}, cells)
