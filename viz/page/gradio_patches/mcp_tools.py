"""Tools of the MCP server: strict schemas of arguments, and results as JSON with a schema."""

import json
from collections.abc import Mapping
from typing import Any

import gradio as gr
from mcp import types

from pine_engine.errors import InputError
from viz.page.common.failures import explain
from viz.page.gradio_patches.values import refuse_values


def describe_results(page: gr.Blocks, schemas: Mapping[str, dict[str, Any]]) -> None:
    """Let the MCP server return JSON with these schemas by endpoint."""
    if page.mcp_server_obj is None:
        return
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
