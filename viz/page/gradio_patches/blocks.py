"""Blocks whose failures are a sentence for the user; the log has tracebacks of internal errors only."""

import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.blocks import Block
from markupsafe import escape
from mcp import types
from pydantic import BaseModel

from pine_engine.errors import InputError
from viz.page.common.disk import Disk
from viz.page.common.failures import MAX_VALUES, TOO_MANY_VALUES, explain, is_request_error
from viz.page.jobs.connection_tracker import ConnectionTracker

log = logging.getLogger(__name__)

_SURROGATE = re.compile("[\ud800-\udfff]")

FILE_OBJECT = (
    "Invalid value: got a file object (with path and meta or url). Only upload buttons accept files; send "
    "the text of the file instead."
)

NOT_FROM_THE_PAGE = "Invalid request from the page. Reload and try again."


class GuardedBlocks(gr.Blocks):
    """Blocks for untrusted clients.

    Gradio hides a failure from the user and logs its traceback, also for invalid calls of private events,
    which could fill the log. `disk` is the quota of uploads; `no_files` is the reason why the page takes no
    files, or "".
    """

    disk: Disk
    no_files: str = ""

    def __init__(self, **options: Any) -> None:
        self.connections = ConnectionTracker()
        super().__init__(**options)

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], *arguments: Any, **options: Any
    ) -> list[Any]:
        """Return the arguments of a function. Raises gr.Error for values that no page sends."""
        try:
            if self.no_files and any(isinstance(block, gr.UploadButton) for block in block_fn.inputs):
                raise InputError(self.no_files)
            if (count := len(inputs)) != (expected := len(block_fn.inputs)):
                raise InputError(f"Invalid number of arguments: got {count}, expected {expected}.")
            num_values = 0
            for block, value in zip(block_fn.inputs, inputs, strict=True):
                is_upload = isinstance(block, gr.UploadButton)
                num_values += refuse_values(value, allows_files=is_upload)
                if num_values > MAX_VALUES:
                    raise InputError(TOO_MANY_VALUES)
                if is_upload:
                    refuse_file_types(value, block.file_types)
                # gradio accepts a list in place of a choice.
                if isinstance(block, gr.Dropdown) and not block.multiselect and isinstance(value, list):
                    raise InputError(f"{block.label}: got several values, expected one.")
            values: list[Any] = await super().preprocess_data(block_fn, inputs, *arguments, **options)
            return values
        except gr.Error as error:  # gradio's own, such as for a number beyond a slider; it quotes the value
            raise gr.Error(str(escape(error.message)), print_exception=False) from error
        except InputError as error:
            raise gr.Error(str(escape(explain(error))), print_exception=False) from error
        except Exception as error:
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if not is_request_error(cause):
                raise cause from None
            log.warning("Rejected call to %s from outside the page: %s", block_fn.name, type(error).__name__)
            raise gr.Error(NOT_FROM_THE_PAGE, print_exception=False) from error

    async def process_api(
        self, block_fn: Any, inputs: list[Any], *arguments: Any, **options: Any
    ) -> dict[str, Any]:
        """Process an event as gradio does; raises only gr.Error, as HTML, which is not logged."""
        try:
            refuse_values(getattr(options.get("event_data"), "_data", None), allows_files=True)
            answer: dict[str, Any] = await super().process_api(block_fn, inputs, *arguments, **options)
            return answer
        except gr.Error as error:
            error.print_exception = False
            raise
        except Exception as error:
            raise gr.Error(str(escape(explain(error))), print_exception=False) from error

    async def postprocess_data(self, block_fn: Any, predictions: Any, state: Any) -> list[Any]:
        """Return the data of each output, and skip widgets that the function did not return.

        Gradio recreates every output of an event, 1 to 2 ms each (gradio issue 12831).
        """
        match predictions:
            case {"__type__": "update", **more} if not more:  # gr.skip()
                mentioned = set()
            case dict() if predictions and all(isinstance(key, Block) for key in predictions):
                mentioned = {widget._id for widget in predictions}
            case _:
                sent: list[Any] = await super().postprocess_data(block_fn, predictions, state)
                return sent
        changed = copy(block_fn)
        changed.outputs = [widget for widget in block_fn.outputs if widget._id in mentioned]
        shown = iter(await super().postprocess_data(changed, predictions, state) if mentioned else ())
        return [
            next(shown) if widget._id in mentioned else None if widget.stateful else gr.skip()
            for widget in block_fn.outputs
        ]

    def handle_streaming_diffs(
        self,
        block_fn: Any,
        data: list[Any],
        session_hash: str | None,
        run: str | None,
        final: bool,
        simple_format: bool = False,
    ) -> list[Any]:
        """Return the value of each output, first and last; differences for texts in between.

        Gradio sends differences to the previous update, which the browser applies to that update before it
        was shown; a busy browser then loses the previous one. Texts are still sent as differences.
        """
        values = list(data)
        is_first = session_hash is None or run not in self.pending_diff_streams[session_hash]
        sent: list[Any] = super().handle_streaming_diffs(
            block_fn, data, session_hash, run, final, simple_format
        )
        if is_first or final or simple_format:
            return sent
        return [
            [["replace", [], value]] if any(path for _, path, _ in edits) else edits
            for value, edits in zip(values, sent, strict=True)
        ]


def refuse_file_types(value: Any, types: Sequence[str] | None) -> None:
    """Raise InputError for a file whose name has another ending than those of the button."""
    for file in value if isinstance(value, list) else [value]:
        match file:
            case {"path": str(path)} if types and not path.lower().endswith(tuple(types)):
                expected = f"got {Path(path).name!r}, expected {', '.join(types)}"
                raise InputError(f"Invalid file type: {expected}. Upload another file.")


def refuse_values(value: Any, *, allows_files: bool = False) -> int:
    """Raise InputError for a value, at any depth, that no page sends.

    These are too many values, NaN, infinity, invalid Unicode, a file to fetch from elsewhere, and a file
    object, unless files are allowed: gradio reads or fetches its path, and its MCP server even any file of
    the host. Returns the number of values.
    """
    values, num_values = [value], 0
    while values:
        num_values += 1
        if num_values + len(values) > MAX_VALUES:
            raise InputError(TOO_MANY_VALUES)
        match values.pop():
            case str(text) if not text.isascii() and _SURROGATE.search(text):
                raise InputError("Invalid text: unpaired Unicode surrogate. Remove it.")
            case float(number) if not math.isfinite(number):
                raise InputError(f"Invalid number: got {number}, expected a finite value.")
            case {"path": str(path)} if path.strip().lower().startswith(("http:", "https:")):
                raise InputError("URLs are not supported as files. Upload the file.")
            case {"path": str(path)} if "\0" in path:
                raise InputError("Invalid path: contains a NUL byte. Upload the file.")
            case {"path": str(), "meta": _} | {"path": str(), "url": _} | {"_type": "gradio.FileData"} if (
                not allows_files
            ):
                raise InputError(FILE_OBJECT)
            case dict(inner):
                values.extend((*inner, *inner.values()))
            case list(inner):
                values.extend(inner)
    return num_values


def describe_results(page: gr.Blocks, results: Mapping[str, type[BaseModel]]) -> None:
    """Let the MCP server return JSON with these schemas by endpoint."""
    if page.mcp_server_obj is None:
        return
    schemas = {name: result.model_json_schema(mode="serialization") for name, result in results.items()}
    setattr(page.mcp_server_obj, "postprocess_output_data", _as_json)  # noqa: B010 - mypy allows no assignment
    handlers: dict[Any, Any] = page.mcp_server_obj.mcp_server.request_handlers
    list_tools, call_tool = handlers[types.ListToolsRequest], handlers[types.CallToolRequest]

    async def list_with_schemas(request: Any) -> Any:
        listed = await list_tools(request)
        for tool in listed.root.tools:
            tool.outputSchema = next(schemas[name] for name in schemas if tool.name.endswith(name))
            tool.inputSchema = _as_strict(tool.inputSchema)
        return listed

    async def call_with_structure(request: Any) -> Any:
        try:
            refuse_values(request.params.arguments)
        except InputError as error:
            sentence = types.TextContent(type="text", text=explain(error))
            return types.ServerResult(types.CallToolResult(content=[sentence], isError=True))
        called = await call_tool(request)
        if not called.root.isError:
            (written,) = called.root.content
            called.root.structuredContent = json.loads(written.text)
        return called

    handlers[types.ListToolsRequest] = list_with_schemas
    handlers[types.CallToolRequest] = call_with_structure


def _as_strict(schema: Any) -> Any:
    """Return a schema of gradio as strict clients accept it: `anyOf`, not `oneOf`, and typed choices."""
    if isinstance(schema, list):
        return list(map(_as_strict, schema))
    if not isinstance(schema, dict):
        return schema
    typed = {"type": "string"} if isinstance(schema.get("enum"), list) else {}
    renamed = {"anyOf" if key == "oneOf" else key: _as_strict(value) for key, value in schema.items()}
    return typed | renamed


def _as_json(data: Any, root_url: str) -> list[types.TextContent]:
    return [types.TextContent(type="text", text=json.dumps(output, ensure_ascii=False)) for output in data]
