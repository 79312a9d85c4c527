"""Subcommands `serve`, the interface of the OpenAI API, and `lm-eval`, that of lm-evaluation-harness."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pine_engine.cli import output
from pine_engine.cli.options import (
    Limit,
    Methods,
    ModelOptions,
    Positive,
    TemplateKwargs,
    method_names,
    split_names,
)
from pine_engine.cli.output import CommandResult
from pine_engine.errors import InputError
from pine_engine.input_validation import check_api_key
from pine_engine.optional_packages import import_extra
from pine_engine.prompts.chat_templates import parse_kwargs
from pine_engine.rows.files import read_text


@dataclass(frozen=True)
class ServeOptions:
    """Options of the server, without its address and its model.

    Attributes:
        method: Method of requests with documents that name none. Default: pine, or reorder_content for a
            model whose attention cannot be replaced.
        max_new_tokens: Maximum length of an answer, in tokens, and its default.
        max_seconds: Maximum duration of an answer, in seconds, without the time in the queue. Default: 300,
            none on a loopback address.
        queue_size: Maximum number of requests that wait for the model.
        max_active_runs: Maximum number of requests that are computed at the same time, if memory suffices.
        max_runs_per_client: Maximum number of queued and active requests per API key, or per address; at most
            half of queue_size.
        api_keys: Accepted API keys, separated by commas. Default: no authentication.
        allowed_origins: Origins of web pages whose scripts may use the server, separated by commas, such as
            https://app.example; * for any. Default: none.
        chat_template: File with a chat template (Jinja) in place of that of the model.
        chat_template_kwargs: Arguments of the chat template, as JSON, unless a request has others.
    """

    method: str | None = None
    max_new_tokens: Positive = 512
    max_seconds: Annotated[float | None, typer.Option(min=0.001)] = None
    queue_size: Positive = 32
    max_active_runs: Positive = 8
    max_runs_per_client: Positive = 16
    api_keys: Annotated[str | None, typer.Option(envvar="PINE_API_KEYS", show_envvar=True)] = None
    allowed_origins: str | None = None
    chat_template: Path | None = None
    chat_template_kwargs: TemplateKwargs = None


def serve(
    host: str = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    options: ServeOptions = ServeOptions(),
    model: ModelOptions = ModelOptions(),
) -> CommandResult:
    """Serve a model with the interface of the OpenAI API, extended by documents and method.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        options: Limits, access and defaults of requests.
        model: Model that answers.
    """
    names: Sequence[str | None] = method_names(options.method) or [None]
    if len(names) != 1:
        raise InputError(f"invalid method: got {options.method!r}, expected one method", field="method")
    import_extra("uvicorn", "uvicorn", "starlette", "prometheus-client")
    import_extra("starlette", "starlette", "uvicorn", "prometheus-client")
    import_extra("prometheus_client", "prometheus-client", "starlette", "uvicorn")
    keys = tuple(split_names(options.api_keys) or ())
    if options.api_keys is not None and not keys:
        raise InputError("api_keys is empty: give one or more keys, or no option", field="api_keys")
    for key in keys:
        check_api_key(key, "api_keys", encoding="Latin-1")
    template = None if options.chat_template is None else read_text(options.chat_template)
    from pine_engine.server.hosts import check_origins
    from pine_engine.server.listening import open_port, serve
    from pine_engine.server.settings import MAX_SECONDS, ServerSettings
    from pine_engine.web.addresses import LOCAL_NAMES

    origins = tuple(split_names(options.allowed_origins) or ())
    check_origins(origins)
    is_local = host in LOCAL_NAMES
    if not is_local and not keys:
        output.print_note(f"{host} may be reached by others, and there are no API keys; see PINE_API_KEYS")
    settings = ServerSettings(
        method=names[0],
        max_new_tokens=options.max_new_tokens,
        max_seconds=options.max_seconds or (None if is_local else MAX_SECONDS),
        queue_size=options.queue_size,
        max_active_runs=options.max_active_runs,
        max_runs_per_client=options.max_runs_per_client,
        chat_template_kwargs=parse_kwargs(options.chat_template_kwargs),
        api_keys=keys,
        allowed_hosts=LOCAL_NAMES if is_local and not keys else ("*",),
        allowed_origins=origins,
    )
    with open_port(host, port) as listener:
        engine = model.load(needs_tokenizer=True)
        if template is not None:
            engine.tokenizer.chat_template = template
        address = f"[{host}]" if ":" in host else host
        output.print_note(f"serving {engine.model_name} ({engine.dtype}) at http://{address}:{port}/v1")
        serve(engine, settings, listener)
    return CommandResult({}, [])


@dataclass(frozen=True)
class TaskOptions:
    """Options of tasks of lm-evaluation-harness.

    Attributes:
        methods: Names of methods.
        num_orders: Number of document orders; the first is that of the context.
        seed: Seed of the sampled orders.
        include_path: Folder with further tasks.
        limit: Maximum number of examples per task. Default: all.
        num_fewshot: Number of examples in the context. Default: that of the task.
        apply_chat_template: Use the chat template of the model.
        chat_template_kwargs: Arguments of the chat template, as JSON. Needs apply_chat_template.
    """

    methods: Methods = None
    num_orders: Positive = 4
    seed: int = 0
    include_path: Path | None = None
    limit: Limit = None
    num_fewshot: Annotated[int | None, typer.Option(min=0)] = None
    apply_chat_template: bool = False
    chat_template_kwargs: TemplateKwargs = None


def lm_eval(
    tasks: str, options: TaskOptions = TaskOptions(), model: ModelOptions = ModelOptions()
) -> CommandResult:
    """Evaluate tasks of lm-evaluation-harness: mean and spread of each metric over document orders.

    Args:
        tasks: Names of tasks, separated by commas, whose contexts mark documents as <document>...</document>.
        options: Methods, orders and contexts.
        model: Model to evaluate.
    """
    selected = method_names(options.methods)
    kwargs = parse_kwargs(options.chat_template_kwargs)
    if kwargs and not options.apply_chat_template:
        message = "chat_template_kwargs have no effect: contexts are plain text. Add --apply-chat-template."
        raise InputError(message, field="chat_template_kwargs")
    import_extra("lm_eval", "lm-eval")
    from lm_eval.tasks import TaskManager

    from pine_engine.integrations.lm_eval import evaluate_orders

    folder = None if options.include_path is None else str(options.include_path)
    manager = TaskManager(include_path=folder)
    task_names = split_names(tasks) or []
    if unknown := sorted(set(task_names) - set(manager.all_tasks)):
        raise InputError(
            f"unknown task {unknown[0]!r}; see `lm_eval ls tasks`, and --include-path", field="tasks"
        )
    engine = model.load(needs_tokenizer=True)
    names = [method.name for method in engine.select_methods(selected)]
    with output.progress(len(names) * options.num_orders) as advance:
        rows = list(
            evaluate_orders(
                engine,
                task_names,
                methods=names,
                num_orders=options.num_orders,
                seed=options.seed,
                progress=advance,
                chat_template_kwargs=kwargs,
                task_manager=manager,
                limit=options.limit,
                num_fewshot=options.num_fewshot,
                apply_chat_template=options.apply_chat_template,
            )
        )
    cells = [{key: value for key, value in row.items() if key != "orders"} for row in rows]
    return CommandResult(output.report_header(engine) | {"results": rows}, cells)
